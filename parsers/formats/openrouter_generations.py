"""Generations of OpenRouter: answers of `GET /api/v1/generation`, one after another or in an array.

Each is `{"data": {...}}`, or the inner object alone. The activity CSV and its aggregates are other formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import outcome
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_GENERATION: Structure = dict.fromkeys(
    (
        *("id", "created_at", "model", "provider_name", "external_user", "streamed", "cancelled", "latency"),
        *("generation_time", "finish_reason", "native_finish_reason", "tokens_prompt", "tokens_completion"),
        *("native_tokens_prompt", "native_tokens_completion", "native_tokens_reasoning", "service_tier"),
        *("native_tokens_cached", "native_tokens_completion_images", "usage", "total_cost", "is_byok"),
        *("upstream_inference_cost", "api_type", "session_id", "app_id", "data_region"),
    ),
    "VARCHAR",
)
_NEEDED = {"id", "created_at", "native_tokens_prompt", "native_tokens_completion"}
_OPERATIONS = {
    "completions": "chat",
    "embeddings": "embedding",
    "rerank": "rerank",
    "tts": "audio",
    "stt": "audio",
    "image": "image",
    "images": "image",
}


def _is_generation(item: dict[str, Any]) -> bool:
    inner = item.get("data", item)
    return isinstance(inner, dict) and inner.keys() >= _NEEDED


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_generation)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)

    def names(*inner: str) -> tuple[str, ...]:
        return tuple(f"{prefix}{name}" for name in inner for prefix in ("data.", ""))

    def text(*inner: str) -> pl.Expr:
        return fields.text(*names(*inner))

    started = fields.instant(*names("created_at")).needed("created_at")
    latency, generation = fields.number(*names("latency")), fields.number(*names("generation_time"))
    streamed, cancelled = fields.truth(*names("streamed")), fields.truth(*names("cancelled"))
    byok = fields.truth(*names("is_byok"))
    fee, upstream = (
        fields.money(*names("total_cost", "usage")),
        fields.money(*names("upstream_inference_cost")),
    )
    native = fields.whole(*names("native_tokens_prompt"))
    prompt = fields.whole(*names("native_tokens_prompt", "tokens_prompt"))
    completion = fields.whole(*names("native_tokens_completion", "tokens_completion"))
    reason = text("native_finish_reason", "finish_reason")
    paid_upstream = pl.when(byok.value).then(upstream.value).fill_null(0)
    nothing = prompt.value.is_null() & completion.value.is_null()
    return fields.rows(
        request_id=text("id"),
        record_key=text("id"),
        session_id=text("session_id"),
        started_at=started,
        duration_ms=pl.max_horizontal(latency.value, generation.value),
        ttft_ms=pl.when(streamed.value).then(latency.value),
        project=text("app_id"),
        end_user=text("external_user"),
        gateway=pl.lit("openrouter"),
        provider=text("provider_name"),
        model_served=text("model"),
        operation=text("api_type").replace_strict(_OPERATIONS, default="other", return_dtype=pl.String),
        service_tier=text("service_tier"),
        region=text("data_region"),
        stream=streamed,
        input_tokens=prompt,
        cache_read_tokens=fields.whole(*names("native_tokens_cached")),
        output_tokens=completion,
        reasoning_tokens=fields.whole(*names("native_tokens_reasoning")),
        image_output_tokens=fields.whole(*names("native_tokens_completion_images")),
        status=outcome.status(
            pl.lit(None, dtype=pl.Int32),
            failed=text("finish_reason") == "error",
            cancelled=cancelled.value,
        ),
        error_kind=pl.when(text("finish_reason") == "error").then(outcome.error_kind(reason)),
        finish_reason=reason,
        cost_reported=fee.value + paid_upstream,
        cost_currency=pl.lit("USD"),
        usage_origin=pl.when(nothing)
        .then(pl.lit("missing"))
        .when(native.value.is_null())
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        other=text("id").is_null() & text("created_at").is_null(),
    )


FORMAT = Format(
    name="openrouter_generations",
    title="OpenRouter generations",
    written_by="OpenRouter: answers of GET /api/v1/generation",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects (or their data) with native_tokens_prompt and native_tokens_completion",
    recognise=_recognise,
    map=_map,
    structure={"data": _GENERATION, **_GENERATION},
    semantics=TokenSemantics(
        cache_read="inside", cache_write="absent", reasoning="inside", retries="hidden", money="USD"
    ),
    traps=(
        "tokens_* are another tokenizer's counts, native_tokens_* are billed; the former are estimates.",
        "latency is the time to the first token, generation_time the whole, unless latency is larger.",
        "With a key of one's own total_cost is the fee only: upstream_inference_cost is added.",
        "A cancelled generation may cost. Providers that were tried before are not shown.",
        "Cache writes are in the prompt and not stated.",
    ),
)
