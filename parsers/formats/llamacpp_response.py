"""llama.cpp's answers: response bodies and final stream chunks with `timings`, one JSON object per line.

Covers the native `/completion` and the OpenAI-style and Anthropic-style routes of llama-server. The timings are the engine's
own and say more than `usage`: what was reused and what was computed, and how long each took.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.durations import before
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_TIMES = ("created", "timestamp", "time", "ts")
_OPERATIONS = {
    "chat.completion": "chat",
    "chat.completion.chunk": "chat",
    "text_completion": "completion",
    "message": "chat",
}
_REASONS = {"limit": "length", "eos": "stop", "word": "stop"}
STRUCTURE = {
    **dict.fromkeys(("id", "object", "type", "model", "id_slot", "stop", "stop_type"), "VARCHAR"),
    **dict.fromkeys(("stop_reason", "content"), "VARCHAR"),
    **dict.fromkeys(_TIMES, "VARCHAR"),
    **dict.fromkeys(("tokens_evaluated", "tokens_predicted"), "VARCHAR"),
    "choices": [{"finish_reason": "VARCHAR"}],
    "usage": {"prompt_tokens": "VARCHAR", "completion_tokens": "VARCHAR"},
    "timings": dict.fromkeys(("cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms"), "VARCHAR"),
}


def _recognise(head: Head) -> bool:
    found = [item for item in head.objects if isinstance(item.get("timings"), dict)]
    return (
        bool(found)
        and len(found) * 2 > len(head.objects)
        and all({"prompt_n", "predicted_n"} <= item["timings"].keys() for item in found)
        and all({"id", "content", "choices"} & item.keys() for item in found)
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    cached, computed = fields.whole("timings.cache_n"), fields.whole("timings.prompt_n")
    stated = fields.whole("usage.prompt_tokens", "tokens_evaluated")
    output = fields.whole("timings.predicted_n", "usage.completion_tokens", "tokens_predicted")
    prompt_ms, output_ms = fields.number("timings.prompt_ms"), fields.number("timings.predicted_ms")
    ended = fields.instant(*_TIMES).needed("created")
    working_ms = prompt_ms.value + output_ms.value
    whole = pl.coalesce(cached.value + computed.value, stated.value)
    kind, reason = text("object", "type"), text("stop_type", "stop_reason")
    # Chunks of a stream that are not its last one (timings_per_token) state what the last one sums up.
    is_part = (text("stop").str.to_lowercase() == "false").fill_null(value=False) | _is_open(fields)
    return fields.frame.select(
        "source_line",
        request_id=text("id"),
        record_key=pl.concat_str(text("id"), pl.lit("llamacpp"), separator="|"),
        started_at=before(ended.value, working_ms),
        ended_at=ended.value,
        ttft_ms=prompt_ms.value,
        duration_ms=working_ms.round(6),
        provider=pl.lit("llama.cpp"),
        model_served=text("model"),
        instance=pl.lit(context.options.get("instance"), pl.String),
        operation=kind.replace_strict(_OPERATIONS, default="completion", return_dtype=pl.String),
        stream=pl.when(kind == "chat.completion.chunk").then(pl.lit(value=True)),
        input_tokens=pl.coalesce(whole, computed.value),
        cache_read_tokens=pl.coalesce(cached.value, stated.value - computed.value),
        output_tokens=output.value,
        status=pl.lit("ok"),
        finish_reason=pl.coalesce(_finish_reason(fields), reason.replace(_REASONS)),
        usage_origin=pl.when(whole.is_null() & computed.value.is_null() & output.value.is_null())
        .then(pl.lit("missing"))
        .otherwise(pl.lit("reported")),
        flags=flag_list({"input_excludes_cached": whole.is_null() & computed.value.is_not_null()}),
        _reject=first_fault([ended, cached, computed, stated, output, prompt_ms, output_ms]),
        _other=is_part,
    )


def _is_open(fields: Fields) -> pl.Expr:
    """Whether a chunk has a choice that goes on."""
    if not fields.has("choices"):
        return pl.lit(value=False)
    is_chunk = fields.text("object") == "chat.completion.chunk"
    return (is_chunk & (pl.col("choices").list.len() > 0) & _finish_reason(fields).is_null()).fill_null(
        value=False
    )


def _finish_reason(fields: Fields) -> pl.Expr:
    if not fields.has("choices"):
        return pl.lit(None, dtype=pl.String)
    return pl.col("choices").list.first().struct.field("finish_reason")


FORMAT = Format(
    name="llamacpp_response",
    title="llama.cpp response timings",
    written_by="Clients and proxies that keep response bodies or final stream chunks of llama-server",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with timings of prompt_n and predicted_n, and an id, content or choices",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc"),
    traps=(
        "prompt_n is the uncached part: input = cache_n + prompt_n; before 2025-09 only usage has it all.",
        "created is when the answer was made, in whole seconds: started = created - both durations.",
        "The native /completion states no time: such a line needs one beside it (timestamp), or is rejected.",
        "predicted_per_second counts one decode step fewer since 2026-08: rates are never read.",
        "Waiting for a slot is in no field: ttft_ms is the prompt's time in the slot.",
    ),
)
