"""Log objects of Kong with the AI plugins, as file-log, http-log and their like write them.

A record is a request of a client. The section of the AI plugin that answered it is read, whatever the plugin
is called; sections of plugins that ask a model on the way are flagged, see `traps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import access_log, outcome, routes, usage
from parsers.clock import flag_list
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.readers import duckdb_structure
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_ANSWERING = ("proxy", "ai-proxy", "ai-proxy-advanced")
_SECTION: Structure = {
    "meta": dict.fromkeys(
        ("provider_name", "request_model", "response_model", "llm_latency", "request_mode"), "VARCHAR"
    ),
    "usage": {
        **usage.USAGE,
        **dict.fromkeys(("prompt_token", "completion_token", "time_to_first_token", "cost"), "VARCHAR"),
    },
    "cache": {"cache_status": "VARCHAR"},
}
_STRUCTURE: Structure = {
    "started_at": "VARCHAR",
    "request": dict.fromkeys(("id", "method", "uri"), "VARCHAR"),
    "response": {"status": "VARCHAR"},
    "latencies": {"request": "VARCHAR"},
    "tries": ["JSON"],
    "service": {"name": "VARCHAR"},
    "route": {"name": "VARCHAR"},
    "consumer": dict.fromkeys(("username", "custom_id"), "VARCHAR"),
    "workspace_name": "VARCHAR",
    "ai": f"MAP(VARCHAR, {duckdb_structure(_SECTION)})",
}
_NO_MODEL = "UNSPECIFIED"


def _is_log(item: dict[str, Any]) -> bool:
    latencies = item.get("latencies")
    is_timed = isinstance(latencies, dict) and "kong" in latencies
    return is_timed and {"started_at", "request"} <= item.keys()


def _recognise(head: Head) -> bool:
    """Kong logs of routes without a model have the same shape: one record must have a section of AI."""
    return mostly(head.objects, _is_log) and any(item.get("ai") for item in head.objects)


def _answering(sections: pl.Expr) -> pl.Expr:
    """The section of the plugin that answered the client, else the first that counted tokens."""
    counted = sections.map.values().list.filter(pl.element().struct.field("usage").is_not_null())
    return pl.coalesce(*(sections.map.get(name) for name in _ANSWERING), counted.list.first())


def _has_others(sections: pl.Expr) -> pl.Expr:
    counted = sections.map.values().list.eval(pl.element().struct.field("usage").is_not_null())
    return counted.list.sum() > 1


def _model(name: pl.Expr) -> pl.Expr:
    return pl.when(name != _NO_MODEL).then(name)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    sections = pl.col("ai")
    fields = access_log.fields_of(
        frame.with_columns(section=_answering(sections), has_others=_has_others(sections)).drop("ai")
    )
    text = fields.text
    counts = usage.counts(fields, ("section.usage",))
    prompt, completion = (
        fields.whole(*(f"section.usage.{name}" for name in names))
        for names in (
            ("prompt_tokens", "prompt_token", "input_tokens"),
            ("completion_tokens", "completion_token", "output_tokens"),
        )
    )
    started, path = fields.instant("started_at").needed("started_at"), text("request.uri")
    http_status, cost = fields.whole("response.status"), fields.money("section.usage.cost")
    ttft = fields.number("section.usage.time_to_first_token")
    mode = text("section.meta.request_mode")
    model = _model(text("section.meta.request_model"))
    answered = pl.coalesce(text("section.meta.provider_name"), model, text("section.usage.total_tokens"))
    has_others = fields.raw("has_others") if fields.has("has_others") else pl.lit(value=False)
    return fields.rows(
        request_id=text("request.id"),
        record_key=pl.concat_str([text("request.id"), started.value.dt.timestamp("us")], separator="|"),
        started_at=started,
        duration_ms=fields.number("latencies.request", "section.meta.llm_latency"),
        ttft_ms=pl.when(ttft.value > 0).then(ttft.value),
        team=text("workspace_name"),
        user=text("consumer.username", "consumer.custom_id"),
        gateway=pl.lit("kong"),
        provider=text("section.meta.provider_name"),
        model_requested=model,
        model_served=_model(text("section.meta.response_model")),
        operation=access_log.known_operation(path),
        endpoint=routes.endpoint(path),
        stream=mode.str.starts_with("stream"),
        instance=text("service.name", "route.name"),
        input_tokens=prompt,
        output_tokens=completion,
        **usage.columns(counts, pl.lit(value=True)),
        status=outcome.status(http_status.value),
        http_status=http_status,
        response_cache_hit=text("section.cache.cache_status").str.to_lowercase() == "hit",
        cost_reported=pl.when(cost.value != 0).then(cost.value),
        cost_currency=pl.when(cost.value != 0).then(pl.lit("USD")),
        flags=flag_list({"other_calls_not_read": has_others}),
        # A request that the gateway itself turned away has no section of AI.
        other=answered.is_null() & ~access_log.is_call(path, text("request.method")),
    )


FORMAT = Format(
    name="kong_ai_proxy",
    title="Kong log objects with AI plugins",
    written_by="Kong file-log, http-log, tcp-log and others, with ai-proxy or ai-proxy-advanced in use",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with started_at, request and latencies.kong, one of them with ai",
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
        "Without log_statistics of the plugin there are no counts at all.",
        "Kong writes 0 for what it does not know: 0 and 0 are no usage, a cost of 0 is no cost.",
        "Streams without usage are estimated (characters / 4), and nothing in the record says so.",
        "Claude's cached tokens are neither in prompt_tokens nor logged: its input is a lower bound.",
        "Other plugins may ask a model for the same request: their tokens are not read, the row is flagged.",
        "Costs follow the prices in the plugin's configuration; their currency is taken for USD.",
        "response_model falls back to request_model; retries are within one record.",
        "Sections are called after the plugin or its kind, counts once were prompt_token, completion_token.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
