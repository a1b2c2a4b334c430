"""Rows of the table `logs` of one-api and new-api: JSON lines or arrays, CSV dumps, pages of `GET /api/log/`.

Both products and their forks write one table; new-api adds `use_time` and `other`, JSON inside a string. Rows that are no
upstream call (top-ups, management, refunds, settlements of tasks) are counted as other. What the counts of a row include is
decided by the row: see `FORMAT.traps`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from parsers import routes
from parsers.clock import flag_list
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.readers import duckdb_structure, selected
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.fields import Read
    from parsers.format import Context, Head

_QUOTA_PER_USD = 500_000
_CONSUME, _ERROR = 2, 5
_TEST_FAILED = "测试失败"
_TRUE = ("true", "t", "1")
_COLUMNS = (
    *(
        "id",
        "request_id",
        "upstream_request_id",
        "created_at",
        "type",
        "content",
        "username",
        "user_id",
        "group",
    ),
    *("token_name", "model_name", "quota", "prompt_tokens", "completion_tokens", "channel", "channel_id"),
    *("channel_name", "use_time", "elapsed_time", "is_stream"),
)
_OTHER = (
    *("cache_tokens", "cache_write_tokens", "cache_creation_tokens", "cache_creation_tokens_5m"),
    *(
        "cache_creation_tokens_1h",
        "input_tokens_total",
        "audio_input",
        "audio_output",
        "claude",
        "usage_semantic",
        "frt",
    ),
    *(
        "is_model_mapped",
        "upstream_model_name",
        "request_path",
        "actual_quota",
        "error_type",
        "error_code",
        "status_code",
    ),
)
_STRUCTURE = {**dict.fromkeys(_COLUMNS, "VARCHAR"), "other": "JSON"}
_EMBEDDED = {"other": {**dict.fromkeys(_OTHER, "VARCHAR"), "admin_info": {"local_count_tokens": "VARCHAR"}}}
_NEEDED = {"created_at", "type", "model_name", "quota", "prompt_tokens", "completion_tokens"}

# A page holds its rows as `data` (one-api) or as `data.items` (new-api).
_RECORDS = f"""
SELECT {selected(list(_STRUCTURE), _EMBEDDED)}
FROM (SELECT unnest(entry) FROM (
    SELECT unnest(from_json(
        CASE json_type(data) WHEN 'ARRAY' THEN data ELSE data -> '$.items' END,
        '[{duckdb_structure(_STRUCTURE)}]'
    )) AS entry FROM document
))
"""


def _recognise_rows(head: Head) -> bool:
    return bool(head.objects) and all(item.keys() >= _NEEDED for item in head.objects[:3])


def _recognise_csv(head: Head) -> bool:
    return set(head.csv_header) >= _NEEDED


def _recognise_pages(head: Head) -> bool:
    """A page may be larger than the head: the keys are looked for in its text."""
    text = head.text.lstrip()
    keys = all(f'"{name}"' in text for name in ("success", "data", *_NEEDED))
    return text.startswith("{") and keys and not _recognise_rows(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    kind, quota = whole("type").needed("type"), fields.money("quota")
    prompt, completion = whole("other.input_tokens_total", "prompt_tokens"), whole("completion_tokens")
    parts = {
        "cache_read_tokens": whole("other.cache_tokens"),
        "audio_input_tokens": whole("other.audio_input"),
        "audio_output_tokens": whole("other.audio_output"),
    }
    written, written_reads = _written(fields)
    times, time_reads = _times(fields)
    is_test = (kind.value == _ERROR) & _is_one_api(fields)
    failed = (kind.value == _ERROR) & (
        ~is_test | text("content").str.contains(_TEST_FAILED).fill_null(value=False)
    )
    counts = {"input_tokens": prompt.value, "output_tokens": completion.value, **written}
    counts |= {name: read.value for name, read in parts.items()}
    nothing = pl.sum_horizontal(counts.values()) == 0
    is_claude = text("other.claude").is_in(_TRUE) | (text("other.usage_semantic") == "anthropic")
    is_guess = text("other.admin_info.local_count_tokens").is_in(_TRUE) | failed
    return fields.frame.select(
        "source_line",
        request_id=_request_id(fields, failed),
        record_key=_record_key(fields, failed),
        call_id=text("request_id"),
        **times,
        user=text("username", "user_id"),
        team=text("group"),
        api_key_alias=text("token_name"),
        tags=pl.when(is_test).then(pl.lit(["channel_test"])),
        gateway=pl.when(_is_one_api(fields)).then(pl.lit("one-api")).otherwise(pl.lit("new-api")),
        model_requested=text("model_name"),
        model_served=pl.when(text("other.is_model_mapped").is_in(_TRUE)).then(
            text("other.upstream_model_name")
        ),
        operation=routes.operation(text("other.request_path")),
        endpoint=routes.endpoint(text("other.request_path")),
        stream=_truth(text("is_stream")),
        instance=text("channel_name", "channel", "channel_id"),
        **{name: pl.when(~nothing).then(count) for name, count in counts.items()},
        _cache_outside=pl.when(fields.raw("other.input_tokens_total").is_not_null())
        .then(pl.lit(value=False))
        .when(is_claude)
        .then(pl.lit(value=True)),
        status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        http_status=pl.when(failed).then(whole("other.status_code").value).otherwise(200),
        error_kind=pl.when(failed).then(text("other.error_code", "other.error_type").fill_null("unknown")),
        cost_reported=quota.value / _QUOTA_PER_USD,
        cost_currency=pl.lit("USD"),
        usage_origin=pl.when(nothing)
        .then(pl.lit("missing"))
        .when(is_guess)
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        _reject=first_fault([kind, *time_reads, quota, prompt, completion, *parts.values(), *written_reads]),
        _other=_is_no_call(kind.value, quota.value, text("other.actual_quota")),
    )


def _truth(word: pl.Expr) -> pl.Expr:
    return word.str.to_lowercase().is_in(_TRUE)


def _is_one_api(fields: Fields) -> pl.Expr:
    """new-api's rows have `use_time`, one-api's have `elapsed_time` or, before that, neither."""
    return fields.raw("use_time").is_null()


def _is_no_call(kind: pl.Expr, quota: pl.Expr, settled: pl.Expr) -> pl.Expr:
    """Top-ups, management, refunds, settlements, and kinds that a fork may have added."""
    known_call = kind.is_in([_CONSUME, _ERROR]) & (quota.fill_null(0) >= 0) & settled.is_null()
    return (~known_call).fill_null(value=False)


def _request_id(fields: Fields, failed: pl.Expr) -> pl.Expr:
    """One call's own name: failed attempts share `request_id` with the one that was served."""
    row = pl.concat_str([fields.text("request_id"), fields.text("id")], separator="#")
    upstream, shared = fields.text("upstream_request_id"), fields.text("request_id")
    return pl.coalesce(upstream, pl.when(failed).then(row).otherwise(shared), shared, fields.text("id"))


