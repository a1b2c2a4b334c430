"""LiteLLM's daily aggregate tables: rows of LiteLLM_Daily{User,Team,Organization,EndUser,Agent,Tag}Spend.

Belongs here: their rows as JSON lines, arrays or CSV dumps. Does not belong here: the admin page's export
(`litellm_usage_export_csv.py`), rows of calls (`litellm_spend_logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import buckets, litellm
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import USAGE_BUCKETS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COLUMNS = (
    *(
        "date",
        "api_key",
        "model",
        "model_group",
        "custom_llm_provider",
        "mcp_namespaced_tool_name",
        "endpoint",
    ),
    *("user_id", "team_id", "organization_id", "end_user_id", "agent_id", "tag"),
    *("prompt_tokens", "completion_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
    *("spend", "api_requests", "successful_requests", "failed_requests"),
)
_NEEDED = {"date", "api_key", "spend", "api_requests", "prompt_tokens", "completion_tokens"}
_TABLES = {
    "tag": "tag",
    "team_id": "team",
    "organization_id": "organization",
    "end_user_id": "end user",
    "agent_id": "agent",
}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    of_table = [pl.when(text(column).is_not_null()).then(pl.lit(name)) for column, name in _TABLES.items()]
    started, ended = buckets.day(fields, "date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        provider=text("custom_llm_provider"),
        organization=text("organization_id"),
        team=text("team_id"),
        project=text("agent_id"),
        user=text("user_id"),
        end_user=text("end_user_id"),
        tags=pl.when(text("tag").is_not_null()).then(pl.concat_list(text("tag"))),
        api_key_hash=text("api_key"),
        model=text("model", "model_group"),
        requests=fields.whole("api_requests").needed("api_requests"),
        **litellm.daily_sums(fields),
        _table=pl.coalesce(*of_table, pl.lit("user")),
        _tool=text("mcp_namespaced_tool_name"),
        _endpoint=text("endpoint"),
    )
    report = pl.concat_str(pl.lit("litellm daily"), pl.col("_table"), separator=" ")
    return buckets.keyed(litellm.with_safe_key(rows, context), report, "_table", "_tool", "_endpoint")


FORMAT = Format(
    name="litellm_daily_spend",
    title="LiteLLM daily spend tables, JSON",
    written_by="LiteLLM proxy: rows of LiteLLM_DailyUserSpend, DailyTeamSpend, DailyTagSpend ...",
    target=USAGE_BUCKETS,
    container="json_lines",
    recognised_by="JSON objects with date, api_key, spend, api_requests and prompt_tokens",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys(_COLUMNS, "VARCHAR"),
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="absent", money="USD"),
    traps=(
        "The tables by user, team, organisation, end user, agent and tag are views of the same usage.",
        "A call with several tags is in several rows of the tag table: it counts only where nothing else is.",
        "date is the UTC day.",
        "Older versions wrote 0 cache tokens for providers of OpenAI's kind: 0 may be unknown.",
        "api_requests counts every attempt, failed ones included.",
    ),
)

CSV_FORMAT = csv_twin(FORMAT, needed=_NEEDED, written_by="LiteLLM proxy: dump of a daily spend table as CSV")
