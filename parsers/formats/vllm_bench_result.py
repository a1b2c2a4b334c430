"""Results of `vllm bench serve` and of `sglang.bench_serving` with per-request details: one JSON object per run.

Belongs here: the arrays of both, which are one family. Does not belong here: results without details (they hold
averages only and are not claimed), the engines' own logs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from parsers import clock
from parsers.durations import before, span
from parsers.fields import Fields
from parsers.format import Format, Head, TokenSemantics
from parsers.records import INSTANT, REQUESTS
from parsers.values import relative_origin

if TYPE_CHECKING:
    from parsers.format import Context

_MARKS = ('"input_lens"', '"output_lens"', '"total_input_tokens"')
ARRIVAL_UNKNOWN = "arrival_unknown"
"""The result does not tell when the request was sent: the start of the run was taken."""
_RUN = {
    "date": "VARCHAR",
    "backend": "VARCHAR",
    "endpoint_type": "VARCHAR",
    "model_id": "VARCHAR",
    "duration": "VARCHAR",
}
_ARRAYS = {
    "input_lens": ["VARCHAR"],
    "output_lens": ["VARCHAR"],
    "ttfts": ["VARCHAR"],
    "start_times": ["VARCHAR"],
    "errors": ["VARCHAR"],
    "itls": [["DOUBLE"]],
}
_RECORDS = f"""
SELECT {", ".join(f'"{name}"' for name in _RUN)}, input_len, output_len, ttft, first_sent, start_time, error,
    list_sum(gaps) AS gaps_s
FROM (
    SELECT *, unnest(input_lens) AS input_len, unnest(output_lens) AS output_len, unnest(ttfts) AS ttft,
        unnest(start_times) AS start_time, unnest(errors) AS error, unnest(itls) AS gaps,
        list_min(TRY_CAST(start_times AS DOUBLE[])) AS first_sent
    FROM document
)
"""


def _has_details(head: Head) -> bool:
    """Results are often larger than the head: the keys are looked for in its text."""
    return head.text.lstrip()[:1] == "{" and all(mark in head.text for mark in _MARKS)


def _recognise(head: Head) -> bool:
    return _has_details(head) and '"model_id"' in head.text


def _recognise_sglang(head: Head) -> bool:
    return _has_details(head) and '"model_id"' not in head.text


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    duration, sent, first = (fields.number(name) for name in ("duration", "start_time", "first_sent"))
    ttft, gaps = fields.number("ttft"), fields.number("gaps_s")
    local = clock.LocalClock.of(context)
    written = fields.text("date").str.to_datetime("%Y%m%d-%H%M%S", time_unit="us", strict=False)
    dated = local.at(written)
    # The result is dated when it is saved: at the end of the run.
    began = pl.coalesce(before(dated, duration.value * 1000), pl.lit(relative_origin(context), INSTANT))
    error = fields.text("error")
    output = fields.whole("output_len")
    no_answer = (output.value == 0) & (ttft.value.fill_null(0) == 0)
    failed = error.is_not_null() | no_answer
    latency_ms = (ttft.value + gaps.value.fill_null(0)) * 1000
    return fields.rows(
        started_at=began + span((sent.value - first.value).fill_null(0) * 1000),
        ttft_ms=pl.when(~failed & (ttft.value > 0)).then(ttft.value * 1000),
        duration_ms=pl.when(~failed).then(latency_ms),
        provider=fields.text("endpoint_type", "backend"),
        model_requested=fields.text("model_id"),
        stream=ttft.value > 0,
        input_tokens=fields.whole("input_len"),
        output_tokens=output,
        usage_origin=pl.lit("estimated"),
        status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=pl.when(failed).then(pl.lit("unknown")),
        flags=clock.flag_list(
            {
                "relative_clock": dated.is_null(),
                clock.ZONE_ASSUMED: dated.is_not_null() & pl.lit(local.assumed),
                ARRIVAL_UNKNOWN: sent.value.is_null(),
            }
        ),
    )


FORMAT = Format(
    name="vllm_bench_result",
    title="vllm bench serve result",
    written_by="vllm bench serve --save-result --save-detailed (and benchmark_serving.py before it)",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="a JSON object with model_id, total_input_tokens, input_lens and output_lens",
    recognise=_recognise,
    map=_map,
    structure={**_RUN, **_ARRAYS},
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="local"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        "date is local time (option timezone) at the end of the run; its start is date less duration.",
        (
            "Only newer versions list start_times (of a clock of their own); without them all requests are taken to "
            "start with the run and are flagged arrival_unknown: rates within the run mean nothing then."
        ),
        (
            "Lengths are counted by the client's tokenizer, outputs from the answer's text where the server gives no "
            "usage: estimated. Cached tokens are unknown."
        ),
        "ttfts and itls are in seconds; the latency is ttft plus all itls. Errors have empty arrays, and 0 s.",
        "generated_texts are not read, nor the texts of errors.",
    ),
)

SGLANG = replace(
    FORMAT,
    name="sglang_bench",
    title="sglang.bench_serving result",
    written_by="python -m sglang.bench_serving --output-file ... --output-details",
    recognised_by="JSON objects with total_input_tokens, input_lens and output_lens, without model_id",
    recognise=_recognise_sglang,
    semantics=replace(FORMAT.semantics, clock="relative"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        (
            "One object per run, appended to one file; nothing tells when a run was (option `origin`), nor when its "
            "requests were sent: all are taken to start with the run, flagged arrival_unknown."
        ),
        "The model is not named. Lengths are counted by the client's tokenizer: estimated.",
        "ttfts and itls are in seconds; the latency is ttft plus all itls. Failed requests have length 0.",
    ),
)