def _record_key(fields: Fields, failed: pl.Expr) -> pl.Expr:
    """A user's own pages renumber `id`: it is a key only where rows have no better name."""
    names = (
        "request_id",
        "created_at",
        "type",
        "channel",
        "channel_id",
        "quota",
        "prompt_tokens",
        "completion_tokens",
    )
    number = pl.when(failed | fields.text("request_id").is_null()).then(fields.text("id"))
    return pl.concat_str([*(fields.text(name) for name in names), number], separator="|", ignore_nulls=True)


def _written(fields: Fields) -> tuple[dict[str, pl.Expr], list[Read]]:
    """Cache writes by lifetime: the split holds where it adds up to the total, else all is of 5 minutes."""
    total = fields.whole("other.cache_write_tokens", "other.cache_creation_tokens")
    five, hour = (
        fields.whole("other.cache_creation_tokens_5m"),
        fields.whole("other.cache_creation_tokens_1h"),
    )
    split = pl.when(five.value.is_not_null() | hour.value.is_not_null()).then(
        five.value.fill_null(0) + hour.value.fill_null(0)
    )
    all_written = pl.coalesce(total.value, split)
    hour_part = pl.when(split == all_written).then(hour.value)
    return {
        "cache_write_5m_tokens": all_written - hour_part.fill_null(0),
        "cache_write_1h_tokens": hour_part,
    }, [total, five, hour]


