"""Vertex AI request-response logging: rows of its BigQuery table, exported as JSON lines.

Covers Gemini (usageMetadata) and Claude (usage) on Vertex. `full_response` is JSON or JSON in a string; of a streamed
answer, an array of chunks, the last counts are the answer's. Requests are never read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import routes
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.json_text import decoded
from parsers.records import REQUESTS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_RESPONSE = "full_response"
_STRUCTURE = {
    **dict.fromkeys(("endpoint", "deployed_model_id", "logging_time", "request_id"), "VARCHAR"),
    **dict.fromkeys(("model", "model_version", "api_method"), "VARCHAR"),
    _RESPONSE: "JSON",
    "metadata": "JSON",
    "otel_log": "JSON",
}
_EMBEDDED: dict[str, Any] = {
    _RESPONSE: "JSON",
    "metadata": dict.fromkeys(("request_latency", "region"), "VARCHAR"),
    "otel_log": {"trace_id": "VARCHAR"},
}
_COUNTS = ("promptTokenCount", "toolUsePromptTokenCount", "cachedContentTokenCount", "candidatesTokenCount")
_CLAUDE = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_IN_RESPONSE = {
    **{
        name: f"$.usageMetadata.{name}"
        for name in (*_COUNTS, "thoughtsTokenCount", "totalTokenCount", "trafficType")
    },
    **{name: f"$.usage.{name}" for name in _CLAUDE},
    "ephemeral_1h_input_tokens": "$.usage.cache_creation.ephemeral_1h_input_tokens",
    "finishReason": "$.candidates[0].finishReason",
    "blockReason": "$.promptFeedback.blockReason",
    "stop_reason": "$.stop_reason",
    "modelVersion": "$.modelVersion",
    "model": "$.model",
    "status": "$.error.status",
    "code": "$.error.code",
}
_NEEDED = {"endpoint", "logging_time", "request_id", "api_method"}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED and _RESPONSE in item)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    answers = frame.select("source_line", answer=Fields(frame).raw(_RESPONSE))["answer"]
    streamed = answers.str.starts_with("[")
    merged = pl.Series(
        [_merged(text) if is_stream else text for text, is_stream in zip(answers, streamed, strict=True)],
        dtype=pl.String,
    )
    too_deep = answers.is_not_null() & merged.is_null()
    found = pl.DataFrame({_RESPONSE: merged}).select(
        pl.col(_RESPONSE).str.json_path_match(path).alias(f"answer.{name}")
        for name, path in _IN_RESPONSE.items()
    )
    fields = Fields(
        frame.drop(_RESPONSE, strict=False)
        .hstack(found)
        .with_columns(streamed.fill_null(value=False).alias("streamed"))
    )
    text = fields.text

    def count(*names: str) -> pl.Expr:
        return fields.whole(*(f"answer.{name}" for name in names)).value

    at = fields.instant("logging_time").needed("logging_time")
    latency = fields.number("metadata.request_latency")
    total, tools, thoughts = (
        count("totalTokenCount"),
        count("toolUsePromptTokenCount").fill_null(0),
        count("thoughtsTokenCount"),
    )
    prompt = count("promptTokenCount", "input_tokens") + tools
    # Absent where nothing was said: the answer was blocked, or its limit was spent on thoughts.
    unsaid = pl.when(total.is_not_null()).then(0)
    answer = pl.coalesce(count("candidatesTokenCount", "output_tokens"), unsaid)
    written, hour = count("cache_creation_input_tokens"), count("ephemeral_1h_input_tokens")
    is_split = (hour <= written).fill_null(value=False)
    error = text("answer.status", "answer.code")
    code = count("code")
    path = text("endpoint")
    return fields.rows(
        request_id=text("request_id"),
        record_key=text("request_id"),
        trace_id=text("otel_log.trace_id"),
        started_at=at,
        duration_ms=latency.value * 1000,
        project=path.str.extract(r"projects/([^/]+)/"),
        provider=pl.lit("vertex_ai"),
        model_requested=text("model"),
        model_served=text("answer.modelVersion", "answer.model"),
        operation=routes.operation(pl.concat_str(pl.lit(":"), text("api_method")))
        .replace("other", None)
        .fill_null(
            pl.when(text("api_method").str.contains("(?i)predict"))
            .then(pl.lit("chat"))
            .otherwise(pl.lit("other"))
        ),
        endpoint=path,
        instance=text("deployed_model_id"),
        region=pl.coalesce(path.str.extract(r"locations/([^/]+)/"), text("metadata.region")),
        stream=pl.when(pl.col("streamed") | text("api_method").str.contains("(?i)stream")).then(
            pl.lit(value=True)
        ),
        service_tier=text("answer.trafficType"),
        input_tokens=prompt,
        cache_read_tokens=count("cachedContentTokenCount", "cache_read_input_tokens"),
        cache_write_5m_tokens=pl.when(is_split).then(written - hour).otherwise(written),
        cache_write_1h_tokens=pl.when(is_split).then(hour),
        output_tokens=answer + pl.coalesce(thoughts, _hidden(total, prompt, answer)).fill_null(0),
        reasoning_tokens=pl.coalesce(thoughts, _hidden(total, prompt, answer)),
        _cache_outside=text("answer.input_tokens").is_not_null(),
        status=pl.when(error.is_not_null()).then(pl.lit("error")).otherwise(pl.lit("ok")),
        http_status=pl.when(code.is_between(100, 999)).then(code),
        error_kind=error,
        finish_reason=text("answer.finishReason", "answer.blockReason", "answer.stop_reason"),
    ).with_columns(
        _reject=pl.coalesce("_reject", pl.when(too_deep).then(pl.lit(f"{_RESPONSE} is nested too deep")))
    )


def _hidden(total: pl.Expr, prompt: pl.Expr, answer: pl.Expr) -> pl.Expr:
    """Thoughts that only the total shows."""
    rest = total - prompt - answer
    return pl.when(rest > 0).then(rest)


def _merged(chunks: str) -> str | None:
    """One answer from the chunks of a stream, each field as the last chunk states it; None if they nest too deep.

    Gemini's counts are those of the last chunk that has some: its prompt may shrink. Claude's are in the message that
    starts the stream, and its last delta overwrites what it repeats.
    """
    try:
        stated_chunks = decoded(chunks)
    except RecursionError:
        return None
    answer: dict[str, Any] = {}
    for chunk in stated_chunks:
        if not isinstance(chunk, dict):
            continue
        for part in (chunk.get("message"), chunk.get("delta"), chunk):
            if not isinstance(part, dict):
                continue
            stated = part.get("usage")
            usage = (
                {key: value for key, value in stated.items() if value is not None}
                if isinstance(stated, dict)
                else {}
            )
            answer |= {key: value for key, value in part.items() if value is not None and key != "usage"}
            answer["usage"] = answer.get("usage", {}) | usage
    return json.dumps(answer)


FORMAT = Format(
    name="vertex_request_response",
    title="Vertex AI request-response log",
    written_by="Vertex AI request-response logging to BigQuery, exported as JSON lines",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with endpoint, logging_time, request_id, api_method and full_response",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", retries="hidden"
    ),
    traps=(
        "candidatesTokenCount leaves thoughts out, promptTokenCount the results of tools: both are added.",
        "Claude's input_tokens leave cache reads and writes out.",
        "Of a stream the last counts hold: promptTokenCount may be smaller there than before.",
        "With a samplingRate below 1 rows are a sample: counts are not all of the traffic.",
        "request_id has more digits than a float: it is text. logging_time is taken for the start.",
        "request_latency is taken for seconds; the keys of metadata vary and it is often absent.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed={"endpoint", "logging_time", "request_id", "api_method", _RESPONSE},
    written_by="BigQuery: results of a query over the table, downloaded as CSV",
)
