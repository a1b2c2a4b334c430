"""Anthropic Messages: response bodies, lines that hold them, and results of message batches.

Covers Anthropic's own API, Claude on Bedrock (InvokeModel, batch jobs) and Vertex (rawPredict), and servers that speak
this dialect; lines of one's own with a model and Anthropic's counts. Streams have a format of their own, and so have
transcripts of coding agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome, usage
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PLACES = ("result.message", "result", *bodies.PLACES)
_PROVIDERS = {"msg_bdrk_": "bedrock", "msg_vrtx_": "vertex_ai", "msg_01": "anthropic"}
_BODY = {
    **dict.fromkeys(("id", "type", "role", "model", "stop_reason", "created", "created_at"), "VARCHAR"),
    **usage.USAGE,
    "usage": {
        **usage.USAGE,
        "service_tier": "VARCHAR",
        "inference_geo": "VARCHAR",
        "iterations": [usage.ITERATION],
    },
    "error": "JSON",
    "amazon-bedrock-invocationMetrics": {"invocationLatency": "VARCHAR", "firstByteLatency": "VARCHAR"},
}
_STRUCTURE, _EMBEDDED = bodies.structure(_BODY, _PLACES)
_UNANSWERED = {"errored": "error", "canceled": "cancelled", "expired": "error"}
_COUNTS = {"input_tokens", "output_tokens"}


def _is_body(item: dict[str, Any]) -> bool:
    kind, stated = str(item.get("type")), item.get("usage")
    if kind in ("error", "errored"):
        return isinstance(item.get("error"), dict)
    if kind in _UNANSWERED:
        return item.keys() == {"type"}
    if "type" not in item:
        # A line of one's own, which may hold the counts themselves.
        is_stated = usage.is_anthropic(item.get("usage", item))
        return "model" in item and bool({*bodies.TIMES, "id"} & item.keys()) and is_stated
    is_message = kind == "message" and item.get("role") == "assistant"
    return is_message and isinstance(stated, dict) and stated.keys() >= _COUNTS


def _recognise(head: Head) -> bool:
    """Among bodies of Gemini they are `openai_usage`'s, which reads all three."""
    return bodies.recognise(head, _is_body, _PLACES) and not bodies.is_mixed(head, bodies.is_of_gemini)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, _BODY, _PLACES)
    text = fields.text
    counts = usage.iterated(usage.counts(fields, ("usage", "")), fields, "usage")
    started, flags = bodies.started(fields, context, "created", "created_at")
    kind, message_id = text("type"), text("id")
    # An error is wrapped once in a stream or body, twice in a batch's result.
    error = fields.raw("error")
    error = outcome.error_kind(
        pl.coalesce(error.str.json_path_match("$.error"), error), ("type", "code", "status", "errorCode")
    )
    wrapped = bodies.columns(fields)
    metrics = "amazon-bedrock-invocationMetrics"
    measured = {
        "duration_ms": fields.number("duration_ms", "latency_ms", f"{metrics}.invocationLatency"),
        "ttft_ms": fields.number("ttft_ms", f"{metrics}.firstByteLatency"),
    }
    spoken = pl.coalesce(
        pl.when(message_id.str.starts_with(start)).then(pl.lit(name)) for start, name in _PROVIDERS.items()
    )
    http_status = bodies.http_status(fields)
    ended_badly = kind.replace_strict(_UNANSWERED, default=None, return_dtype=pl.String)
    is_error = error.is_not_null() | (kind == "error") | (ended_badly == "error")
    prompt, generated = counts.prompt.value, counts.completion.value
    is_call = prompt.is_not_null() | generated.is_not_null() | is_error | ended_badly.is_not_null()
    return fields.rows(
        other=~is_call.fill_null(value=False),
        request_id=pl.coalesce(message_id, text("request_id", "custom_id", "recordId")),
        # Batches number their parts alike (custom_id, recordId): those names are no keys and link no attempts.
        record_key=pl.coalesce(message_id, text("request_id")),
        started_at=started,
        **{**wrapped, **measured, "provider": pl.coalesce(text("provider"), spoken)},
        model_served=text("model"),
        operation=pl.lit("chat"),
        service_tier=pl.when(bodies.is_batch(fields))
        .then(pl.lit("batch"))
        .otherwise(text("usage.service_tier")),
        region=text("usage.inference_geo").replace("not_available", None),
        input_tokens=prompt,
        output_tokens=generated,
        **usage.columns(counts, pl.lit(value=True)),
        _cache_outside=pl.coalesce(
            usage.leaves_cache_out(fields, "usage"), usage.leaves_cache_out(fields, "")
        ),
        status=outcome.status(http_status, failed=is_error, cancelled=ended_badly == "cancelled"),
        http_status=http_status,
        error_kind=pl.coalesce(error, pl.when(ended_badly.is_not_null()).then(kind)),
        finish_reason=text("stop_reason"),
        flags=flags,
    )


FORMAT = Format(
    name="anthropic_messages",
    title="Anthropic Messages bodies",
    written_by="Clients and proxies that keep response bodies of Anthropic's API; results of message batches",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold a message of the role assistant with usage, or a batch's result",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="outside", cache_write="outside", reasoning="inside", clock="utc"),
    traps=(
        "A body states no time: the line's time is taken, else the file's, flagged time_from_file.",
        "Rows of OpenAI's dialect between them (with total_tokens) have the cache inside of their input.",
        "input_tokens leaves cache reads and writes out; thinking is part of output_tokens.",
        "cache_creation splits the writes by lifetime; where it does not fit them, all are 5-minute writes.",
        "usage.iterations (compactions, advisors of another model) sum up to what is billed, beyond the top.",
        "A batch's results are of the tier batch; canceled and expired ones were never answered.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
