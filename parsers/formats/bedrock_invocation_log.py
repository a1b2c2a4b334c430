"""AWS Bedrock model invocation logs: JSON lines as S3 gets them; in CloudWatch's events, see `envelopes.py`.

Covers Converse and InvokeModel, streamed or not, of all kinds of models. The counts are those that the log states
beside the bodies; of a body only times, limits and names are read, by their place: prompts may hold the same words.
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
    from parsers.format import Context, Head

_COUNTS = ("inputTokenCount", "cacheReadInputTokenCount", "cacheWriteInputTokenCount")
_STRUCTURE = {
    **dict.fromkeys(("schemaType", "timestamp", "accountId", "region", "inferenceRegion"), "VARCHAR"),
    **dict.fromkeys(("requestId", "operation", "modelId", "errorCode"), "VARCHAR"),
    "identity": {"arn": "VARCHAR"},
    "requestMetadata": "MAP(VARCHAR, VARCHAR)",
    "input": {
        **dict.fromkeys(_COUNTS, "VARCHAR"),
        "inputBodyJson": {
            "system": "JSON",
            "messages": ["JSON"],
            "tools": ["JSON"],
            "toolConfig": "JSON",
            "max_tokens": "VARCHAR",
            "inferenceConfig": {"maxTokens": "VARCHAR"},
        },
    },
    "output": {"outputTokenCount": "VARCHAR", "outputBodyJson": "JSON"},
}
_BODY = "output.outputBodyJson"
# Of an answer, of the chunks of a streamed Converse, of the chunks of a streamed InvokeModel.
_TIMES = "amazon-bedrock-invocationMetrics"
_IN_BODY = {
    "latencyMs": (
        "$.metrics.latencyMs",
        "$[*].metadata.metrics.latencyMs",
        f"$[*]['{_TIMES}'].invocationLatency",
    ),
    "firstByteLatency": (f"$[*]['{_TIMES}'].firstByteLatency",),
    "model": ("$.trace.promptRouter.invokedModelId", "$.model", "$[*].message.model"),
    "finish": (
        *("$.stopReason", "$.stop_reason", "$[*].messageStop.stopReason", "$[*].delta.stop_reason"),
        *("$.choices[0].finish_reason", "$.results[0].completionReason"),
    ),
    "ephemeral_1h_input_tokens": ("$.usage.cache_creation.ephemeral_1h_input_tokens",),
}
_STREAMED = ("ConverseStream", "InvokeModelWithResponseStream", "InvokeModelWithBidirectionalStream")
_KINDS = {
    r"embed": "embedding",
    r"rerank": "rerank",
    r"stability|stable-|image|canvas": "image",
    r"sonic|speech|voxtral": "audio",
}


def _is_record(item: dict[str, Any]) -> bool:
    return item.get("schemaType") == "ModelInvocationLog" or item.keys() >= {
        "modelId",
        "requestId",
        "operation",
        "input",
    }


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_record)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    fields.frame = fields.frame.with_columns(_in_body(fields))
    text, whole = fields.text, fields.whole
    at = fields.instant("timestamp").needed("timestamp")
    prompt, output = whole("input.inputTokenCount"), whole("output.outputTokenCount")
    read, written = whole("input.cacheReadInputTokenCount"), whole("input.cacheWriteInputTokenCount")
    hour = whole("body.ephemeral_1h_input_tokens")
    is_split = (hour.value <= written.value).fill_null(value=False)
    model, error = text("modelId"), outcome.error_kind(fields.raw("errorCode"))
    kind = pl.coalesce(
        [
            *(pl.when(model.str.contains(pattern)).then(pl.lit(name)) for pattern, name in _KINDS.items()),
            pl.lit("chat"),
        ]
    )
    # What embeds, ranks and draws generates no tokens.
    generated = pl.when(~kind.is_in(["chat", "audio"]) & prompt.value.is_not_null()).then(
        output.value.fill_null(0)
    )
    names = [text(name) for name in ("schemaType", "requestId", "modelId")]
    rows = fields.rows(
        # Among CloudWatch's events, the service's own check that it may write.
        other=pl.all_horizontal(name.is_null() for name in names),
        request_id=text("requestId"),
        record_key=text("requestId"),
        started_at=at,
        ttft_ms=fields.number("body.firstByteLatency"),
        duration_ms=fields.number("body.latencyMs"),
        organization=text("accountId"),
        user=text("identity.arn"),
        tags=_tags(fields),
        gateway=pl.lit("bedrock"),
        provider=pl.lit("bedrock"),
        model_requested=model,
        model_served=text("body.model"),
        operation=kind,
        endpoint=text("operation"),
        stream=text("operation").is_in(_STREAMED),
        region=text("inferenceRegion", "region"),
        input_tokens=prompt,
        cache_read_tokens=read,
        cache_write_5m_tokens=pl.when(is_split).then(written.value - hour.value).otherwise(written.value),
        cache_write_1h_tokens=pl.when(is_split).then(hour.value),
        output_tokens=pl.coalesce(generated, output.value),
        max_output_tokens=whole(
            "input.inputBodyJson.inferenceConfig.maxTokens", "input.inputBodyJson.max_tokens"
        ),
        status=outcome.status(pl.lit(None, pl.Int32), failed=error.is_not_null()),
        error_kind=error,
        finish_reason=text("body.finish"),
    )
    return _with_prompt(rows, fields, context)


def _in_body(fields: Fields) -> list[pl.Expr]:
    """What is read of bodies: an answer is one object, a streamed one an array of chunks."""
    body = fields.raw(_BODY)
    is_stream = body.str.starts_with("[")
    return [
        pl.coalesce(
            pl.when(is_stream == path.startswith("$[")).then(body).str.json_path_match(path) for path in paths
        ).alias(f"body.{name}")
        for name, paths in _IN_BODY.items()
    ]


def _tags(fields: Fields) -> pl.Expr:
    """What the caller wrote into requestMetadata, as key=value."""
    if not fields.has("requestMetadata"):
        return pl.lit(None, pl.List(pl.String))
    key, value = (pl.element().struct.field(name) for name in ("key", "value"))
    return pl.col("requestMetadata").map.entries().list.eval(pl.format("{}={}", key, value)).list.drop_nulls()


def _with_prompt(rows: pl.DataFrame, fields: Fields, context: Context) -> pl.DataFrame:
    """Hash tools, system and messages, where the log keeps bodies and the body is in it."""
    at = "input.inputBodyJson"
    if not fields.has(f"{at}.messages"):
        return rows
    before = [pl.col(f"{at}.tools").fill_null([])] if fields.has(f"{at}.tools") else []
    single = [
        pl.concat_list(pl.col(f"{at}.{name}")).list.drop_nulls()
        for name in ("toolConfig", "system")
        if fields.has(f"{at}.{name}")
    ]
    parts = pl.when(pl.col(f"{at}.messages").list.len() > 0).then(
        pl.concat_list(*before, *single, pl.col(f"{at}.messages"))
    )
    rows = rows.with_columns(context.hasher.chain(fields.series(parts), rows["input_tokens"]))
    if not before:
        return rows
    return rows.with_columns(
        context.hasher.tools(fields.series(pl.when(parts.is_not_null()).then(before[0])))
    )


FORMAT = Format(
    name="bedrock_invocation_log",
    title="AWS Bedrock model invocation log",
    written_by="AWS Bedrock: BedrockModelInvocationLogs in S3, or in CloudWatch Logs and what it exports",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with schemaType ModelInvocationLog, or modelId, requestId, operation and input",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(cache_read="outside", cache_write="outside", reasoning="inside", clock="utc"),
    traps=(
        "inputTokenCount leaves cache reads and writes out; older records do not state them.",
        "timestamp has whole seconds; the duration is only in bodies, and large bodies are in files of their own.",
        "Failed calls have errorCode and no counts.",
        "modelId may be an inference profile's ARN, which names no model; a body may name the one that answered.",
        "Writes for an hour can be told only where the body is Claude's own.",
        "The user is the caller's ARN; requestMetadata becomes tags. No cost is stated.",
        "An answer whose client hung up is billed whole and logged as if it had been read.",
    ),
)