def _times(fields: Fields) -> tuple[dict[str, pl.Expr], list[Read]]:
    """From the end, which is what is logged, back to the start.

    `use_time` is cut to whole seconds and, like `frt`, counts from the client's call: an attempt begins no earlier than
    the failure before it. A duration of 0 is one below the clock's step: unknown.
    """
    ended = fields.instant("created_at").needed("created_at")
    seconds, milliseconds, frt = (fields.number(name) for name in ("use_time", "elapsed_time", "other.frt"))
    first_ms = pl.when(frt.value >= 0).then(frt.value)
    spent_ms = pl.max_horizontal(milliseconds.value, seconds.value * 1000, first_ms)
    known = spent_ms > 0
    arrived = ended.value - _milliseconds(pl.when(known).then(spent_ms).otherwise(0))
    order = [ended.value, fields.raw("type") != _ERROR]
    before = ended.value.shift().over(fields.text("request_id"), order_by=order)
    started = pl.when(fields.text("request_id").is_not_null()).then(pl.max_horizontal(arrived, before))
    return {
        "started_at": pl.coalesce(started, arrived),
        "ended_at": pl.when(known).then(ended.value),
        "first_token_at": pl.when(_truth(fields.text("is_stream"))).then(arrived + _milliseconds(first_ms)),
        "flags": flag_list({"whole_second_times": known & milliseconds.value.is_null()}),
    }, [ended, seconds, milliseconds, frt]


def _milliseconds(value: pl.Expr) -> pl.Expr:
    return pl.duration(microseconds=(value * 1000).round().cast(pl.Int64, strict=False))


FORMAT = Format(
    name="new_api_logs",
    title="one-api and new-api log rows, JSON",
    written_by="one-api, new-api and forks: rows of the table `logs` as JSON lines or as an array",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with created_at, type, model_name, quota, prompt_tokens and completion_tokens",
    recognise=_recognise_rows,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="absent", clock="utc"),
    traps=(
        "Rows marked claude or usage_semantic anthropic leave cache reads and writes outside prompt_tokens.",
        "other.input_tokens_total, where it is there, is the whole input whatever the row is marked.",
        "created_at is the end of the call in whole seconds; use_time is cut to seconds, elapsed_time is ms.",
        "frt (ms to the first token) of -1000 means none.",
        "use_time and frt of a retried call count from the client's call, failed attempts included.",
        "Each failed attempt is a row of type 5 with the request_id of the one that was served.",
        "Type 5 of one-api is a channel's test (tag channel_test); channel tests of new-api look like any call.",
        "Refunds (type 6, older: negative quota) and settlements of tasks are no calls and are counted as "
        "other lines: cost_reported is what was charged first, and its sum is above the gateway's balance.",
        "quota / 500,000 is USD unless the site changed QuotaPerUnit; it is the gateway's price, not the vendor's.",
        "Counts of 0 and 0 mean that no usage came; admin_info.local_count_tokens marks the gateway's estimates.",
        "A user's own pages renumber id and hide admin_info: estimates can't be told there.",
        "A refusal or a task's submission may cost without tokens.",
    ),
)

CSV_FORMAT = replace(
    FORMAT,
    name="new_api_logs_csv",
    title="one-api and new-api log rows, CSV",
    written_by="one-api, new-api and forks: dump of the table `logs` as CSV",
    container="csv",
    recognised_by="a CSV header with created_at, type, model_name, quota, prompt_tokens and completion_tokens",
    recognise=_recognise_csv,
    structure=None,
    priority=1,
)

PAGES_FORMAT = replace(
    FORMAT,
    name="new_api_log_pages",
    title="one-api and new-api log pages",
    written_by="one-api, new-api and forks: answers of GET /api/log/ and /api/log/self",
    container="json_document",
    recognised_by="JSON objects with success and data that holds log rows (or items with log rows)",
    recognise=_recognise_pages,
    structure={"data": "JSON"},
    embedded={},
    records=_RECORDS,
    priority=2,
)
