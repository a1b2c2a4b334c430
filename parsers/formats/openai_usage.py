"""OpenAI-style response bodies, or lines with a usage object, one JSON object per line (or one JSON array).

Covers `chat.completion`, `text_completion`, `response` and embedding bodies of OpenAI and of servers that speak its
dialect, and home-made lines such as {"timestamp": ..., "model": ..., "usage": {...}}. Other APIs' bodies have their own
formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import usage
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_TIMES = ("created", "created_at", "timestamp", "time", "ts", "started_at")
_NAMES = ("request_id", "user", "team", "project", "session_id", "provider")
STRUCTURE = {
    "id": "VARCHAR",
    "object": "VARCHAR",
    "model": "VARCHAR",
    "status": "VARCHAR",
    "service_tier": "VARCHAR",
    "max_output_tokens": "VARCHAR",
    "completed_at": "VARCHAR",
    "latency_ms": "VARCHAR",
    "duration_ms": "VARCHAR",
    "ttft_ms": "VARCHAR",
    **dict.fromkeys((*_TIMES, *_NAMES), "VARCHAR"),
    "choices": [{"finish_reason": "VARCHAR"}],
    "incomplete_details": {"reason": "VARCHAR"},
    "error": {"type": "VARCHAR", "code": "VARCHAR"},
    "usage": usage.USAGE,
    **{name: kind for name, kind in usage.USAGE.items() if name in ("prompt_tokens", "completion_tokens", "total_tokens")},
}
_OPERATIONS = {
    "chat.completion": "chat",
    "chat.completion.chunk": "chat",
    "text_completion": "completion",
    "response": "responses",
    "list": "embedding",
    "embedding": "embedding",
}


def _is_body(item: dict[str, object]) -> bool:
    """An OpenAI-dialect usage object, and nothing that marks another format."""
    stated = item.get("usage")
    counts = stated if isinstance(stated, dict) else item
    # vLLM, LiteLLM and Mooncake-like lines also have counts at the top; they carry these.
    foreign = {"call_type", "spend", "startTime", "hash_ids", "usageMetadata", "resourceSpans", "type"} & item.keys()
    anthropic = item.get("type") == "message"
    in_dialect = {"prompt_tokens", "total_tokens"} <= counts.keys() or {"input_tokens", "total_tokens"} <= counts.keys()
    return in_dialect and not anthropic and not (foreign - {"type"})


def _recognise(head: Head) -> bool:
    objects = head.objects
    return bool(objects) and all(_is_body(item) for item in objects[:3])


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    counts = usage.counts(fields, ("usage",))
    started = fields.instant(*_TIMES).needed("created")
    ended, duration, ttft = (
        fields.instant("completed_at"),
        fields.number("latency_ms", "duration_ms"),
        fields.number("ttft_ms"),
    )
    limit = fields.whole("max_output_tokens")
    kind, error = text("object"), text("error.type", "error.code")
    failed = error.is_not_null() | text("status").is_in(["failed", "error", "failure"])
    cancelled = text("status").is_in(["cancelled", "canceled"])
    prompt, generated = counts.prompt.value, counts.completion.value
    # Embedding bodies state no completion: they generate nothing.
    output = pl.when(generated.is_null() & kind.is_in(["list", "embedding"])).then(0).otherwise(generated)
    return fields.frame.select(
        "source_line",
        request_id=text("request_id", "id"),
        record_key=pl.concat_str([text("id"), started.value.dt.timestamp("us")], separator="|"),
        started_at=started.value,
        ended_at=ended.value,
        duration_ms=duration.value,
        ttft_ms=ttft.value,
        **{name: text(name) for name in _NAMES if name != "request_id"},
        model_served=text("model"),
        operation=kind.replace_strict(_OPERATIONS, default="other", return_dtype=pl.String),
        service_tier=text("service_tier"),
        max_output_tokens=limit.value,
        input_tokens=prompt,
        output_tokens=output,
        **usage.columns(counts, pl.lit(value=True)),
        status=pl.when(failed).then(pl.lit("error")).when(cancelled).then(pl.lit("cancelled")).otherwise(pl.lit("ok")),
        error_kind=error,
        finish_reason=_finish_reason(fields),
        usage_origin=pl.when(prompt.is_null() & output.is_null())
        .then(pl.lit("missing"))
        .otherwise(pl.lit("reported")),
        _reject=first_fault([started, *counts.readings, ended, duration, ttft, limit]),
        _other=pl.lit(value=False),
    )


def _finish_reason(fields: Fields) -> pl.Expr:
    reason = fields.text("incomplete_details.reason")
    if not fields.has("choices"):
        return reason
    return pl.coalesce(pl.col("choices").list.first().struct.field("finish_reason"), reason)


FORMAT = Format(
    name="openai_usage",
    title="OpenAI-style response or usage lines",
    written_by="Clients and gateways that keep response bodies of OpenAI-compatible APIs",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with a usage object of prompt_tokens (or input_tokens) and total_tokens",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", clock="utc"),
    traps=(
        "created is the start of generation in whole seconds; a line without any time is rejected.",
        "Some servers leave reasoning out of completion_tokens: total_tokens shows it.",
        "cached_tokens and cache_write_tokens may together exceed prompt_tokens: they are cut to it.",
        "usage of null (streamed without include_usage) is unknown, not zero.",
    ),
)
