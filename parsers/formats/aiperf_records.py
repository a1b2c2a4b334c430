"""Per-request records of AIPerf (`profile_export.jsonl`): one JSON line per request of a benchmark.

Belongs here: its metadata and metrics. Does not belong here: its summaries (`profile_export_aiperf.json`), the
raw export with texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.fields import Fields
from parsers.format import Format, Head, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context

_HTTP = (100, 599)
_METRIC = {"value": "VARCHAR", "unit": "VARCHAR"}
_TO_MS = {"ms": 1.0, "s": 1000.0, "sec": 1000.0, "us": 1e-3, "ns": 1e-6}
_METRICS = (
    "input_sequence_length",
    "error_isl",
    "output_sequence_length",
    "output_token_count",
    "reasoning_token_count",
    "time_to_first_token",
    "request_latency",
    "usage_prompt_tokens",
    "usage_completion_tokens",
    "usage_reasoning_tokens",
)


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(
        head.objects,
        lambda line: (
            isinstance(line.get("metadata"), dict)
            and {"request_start_ns", "worker_id"} <= line["metadata"].keys()
            and "metrics" in line
        ),
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    del context
    fields = Fields(frame)
    # A reject names the metric, not its `value`.
    named = {f"metrics.{name}.value": f"metrics.{name}" for name in _METRICS}
    fields.frame = fields.frame.rename(named, strict=False)

    def count(*names: str) -> pl.Expr:
        return pl.coalesce(fields.whole(f"metrics.{name}").value for name in names)

    def milliseconds(name: str) -> pl.Expr:
        unit = fields.raw(f"metrics.{name}.unit").replace_strict(_TO_MS, default=1.0, return_dtype=pl.Float64)
        return fields.number(f"metrics.{name}").value * unit

    code = fields.whole("error.code").value
    failed = fields.raw("error.type", "error.code", "error.message").is_not_null()
    reasoning = count("usage_reasoning_tokens", "reasoning_token_count")
    generated = pl.coalesce(
        count("output_sequence_length"), count("output_token_count") + reasoning.fill_null(0)
    )
    by_server = count("usage_prompt_tokens").is_not_null()
    turn = fields.whole("metadata.turn_index").value
    started = fields.instant("metadata.request_start_ns", unit="ns")
    ended = fields.instant("metadata.request_end_ns", unit="ns")
    cancelled = fields.truth("metadata.was_cancelled").value
    ttft, latency = milliseconds("time_to_first_token"), milliseconds("request_latency")
    return fields.rows(
        request_id=fields.text("metadata.x_request_id"),
        record_key=fields.text("metadata.x_request_id"),
        session_id=pl.when(turn.is_not_null()).then(fields.text("metadata.x_correlation_id")),
        started_at=started.needed("request_start_ns"),
        ended_at=ended,
        ttft_ms=ttft,
        duration_ms=latency,
        tags=pl.when(fields.text("metadata.benchmark_phase").is_not_null()).then(
            pl.concat_list(fields.text("metadata.benchmark_phase"))
        ),
        stream=pl.when(ttft.is_not_null()).then(pl.lit(value=True)),
        input_tokens=count("usage_prompt_tokens", "input_sequence_length", "error_isl"),
        output_tokens=pl.coalesce(count("usage_completion_tokens"), generated),
        reasoning_tokens=reasoning,
        usage_origin=pl.when(by_server).then(pl.lit("reported")).otherwise(pl.lit("estimated")),
        status=outcome.status(code, failed=failed, cancelled=cancelled),
        http_status=pl.when(code.is_between(*_HTTP)).then(code),
        error_kind=pl.when(failed).then(outcome.error_kind(fields.raw("error.type"))),
    )


FORMAT = Format(
    name="aiperf_records",
    title="AIPerf per-request records",
    written_by="aiperf profile: profile_export.jsonl",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON lines with metrics, and metadata that has request_start_ns and worker_id",
    recognise=_recognise,
    map=_map,
    structure={
        "metadata": dict.fromkeys(
            (
                "x_request_id",
                "x_correlation_id",
                "turn_index",
                "request_start_ns",
                "request_end_ns",
                "benchmark_phase",
                "was_cancelled",
            ),
            "VARCHAR",
        ),
        "metrics": dict.fromkeys(_METRICS, _METRIC),
        "error": {"code": "VARCHAR", "type": "VARCHAR", "message": "VARCHAR"},
    },
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="inside"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        (
            "Sequence lengths are counted by the client's tokenizer, without the chat template: estimated. The "
            "usage_* metrics are the server's and come first."
        ),
        "output_sequence_length includes reasoning, output_token_count does not.",
        "Failed requests have error_isl instead of an input length; cancelled ones have error code 499.",
        "The model is only in the summary file; warm-up requests differ by their tag.",
    ),
)
