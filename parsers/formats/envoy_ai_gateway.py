"""JSON access logs of Envoy AI Gateway, and of any Envoy (Istio, inference extensions) before model APIs.

A line is a request of a client; what its keys are called is the operator's choice: those of the gateway's
documentation and of its metadata are read. Lines of MCP and of other routes are counted as other. Outcomes are
read in `parsers/access_log.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import access_log, routes
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_TIMES = ("start_time", "@timestamp", "timestamp", "time")
_PATHS = ("x-envoy-origin-path", "x-envoy-original-path", "path", ":path")
_IDS = ("x-request-id", "request_id")
_METADATA = (
    *("llm_input_token", "llm_cached_input_token", "llm_cache_creation_input_token", "llm_output_token"),
    *("llm_reasoning_token", "llm_total_token", "response_model", "model_name_override", "backend_name"),
    *("token_latency_ttft", "session.id", "llm_error_type"),
)
_NAMESPACES = ("io.envoy.ai_gateway", "ai_gateway")
_USAGE = {
    "input": ("gen_ai.usage.input_tokens", "llm_input_token", "genai_tokens_input", "input_tokens"),
    "cache_read": (
        *("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_input_tokens"),
        *("gen_ai.usage.cached_tokens", "llm_cached_input_token"),
    ),
    "cache_write": (
        *("gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens"),
        "llm_cache_creation_input_token",
    ),
    "output": ("gen_ai.usage.output_tokens", "llm_output_token", "genai_tokens_output", "output_tokens"),
    "reasoning": (
        *("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "llm_reasoning_token"),
    ),
    "total": ("gen_ai.usage.total_tokens", "llm_total_token", "genai_tokens_total", "total_tokens"),
}
_REQUESTED = ("gen_ai.request.model", "x-ai-eg-model", "genai_model_name")
_OVERRIDDEN = ("gen_ai.request.model_override", "genai_model_name_override")
_BACKENDS = ("gen_ai.provider.name", "genai_backend_name")
_STRUCTURE: Structure = {
    **dict.fromkeys((*_TIMES, *_PATHS, *_IDS, "method", "duration", "upstream_cluster"), "VARCHAR"),
    **dict.fromkeys(("response_code", "response_flags", "response_code_details"), "VARCHAR"),
    **dict.fromkeys((*_REQUESTED, *_OVERRIDDEN, *_BACKENDS, "gen_ai.response.model"), "VARCHAR"),
    **dict.fromkeys(("duration_ms", "mcp.method.name"), "VARCHAR"),
    **dict.fromkeys((name for names in _USAGE.values() for name in names), "VARCHAR"),
    **dict.fromkeys((name for names in access_log.ATTRIBUTION.values() for name in names), "VARCHAR"),
    **dict.fromkeys(_METADATA, "VARCHAR"),
    **dict.fromkeys(_NAMESPACES, dict.fromkeys(_METADATA, "VARCHAR")),
}
_OF_GATEWAY = re.compile(r'"(?:gen_?ai[._]|llm_|x-ai-eg-|io\.envoy\.ai_gateway|ai_gateway")')
_CALL = re.compile(rf'"[^"]*(?:{access_log.CALL_ROUTE})')
# Backends are called namespace/name/route/...: the name is what the operator calls the vendor.
_BACKEND = r"^[^/]+/([^/]+)/route/"


def _is_line(item: dict[str, Any]) -> bool:
    """A line of Envoy's access log that is not one of Higress."""
    is_timed = any(name in item for name in _TIMES) and ("duration" in item or "duration_ms" in item)
    return is_timed and "response_code" in item and "ai_log" not in item


def _recognise(head: Head) -> bool:
    """Lines of Envoy, and among them a key of the gateway, whatever its value, or the route of a model's API."""
    return mostly(head.objects, _is_line) and bool(_OF_GATEWAY.search(head.text) or _CALL.search(head.text))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = access_log.fields_of(frame)

    def named(*names: str) -> tuple[str, ...]:
        return (*names, *(f"{space}.{name}" for space in _NAMESPACES for name in names))

    counts = {kind: fields.whole(*named(*names)) for kind, names in _USAGE.items()}
    started = fields.instant(*_TIMES).needed("start_time")
    ttft = fields.number(*named("token_latency_ttft"))
    path, backend = fields.text(*_PATHS), fields.text(*_BACKENDS, *named("backend_name"))
    requested = fields.text(*_REQUESTED)
    is_call = access_log.is_call(path, fields.text("method")) | (
        (requested.is_not_null() | counts["input"].value.is_not_null())
        & fields.text("mcp.method.name").is_null()
    )
    attribution = access_log.attribution(fields)
    return fields.rows(
        request_id=fields.text(*_IDS),
        record_key=pl.concat_str(
            [fields.text(*_IDS), started.value.dt.timestamp("us"), backend.fill_null("")], separator="|"
        ),
        started_at=started,
        duration_ms=fields.number("duration", "duration_ms"),
        ttft_ms=ttft,
        **{
            **attribution,
            "session_id": pl.coalesce(attribution["session_id"], fields.text(*named("session.id"))),
        },
        gateway=pl.lit("envoy-ai-gateway" if _OF_GATEWAY.search(context.head) else "envoy"),
        provider=pl.coalesce(backend.str.extract(_BACKEND), backend),
        model_requested=requested,
        model_served=fields.text(
            "gen_ai.response.model",
            *named("response_model"),
            *_OVERRIDDEN,
            *named("model_name_override"),
        ),
        operation=routes.operation(path),
        endpoint=routes.endpoint(path),
        stream=pl.when(ttft.value > 0).then(pl.lit(value=True)),
        instance=pl.coalesce(backend, fields.text("upstream_cluster")),
        input_tokens=counts["input"],
        output_tokens=counts["output"],
        cache_read_tokens=counts["cache_read"],
        cache_write_5m_tokens=counts["cache_write"],
        reasoning_tokens=counts["reasoning"],
        _total_tokens=counts["total"],
        **access_log.envoy_outcome(fields, *named("llm_error_type")),
        other=~is_call,
    )


FORMAT = Format(
    name="envoy_ai_gateway",
    title="Envoy AI Gateway or Envoy access log, JSON",
    written_by="Envoy AI Gateway, and Envoy or Istio before model APIs: the JSON access log of the proxy",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with response_code, duration and a time, and keys of the gateway or model routes",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", retries="hidden"
    ),
    traps=(
        "An Envoy without the gateway logs no usage: calls, times and outcomes only.",
        "Log keys are the operator's: counts under other names than the documentation's are not found.",
        "The gateway adds cached tokens to the input for every provider, Anthropic and Bedrock included.",
        "A retry on another backend is the same line: the backend is the last one's.",
        "gen_ai.provider.name is a path of the cluster's objects; the backend's name is taken for the provider.",
        "x-envoy-upstream-service-time is the time to the answer's headers, not to its first token.",
        "Early versions counted streamed usage twice (PR 2239): nothing in a line shows it.",
        "A status of 200 with a flag such as UC or SI is an answer that broke off: error; DC: cancelled.",
        "Costs (CEL) are numbers of no known unit and are not read.",
        "Clients may choose x-request-id: records are told apart by it and the start.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
