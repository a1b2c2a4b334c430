"""Rows of Bifrost's log store: lines or arrays, CSV dumps of the table `logs`, pages of `GET /api/logs`.

One row per attempt at a provider: a fallback is a row of its own, retries at one provider are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.fields import Fields, Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("id", "parent_request_id", "timestamp", "object", "object_type", "provider", "model", "alias"),
    *("number_of_retries", "fallback_index", "virtual_key_name", "virtual_key_id", "user_id", "team_id"),
    *(
        "team_name",
        "customer_id",
        "customer_name",
        "selected_key_name",
        "latency",
        "status",
        "stream",
        "cost",
    ),
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_read_tokens", "stop_reason"),
)
_INPUT_DETAILS = (
    "cached_read_tokens",
    "cached_write_tokens",
    "cached_tokens",
    "audio_tokens",
    "image_tokens",
)
_EMBEDDED: dict[str, Structure] = {
    "token_usage": {
        **dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), "VARCHAR"),
        "prompt_tokens_details": dict.fromkeys(_INPUT_DETAILS, "VARCHAR"),
        "completion_tokens_details": dict.fromkeys(
            ("reasoning_tokens", "audio_tokens", "image_tokens"), "VARCHAR"
        ),
    },
    "error_details": {
        "status_code": "VARCHAR",
        "type": "VARCHAR",
        "error": {"type": "VARCHAR", "code": "VARCHAR"},
    },
    "cache_debug": {"cache_hit": "VARCHAR"},
}
_NEEDED = {"id", "timestamp", "provider", "model", "number_of_retries", "fallback_index", "status"}
_OPERATIONS = (
    (r"^chat", "chat"),
    (r"^responses", "responses"),
    (r"^text", "completion"),
    (r"^embedding", "embedding"),
    (r"^rerank", "rerank"),
    (r"^image", "image"),
    (r"^(?:audio|speech|transcription)", "audio"),
)
_IN_FLIGHT, _CANCELLED = "processing", ["request_cancelled", "client_closed_request"]


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_pages(head: Head) -> bool:
    return is_page(head, ("logs", *_NEEDED)) and not _recognise(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole

    def detail(*names: str) -> Read:
        return whole(*(f"token_usage.{name}" for name in names))

    started, latency = fields.instant("timestamp").needed("timestamp"), fields.number("latency")
    fallback, http_status = whole("fallback_index"), whole("error_details.status_code")
    kind = text("object", "object_type")
    operation: pl.Expr = pl.when(kind.is_not_null()).then(pl.lit("other"))
    for pattern, name in _OPERATIONS:
        operation = pl.when(kind.str.contains(pattern)).then(pl.lit(name)).otherwise(operation)
    failed = text("status") == "error"
    error = pl.coalesce(
        outcome.error_kind(text(f"error_details.{name}")) for name in ("error.type", "error.code", "type")
    )
    read = whole(
        *(f"token_usage.prompt_tokens_details.{name}" for name in ("cached_read_tokens", "cached_tokens")),
        "cached_read_tokens",
    )
    model = text("model")
    return fields.rows(
        request_id=text("id"),
        record_key=text("id"),
        call_id=text("parent_request_id", "id"),
        parent_request_id=text("parent_request_id"),
        attempt=fallback.value + 1,
        started_at=started,
        duration_ms=latency,
        user=text("user_id"),
        team=text("team_name", "team_id"),
        end_user=text("customer_name", "customer_id"),
        api_key_alias=text("virtual_key_name", "virtual_key_id"),
        instance=text("selected_key_name"),
        gateway=pl.lit("bifrost"),
        provider=text("provider"),
        model_requested=pl.coalesce(text("alias"), model),
        model_served=model,
        operation=operation,
        stream=fields.truth("stream"),
        input_tokens=whole("token_usage.prompt_tokens", "prompt_tokens"),
        output_tokens=whole("token_usage.completion_tokens", "completion_tokens"),
        _total_tokens=whole("token_usage.total_tokens", "total_tokens"),
        cache_read_tokens=read,
        cache_write_5m_tokens=detail("prompt_tokens_details.cached_write_tokens"),
        reasoning_tokens=detail("completion_tokens_details.reasoning_tokens"),
        audio_input_tokens=detail("prompt_tokens_details.audio_tokens"),
        audio_output_tokens=detail("completion_tokens_details.audio_tokens"),
        image_input_tokens=detail("prompt_tokens_details.image_tokens"),
        image_output_tokens=detail("completion_tokens_details.image_tokens"),
        status=outcome.status(http_status.value, failed=failed, cancelled=error.is_in(_CANCELLED)),
        http_status=http_status,
        error_kind=pl.when(failed).then(error.fill_null("unknown")),
        finish_reason=text("stop_reason"),
        response_cache_hit=fields.truth("cache_debug.cache_hit").value.fill_null(value=False),
        cost_reported=fields.money("cost"),
        cost_currency=pl.lit("USD"),
        other=(text("id").is_null() & text("timestamp").is_null())
        | (text("status") == _IN_FLIGHT).fill_null(value=False),
    )


FORMAT = Format(
    name="bifrost_logs",
    title="Bifrost logs, JSON",
    written_by="Bifrost: rows of the table `logs` as JSON lines or as an array",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with timestamp, provider, model, number_of_retries and fallback_index",
    recognise=_recognise,
    map=_map,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", zero_means="unknown", money="USD"
    ),
    traps=(
        "Each fallback is a row (attempt = fallback_index + 1) with the first one's id as parent.",
        "number_of_retries counts repeats at one provider that have no rows.",
        "The columns of counts repeat token_usage and are 0 where it is empty: 0 and 0 is no usage.",
        "The cached part is called cached_read_tokens; it is inside of prompt_tokens for all providers.",
        "Rows of status processing are calls in flight: other. Their ids come again when they end.",
        "Some streamed answers carry no usage.",
        "cost includes the lookup in the gateway's cache of answers.",
    ),
)

CSV_FORMAT = csv_twin(FORMAT, needed=_NEEDED, written_by="Bifrost: dump of the table `logs` as CSV")

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="bifrost_log_pages",
    title="Bifrost log pages",
    written_by="Bifrost: answers of GET /api/logs",
    recognised_by="JSON objects with logs that holds rows",
    recognise=_recognise_pages,
    at=("logs",),
)
