"""Bedrock Converse: response bodies, what SDKs make of them, the metadata event of ConverseStream, batches' results.

InvokeModel has the bodies of the models' own APIs; Bedrock's invocation logs have their own format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome, usage
from parsers.durations import before
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.fields import Fields
    from parsers.format import Context, Head

_COUNTS = {
    "input_tokens": ("inputTokens",),
    "output_tokens": ("outputTokens",),
    "_total_tokens": ("totalTokens",),
    "cache_read_tokens": ("cacheReadInputTokens", "cacheReadInputTokenCount"),
}
_WRITES = ("cacheWriteInputTokens", "cacheWriteInputTokenCount")
_HTTP_DATE = "%a, %d %b %Y %H:%M:%S GMT"
_OTHER_EVENTS = ("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop")
_META = "ResponseMetadata"
_BODY = {
    **dict.fromkeys(("stopReason", "modelId", "model", *_OTHER_EVENTS), "VARCHAR"),
    "usage": {
        **dict.fromkeys((*(name for names in _COUNTS.values() for name in names), *_WRITES), "VARCHAR"),
        "cacheDetails": [{"ttl": "VARCHAR", "inputTokens": "VARCHAR"}],
    },
    "metrics": {"latencyMs": "VARCHAR"},
    "trace": {"promptRouter": {"invokedModelId": "VARCHAR"}},
    "serviceTier": {"type": "VARCHAR"},
    "performanceConfig": {"latency": "VARCHAR"},
    _META: {"RequestId": "VARCHAR", "HTTPStatusCode": "VARCHAR", "HTTPHeaders": {"date": "VARCHAR"}},
    "$metadata": {"requestId": "VARCHAR", "httpStatusCode": "VARCHAR"},
    "Error": {"Code": "VARCHAR"},
}
_PLACES = ("metadata", *bodies.PLACES)
_STRUCTURE, _EMBEDDED = bodies.structure(_BODY, _PLACES)


def _is_body(item: dict[str, Any]) -> bool:
    stated = item.get("usage")
    return (
        isinstance(stated, dict)
        and {"inputTokens", "outputTokens"} <= stated.keys()
        and "schemaType" not in item
    )


def _recognise(head: Head) -> bool:
    return bodies.recognise(head, _is_body, _PLACES)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, _BODY, _PLACES)
    text = fields.text
    at, flags = bodies.started(fields, context)
    took = fields.number("metrics.latencyMs", "duration_ms", "latency_ms")
    ended = fields.instant(f"{_META}.HTTPHeaders.date", unit=_HTTP_DATE).value
    answered = before(ended, took.value)
    has_date = (flags.list.len() > 0) & answered.is_not_null()
    counts = {column: fields.whole(*(f"usage.{name}" for name in names)) for column, names in _COUNTS.items()}
    written = fields.whole(*(f"usage.{name}" for name in _WRITES))
    request_id = text(f"{_META}.RequestId", "$metadata.requestId", "request_id")
    http_status = bodies.http_status(fields, f"{_META}.HTTPStatusCode", "$metadata.httpStatusCode")
    is_usage = counts["input_tokens"].value.is_not_null()
    # DuckDB does not tell a batch's `error` from `Error`: a result without an answer is one.
    is_unanswered = text("recordId").is_not_null() & ~is_usage
    error = pl.coalesce(text("Error.Code"), pl.when(is_unanswered).then(pl.lit("unknown")))
    return fields.rows(
        other=~(is_usage | error.is_not_null()),
        request_id=pl.coalesce(request_id, text("recordId")),
        # Jobs number their records alike (recordId): that is no key and links no attempts.
        record_key=request_id,
        **bodies.columns(fields)
        | {
            "duration_ms": took,
            "provider": text("provider").fill_null("bedrock"),
        },
        started_at=pl.when(has_date).then(answered).otherwise(at.value),
        model_served=text("trace.promptRouter.invokedModelId", "model"),
        operation=pl.lit("chat"),
        service_tier=pl.when(bodies.is_batch(fields))
        .then(pl.lit("batch"))
        .otherwise(text("serviceTier.type", "performanceConfig.latency")),
        **counts,
        **usage.by_lifetime(written.value, _lasting(fields, "5m"), _lasting(fields, "1h")),
        status=outcome.status(http_status, failed=error.is_not_null()),
        http_status=http_status,
        error_kind=error,
        finish_reason=text("stopReason"),
        flags=pl.when(has_date).then(pl.lit([], pl.List(pl.String))).otherwise(flags),
    )


def _lasting(fields: Fields, lifetime: str) -> pl.Expr:
    """Tokens written to caches of one lifetime; null where no entry names it."""
    if not fields.has("usage.cacheDetails"):
        return pl.lit(None, dtype=pl.Int64)
    entry = pl.element().struct
    count = entry.field("inputTokens").cast(pl.Int64, strict=False)
    counts = pl.col("usage.cacheDetails").list.eval(pl.when(entry.field("ttl") == lifetime).then(count)).list
    return pl.when(counts.drop_nulls().list.len() > 0).then(counts.sum())


FORMAT = Format(
    name="bedrock_converse",
    title="Bedrock Converse bodies",
    written_by="Clients and proxies that keep answers of Bedrock's Converse and ConverseStream",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold a usage object of inputTokens and outputTokens",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="outside", cache_write="outside", reasoning="inside", clock="utc"),
    traps=(
        "inputTokens leaves cache reads and writes out; totalTokens includes them. ...TokenCount are twins.",
        "Times: the line's, else the date of the answer's headers (its end, in whole seconds) less the latency,",
        "else the file's, flagged time_from_file. boto3 keeps that date in ResponseMetadata.",
        "The model is in the request and the URL only; trace.promptRouter names the one that a router chose.",
        "A batch's results (recordId, modelOutput) are of the tier batch and state no time; jobs reuse recordId.",
        "Of a stream's events only metadata has usage; the others are other lines.",
    ),
)
