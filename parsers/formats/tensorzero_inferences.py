"""TensorZero's calls of models: rows of the table `ModelInference` as lines, arrays, CSV, pages of its API.

`ChatInference` and `JsonInference` hold the client's calls without token counts: other files. Columns that a
query joined from them (`function_name`, `variant_name`, `episode_id`) are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import usage
from parsers.clock import flag_list
from parsers.durations import before
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.records import INSTANT, REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("id", "inference_id", "model_name", "model_provider_name", "input_tokens", "output_tokens", "cost"),
    *("response_time_ms", "ttft_ms", "cached", "finish_reason", "timestamp", "episode_id", "function_name"),
    *("variant_name", "provider_cache_read_input_tokens", "provider_cache_write_input_tokens"),
)
_EMBEDDED: dict[str, Structure] = {
    "raw_response": {"usage": usage.USAGE, "type": "VARCHAR", "model": "VARCHAR", "service_tier": "VARCHAR"},
    "raw_request": {"max_tokens": "VARCHAR", "max_completion_tokens": "VARCHAR"},
}
_NEEDED = {"id", "inference_id", "model_name", "model_provider_name", "input_tokens", "output_tokens"}
_UUID_7 = r"^([0-9a-fA-F]{8})-([0-9a-fA-F]{4})-7"


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_pages(head: Head) -> bool:
    return is_page(head, ("model_inferences", *_NEEDED)) and not _recognise(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    counts = usage.counts(fields, ("raw_response.usage",), row="raw_response.usage.")
    stated, duration, ttft = (
        fields.instant("timestamp"),
        fields.number("response_time_ms"),
        fields.number("ttft_ms"),
    )
    # The id is made when the answer is complete, and holds that instant in ms; timestamp is cut to seconds.
    ended = pl.coalesce(_instant_of_uuid_7(text("id")), stated.value)
    started = before(ended, duration.value)
    detail = usage.columns(counts, pl.lit(value=True))
    read, written = whole("provider_cache_read_input_tokens"), whole("provider_cache_write_input_tokens")
    has_columns = read.value.is_not_null() | written.value.is_not_null()
    is_stream, of_anthropic = ttft.value.is_not_null(), text("model_provider_name").str.contains("anthropic")
    excludes_cached = is_stream & of_anthropic & ~has_columns & counts.prompt.value.is_null()
    return fields.rows(
        **detail
        | {
            "_total_tokens": pl.lit(None, dtype=pl.Int64),
            "cache_read_tokens": pl.coalesce(read.value, detail["cache_read_tokens"]),
            "cache_write_5m_tokens": pl.when(written.value.is_not_null() & counts.cache_write.value.is_null())
            .then(written.value)
            .otherwise(detail["cache_write_5m_tokens"]),
        },
        request_id=text("id"),
        record_key=text("id"),
        call_id=text("inference_id"),
        session_id=text("episode_id"),
        started_at=started,
        ended_at=pl.when(duration.value.is_not_null()).then(ended),
        duration_ms=duration,
        ttft_ms=ttft,
        project=text("function_name"),
        gateway=pl.lit("tensorzero"),
        provider=text("model_provider_name"),
        model_requested=text("model_name"),
        model_served=text("raw_response.model", "model_name"),
        operation=pl.lit("chat"),
        instance=text("variant_name"),
        service_tier=text("raw_response.service_tier"),
        stream=pl.when(ttft.value.is_not_null()).then(pl.lit(value=True)),
        max_output_tokens=whole("raw_request.max_completion_tokens", "raw_request.max_tokens"),
        input_tokens=whole("input_tokens"),
        output_tokens=whole("output_tokens"),
        _cache_outside=pl.when(~has_columns & (text("raw_response.type") == "message")).then(
            pl.lit(value=True)
        ),
        status=pl.lit("ok"),
        finish_reason=text("finish_reason"),
        response_cache_hit=fields.truth("cached").value.fill_null(value=False),
        cost_reported=fields.money("cost"),
        cost_currency=pl.lit("USD"),
        flags=flag_list({"input_excludes_cached": excludes_cached}),
        other=text("inference_id").is_null(),
    )


def _instant_of_uuid_7(uuid: pl.Expr) -> pl.Expr:
    digits = uuid.str.extract_groups(_UUID_7)
    ms = (digits.struct[0] + digits.struct[1]).str.to_integer(base=16, strict=False)
    return (ms * 1000).cast(INSTANT)


FORMAT = Format(
    name="tensorzero_inferences",
    title="TensorZero model inferences, JSON",
    written_by="TensorZero: rows of the table `ModelInference` (ClickHouse, Postgres)",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with inference_id, model_name, model_provider_name and input_tokens",
    recognise=_recognise,
    map=_map,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", money="USD"),
    traps=(
        "One call of a client makes several rows: candidates, judges, retries. They share call_id.",
        "Only calls that were answered have rows.",
        "input_tokens is the provider's word: Anthropic's leaves cached tokens out, as raw_response shows.",
        "Cached tokens of streamed answers (raw_response holds chunks) are unknown without columns for them:",
        "Anthropic's input is then without them, and flagged (input_excludes_cached).",
        "Rows with cached true were answered from TensorZero's store: response_cache_hit, counts repeated.",
        "Times come from the id (UUIDv7, made at the end) and response_time_ms.",
        "Some versions added up cumulative usage of streams: input_tokens far too high.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT, needed=_NEEDED, written_by="TensorZero: dump of the table `ModelInference` as CSV"
)

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="tensorzero_inference_pages",
    title="TensorZero model inference pages",
    written_by="TensorZero: answers of GET /internal/model_inferences",
    recognised_by="JSON objects with model_inferences that holds rows",
    recognise=_recognise_pages,
    at=("model_inferences",),
)
