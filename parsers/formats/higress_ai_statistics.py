"""Access logs of Higress with the ai-statistics plugin: JSON lines with `ai_log`, JSON inside a string.

Covers whole lines, lines that a collector reduced to `ai_log` and a time, and the plugin's first shape with
its fields beside the others. Lines without a model are counted as other. Outcomes: `parsers/access_log.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import access_log, routes
from parsers.fields import Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_TIMES = ("start_time", "timestamp", "@timestamp", "time", "__time__")
_OF_ENVOY = (
    *("request_id", "method", "path", "duration", "route_name", "upstream_cluster", "trace_id"),
    *("response_code", "response_flags", "response_code_details", "authority"),
)
_FIRST_SHAPE = ("model", "input_token", "output_token")
_AI_LOG = (
    *_FIRST_SHAPE,
    *("api", "chat_id", "consumer", "total_token", "cached_tokens", "reasoning_tokens", "session_id"),
    *("input_token_details", "output_token_details", "response_type"),
    *("llm_first_token_duration", "llm_service_duration"),
)
_READS = ("cached_tokens", "cache_read_input_tokens", "cached_content_token_count", "prompt_cache_hit_tokens")
_WRITES = ("cache_creation_input_tokens", "cache_write_tokens")
_REASONING = ("reasoning_tokens", "thoughts_token_count")
_OF_TOOLS = "tool_use_prompt_token_count"
_DETAILS = {
    **dict.fromkeys((*_READS, *_WRITES, _OF_TOOLS), "input_token_details"),
    **dict.fromkeys(_REASONING, "output_token_details"),
}
_NO_MODEL = r"(?i)^unknown$"
_STRUCTURE: Structure = {
    "ai_log": "VARCHAR",
    **dict.fromkeys((*_TIMES, *_OF_ENVOY, *_FIRST_SHAPE), "VARCHAR"),
}
_CLUSTER = r"^(?:outbound\|\d+\|[^|]*\|)?([^|]+?)(?:\.(?:dns|static|nacos))?(?:\.internal)?$"


def _is_line(item: dict[str, Any]) -> bool:
    """A line with the plugin's column, filled or not, or of its first shape."""
    first = {"input_token", "output_token"} <= item.keys()
    return ("ai_log" in item or first) and any(name in item for name in _TIMES)


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_line)


def _members(raw: pl.Series) -> pl.DataFrame:
    """The members of ai_log as text, one by one where a line has an object or a list for one of them."""
    try:
        return raw.str.json_decode(pl.Struct(dict.fromkeys(_AI_LOG, pl.String))).struct.unnest()
    except pl.exceptions.ComputeError:
        return pl.DataFrame({name: raw.str.json_path_match(f"$.{name}") for name in _AI_LOG})


def _opened(frame: pl.DataFrame) -> pl.DataFrame:
    """The members of ai_log and of its details, which are JSON in strings once more, beside the others."""
    raw = frame["ai_log"].str.strip_chars()
    is_object = raw.str.starts_with("{")
    is_whole = is_object & raw.str.json_path_match("$").is_not_null()
    members = _members(pl.select(pl.when(is_whole).then(raw)).to_series())
    details = {
        f"details.{name}": members[column].str.json_path_match(f"$.{name}")
        for name, column in _DETAILS.items()
    }
    return frame.drop("ai_log").with_columns(
        *(members[name].alias(f"ai_log.{name}") for name in _AI_LOG),
        **details,
        is_damaged=(is_object & ~is_whole).fill_null(value=False),
    )


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = access_log.fields_of(_opened(frame))
    text, is_damaged = fields.text, pl.col("is_damaged")
    count = fields.whole("ai_log.input_token", "input_token")
    prompt = Read(count.value, pl.when(is_damaged).then(pl.lit("ai_log is not JSON")).otherwise(count.fault))
    completion = fields.whole("ai_log.output_token", "output_token")
    cached, written, reasoning, of_tools = (
        fields.whole(*(f"{at}.{name}" for name in names for at in ("ai_log", "details")))
        for names in (_READS, _WRITES, _REASONING, (_OF_TOOLS,))
    )
    started, path = fields.instant(*_TIMES).needed("start_time"), text("path")
    model, answer = text("ai_log.model", "model"), text("ai_log.response_type")
    ttft = fields.number("ai_log.llm_first_token_duration")
    stream = answer == "stream"
    is_call = (
        access_log.is_call(path, text("method"))
        | prompt.value.is_not_null()
        | text("ai_log.api").is_not_null()
        | is_damaged
    )
    identity = [
        pl.coalesce(text("request_id"), text("ai_log.chat_id"), text("ai_log.session_id")),
        started.value.dt.timestamp("us"),
        model.fill_null(""),
    ]
    return fields.rows(
        request_id=text("request_id", "ai_log.chat_id"),
        record_key=pl.concat_str(identity, separator="|"),
        trace_id=text("trace_id"),
        session_id=text("ai_log.session_id"),
        started_at=started,
        duration_ms=fields.number("ai_log.llm_service_duration", "duration"),
        ttft_ms=pl.when(stream & (ttft.value > 0)).then(ttft.value),
        user=text("ai_log.consumer"),
        gateway=pl.lit("higress"),
        provider=text("upstream_cluster").str.extract(_CLUSTER),
        model_served=pl.when(~model.str.contains(_NO_MODEL)).then(model),
        operation=routes.operation(path),
        endpoint=routes.endpoint(path),
        stream=stream,
        instance=text("route_name"),
        input_tokens=Read(prompt.value + of_tools.value.fill_null(0), prompt.fault),
        output_tokens=completion,
        cache_read_tokens=cached,
        cache_write_5m_tokens=written,
        reasoning_tokens=reasoning,
        _total_tokens=fields.whole("ai_log.total_token"),
        **access_log.envoy_outcome(fields),
        other=~is_call,
    )


FORMAT = Format(
    name="higress_ai_statistics",
    title="Higress access log with ai_log",
    written_by="Higress with the ai-statistics plugin: the access log of the gateway, or a collector's copy",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with ai_log, or input_token and output_token, and a time",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", retries="hidden"
    ),
    traps=(
        "Every value is text, and ai_log is JSON in a string; one that was cut off is rejected.",
        "input_token has the cached tokens or, in newer versions and of Anthropic, lacks them: the total tells.",
        "reasoning_tokens above output_token are unknown: the plugin's own documentation has such a line.",
        "A collector's copy may have neither id nor path: the session and the time identify it.",
        "llm_service_duration is the time of the model, duration that of the whole request.",
        "The model is the one that was asked for after the gateway's mapping of names.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
