"""Logs of Apache APISIX with ai-proxy: records of its logger plugins (JSON), and its access log (text).

Logger records are whole entries with `llm_summary`, or have the fields that the operator chose, called like the
variables they hold. Of the text log the documented line is read, from its end. Requests that no model answered
are counted as other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import access_log, containers, outcome, routes
from parsers.durations import before
from parsers.fields import Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.fields import Fields
    from parsers.format import Context, Head, Structure

_ENDS = ("@timestamp", "time_iso8601", "timestamp", "time")
_COUNTS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "cache_read_input_tokens"),
    *("cache_creation_input_tokens", "reasoning_tokens"),
)
_VARIABLES = (
    *("request_type", "llm_time_to_first_token", "llm_model", "request_llm_model", "llm_stream"),
    *("llm_end_user_id", "apisix_upstream_response_time", "apisix_request_id", "upstream_addr", "uri"),
    *("upstream_uri", "request_uri", "request_time", "status", *(f"llm_{name}" for name in _COUNTS)),
)
_STRUCTURE: Structure = {
    **dict.fromkeys(
        ("start_time", "latency", "route_id", "upstream", "time_local", *_ENDS, *_VARIABLES), "VARCHAR"
    ),
    "consumer": {"username": "VARCHAR"},
    "request": {"uri": "VARCHAR"},
    "response": {"status": "VARCHAR"},
    "llm_summary": dict.fromkeys(
        ("request_model", "model", "duration", "stream", "end_user_id", "upstream_response_time", *_COUNTS),
        "VARCHAR",
    ),
}
_OF_ENTRY = {"apisix_latency", "route_id", "service_id"}
_OF_CALL = {"llm_summary", "llm_prompt_tokens", "request_llm_model"}
# Both leave cached tokens out of the prompt; Bedrock's total has them, and no field of its own.
_EXCLUSIVE = r"(?i)claude|anthropic"
_BEDROCK = r"(?i)bedrock|^(?:\w+\.)?(?:anthropic|amazon|meta|mistral|cohere|ai21)\.[\w.-]+(?::\d+)?$"

_QUOTED = r'"(?P<%s>[^"]*)" +'
_TAIL = (
    r"(?P<apisix_upstream_response_time>[\d.]+|-) "
    + _QUOTED % "upstream_uri"
    + _QUOTED % "apisix_request_id"
    + r'"(?P<request_type>traditional_http|ai_chat|ai_stream|-?)" +'
    + _QUOTED % "llm_time_to_first_token"
    + _QUOTED % "llm_model"
    + f"(?:{_QUOTED % 'request_llm_model'})?"
    + r'"(?P<llm_prompt_tokens>[^"]*)" +"(?P<llm_completion_tokens>[^"]*)"\s*$'
)
_OF_CALL_LINE = r'"(?:ai_chat|ai_stream)\\?" '
_LINE = rf"{access_log.COMBINED}.*? {_TAIL}"


def _recognise(head: Head) -> bool:
    """Entries of routes without a model have the same shape: one record must be of a call."""

    def is_entry(item: dict[str, Any]) -> bool:
        return bool((_OF_ENTRY | _OF_CALL) & item.keys())

    return mostly(head.objects, is_entry) and any(_OF_CALL & item.keys() for item in head.objects)


def _recognise_text(head: Head) -> bool:
    bare = map(containers.bare, head.lines[:50])
    # A query of Polars takes longer than all else that is asked of a small file.
    lines = [line for line in bare if line.rstrip().endswith('"')]
    return bool(lines) and bool(pl.Series(lines).str.contains(_LINE).any())


def _milliseconds(text: pl.Expr) -> pl.Expr:
    """`apisix_upstream_response_time`: milliseconds, but seconds where nginx's own variable stands in."""
    value = text.cast(pl.Float64, strict=False)
    return pl.when(text.str.contains(".", literal=True)).then(value * 1000).otherwise(value)


def _times(fields: Fields) -> dict[str, Read | pl.Expr]:
    """Entries state the start, lines of an access log the end."""
    started, ended = fields.instant("start_time"), access_log.logged_at(fields, *_ENDS)
    latency, seconds = fields.number("latency"), fields.number("request_time")
    upstream = _milliseconds(fields.text("apisix_upstream_response_time"))
    spent = pl.coalesce(latency.value, seconds.value * 1000, upstream)
    arrived = pl.coalesce(started.value, before(ended.value, spent))
    return {"started_at": Read(arrived, ended.fault).needed("start_time"), "duration_ms": spent}


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    return _rows(access_log.fields_of(frame))


