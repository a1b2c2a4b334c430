"""OpenRouter's activity page as CSV: one row per generation, so these are calls.

Belongs here: that export. Does not belong here: sums by day (`openrouter_daily_activity.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_NEEDED = {
    "generation_id",
    "created_at",
    "cost_total",
    "tokens_prompt",
    "tokens_completion",
    "model_permaslug",
}


def _recognise(head: Head) -> bool:
    return set(head.csv_header) >= _NEEDED


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    cancelled, streamed = fields.truth("cancelled"), fields.truth("streamed")
    first_token, generation = fields.number("time_to_first_token_ms"), fields.number("generation_time_ms")
    spent, own_key_cost = fields.money("cost_total"), fields.money("byok_usage_inference")
    finish = text("finish_reason_normalized", "finish_reason_raw")
    variant = text("variant")
    status = outcome.status(pl.lit(None, dtype=pl.Int32), failed=finish == "error", cancelled=cancelled.value)
    model = text("model_permaslug")
    return fields.rows(
        request_id=text("generation_id"),
        record_key=text("generation_id"),
        started_at=fields.instant("created_at").needed("created_at"),
        ttft_ms=pl.when(streamed.value).then(first_token.value),
        duration_ms=pl.max_horizontal(first_token.value, generation.value),
        project=text("app_name"),
        user=text("user"),
        api_key_alias=text("api_key_name"),
        gateway=pl.lit("openrouter"),
        provider=text("provider_name"),
        model_requested=model,
        model_served=pl.when(variant.fill_null("standard") == "standard")
        .then(model)
        .otherwise(pl.concat_str(model, variant, separator=":")),
        stream=streamed,
        input_tokens=whole("tokens_prompt"),
        cache_read_tokens=whole("tokens_cached"),
        output_tokens=whole("tokens_completion"),
        reasoning_tokens=whole("tokens_reasoning"),
        status=status,
        error_kind=pl.when(status == "error").then(pl.lit("unknown")),
        finish_reason=finish,
        cost_reported=spent.value + own_key_cost.value.fill_null(0),
        cost_currency=pl.lit("USD"),
    )


FORMAT = Format(
    name="openrouter_activity_csv",
    title="OpenRouter activity, CSV",
    written_by="OpenRouter: the export of the activity page",
    target=REQUESTS,
    container="csv",
    recognised_by=f"a CSV header with {', '.join(sorted(_NEEDED))}",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="absent", reasoning="inside", retries="hidden", money="USD"
    ),
    # The API's answers on single generations (openrouter_generations) state native counts: they come first.
    priority=1,
    traps=(
        "created_at has no zone: UTC.",
        "Whether tokens_prompt counts as the vendor does or as OpenRouter's own tokenizer is not documented.",
        "cost = cost_total (credits) + byok_usage_inference (paid to the vendor with one's own key).",
        "Cancelled generations may cost.",
        "time_to_first_token_ms is of streamed answers; where it is above generation_time_ms, it is the end.",
        "cost_cache is a discount; cost_total is taken to hold it.",
    ),
)
