"""GPUStack's usage: rows of `model_usage_details` (calls), `model_usages` and the page's export (days).

Belongs here: dumps of both tables as JSON or CSV, and the export as CSV. Does not belong here: its workers'
metrics, which repeat the engines' (`parsers/metrics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import buckets, outcome
from parsers.clock import flag_list
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS, USAGE_BUCKETS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COUNTS = ("prompt_token_count", "prompt_cached_token_count", "completion_token_count")
_SHARED = (
    *("id", "user_id", "user_name", "model_id", "model_name", "model_route_name", "provider_name"),
    *("provider_type", "cluster_name", "api_key_name", "date", "operation", *_COUNTS),
)
_DETAILS = (
    *("started_at", "completed_at", "created_at", "completed", "status_code", "stream", "ttft_ms"),
    "model_instance_name",
)
_OPERATIONS = {
    "chat_completion": "chat",
    "completion": "completion",
    "embedding": "embedding",
    "rerank": "rerank",
    "image_generation": "image",
    "audio_speech": "audio",
    "audit_transcription": "audio",
    "audio_transcription": "audio",
}
_CALL = {"started_at", "completed_at", "prompt_token_count", "completion_token_count", "model_name"}
_DAY = {"date", "request_count", "prompt_token_count", "completion_token_count", "model_name"}
_EXPORT = {"Input Tokens", "Input Tokens Cached", "Output Tokens", "Total Tokens", "Date"}
_SEMANTICS = TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc")


def _operation(fields: Fields) -> pl.Expr:
    name = fields.text("operation").str.to_lowercase()
    return pl.when(name.is_not_null()).then(
        name.replace_strict(_OPERATIONS, default="other", return_dtype=pl.String)
    )


def _map_calls(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    started, ended = (
        fields.instant("started_at", "completed_at", "created_at").needed("started_at"),
        fields.instant("completed_at", "created_at"),
    )
    http, completed = fields.whole("status_code"), fields.truth("completed")
    cut = ~completed.value.fill_null(value=True)
    status = outcome.status(http.value.cast(pl.Int32, strict=False), cancelled=cut & http.value.is_null())
    nothing = pl.all_horizontal(
        fields.whole(name).value.fill_null(0) == 0
        for name in ("prompt_token_count", "completion_token_count")
    )
    return fields.rows(
        request_id=text("id"),
        record_key=pl.concat_str(
            pl.lit("gpustack"), text("id"), started.value.dt.timestamp("us"), separator="|"
        ),
        started_at=started,
        ended_at=ended,
        ttft_ms=fields.number("ttft_ms"),
        gateway=pl.lit("gpustack"),
        provider=text("provider_name", "provider_type"),
        user=text("user_name", "user_id"),
        api_key_alias=text("api_key_name"),
        model_requested=text("model_route_name", "model_name"),
        model_served=text("model_name"),
        instance=text("model_instance_name"),
        region=text("cluster_name"),
        operation=_operation(fields),
        stream=fields.truth("stream"),
        input_tokens=fields.whole("prompt_token_count"),
        cache_read_tokens=fields.whole("prompt_cached_token_count"),
        output_tokens=fields.whole("completion_token_count"),
        status=status,
        http_status=pl.when(http.value.is_between(0, 999)).then(http.value),
        error_kind=pl.when(status == "error").then(pl.concat_str(pl.lit("http_"), http.value)),
        usage_origin=pl.when(nothing & (status != "ok"))
        .then(pl.lit("missing"))
        .when(cut)
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        flags=flag_list({"status_assumed": http.value.is_null() & completed.value.is_null()}),
    )


def _map_days(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    started, ended = buckets.day(fields, "date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        gateway=pl.lit("gpustack"),
        provider=text("provider_name", "provider_type"),
        user=text("user_name", "user_id"),
        api_key_alias=text("api_key_name"),
        model=text("model_route_name", "model_name"),
        operation=_operation(fields),
        region=text("cluster_name"),
        requests=fields.whole("request_count"),
        input_tokens=fields.whole("prompt_token_count"),
        cache_read_tokens=fields.whole("prompt_cached_token_count"),
        output_tokens=fields.whole("completion_token_count"),
        _row=text("id"),
    )
    return buckets.keyed(rows, "gpustack model_usages", "_row")


def _map_export(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    started, ended = buckets.day(fields, "Date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        gateway=pl.lit("gpustack"),
        organization=text("Organization"),
        user=text("User", "User ID"),
        api_key_alias=text("API Key", "API Key ID"),
        model=text("Model"),
        requests=whole("API Requests"),
        input_tokens=whole("Input Tokens"),
        cache_read_tokens=whole("Input Tokens Cached"),
        output_tokens=whole("Output Tokens"),
        _total_tokens=whole("Total Tokens").value,
        _ids=pl.concat_str([text("User ID"), text("API Key ID"), text("Model ID")], ignore_nulls=True),
    )
    sheet = ", ".join(name for name in ("Organization", "Model", "User", "API Key") if name in frame.columns)
    return buckets.keyed(rows, f"gpustack usage by {sheet}", "_ids")


CALLS = Format(
    name="gpustack_usage_details",
    title="GPUStack calls, JSON",
    written_by="GPUStack: rows of the table model_usage_details and its archive",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with started_at, completed_at, prompt_token_count and model_name",
    recognise=lambda head: mostly(head.objects, lambda item: item.keys() >= _CALL),
    map=_map_calls,
    structure=dict.fromkeys((*_SHARED, *_DETAILS), "VARCHAR"),
    semantics=_SEMANTICS,
    traps=(
        "Times are UTC without a zone.",
        "completed of false: the client went before usage came; its tokens are GPUStack's estimate.",
        "Old versions state neither a status nor completed: such rows are taken for answered, and flagged.",
        "access_key is the public half of a key and is not kept.",
    ),
)

CALLS_CSV = csv_twin(CALLS, needed=_CALL, written_by="GPUStack: dump of model_usage_details as CSV")

DAYS = Format(
    name="gpustack_model_usages",
    title="GPUStack daily usage, JSON",
    written_by="GPUStack: rows of the table model_usages",
    target=USAGE_BUCKETS,
    container="json_lines",
    recognised_by="JSON objects with date, request_count, prompt_token_count and model_name",
    recognise=lambda head: mostly(head.objects, lambda item: item.keys() >= _DAY),
    map=_map_days,
    structure=dict.fromkeys((*_SHARED, "request_count"), "VARCHAR"),
    semantics=_SEMANTICS,
    traps=(
        "Sums of a day in the server's roll-up time zone, taken for UTC: no peaks.",
        "Estimated tokens of calls that broke off are in the sums.",
    ),
)

DAYS_CSV = csv_twin(DAYS, needed=_DAY, written_by="GPUStack: dump of model_usages as CSV")


def _recognise_export(head: Head) -> bool:
    return set(head.csv_header) >= _EXPORT


EXPORT = Format(
    name="gpustack_usage_csv",
    title="GPUStack usage export, CSV",
    written_by="GPUStack: the usage page's export, grouped by date",
    target=USAGE_BUCKETS,
    container="csv",
    recognised_by=f"a CSV header with {', '.join(sorted(_EXPORT))}",
    recognise=_recognise_export,
    map=_map_export,
    semantics=_SEMANTICS,
    traps=(
        "Each sheet (by user, by model, by key) sums up the same usage in another way: never add sheets.",
        "Sums of a day in the server's roll-up time zone, taken for UTC: no peaks.",
        "Input Tokens include Input Tokens Cached.",
        "A sheet that is not grouped by date has no period and is not this format.",
    ),
)