def _rows(fields: Fields) -> pl.DataFrame:
    text = fields.text
    counts = {name: fields.whole(f"llm_summary.{name}", f"llm_{name}") for name in _COUNTS}
    prompt, completion = counts["prompt_tokens"].value, counts["completion_tokens"].value
    total = counts["total_tokens"].value
    requested = text("llm_summary.request_model", "request_llm_model")
    served = text("llm_summary.model", "llm_model")
    kind = text("request_type")
    stream = fields.truth("llm_summary.stream", "llm_stream").value.fill_null(kind == "ai_stream")
    ttft = fields.number("llm_time_to_first_token", "llm_summary.duration")
    address = text("upstream_uri", "request.uri", "request_uri", "uri", "path")
    upstream = pl.concat_str(
        [pl.coalesce(served, requested), address, text("upstream_addr", "upstream")],
        separator=" ",
        ignore_nulls=True,
    )
    is_bedrock = (served.str.contains(_BEDROCK) | upstream.str.contains("bedrock", literal=True)).fill_null(
        value=False
    )
    with_cache = pl.when(is_bedrock & (total > prompt + completion)).then(total - completion)
    times = _times(fields)
    http_status = fields.whole("response.status", "status")
    identity = [text("start_time"), text("route_id"), text("latency"), requested]
    return fields.rows(
        request_id=text("apisix_request_id"),
        record_key=pl.coalesce(text("apisix_request_id"), pl.concat_str(identity, separator="|")),
        **times,
        ttft_ms=pl.when(stream & (ttft.value > 0)).then(ttft.value),
        user=text("consumer.username"),
        end_user=text("llm_summary.end_user_id", "llm_end_user_id"),
        gateway=pl.lit("apisix"),
        model_requested=requested,
        model_served=served,
        operation=access_log.known_operation(address),
        endpoint=routes.endpoint(address),
        stream=stream,
        instance=access_log.last_upstream(text("upstream_addr", "upstream")),
        input_tokens=pl.coalesce(with_cache, prompt),
        output_tokens=completion,
        cache_read_tokens=pl.when(with_cache.is_null()).then(counts["cache_read_input_tokens"].value),
        cache_write_5m_tokens=pl.when(with_cache.is_null()).then(counts["cache_creation_input_tokens"].value),
        reasoning_tokens=counts["reasoning_tokens"],
        _total_tokens=total,
        _cache_outside=pl.when(upstream.str.contains(_EXCLUSIVE) & ~is_bedrock).then(pl.lit(value=True)),
        status=outcome.status(http_status.value),
        http_status=http_status,
        other=pl.coalesce(requested, served).is_null() & ~kind.str.starts_with("ai_").fill_null(value=False),
    )


def _map_text(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    return _rows(access_log.line_parts(frame, _LINE, pl.col("line").str.contains(_OF_CALL_LINE)))


_SEMANTICS = TokenSemantics(
    cache_read="inside",
    cache_write="inside",
    reasoning="inside",
    zero_means="unknown",
    clock="utc",
    retries="hidden",
)
_TRAPS = (
    "llm_summary.duration is the time to the first token; of calls that don't stream it is the whole time.",
    "Anthropic's prompt_tokens leave cached tokens out; rows are told by model and address.",
    "Bedrock's leave them out, too, and only the total has them: input is the total without the output.",
    "apisix_upstream_response_time is in milliseconds, with a dot in seconds.",
    "Variables without a value are 0: 0 and 0 are no usage.",
    "ai-proxy-multi's retries are within one record, upstream_addr lists them.",
)
FORMAT = Format(
    name="apisix_ai_proxy",
    title="Apache APISIX AI proxy records, JSON",
    written_by="Logger plugins of Apache APISIX (file, http, kafka and others) with ai-proxy or ai-proxy-multi",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with llm_summary, llm_prompt_tokens or request_llm_model",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=_SEMANTICS,
    traps=_TRAPS,
)
TEXT_FORMAT = Format(
    name="apisix_access_log",
    title="Apache APISIX access log with LLM variables",
    written_by="Apache APISIX with the access_log_format that its ai-proxy documentation gives",
    target=REQUESTS,
    container="text",
    recognised_by="access log lines that end with request type, first token, models and token counts",
    recognise=_recognise_text,
    map=_map_text,
    semantics=_SEMANTICS,
    traps=(*_TRAPS, "The time is that of the end, in whole seconds; the start is earlier by request_time."),
    priority=1,
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
