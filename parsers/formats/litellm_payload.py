"""LiteLLM `StandardLoggingPayload`: one JSON object per attempt, as callbacks, S3, GCS and the generic API
write it.

Covers JSON lines, one payload per file, JSON arrays (one of all, or one batch per line) and objects that hold
such a batch. Facts: LiteLLM's logging specification and its issues, see
`FORMAT.traps`. What both LiteLLM formats share (call types, outcomes, usage objects) is in
`parsers/litellm.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import litellm, usage
from parsers.fields import Fields, first_fault
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin, pages_twin
from parsers.usage import USAGE

if TYPE_CHECKING:
    from parsers.format import Context, Head

STRUCTURE = {
    "id": "VARCHAR",
    "litellm_call_id": "VARCHAR",
    "call_id": "VARCHAR",
    "trace_id": "VARCHAR",
    "session_id": "VARCHAR",
    "call_type": "VARCHAR",
    "cache_hit": "VARCHAR",
    "stream": "VARCHAR",
    "status": "VARCHAR",
    "custom_llm_provider": "VARCHAR",
    "startTime": "VARCHAR",
    "endTime": "VARCHAR",
    "completionStartTime": "VARCHAR",
    "model": "VARCHAR",
    "model_group": "VARCHAR",
    "model_id": "VARCHAR",
    "api_base": "VARCHAR",
    "prompt_tokens": "VARCHAR",
    "completion_tokens": "VARCHAR",
    "total_tokens": "VARCHAR",
    "response_cost": "VARCHAR",
    "end_user": "VARCHAR",
    "request_tags": ["VARCHAR"],
    "metadata": {
        "user_api_key_hash": "VARCHAR",
        "user_api_key_alias": "VARCHAR",
        "user_api_key_team_id": "VARCHAR",
        "user_api_key_team_alias": "VARCHAR",
        "user_api_key_org_id": "VARCHAR",
        "user_api_key_project_id": "VARCHAR",
        "user_api_key_user_id": "VARCHAR",
        "user_api_key_end_user_id": "VARCHAR",
        "user_api_key_request_route": "VARCHAR",
        "usage_object": USAGE,
    },
    "hidden_params": {"usage_object": USAGE},
    "response": {"usage": USAGE, "service_tier": "VARCHAR", "choices": [{"finish_reason": "VARCHAR"}]},
    "error_information": {"error_code": "VARCHAR", "error_class": "VARCHAR"},
    "model_parameters": {"max_tokens": "VARCHAR", "max_completion_tokens": "VARCHAR", "tools": ["JSON"]},
    "messages": ["JSON"],
}


_USAGE_OBJECTS = ("metadata.usage_object", "hidden_params.usage_object", "response.usage")
_NEEDED = {"call_type", "startTime", "prompt_tokens"}
_ONE_OF = {"response_cost", "hidden_params"}
_BATCH_NAMES = ("logs", "data", "records", "payloads", "events", "items", "batch")
_BATCH = re.compile(rf'\s*\{{[^{{\[]{{0,2000}}"(?:{"|".join(_BATCH_NAMES)})"\s*:\s*\[\s*\{{')
_PLACEHOLDERS = ("redacted-by-litellm", "litellm_truncated")


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED and bool(_ONE_OF & item.keys()))


def _recognise_batch(head: Head) -> bool:
    """A batch may be larger than the head: the keys of its first payload are looked for in the text."""
    needed = all(f'"{name}"' in head.text for name in (*_NEEDED, "model_group"))
    return needed and bool(_BATCH.match(head.text)) and '"response_cost"' in head.text


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    counts = usage.counts(fields, _USAGE_OBJECTS)
    is_outside = litellm.cache_outside(fields, counts, _USAGE_OBJECTS)
    times = litellm.times(fields)
    cost = fields.money("response_cost")
    limit = fields.whole("model_parameters.max_completion_tokens", "model_parameters.max_tokens")
    error_class, error_code = text("error_information.error_class"), text("error_information.error_code")
    status = litellm.status(text("status"), error_class, error_code)
    streamed = text("stream").str.to_lowercase() == "true"
    known = litellm.Known(
        status=status,
        call_type=text("call_type"),
        request_id=text("id"),
        call_id=text("litellm_call_id", "call_id"),
        counts=counts,
        times=times,
        is_stream=streamed,
        address=text("metadata.user_api_key_request_route", "api_base"),
    )
    rows = fields.frame.select(
        "source_line",
        **litellm.common(known),
        trace_id=text("trace_id"),
        session_id=text("session_id"),
        organization=text("metadata.user_api_key_org_id"),
        team=text("metadata.user_api_key_team_id", "metadata.user_api_key_team_alias"),
        project=text("metadata.user_api_key_project_id"),
        user=text("metadata.user_api_key_user_id"),
        end_user=text("end_user", "metadata.user_api_key_end_user_id"),
        api_key_hash=text("metadata.user_api_key_hash"),
        api_key_alias=text("metadata.user_api_key_alias"),
        tags=litellm.own_tags(fields, "request_tags"),
        provider=text("custom_llm_provider"),
        model_requested=text("model_group"),
        model_served=text("model"),
        endpoint=litellm.endpoint(text("api_base")),
        instance=text("model_id"),
        stream=streamed,
        service_tier=text("response.service_tier"),
        max_output_tokens=limit.value,
        http_status=litellm.http_status(status, error_code),
        error_kind=litellm.error_kind(status, error_class),
        finish_reason=_finish_reason(fields),
        response_cache_hit=litellm.response_cache_hit(text("cache_hit")),
        cost_reported=cost.value,
        _cache_outside=is_outside,
        _reject=first_fault([times.started, *counts.readings, times.ended, cost]),
        _other=~_is_payload(fields),
    )
    return _with_prompt(litellm.with_safe_key(rows, context), fields, context)


def _is_payload(fields: Fields) -> pl.Expr:
    """Whether a record is one: the proxy's own messages stand between them where both go to the console."""
    return fields.raw("call_type", "startTime", "prompt_tokens").is_not_null()


