"""Requests that Helicone logged: lines or arrays, pages of its API, CSV.

Covers answers of `POST /v1/request/query-clickhouse` and `/v1/request/query`, what `@helicone/export` writes,
and dumps of the ClickHouse table `request_response_rmt`. Sessions and properties tables are not read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import cached_parts, outcome, routes, usage
from parsers.clock import flag_list
from parsers.fields import Fields, Read, first_fault
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("request_id", "response_id", "request_created_at", "response_created_at", "provider", "request_model"),
    *(
        "response_model",
        "model_override",
        "model",
        "request_path",
        "target_url",
        "request_user_id",
        "user_id",
    ),
    *("organization_id", "response_status", "status", "delay_ms", "latency", "time_to_first_token"),
    *("prompt_tokens", "completion_tokens", "prompt_cache_read_tokens", "prompt_cache_write_tokens"),
    *("prompt_audio_tokens", "completion_audio_tokens", "cost", "costUSD", "cache_reference_id"),
)
_PROPERTIES: Structure = dict.fromkeys(("team", "project", "Helicone-Session-Id"), "VARCHAR")
_OF_GEMINI = {
    "prompt": "promptTokenCount",
    "tools": "toolUsePromptTokenCount",
    "cached": "cachedContentTokenCount",
    "candidates": "candidatesTokenCount",
    "thoughts": "thoughtsTokenCount",
    "total": "totalTokenCount",
}
_GEMINI_AT = "response_body.usageMetadata"
_EMBEDDED: dict[str, Structure] = {
    "request_properties": _PROPERTIES,
    "properties": _PROPERTIES,
    "request_body": {"stream": "VARCHAR", "max_tokens": "VARCHAR", "max_completion_tokens": "VARCHAR"},
    "response_body": {
        "usage": usage.USAGE,
        "usageMetadata": dict.fromkeys(_OF_GEMINI.values(), "VARCHAR"),
        "model": "VARCHAR",
        "type": "VARCHAR",
        "service_tier": "VARCHAR",
        "error": {"type": "VARCHAR", "code": "VARCHAR"},
    },
}
_NEEDED = {"request_id", "request_created_at", "response_created_at", "prompt_tokens", "completion_tokens"}
_API, _TABLE = _NEEDED | {"delay_ms"}, _NEEDED | {"latency", "organization_id"}
_NOT_CACHED = "00000000-0000-0000-0000-000000000000"
_LIMITS = ("max_completion_tokens", "max_tokens")
_PENDING, _CANCELLED = -2, -3
_TABLE_UNITS_PER_USD = 1_000_000_000


def _is_request(item: dict[str, Any]) -> bool:
    return item.keys() >= _API or item.keys() >= _TABLE


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_request)


def _recognise_csv(head: Head) -> bool:
    return set(head.csv_header) >= _API or set(head.csv_header) >= _TABLE


def _recognise_pages(head: Head) -> bool:
    return is_page(head, ("data", *_API)) and not _recognise(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole, number = fields.text, fields.whole, fields.number
    started = fields.instant("request_created_at").needed("request_created_at")
    ended, duration = fields.instant("response_created_at"), number("delay_ms", "latency")
    ttft, state = number("time_to_first_token"), whole("response_status", "status")
    cost, limit = fields.money("cost", "costUSD"), whole(*(f"request_body.{name}" for name in _LIMITS))
    body = _of_body(fields)
    has_body = body.prompt.value.is_not_null()
    row = {
        "input_tokens": whole("prompt_tokens"),
        "output_tokens": whole("completion_tokens"),
        "cache_read_tokens": whole("prompt_cache_read_tokens"),
        "cache_write_5m_tokens": whole("prompt_cache_write_tokens"),
        "audio_input_tokens": whole("prompt_audio_tokens"),
        "audio_output_tokens": whole("completion_audio_tokens"),
    }
    stated = {name: read.value for name, read in row.items()}
    given = {"input_tokens": body.prompt.value, "output_tokens": body.completion.value}
    given |= usage.columns(body, has_body)
    total = given.pop("_total_tokens")
    cached = pl.sum_horizontal(stated["cache_read_tokens"], stated["cache_write_5m_tokens"])
    code = state.value
    is_table = text("organization_id").is_not_null() & text("delay_ms").is_null()
    # The body's dialect tells what its input includes; the cache of Gemini's is always a part of it.
    is_outside = pl.coalesce(
        pl.when(text("response_body.type") == "message").then(pl.lit(value=True)),
        usage.leaves_cache_out(fields, "response_body.usage"),
        pl.when(text(f"{_GEMINI_AT}.promptTokenCount").is_not_null()).then(pl.lit(value=False)),
    )
    error = pl.coalesce(
        outcome.error_kind(text("response_body.error.type")), text("response_body.error.code")
    )
    return fields.frame.select(
        "source_line",
        request_id=text("request_id"),
        record_key=text("request_id"),
        started_at=started.value,
        ended_at=ended.value,
        duration_ms=duration.value,
        ttft_ms=pl.when(ttft.value > 0).then(ttft.value),
        session_id=text("request_properties.Helicone-Session-Id", "properties.Helicone-Session-Id"),
        team=text("request_properties.team", "properties.team"),
        project=text("request_properties.project", "properties.project"),
        organization=text("organization_id"),
        user=text("request_user_id", "user_id"),
        gateway=pl.lit("helicone"),
        provider=text("provider").str.to_lowercase(),
        model_requested=text("request_model", "model_override", "model"),
        model_served=text("response_model", "response_body.model", "model"),
        operation=routes.operation(text("request_path", "target_url")),
        endpoint=routes.endpoint(text("request_path", "target_url")),
        stream=pl.coalesce(
            text("request_body.stream") == "true", pl.when(ttft.value > 0).then(pl.lit(value=True))
        ),
        service_tier=text("response_body.service_tier"),
        max_output_tokens=limit.value,
        **{
            name: pl.when(has_body).then(given.get(name)).otherwise(stated.get(name))
            for name in given.keys() | stated.keys()
        },
        _total_tokens=pl.when(has_body).then(total),
        _cache_outside=pl.when(has_body)
        .then(is_outside)
        .otherwise(~cached_parts.is_inside(stated["input_tokens"], cached)),
        status=outcome.status(pl.when(code > 0).then(code), failed=code <= 0, cancelled=code == _CANCELLED),
        http_status=pl.when(code.is_between(100, 999)).then(code),
        error_kind=error,
        response_cache_hit=text("cache_reference_id").fill_null(_NOT_CACHED) != _NOT_CACHED,
        cost_reported=pl.when(is_table).then(cost.value / _TABLE_UNITS_PER_USD).otherwise(cost.value),
        cost_currency=pl.lit("USD"),
        usage_origin=pl.when(has_body | (pl.sum_horizontal(stated.values()) > 0))
        .then(pl.lit("reported"))
        .otherwise(pl.lit("missing")),
        flags=flag_list(
            {
                name: ~has_body & rule
                for name, rule in cached_parts.flags(
                    stated["input_tokens"], cached, shown=pl.lit(value=False)
                ).items()
            }
        ),
        _reject=first_fault(
            [started, ended, duration, ttft, state, cost, limit, *row.values(), *body.readings]
        ),
        _other=(text("request_id").is_null() & text("request_created_at").is_null())
        | (code == _PENDING).fill_null(value=False),
    )


def _of_body(fields: Fields) -> usage.Counts:
    """The counts of an answer, as its provider states them; Gemini leaves tools and thoughts out of its two."""
    stated = usage.counts(fields, ("response_body.usage",), row="response_body.usage.")
    gemini = {key: fields.whole(f"{_GEMINI_AT}.{name}") for key, name in _OF_GEMINI.items()}
    values = {key: read.value for key, read in gemini.items()}
    whole_input = values["prompt"] + values["tools"].fill_null(0)
    output = pl.coalesce(
        values["candidates"] + values["thoughts"].fill_null(0), values["total"] - whole_input
    )

    def either(read: Read, other: pl.Expr, key: str) -> Read:
        return Read(pl.coalesce(read.value, other), pl.coalesce(read.fault, gemini[key].fault))

    return replace(
        stated,
        prompt=either(stated.prompt, whole_input, "prompt"),
        completion=either(stated.completion, output, "candidates"),
        total=either(stated.total, values["total"], "total"),
        cache_read=either(stated.cache_read, values["cached"], "cached"),
        reasoning=either(stated.reasoning, values["thoughts"], "thoughts"),
    )


FORMAT = Format(
    name="helicone_requests",
    title="Helicone requests, JSON",
    written_by="Helicone: @helicone/export, dumps of the ClickHouse table request_response_rmt",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with request_id, request_created_at, prompt_tokens and delay_ms (or latency)",
    recognise=_recognise,
    map=_map,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="outside", cache_write="outside", reasoning="inside", zero_means="unknown", money="USD"
    ),
    traps=(
        "prompt_tokens is without cached tokens, completion_tokens without reasoning.",
        "Older rows hold the whole prompt: one hardly larger than its cached part is taken for such a row.",
        "That is flagged cache_taken_as_inside_input, doubt about larger ones cache_may_be_inside_input.",
        "The answer's usage or usageMetadata, where bodies are exported, is taken instead: the provider's own word.",
        "total_tokens is prompt + completion whatever they include, and shows nothing.",
        "cost is USD in the API's answers and USD x 1e9 in the ClickHouse table.",
        "Status -2 is a call in flight (other), -3 one that was cancelled, -1 and -4 failed.",
        "cache_reference_id names the request whose stored answer was given again: response_cache_hit.",
    ),
)

CSV_FORMAT = replace(
    csv_twin(FORMAT, needed=_API, written_by="Helicone: @helicone/export as CSV"), recognise=_recognise_csv
)

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="helicone_request_pages",
    title="Helicone request pages",
    written_by="Helicone: answers of POST /v1/request/query and /v1/request/query-clickhouse",
    recognised_by="JSON objects with data that holds requests",
    recognise=_recognise_pages,
    at=("data",),
)
