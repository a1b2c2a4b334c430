"""LiteLLM's daily activity API: sums by day, model and key, as pages of `GET /user/daily/activity` and its kin.

Belongs here: answers for users, teams, tags, organisations and customers. Does not belong here: rows of the
tables they are made from (`litellm_daily_spend.py`), the admin page's CSV (`litellm_usage_export_csv.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import buckets, litellm
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_BEGIN = re.compile(r'\s*+\[?\s*+\{\s*+"(?:results|metadata)"\s*:')
_METRICS = (
    *("spend", "prompt_tokens", "completion_tokens", "cache_read_input_tokens"),
    *("cache_creation_input_tokens", "failed_requests", "api_requests"),
)


def _entries(place: str) -> str:
    """Members of a JSON object; one without a name where it has none."""
    members = f"map_entries(CAST({place} AS MAP(VARCHAR, JSON)))"
    return (
        f"CASE WHEN json_type({place}) = 'OBJECT' AND len(json_keys({place})) > 0 THEN {members} "
        "ELSE [{'key': NULL::VARCHAR, 'value': NULL::JSON}] END"
    )


_PLACES = ", ".join(f"metrics ->> '$.{name}' AS {name}" for name in _METRICS)
_RECORDS = f"""
SELECT page, date, model, key.key AS api_key, {_PLACES},
       details ->> '$.metadata.key_alias' AS key_alias, details ->> '$.metadata.team_id' AS team_id
FROM (
    SELECT *, key.value AS details, coalesce(key.value -> '$.metrics', entry.value -> '$.metrics', whole) AS metrics
    FROM (
        SELECT page, date, whole, entry, entry.key AS model,
               unnest({_entries("(entry.value -> '$.api_key_breakdown')")}) AS key
        FROM (
            SELECT page, day.date AS date, day.metrics AS whole, unnest({_entries("(day.breakdown -> '$.models')")}) AS entry
            FROM (
                SELECT metadata ->> '$.page' AS page, unnest(from_json(
                    results, '[{{"date": "VARCHAR", "metrics": "JSON", "breakdown": "JSON"}}]')) AS day
                FROM document WHERE json_type(results) = 'ARRAY'
            )
        )
    )
)
"""


def _recognise(head: Head) -> bool:
    keys = ("results", "breakdown", "metrics", "api_requests", "prompt_tokens", "models")
    text = head.text
    return bool(_BEGIN.match(text)) and all(re.search(rf'(?<!\\)"{key}"\s*:', text) for key in keys)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    started, ended = buckets.day(fields, "date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        team=text("team_id"),
        api_key_hash=text("api_key"),
        api_key_alias=text("key_alias"),
        model=text("model"),
        requests=fields.whole("api_requests").needed("api_requests"),
        **litellm.daily_sums(fields),
        _page=text("page"),
    )
    return buckets.keyed(litellm.with_safe_key(rows, context), "litellm daily activity", "_page")


FORMAT = Format(
    name="litellm_daily_activity",
    title="LiteLLM daily activity",
    written_by="LiteLLM proxy: answers of /user/daily/activity, /team/daily/activity ...",
    target=USAGE_BUCKETS,
    container="json_document",
    recognised_by="JSON objects with results that have metrics and a breakdown by models",
    recognise=_recognise,
    map=_map,
    structure={"results": "JSON", "metadata": "JSON"},
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="absent", money="USD"),
    traps=(
        "Of each day the breakdown by model and key is read; its other breakdowns are views of the same usage.",
        "A page sums the table's rows that are on it: one day may go on on the next page, and both parts count.",
        "date is the UTC day; a request in another zone's days is widened to whole UTC days.",
    ),
)
