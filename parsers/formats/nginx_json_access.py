"""JSON access logs of nginx in front of model servers or gateways, with or without fields of usage.

What the keys are called is the operator's choice: the variables' names and those in wide use are read. Only
requests of a model are rows, see `parsers/access_log.py`; others are counted as other. Logs of APISIX, which is
made of nginx, have their own format.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import access_log, outcome, routes, usage
from parsers.durations import before
from parsers.fields import Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

# msec has milliseconds, the others whole seconds.
_TIMES = ("msec", "time_iso8601", "@timestamp", "timestamp", "time", "ts", "date")
_PATHS = ("request_uri", "uri", "path", "url")
_SPENT = ("request_time", "upstream_response_time")
_IDS = ("request_id", "req_id", "x_request_id", "http_x_request_id")
_STATED_USAGE = (
    *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens"),
    *("cached_tokens", "reasoning_tokens"),
)
_LITELLM = ("litellm_call_id", "litellm_model_id", "litellm_model_group", "litellm_response_cost")
_STRUCTURE: Structure = {
    **dict.fromkeys((*_TIMES, "time_local", *_PATHS, *_SPENT, *_IDS, *_STATED_USAGE, *_LITELLM), "VARCHAR"),
    **dict.fromkeys(("request", "request_method", "method", "status"), "VARCHAR"),
    **dict.fromkeys(("content_type", "sent_http_content_type", "upstream_addr"), "VARCHAR"),
    **dict.fromkeys(("model", "llm_model", "response_model", "ttft_ms"), "VARCHAR"),
    **dict.fromkeys((name for names in access_log.ATTRIBUTION.values() for name in names), "VARCHAR"),
    "usage": usage.USAGE,
}
_OF_NGINX = {"request_time", "upstream_response_time", "body_bytes_sent", "request_length"}
_OF_APISIX = {"llm_prompt_tokens", "request_llm_model", "apisix_request_id", "route_id"}
_CALL = re.compile(rf'"[^"]*(?:{access_log.CALL_ROUTE})')
_REQUEST_LINE = r"^([A-Z]+) (\S+)"


def _recognise(head: Head) -> bool:
    """Lines of nginx, and somewhere among them the route of a model's API."""

    def is_line(item: dict[str, Any]) -> bool:
        keys = item.keys()
        return "status" in keys and bool(_OF_NGINX & keys) and not _OF_APISIX & keys

    return mostly(head.objects, is_line) and _CALL.search(head.text) is not None


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = access_log.fields_of(frame)
    text = fields.text
    line = text("request")
    method = pl.coalesce(text("request_method", "method"), line.str.extract(_REQUEST_LINE, 1))
    path = routes.endpoint(pl.coalesce(text(*_PATHS), line.str.extract(_REQUEST_LINE, 2)))
    ended, spent = access_log.logged_at(fields, *_TIMES), fields.number(*_SPENT)
    arrived = before(ended.value, spent.value * 1000)
    counts = usage.counts(fields, ("usage",))
    cached, reasoning = fields.whole("cached_tokens"), fields.whole("reasoning_tokens")
    http_status, cost = fields.whole("status"), fields.money("litellm_response_cost")
    measured = usage.columns(counts, pl.lit(value=True))
    return fields.rows(
        request_id=text(*_IDS),
        record_key=pl.concat_str([text(*_IDS), arrived.dt.timestamp("us")], separator="|"),
        call_id=text("litellm_call_id"),
        started_at=Read(arrived, ended.fault).needed("time"),
        duration_ms=spent.value * 1000,
        ttft_ms=fields.number("ttft_ms"),
        **access_log.attribution(fields),
        gateway=pl.when(text("litellm_call_id").is_not_null())
        .then(pl.lit("litellm"))
        .otherwise(pl.lit("nginx")),
        model_requested=text("model", "llm_model", "litellm_model_group"),
        model_served=text("response_model"),
        operation=routes.operation(path),
        endpoint=path,
        stream=pl.when(
            text("content_type", "sent_http_content_type").str.contains("text/event-stream", literal=True)
        ).then(pl.lit(value=True)),
        instance=pl.coalesce(text("litellm_model_id"), access_log.last_upstream(text("upstream_addr"))),
        input_tokens=counts.prompt,
        output_tokens=counts.completion,
        **{
            **measured,
            "cache_read_tokens": pl.coalesce(measured["cache_read_tokens"], cached.value),
            "reasoning_tokens": pl.coalesce(measured["reasoning_tokens"], reasoning.value),
        },
        status=outcome.status(http_status.value),
        http_status=http_status,
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
        other=~access_log.is_call(path, method),
    )


FORMAT = Format(
    name="nginx_json_access",
    title="nginx access log, JSON",
    written_by="nginx, OpenResty and their ingress controllers with a JSON log_format, before model APIs",
    target=REQUESTS,
    hop="proxy",
    container="json_lines",
    recognised_by="JSON objects with status and request_time (or sizes), and routes of model APIs among them",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(
        cache_read="inside",
        cache_write="inside",
        reasoning="inside",
        zero_means="unknown",
        clock="utc",
        retries="hidden",
        money="USD",
    ),
    traps=(
        "Without fields of usage that the operator added, usage is missing: calls, times and outcomes only.",
        "A line is written when the request has ended; the start is earlier by request_time.",
        "Times other than msec are whole seconds, and so are the starts that follow from them.",
        "An nginx before and one behind a gateway log one call twice, under different ids.",
        "Retries on other upstreams are within one line; the instance is the last one.",
        "upstream_header_time is the time to the headers: it is not taken for the time to the first token.",
        "request_completion is blank where a client closes after the last event of a stream: no hang-up.",
        "The header x-litellm-response-cost, where it is logged, is LiteLLM's cost; its call id is call_id.",
    ),
    priority=5,
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
