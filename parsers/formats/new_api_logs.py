"""Rows of the table `logs` of one-api and new-api: JSON lines or arrays, CSV dumps, pages of `GET /api/log/`.

Both products and their forks write one table; new-api adds `use_time` and `other`, JSON inside a string; forks of
one-api (one-hub, Laisky's) add `metadata`, the same.
Rows that are no upstream call are counted as other. What counts include is decided by the row: see `traps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import new_api, routes
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_QUOTA_PER_USD = 500_000
_COLUMNS = (
    *("id", "request_id", "upstream_request_id", "created_at", "type", "content", "username"),
    *("user_id", "group", "token_name", "model_name", "quota", "prompt_tokens", "completion_tokens"),
    *("channel", "channel_id", "channel_name", "use_time", "elapsed_time", "request_time", "is_stream"),
    *("trace_id", "cached_prompt_tokens"),
)
_OTHER = (
    *("cache_tokens", "cache_write_tokens", "cache_creation_tokens", "cache_creation_tokens_5m"),
    *("cache_creation_tokens_1h", "input_tokens_total", "audio_input", "audio_output", "claude"),
    *("audio_input_token_count", "image_output"),
    *("usage_semantic", "frt", "is_model_mapped", "upstream_model_name", "request_path"),
    *("actual_quota", "error_type", "error_code", "status_code"),
)
_METADATA: Structure = {
    **dict.fromkeys(("cached_tokens", "cached_read_tokens", "cached_write_tokens"), "VARCHAR"),
    **dict.fromkeys(("input_audio_tokens", "output_audio_tokens"), "VARCHAR"),
    "cache_write_tokens": dict.fromkeys(("ephemeral_5m", "ephemeral_1h"), "VARCHAR"),
}
_STRUCTURE: Structure = {**dict.fromkeys(_COLUMNS, "VARCHAR"), "other": "JSON", "metadata": "JSON"}
_EMBEDDED: dict[str, Structure] = {
    "other": {
        **dict.fromkeys(_OTHER, "VARCHAR"),
        "admin_info": {"local_count_tokens": "VARCHAR"},
        "stream_status": {"end_reason": "VARCHAR"},
    },
    "metadata": _METADATA,
}
# one-api's page, new-api's page, one-hub's page; Navicat's, DBeaver's and phpMyAdmin's (as the first) exports
_PLACES = ("data", "data.items", "data.data", "RECORDS", "logs", "items")
_NEEDED = {"created_at", "type", "model_name", "quota", "prompt_tokens", "completion_tokens"}


def _recognise_rows(head: Head) -> bool:
    return bool(head.objects) and all(item.keys() >= _NEEDED for item in head.objects[:3])


def _recognise_pages(head: Head) -> bool:
    """A page may be larger than the head: the keys are looked for in its text."""
    keys = all(f'"{name}"' in head.text for name in _NEEDED)
    is_held = any(f'"{path.split(".")[0]}"' in head.text for path in _PLACES)
    return keys and is_held and head.text.lstrip()[:1] in ("{", "[") and not _recognise_rows(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    kind, quota, http_status = whole("type").needed("type"), fields.money("quota"), whole("other.status_code")
    times, time_reads = new_api.times(fields, kind.value)
    written, written_reads = new_api.cache_writes(fields)
    whole_input = whole("other.input_tokens_total")
    reads = {
        "input_tokens": whole("prompt_tokens"),
        "output_tokens": whole("completion_tokens"),
        "cache_read_tokens": whole(
            *("other.cache_tokens", "cached_prompt_tokens"),
            *("metadata.cached_tokens", "metadata.cached_read_tokens"),
        ),
        "audio_input_tokens": whole(
            "other.audio_input", "other.audio_input_token_count", "metadata.input_audio_tokens"
        ),
        "audio_output_tokens": whole("other.audio_output", "metadata.output_audio_tokens"),
        # In spite of its name: the images of the prompt.
        "image_input_tokens": whole("other.image_output"),
    }
    counts = {name: read.value for name, read in reads.items()} | written
    counts["input_tokens"] = pl.coalesce(whole_input.value, counts["input_tokens"])
    nothing = pl.sum_horizontal(counts.values()) == 0
    failed = new_api.is_failed(fields, kind.value)
    ended_by, gone, broken = new_api.stream_end(fields)
    is_test = (kind.value == new_api.ERROR) & new_api.is_one_api(fields)
    is_guess = failed | new_api.truth(text("other.admin_info.local_count_tokens"))
    is_claude = new_api.truth(text("other.claude")) | (text("other.usage_semantic") == "anthropic")
    return fields.frame.select(
        "source_line",
        request_id=new_api.request_id(fields, failed),
        record_key=new_api.record_key(fields, failed),
        call_id=text("request_id"),
        trace_id=text("trace_id"),
        **times,
        user=text("username", "user_id"),
        team=text("group"),
        api_key_alias=text("token_name"),
        tags=pl.when(is_test).then(pl.lit(["channel_test"])),
        gateway=pl.when(new_api.is_one_api(fields)).then(pl.lit("one-api")).otherwise(pl.lit("new-api")),
        model_requested=text("model_name"),
        model_served=pl.when(new_api.truth(text("other.is_model_mapped"))).then(
            text("other.upstream_model_name")
        ),
        operation=routes.operation(text("other.request_path")),
        endpoint=routes.endpoint(text("other.request_path")),
        stream=new_api.truth(text("is_stream")),
        instance=text("channel_name", "channel_id", "channel"),
        **{name: pl.when(~nothing).then(count) for name, count in counts.items()},
        _cache_outside=pl.when(whole_input.value.is_not_null())
        .then(pl.lit(value=False))
        .when(is_claude)
        .then(pl.lit(value=True)),
        status=pl.when(gone)
        .then(pl.lit("cancelled"))
        .when(failed | broken)
        .then(pl.lit("error"))
        .otherwise(pl.lit("ok")),
        http_status=pl.when(~failed).then(200).when(http_status.value >= 100).then(http_status.value),  # noqa: PLR2004
        error_kind=pl.when(failed)
        .then(text("other.error_code", "other.error_type").fill_null("unknown"))
        .when(gone | broken)
        .then(ended_by),
        cost_reported=quota.value / _QUOTA_PER_USD,
        cost_currency=pl.lit("USD"),
        usage_origin=pl.when(nothing)
        .then(pl.lit("missing"))
        .when(is_guess)
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        _reject=first_fault(
            [kind, *time_reads, quota, *reads.values(), whole_input, *written_reads, http_status]
        ),
        _other=new_api.is_no_call(fields, kind.value, quota.value),
    )


FORMAT = Format(
    name="new_api_logs",
    title="one-api and new-api log rows, JSON",
    written_by="one-api, new-api and forks: rows of the table `logs` as JSON lines or as an array",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with created_at, type, model_name, quota and prompt_tokens",
    recognise=_recognise_rows,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="absent", clock="utc", money="USD"
    ),
    traps=(
        "Rows marked claude or usage_semantic anthropic leave cache reads and writes outside prompt_tokens.",
        "other.input_tokens_total, where it is there, is the whole input whatever the row is marked.",
        "created_at is the end of the call; use_time is cut to whole seconds, elapsed_time is ms.",
        "frt (ms to the first token) of -1000 means none.",
        "A stream that broke off (stream_status) is a row of type 2: an error, or cancelled if the client left.",
        "image_output counts the images of the prompt.",
        "use_time and frt of a retried call count from the client's call, failed attempts included.",
        "Each failed attempt is a row of type 5 with the request_id of the one that was served.",
        "Type 5 of one-api is a channel's test (tag channel_test); new-api's tests look like any call.",
        "Refunds (type 6, once a negative quota) and settlements of tasks are no calls: other lines.",
        "So the sum of cost_reported is what was charged first, not the balance after refunds.",
        "quota / 500,000 is USD unless the site changed QuotaPerUnit: the gateway's price, not the vendor's.",
        "Counts of 0 and 0 mean that no usage came; tasks and refusals cost without tokens.",
        "admin_info.local_count_tokens marks the gateway's own estimates; a user's own pages hide it.",
        "A user's own pages renumber id. The group that sets a user's prices is taken for the team.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed=_NEEDED,
    written_by="one-api, new-api and forks: dump of the table `logs` as CSV",
)

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="new_api_log_pages",
    title="one-api and new-api log pages",
    written_by="one-api, new-api and forks: answers of GET /api/log/ and /api/log/self; exports of database tools",
    recognised_by=f"JSON objects that hold log rows under {', '.join(_PLACES)}",
    recognise=_recognise_pages,
    at=_PLACES,
)
