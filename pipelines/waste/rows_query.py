"""SQL that lists the rows behind a finding.

Belongs here: queries over the view `requests`, in standard SQL, and the escaping of names that come from
    logs. Does
not belong here: deciding what is a finding. Queries on prefixes list at least all of the rows behind the
figure: SQL alone does not apply a provider's lifetime, minimum and step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from parsers.records import SERVED_STATUSES
from pipelines.calls import UNKNOWN_MODEL
from pipelines.waste.evidence import NOT_GENERATING

_MODEL = f"coalesce(model_served, model_requested, '{UNKNOWN_MODEL}')"
_ORDER = "started_at, source_file, source_line"
_FIRST_BLOCK = "coalesce(prefix_hashes[1], prompt_hash)"
_TOKENS = "input_tokens, cache_read_tokens, output_tokens"


def text_literal(text: str) -> str:
    """A string as an SQL literal of printable characters only, so that the query can be shown and copied."""
    parts = [
        "'" + "".join(run).replace("'", "''") + "'"
        if is_printable
        else " || ".join(f"chr({ord(c)})" for c in run)
        for is_printable, run in ((key, list(group)) for key, group in groupby(text, str.isprintable))
    ]
    return f"({' || '.join(parts)})" if len(parts) > 1 else "".join(parts) or "''"


def _in(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(text_literal(value) for value in values)})"


_NOT_CACHED = "NOT coalesce(response_cache_hit, FALSE)"
_SERVED = f"{_in('status', SERVED_STATUSES)} AND {_NOT_CACHED} AND input_tokens IS NOT NULL"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A pair of model and team, as conditions on `requests`."""

    model: str
    team: str | None
    account: bool = True
    """Whether caches of the model belong to an account (organisation and region) rather than to a fleet."""

    @property
    def of_model(self) -> str:
        """Condition on the model."""
        return f"{_MODEL} = {text_literal(self.model)}"

    @property
    def of_team(self) -> str:
        """Condition on the team."""
        return "(team IS NULL OR team = '')" if self.team is None else f"team = {text_literal(self.team)}"

    @property
    def cache(self) -> str:
        """Columns that separate caches."""
        return "provider, organization, region" if self.account else "provider"

    def _seen_before(self, key: str, *, among: str, cache: str, listed: str = "TRUE") -> str:
        """Rows of the leaf whose `key` an earlier row of the same model and cache has, whatever its team."""
        return (
            f"SELECT source_file, source_line, started_at, {_TOKENS} FROM ("
            f"SELECT source_file, source_line, started_at, team, {_TOKENS}, row_number() OVER "
            f"(PARTITION BY {cache}, {key} ORDER BY {_ORDER}) AS sight "
            f"FROM requests WHERE {_SERVED} AND {self.of_model} AND {key} IS NOT NULL AND {among}) AS sights "
            f"WHERE sight > 1 AND {self.of_team} AND {listed} ORDER BY {_ORDER}"
        )

    def missed(self) -> str:
        """Calls whose first block or prompt had been sent and that were not read from cache whole."""
        listed = "cache_read_tokens < input_tokens"
        return self._seen_before(_FIRST_BLOCK, among="TRUE", cache=self.cache, listed=listed)

    def repeated_prefixes(self) -> str:
        """Calls whose first block or prompt had been sent, read from cache or not."""
        return self._seen_before(_FIRST_BLOCK, among="TRUE", cache=self.cache)

    def repeated_prompts(self) -> str:
        """Calls whose whole prompt had been sent."""
        return self._seen_before("prompt_hash", among="TRUE", cache=self.cache)

    def later_in_session(self) -> str:
        """Calls without hashes that are not the first of their session."""
        return self._seen_before("session_id", among="session_id IS NOT NULL", cache="provider")

    def larger_than(self, threshold: int, highest: int | None, app_kind: str | None, app: str | None) -> str:
        """Generating calls of the leaf, or of one application in it, above a threshold of input tokens."""
        conditions = [_SERVED, self.of_model, self.of_team, f"input_tokens > {threshold:d}"]
        if highest is not None:
            conditions.append(f"input_tokens <= {highest:d}")
        conditions.append(f"(operation IS NULL OR NOT {_in('operation', NOT_GENERATING)})")
        kinds = ("project", "api_key_alias", "api_key_hash")
        if app_kind is not None and app is not None:
            conditions += [f"{kind} IS NULL" for kind in kinds[: kinds.index(app_kind)]]
            conditions.append(f"{app_kind} = {text_literal(app)}")
        return (
            f"SELECT source_file, source_line, started_at, {_TOKENS} FROM requests "
            f"WHERE {' AND '.join(conditions)} ORDER BY input_tokens DESC, {_ORDER}"
        )

    def failed(self) -> str:
        """Failed attempts."""
        return (
            "SELECT source_file, source_line, started_at, call_id, attempt, http_status, error_kind "
            f"FROM requests WHERE status = 'error' AND {_NOT_CACHED} AND {self.of_model} "
            f"AND {self.of_team} ORDER BY {_ORDER}"
        )
