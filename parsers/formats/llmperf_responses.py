"""Individual responses of LLMPerf (`*_individual_responses.json`): one JSON array, an object per request.

Belongs here: its records. Does not belong here: its summaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.clock import flag_list
from parsers.fields import Fields
from parsers.format import Format, Head, TokenSemantics
from parsers.formats.vllm_bench_result import ARRIVAL_UNKNOWN
from parsers.json_heads import mostly
from parsers.records import INSTANT, REQUESTS
from parsers.values import relative_origin

if TYPE_CHECKING:
    from parsers.format import Context

_NAMES = (
    "error_code",
    "error_msg",
    "ttft_s",
    "end_to_end_latency_s",
    "number_input_tokens",
    "number_output_tokens",
)


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(
        head.objects, lambda item: {"error_code", "ttft_s", "number_total_tokens"} <= item.keys()
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    code = fields.whole("error_code")
    failed = fields.text("error_msg").is_not_null() | code.value.is_not_null()
    ttft, latency = fields.number("ttft_s").value, fields.number("end_to_end_latency_s").value
    return fields.rows(
        started_at=pl.lit(relative_origin(context), INSTANT),
        ttft_ms=pl.when(~failed & (ttft > 0)).then(ttft * 1000),
        duration_ms=pl.when(~failed).then(latency * 1000),
        stream=pl.lit(value=True),
        input_tokens=fields.whole("number_input_tokens"),
        output_tokens=fields.whole("number_output_tokens"),
        usage_origin=pl.lit("estimated"),
        status=outcome.status(code.value, failed=failed),
        http_status=pl.when(code.value.is_between(100, 599)).then(code.value),
        error_kind=pl.when(failed).then(pl.lit("unknown")),
        flags=flag_list({"relative_clock": pl.lit(value=True), ARRIVAL_UNKNOWN: pl.lit(value=True)}),
    )


FORMAT = Format(
    name="llmperf_responses",
    title="LLMPerf individual responses",
    written_by="LLMPerf token_benchmark_ray.py: *_individual_responses.json",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with error_code, ttft_s and number_total_tokens",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys(_NAMES, "VARCHAR"),
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        (
            "Nothing tells when a request was sent: all are taken at the option origin and flagged arrival_unknown; "
            "rates within the run mean nothing then."
        ),
        "Lengths are counted by one tokenizer for all models: estimated. The model is only in the summary file.",
        "Failed requests state 0 for times and lengths.",
    ),
)
