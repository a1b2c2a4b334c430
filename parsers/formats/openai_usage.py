"""OpenAI-style response bodies, or lines with a usage object, one JSON object per line (or one JSON array).

Covers `chat.completion`, `text_completion`, `response` and embedding bodies of OpenAI and of servers that
speak its dialect, and home-made lines such as {"timestamp": ..., "model": ..., "usage": {...}}. Other APIs'
bodies have their own formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import outcome, usage
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
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
    "error": "JSON",
    "usage": usage.USAGE,
    **{
        name: kind
        for name, kind in usage.USAGE.items()
        if name in ("prompt_tokens", "completion_tokens", "total_tokens")
    },
}
_DIALECT = ({"prompt_tokens", "total_tokens"}, {"input_tokens", "total_tokens"})
_OPERATIONS = {
    "chat.completion": "chat",
    "chat.completion.chunk": "chat",
    "text_completion": "completion",
    "response": "responses",
    "list": "embedding",
    "embedding": "embedding",
}


# Bodies of other APIs and lines of other logs have such counts, too; they carry one of these.
_FOREIGN = {"call_type", "spend", "startTime", "hash_ids", "usageMetadata", "resourceSpans", "timings"}


def _is_body(item: dict[str, Any]) -> bool:
    """A body with a usage object of the OpenAI dialect (or with null for it), or a line with its counts."""
    if _FOREIGN & item.keys() or item.get("type") == "message":
        return False
    stated = item.get("usage", item)
    if stated is None:
        return item.get("object") in _OPERATIONS
    return isinstance(stated, dict) and any(names <= stated.keys() for names in _DIALECT)


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_body)


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
    kind, state, error = text("object"), text("status"), outcome.error_kind(fields.raw("error"))
    # Home-made lines have an HTTP status where OpenAI's Responses have a word.
    http_status = state.cast(pl.Int32, strict=False)
    prompt, generated = counts.prompt.value, counts.completion.value
    # Embedding bodies state no completion: they generate nothing.
    output = pl.when(generated.is_null() & kind.is_in(["list", "embedding"])).then(0).otherwise(generated)
    return fields.rows(
        request_id=text("request_id", "id"),
        record_key=pl.concat_str([text("id"), started.value.dt.timestamp("us")], separator="|"),
        started_at=started,
        ended_at=ended,
        duration_ms=duration,
        ttft_ms=ttft,
        **{name: text(name) for name in _NAMES if name != "request_id"},
        model_served=text("model"),
        operation=kind.replace_strict(_OPERATIONS, default="other", return_dtype=pl.String),
        service_tier=text("service_tier"),
        max_output_tokens=limit,
        input_tokens=prompt,
        output_tokens=output,
        **usage.columns(counts, pl.lit(value=True)),
        status=outcome.status(
            http_status,
            failed=error.is_not_null() | state.is_in(["failed", "error", "failure"]),
            cancelled=state.is_in(["cancelled", "canceled"]),
        ),
        http_status=pl.when(http_status.is_between(100, 999)).then(http_status),
        error_kind=error,
        finish_reason=_finish_reason(fields),
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
