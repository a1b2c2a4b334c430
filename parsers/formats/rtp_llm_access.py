"""RTP-LLM's access log of dash_sc calls: one JSON object per call, with its tokens and times.

Belongs here: records of the frontend, which counts tokens. Does not belong here: the older access_r*_s*.log,
whose request and response have no stable fields. What a forwarder logs of the same call is other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.durations import before
from parsers.fields import CLASS_NAME, Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_TEXTS = (
    *("ts", "ts_epoch_ms", "request_enter_ts_epoch_ms", "first_token_ts_epoch_ms", "component_role"),
    *("request_id", "upstream_request_id", "model_name", "server_id", "status", "finished", "finish_reason"),
    *(
        "input_token_len",
        "output_token_len",
        "prompt_cached_token_num",
        "latency_ttft_ms",
        "latency_total_ms",
    ),
)
_GONE = ("CANCELLED", "CLIENT_CANCELLED")


def _recognise(head: Head) -> bool:
    return mostly(
        head.objects,
        lambda item: (
            "ts_epoch_ms" in item
            and bool({"input_token_len", "backend_latency_total_ms"} & item.keys())
            and bool({"latency_total_ms", "backend_latency_total_ms"} & item.keys())
        ),
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    at = fields.instant("ts_epoch_ms", "ts").needed("ts_epoch_ms")
    entered, first = fields.instant("request_enter_ts_epoch_ms"), fields.instant("first_token_ts_epoch_ms")
    duration = fields.number("latency_total_ms")
    begins = first.value > at.value
    started = pl.coalesce(entered.value, pl.when(begins).then(at.value), before(at.value, duration.value))
    state = text("status")
    gone, answered = state.is_in(_GONE), state.str.to_uppercase() == "OK"
    reason = text("finish_reason")
    return fields.rows(
        other=(text("component_role") == "forwarder").fill_null(value=False),
        request_id=text("request_id"),
        record_key=pl.concat_str(
            pl.lit("rtp-llm"), text("request_id"), at.value.dt.timestamp("us"), separator="|"
        ),
        call_id=text("upstream_request_id"),
        started_at=started,
        first_token_at=first,
        ended_at=pl.when(~begins.fill_null(value=False)).then(at.value),
        ttft_ms=fields.number("latency_ttft_ms"),
        duration_ms=duration,
        provider=pl.lit("rtp-llm"),
        model_served=text("model_name"),
        instance=pl.coalesce(pl.lit(context.options.get("instance"), pl.String), text("server_id")),
        stream=pl.lit(value=True),
        input_tokens=fields.whole("input_token_len"),
        cache_read_tokens=fields.whole("prompt_cached_token_num"),
        output_tokens=fields.whole("output_token_len"),
        status=pl.when(gone.fill_null(value=False))
        .then(pl.lit("cancelled"))
        .when(answered.fill_null(value=True))
        .then(pl.lit("ok"))
        .otherwise(pl.lit("error")),
        error_kind=pl.when(~answered & ~gone).then(
            pl.when(state.str.contains(CLASS_NAME)).then(state).otherwise(pl.lit("unknown"))
        ),
        # The engine's own numbers are no reasons.
        finish_reason=pl.when(reason.str.contains(CLASS_NAME)).then(reason),
    )


FORMAT = Format(
    name="rtp_llm_access",
    title="RTP-LLM access log",
    written_by="RTP-LLM's dash_sc frontend: access log, one JSON object per call",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with ts_epoch_ms, input_token_len and latency_total_ms (or a forwarder's)",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys(_TEXTS, "VARCHAR"),
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc"),
    traps=(
        "Forwarders log the same call without tokens: their records are other.",
        "ts is the end of the call, but its start where the first token came after it.",
        "input_ids and generated_ids, which may make lines of 100 kB, are not read.",
        "status is the outcome's class: OK, a gRPC code or BACKEND_*; its message is not kept.",
        "output_token_len of a cancelled call is what was sent until then.",
    ),
)
