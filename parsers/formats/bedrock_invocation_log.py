"""AWS Bedrock model invocation logs: JSON lines as S3 gets them; in CloudWatch's events, see `envelopes.py`.

Covers Converse and InvokeModel, streamed or not, of all kinds of models. The counts are those that the log states
beside the bodies, and where it leaves one out, those of the answer. What is read of a body is read by its place:
prompts may hold the same words.
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
    "usage": ("$.usage", "$[*].metadata.usage", "$[*].message.usage"),
    "times": (f"$[*]['{_TIMES}']",),
    # What a streamed message starts with counts no output: its delta does.
    "said": ("$.usage", "$[*].metadata.usage", "$[*].usage"),
}
_IN_USAGE = {
    "input": ("$.inputTokens", "$.input_tokens", "$.prompt_tokens"),
    "read": ("$.cacheReadInputTokens", "$.cacheReadInputTokenCount", "$.cache_read_input_tokens"),
    "read_inside": ("$.prompt_tokens_details.cached_tokens",),
    "written": ("$.cacheWriteInputTokens", "$.cacheWriteInputTokenCount", "$.cache_creation_input_tokens"),
    **{
        f"written_{life}": (
            f"$.cacheDetails[?(@.ttl == '{life}')].inputTokens",
            f"$.cache_creation.ephemeral_{life}_input_tokens",
        )
        for life in ("5m", "1h")
    },
}
_IN_SAID = {"output": ("$.outputTokens", "$.output_tokens", "$.completion_tokens")}
_IN_TIMES = {
    "input": ("$.inputTokenCount",),
    "output": ("$.outputTokenCount",),
    "read": ("$.cacheReadInputTokenCount",),
    "written": ("$.cacheWriteInputTokenCount",),
}
# Titan's and Llama's answers have no usage object.
_IN_BARE = {
    "input": ("$.inputTextTokenCount", "$.prompt_token_count"),
    "output": ("$.results[0].tokenCount", "$.generation_token_count"),
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
    fields.frame = fields.frame.with_columns(_counts_in_body(fields))
    text, whole = fields.text, fields.whole
    at = fields.instant("timestamp").needed("timestamp")
    prompt, output = (
        whole("input.inputTokenCount", "body.input"),
        whole("output.outputTokenCount", "body.output"),
    )
    read = whole("input.cacheReadInputTokenCount", "body.read", "body.read_inside")
    written = whole("input.cacheWriteInputTokenCount", "body.written")
    five_minutes, hour = whole("body.written_5m").value, whole("body.written_1h").value
    # The answers of OpenAI's dialect count what was cached as a part of the input.
    is_inside = text("input.cacheReadInputTokenCount", "body.read").is_null() & read.value.is_not_null()
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
        **usage.by_lifetime(written.value, five_minutes, hour),
        _cache_outside=pl.when(is_inside).then(pl.lit(value=False)),
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


def _counts_in_body(fields: Fields) -> list[pl.Expr]:
    """Counts that a body states, of whichever model's dialect, as text."""
    # Few records leave the counts out: only in those a body is searched for names of its own.
    bare = pl.when(fields.raw("input.inputTokenCount", "body.usage").is_null()).then(fields.raw(_BODY))
    places = (
        (fields.raw("body.times"), _IN_TIMES),
        (fields.raw("body.usage"), _IN_USAGE),
        (fields.raw("body.said"), _IN_SAID),
        (bare, _IN_BARE),
    )
    found: dict[str, list[pl.Expr]] = {}
    for place, names in places:
        for name, paths in names.items():
            found.setdefault(name, []).extend(place.str.json_path_match(path) for path in paths)
    return [pl.coalesce(each).alias(f"body.{name}") for name, each in found.items()]


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
        "inputTokenCount leaves cache reads and writes out; where they are not beside it, the answer's usage is read.",
        "timestamp has whole seconds; the duration is only in bodies, and large bodies are in files of their own.",
        "Failed calls have errorCode and no counts.",
        "modelId may be an inference profile's ARN, which names no model; a body may name the one that answered.",
        "Writes for an hour are told apart only in bodies (cacheDetails, or Claude's own cache_creation).",
        "The user is the caller's ARN; requestMetadata becomes tags. No cost is stated.",
        "An answer whose client hung up is billed whole and logged as if it had been read.",
    ),
)