def _finish_reason(fields: Fields) -> pl.Expr:
    if not fields.has("response.choices"):
        return pl.lit(None, dtype=pl.String)
    return pl.col("response.choices").list.first().struct.field("finish_reason")


def _with_prompt(rows: pl.DataFrame, fields: Fields, context: Context) -> pl.DataFrame:
    """Hash tools and messages.

    Absent, redacted or shortened bodies leave the hashes null: they are not the prompt.
    """
    if not fields.has("messages"):
        return rows
    parts = pl.when(~_is_withheld()).then(pl.col("messages"))
    if fields.has("model_parameters.tools"):
        parts = pl.when(parts.list.len() > 0).then(
            pl.concat_list(pl.col("model_parameters.tools").fill_null([]), parts)
        )
    hashes = context.hasher.chain(fields.series(parts), rows["input_tokens"])
    return rows.with_columns(hashes)


def _is_withheld() -> pl.Expr:
    """Whether LiteLLM put its own words in the place of (a part of) the messages."""
    return pl.col("messages").list.eval(pl.element().str.contains_any(list(_PLACEHOLDERS))).list.any()


FORMAT = Format(
    name="litellm_payload",
    title="LiteLLM StandardLoggingPayload",
    written_by="LiteLLM proxy: S3, GCS, generic API and file callbacks",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with call_type, startTime, prompt_tokens and response_cost or hidden_params",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", money="USD"
    ),
    traps=(
        "Each attempt of a call is a row; attempts share litellm_call_id.",
        "response_time is the time to first token for streams: latency is endTime - startTime.",
        "cache_hit is the gateway's own response cache, not the provider's prefix cache.",
        "Failed rows carry 0 tokens, which is unknown, not zero; newer versions carry an estimate.",
        "A client that hangs up is status success with error class ClientDisconnected: cancelled.",
        "Older versions and some routes leave cache tokens outside prompt_tokens; the row shows it.",
        "A /v1/responses call that is bridged to a chat completion is logged at both ends: facts keep one.",
        "The id of a response-cache hit has a suffix _cache_hit<time>.",
    ),
    priority=0,
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)

BATCH_FORMAT = pages_twin(
    FORMAT,
    name="litellm_payload_batches",
    title="LiteLLM StandardLoggingPayload, batches",
    written_by="LiteLLM proxy: generic API callback, as receivers and collectors keep it",
    recognised_by=f"JSON objects that hold an array of payloads under one of {', '.join(_BATCH_NAMES)}",
    recognise=_recognise_batch,
    at=_BATCH_NAMES,
)
