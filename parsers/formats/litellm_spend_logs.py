"""LiteLLM `LiteLLM_SpendLogs`: rows of the proxy's Postgres table, as CSV, or as JSON lines, arrays or
Pub/Sub messages.

The table has no cache columns: cache tokens stand in `metadata.usage_object` only. In CSV and on Pub/Sub
`metadata` and `request_tags` are JSON inside a string. What LiteLLM's shapes share is in
`parsers/litellm.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import litellm, usage
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin
from parsers.usage import USAGE

if TYPE_CHECKING:
    from parsers.format import Context, Head

_METADATA = {
    "usage_object": USAGE,
    "additional_usage_values": USAGE,
    "litellm_call_id": "VARCHAR",
    "user_api_key_alias": "VARCHAR",
    "user_api_key_team_id": "VARCHAR",
    "user_api_key_org_id": "VARCHAR",
    "user_api_key_project_id": "VARCHAR",
    "user_api_key_user_id": "VARCHAR",
    "original_model_group": "VARCHAR",
    "status": "VARCHAR",
    "error_information": {"error_code": "VARCHAR", "error_class": "VARCHAR"},
}
_EMBEDDED = {"metadata": _METADATA, "request_tags": ["VARCHAR"]}
_COLUMNS = (
    "request_id",
    "litellm_call_id",
    "call_type",
    "api_key",
    "spend",
    "total_tokens",
    "prompt_tokens",
    "completion_tokens",
    "startTime",
    "endTime",
    "completionStartTime",
    "request_duration_ms",
    "model",
    "model_id",
    "model_group",
    "custom_llm_provider",
    "api_base",
    "user",
    "cache_hit",
    "team_id",
    "organization_id",
    "end_user",
    "session_id",
    "status",
)
_USAGE_OBJECTS = ("metadata.usage_object", "metadata.additional_usage_values")
# The proxy's pages; exports of DBeaver and Navicat
_PLACES = ("data", "LiteLLM_SpendLogs", "RECORDS")
_NEEDED = {"request_id", "call_type", "spend", "prompt_tokens", "completion_tokens", "startTime"}


def _recognise_json(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_pages(head: Head) -> bool:
    """A page may be larger than the head: the keys are looked for in its text."""
    is_held = any(is_page(head, (place, *_NEEDED)) for place in _PLACES)
    return is_held and not _recognise_json(head)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    counts = usage.counts(fields, _USAGE_OBJECTS)
    is_outside = litellm.cache_outside(fields, counts, _USAGE_OBJECTS)
    times = litellm.times(fields)
    cost, duration = fields.money("spend"), fields.number("request_duration_ms")
    error_class = text("metadata.error_information.error_class")
    error_code = text("metadata.error_information.error_code")
    status = litellm.status(text("status", "metadata.status"), error_class, error_code)
    # The table does not say whether a call was streamed; without streaming the first token comes with the
    # last.
    streamed = times.first_token.value < times.ended.value
    known = litellm.Known(
        status=status,
        call_type=text("call_type"),
        request_id=text("request_id"),
        call_id=text("litellm_call_id", "metadata.litellm_call_id"),
        counts=counts,
        times=times,
        is_stream=streamed,
        address=text("api_base"),
    )
    rows = fields.frame.select(
        "source_line",
        **litellm.common(known),
        duration_ms=duration.value,
        trace_id=text("session_id"),
        session_id=text("session_id"),
        organization=text("organization_id", "metadata.user_api_key_org_id"),
        team=text("team_id", "metadata.user_api_key_team_id"),
        project=text("metadata.user_api_key_project_id"),
        user=text("user", "metadata.user_api_key_user_id"),
        end_user=text("end_user"),
        api_key_hash=text("api_key"),
        api_key_alias=text("metadata.user_api_key_alias"),
        tags=litellm.own_tags(fields, "request_tags"),
        provider=text("custom_llm_provider"),
        model_requested=text("metadata.original_model_group", "model_group"),
        model_served=text("model"),
        endpoint=litellm.endpoint(text("api_base")),
        instance=text("model_id"),
        stream=pl.when(streamed).then(pl.lit(value=True)),
        http_status=litellm.http_status(status, error_code),
        error_kind=litellm.error_kind(status, error_class),
        response_cache_hit=litellm.response_cache_hit(text("cache_hit")),
        cost_reported=cost.value,
        _cache_outside=is_outside,
        _reject=first_fault([times.started, *counts.readings, times.ended, cost, duration]),
        _other=pl.lit(value=False),
    )
    return litellm.with_safe_key(rows, context)


_TRAPS = (
    "The provider's cache tokens are in metadata.usage_object only; additional_usage_values repeats them.",
    "request_id is the primary key and is not unique per call: colliding calls are lost before the export.",
    "Failed attempts before a success have no row; failed calls carry estimated input tokens with spend 0.",
    "cache_hit is a string: True, False, None or empty.",
    "session_id repeats the trace id where the client sent none.",
)

FORMAT = Format(
    name="litellm_spend_logs",
    title="LiteLLM SpendLogs, JSON",
    written_by="LiteLLM proxy: /spend/logs, table dump, GCS Pub/Sub",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with request_id, call_type, spend, prompt_tokens and startTime",
    recognise=_recognise_json,
    map=_map,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), "metadata": "JSON", "request_tags": "JSON"},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", money="USD"
    ),
    traps=_TRAPS,
    priority=1,
)

CSV_FORMAT = csv_twin(FORMAT, needed=_NEEDED, written_by="LiteLLM proxy: table dump as CSV")

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="litellm_spend_log_pages",
    title="LiteLLM SpendLogs pages",
    written_by="LiteLLM proxy: answers of /spend/logs/ui and /spend/logs/v2; exports of database tools",
    recognised_by="JSON objects whose data (or table) holds rows with request_id, call_type, spend and startTime",
    recognise=_recognise_pages,
    at=_PLACES,
)
