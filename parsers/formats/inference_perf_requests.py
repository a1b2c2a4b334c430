"""Per-request report of inference-perf (`per_request_lifecycle_metrics.json`): one JSON array, an object per request.

Belongs here: its records, of releases with flat and with nested counts. Does not belong here: its summaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.clock import flag_list
from parsers.durations import span
from parsers.fields import Fields, Read
from parsers.format import Format, Head, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import INSTANT, REQUESTS
from parsers.values import relative_origin

if TYPE_CHECKING:
    from parsers.format import Context

_FIRST = "inference_perf.first_s"


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(
        head.objects,
        lambda item: (
            {"start_time", "end_time", "info", "error"} <= item.keys()
            and isinstance(item["info"], dict)
            and bool({"output_token_times", "output_tokens", "response_metrics"} & item["info"].keys())
        ),
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    start = fields.number("start_time").needed("start_time")
    ended = fields.number("end_time")
    zero_s = context.carried.setdefault(_FIRST, fields.frame.select(start.value.min()).item())
    first = fields.raw("info.output_token_times", "info.response_metrics.output_token_times")
    first_s = first.str.json_path_match("$[0]").cast(pl.Float64, strict=False)
    failed = fields.text("error.error_type", "error.error_msg").is_not_null()
    ttft_ms = (first_s - start.value) * 1000
    asked = fields.raw("request")
    is_asked = pl.when(asked.str.starts_with("{")).then(asked)
    limit = is_asked.str.json_path_match("$.max_tokens").cast(pl.Int64, strict=False)
    begun = pl.lit(relative_origin(context), INSTANT) + span((start.value - pl.lit(zero_s)) * 1000)
    return fields.rows(
        started_at=Read(begun, start.fault),
        ttft_ms=pl.when(ttft_ms >= 0).then(ttft_ms.round(6)),
        duration_ms=((ended.value - start.value) * 1000).round(6),
        model_requested=is_asked.str.json_path_match("$.model"),
        stream=pl.when(first_s.is_not_null()).then(pl.lit(value=True)),
        max_output_tokens=limit,
        input_tokens=fields.whole("info.input_tokens", "info.request_metrics.text.input_tokens"),
        output_tokens=fields.whole("info.output_tokens", "info.response_metrics.output_tokens"),
        usage_origin=pl.lit("estimated"),
        status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=pl.when(failed).then(outcome.error_kind(fields.raw("error.error_type"))),
        flags=flag_list({"relative_clock": pl.lit(value=True)}),
    )


FORMAT = Format(
    name="inference_perf_requests",
    title="inference-perf per-request report",
    written_by="inference-perf: per_request_lifecycle_metrics.json",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with start_time, end_time, error and info, which holds counts of output tokens",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(("start_time", "end_time", "request"), "VARCHAR"),
        "info": {
            **dict.fromkeys(("input_tokens", "output_tokens"), "VARCHAR"),
            "output_token_times": "JSON",
            "request_metrics": {"text": {"input_tokens": "VARCHAR"}},
            "response_metrics": {"output_tokens": "VARCHAR", "output_token_times": "JSON"},
        },
        "error": {"error_type": "VARCHAR", "error_msg": "VARCHAR"},
    },
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        "Times are of a clock of the machine's own: the first request is taken at the option origin.",
        "Lengths are counted by the client's tokenizer: estimated. Cached tokens are unknown.",
        "request and response hold texts: of the request only model and max_tokens are read.",
    ),
)
