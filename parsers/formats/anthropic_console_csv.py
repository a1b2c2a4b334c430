"""The two exports of Anthropic's Console, as CSV: tokens, and costs, by day (or hour), key and workspace.

Belongs here: files like claude_api_tokens_*.csv and claude_api_cost_*.csv. Does not belong here: the Admin
API's reports (`anthropic_usage_report.py`, `anthropic_cost_report.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.buckets import keyed
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS

if TYPE_CHECKING:
    from parsers.fields import Read
    from parsers.format import Context

_TOKENS = {"usage_date_utc", "model_version", "usage_input_tokens_no_cache", "usage_output_tokens"}
_COSTS = {"usage_date_utc", "model", "token_type", "cost_usd"}


def _period(fields: Fields) -> tuple[Read, pl.Expr]:
    """Start and end: an hour where any line of the file is of another hour than midnight, else a day."""
    text = fields.text("usage_date_utc")
    whole = pl.when(text.str.len_chars() == len("2026-05-04")).then(text + "T00:00:00").otherwise(text)
    fields.frame = fields.frame.with_columns(whole.alias("usage_date_utc"))
    start = fields.instant("usage_date_utc").needed("usage_date_utc")
    by_hour = (start.value.dt.hour() != 0).any()
    return start, start.value + pl.when(by_hour).then(pl.duration(hours=1)).otherwise(pl.duration(days=1))


def _map_tokens(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    started, ended = _period(fields)
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        provider=pl.lit("anthropic"),
        project=text("workspace"),
        api_key_alias=text("api_key"),
        model=text("model_version"),
        service_tier=text("usage_type"),
        region=text("inference_geo").replace("not_available", None),
        input_tokens=whole("usage_input_tokens_no_cache").needed("usage_input_tokens_no_cache"),
        cache_read_tokens=whole("usage_input_tokens_cache_read"),
        cache_write_5m_tokens=whole("usage_input_tokens_cache_write_5m", "usage_input_tokens_cache_write"),
        cache_write_1h_tokens=whole("usage_input_tokens_cache_write_1h"),
        output_tokens=whole("usage_output_tokens").needed("usage_output_tokens"),
        _context_window=text("context_window"),
        _speed=text("speed"),
    )
    return keyed(rows, "anthropic console usage", "_context_window", "_speed")


def _map_costs(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    started, ended = _period(fields)
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        provider=pl.lit("anthropic"),
        project=text("workspace"),
        api_key_alias=text("api_key", "api_key_id"),
        model=text("model"),
        region=text("inference_geo").replace("not_available", None),
        line_item=text("token_type", "cost_type"),
        cost_reported=fields.money("cost_usd").needed("cost_usd"),
        cost_currency=pl.lit("USD"),
        _key_id=text("api_key_id"),
        _context_window=text("context_window"),
        _usage_type=text("usage_type"),
        _cost_type=text("cost_type"),
        _speed=text("speed"),
    )
    group = ("_key_id", "_context_window", "_usage_type", "_cost_type", "_speed")
    return keyed(rows, "anthropic console costs", *group)


FORMAT = Format(
    name="anthropic_usage_csv",
    title="Anthropic Console usage, CSV",
    written_by="Anthropic: the Console's usage export (claude_api_tokens_*.csv)",
    target=USAGE_BUCKETS,
    container="csv",
    recognised_by=f"a CSV header with {', '.join(sorted(_TOKENS))}",
    recognise=lambda head: set(head.csv_header) >= _TOKENS,
    map=_map_tokens,
    semantics=TokenSemantics(cache_read="outside", cache_write="outside", reasoning="absent"),
    traps=(
        "Input = no_cache + cache_read + both cache_write columns.",
        "The number of calls is not stated. Keys and workspaces are names here, identifiers in the API.",
        "usage_date_utc is a date, or an instant: hours where any line is of another hour than midnight.",
    ),
)

COST_FORMAT = Format(
    name="anthropic_cost_csv",
    title="Anthropic Console costs, CSV",
    written_by="Anthropic: the Console's cost export (claude_api_cost_*.csv)",
    target=USAGE_BUCKETS,
    container="csv",
    recognised_by=f"a CSV header with {', '.join(sorted(_COSTS))}",
    recognise=lambda head: set(head.csv_header) >= _COSTS,
    map=_map_costs,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", money="USD"),
    traps=(
        "cost_usd is in dollars, the API's amount in cents; list_price_usd is before discounts and is not taken.",
        "Models have names for people (Claude Haiku 4.5), not those of the API.",
    ),
)
