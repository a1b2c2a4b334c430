"""SQL that lists the calls behind a finding.

Belongs here: the query over `finding_calls` and `requests`, the conditions that name a model and a team, and the escaping of
names that come from logs. Does not belong here: deciding what is a finding, and which calls are behind it.

Which calls a finding is about often can't be said in SQL over the facts (a provider's lifetime, minimum and step; robust
statistics of an application), so the calls themselves are kept, in the mart `finding_calls`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from pipelines.calls import UNKNOWN_MODEL

_MODEL = f"coalesce(model_served, model_requested, '{UNKNOWN_MODEL}')"
_SHOWN = (
    *("source_file", "source_line", "started_at", "status"),
    *("input_tokens", "cache_read_tokens", "output_tokens"),
)


def text_literal(text: str) -> str:
    """A string as an SQL literal of printable characters only, so that the query can be shown and copied."""
    parts = [
        "'" + "".join(run).replace("'", "''") + "'"
        if is_printable
        else " || ".join(f"chr({ord(c)})" for c in run)
        for is_printable, run in ((key, list(group)) for key, group in groupby(text, str.isprintable))
    ]
    return f"({' || '.join(parts)})" if len(parts) > 1 else "".join(parts) or "''"


def calls_behind(finding: str) -> str:
    """The calls behind a finding, each with what its change saves on it."""
    return (
        f"SELECT {', '.join(f'r.{name}' for name in _SHOWN)}, f.tokens_net, f.usd_net "
        "FROM finding_calls AS f JOIN requests AS r "
        "ON r.source_file = f.source_file AND r.source_line = f.source_line "
        f"WHERE f.finding = {text_literal(finding)} ORDER BY r.started_at, r.source_file, r.source_line"
    )


@dataclass(frozen=True, slots=True)
class Leaf:
    """A pair of model and team, as conditions on `requests`."""

    model: str
    team: str | None

    @property
    def of_model(self) -> str:
        """Condition on the model."""
        return f"{_MODEL} = {text_literal(self.model)}"

    @property
    def of_team(self) -> str:
        """Condition on the team."""
        return "(team IS NULL OR team = '')" if self.team is None else f"team = {text_literal(self.team)}"
