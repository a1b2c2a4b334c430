"""The usage export of LiteLLM's admin page: sums by day and team (tag, organisation ...), perhaps key or model.

Belongs here: the three CSV shapes of that export. Does not belong here: dumps of the tables that it is made
from (`litellm_daily_spend.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import buckets, litellm
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_NEEDED = {"Date", "Spend ($)", "Requests", "Total Tokens"}
_NO_VALUE = "-"


def _recognise(head: Head) -> bool:
    return set(head.csv_header) >= _NEEDED


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    # Numbers are written for people: 1,234.5000, and a hyphen where there is none.
    plain = pl.col(pl.String).replace(_NO_VALUE, None)
    is_number = [name for name in frame.columns if name.endswith(("Tokens", "Requests", "($)", "ful", "ed"))]
    fields = Fields(frame.with_columns(plain).with_columns(pl.col(is_number).str.replace_all(",", "")))
    text, whole = fields.text, fields.whole
    failed = whole("Failed Requests", "Failed")
    started, ended = buckets.day(fields, "Date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        gateway=pl.lit("litellm"),
        organization=text("Organization ID", "Organization"),
        team=text("Team ID", "Team"),
        project=text("Agent ID", "Agent"),
        user=text("User ID", "User"),
        end_user=text("Customer ID", "Customer"),
        tags=pl.when(text("Tag").is_not_null()).then(pl.concat_list(text("Tag"))),
        api_key_hash=text("Key ID"),
        api_key_alias=text("Key Alias"),
        model=text("Model"),
        requests=whole("Requests").needed("Requests"),
        failed_requests=failed,
        input_tokens=whole("Prompt Tokens"),
        cache_read_tokens=whole("Cache Read Input Tokens", "Cache Read Tokens"),
        cache_write_5m_tokens=whole("Cache Creation Input Tokens", "Cache Creation Tokens"),
        output_tokens=whole("Completion Tokens"),
        cost_reported=fields.money("Spend ($)"),
        cost_currency=pl.lit("USD"),
    )
    return buckets.keyed(litellm.with_safe_key(rows, context), "litellm export")


FORMAT = Format(
    name="litellm_usage_export_csv",
    title="LiteLLM usage export, CSV",
    written_by="LiteLLM proxy: the export button of the admin page's usage view",
    target=USAGE_BUCKETS,
    container="csv",
    recognised_by="a CSV header with Date, Spend ($), Requests and Total Tokens",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="absent", money="USD"),
    traps=(
        "The export by day and model states the sum of input and output only: both are unknown.",
        "Cache columns are there since July 2026.",
        "Amounts have thousands separators and four decimals: sums of small keys are rounded away.",
        "An export made while pages were loading is cut short without a sign: compare it with the tables.",
        "Exports by team, tag, organisation and customer are views of the same usage.",
    ),
)
