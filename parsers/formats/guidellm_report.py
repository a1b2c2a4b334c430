"""Reports of GuideLLM (`benchmarks.json`): one JSON document, the requests of each benchmark by their outcome.

Belongs here: the per-request records of its releases. Does not belong here: its distributions, its CSV.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, Head, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context

_MARKS = ("generative_benchmark", "guidellm_version")
_TIMES = dict.fromkeys(
    ("request_start", "request_end", "first_iteration", "first_token_iteration"), "VARCHAR"
)
_REQUEST = {
    **dict.fromkeys(
        (
            "request_id",
            "request_type",
            "prompt_tokens",
            "output_tokens",
            "start_time",
            "end_time",
            "request_start_time",
            "request_end_time",
            "first_token_time",
            "time_to_first_token_ms",
            "request_latency",
        ),
        "VARCHAR",
    ),
    "info": {"request_id": "VARCHAR", "timings": _TIMES},
    "input_metrics": {"text_tokens": "VARCHAR"},
    "output_metrics": {"text_tokens": "VARCHAR"},
}
_OUTCOMES = {"successful": "ok", "incomplete": "cancelled", "errored": "error"}
_OPERATIONS = {"chat_completions": "chat", "text_completions": "completion"}
_BY_OUTCOME = "\nUNION ALL\n".join(
    f"SELECT run, {place} AS kind, generate_subscripts(requests.{name}, 1) AS place, model, "
    f"'{status}' AS status, unnest(requests.{name}) AS entry FROM runs"
    for place, (name, status) in enumerate(_OUTCOMES.items())
)
_RECORDS = f"""
SELECT model, status, entry FROM (
    WITH benchmarks_ AS (SELECT unnest(benchmarks) AS benchmark FROM document),
    runs AS (
        SELECT row_number() OVER () AS run, benchmark.requests AS requests,
            coalesce(benchmark.config.backend.model, benchmark.worker.backend_model) AS model
        FROM benchmarks_
    )
    {_BY_OUTCOME}
)
ORDER BY run, kind, place
"""


def _recognise(head: Head) -> bool:
    """Reports are larger than the head: their marks are looked for in its text."""
    text = head.text.lstrip()
    return text[:1] == "{" and '"benchmarks"' in text and any(mark in text for mark in _MARKS)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    del context
    fields = Fields(frame)
    at = "entry.info.timings"
    started = fields.instant(f"{at}.request_start", "entry.request_start_time", "entry.start_time")
    ended = fields.instant(f"{at}.request_end", "entry.request_end_time", "entry.end_time")
    first = fields.instant(f"{at}.first_token_iteration", f"{at}.first_iteration", "entry.first_token_time")
    request_id = fields.text("entry.request_id", "entry.info.request_id")
    latency = fields.number("entry.request_latency")
    status = fields.raw("status")
    return fields.rows(
        request_id=request_id,
        record_key=request_id,
        started_at=started.needed("request_start_time"),
        first_token_at=pl.when(first.value >= started.value).then(first.value),
        ended_at=ended,
        ttft_ms=fields.number("entry.time_to_first_token_ms"),
        duration_ms=latency.value * 1000,
        operation=fields.raw("entry.request_type").replace_strict(
            _OPERATIONS, default=None, return_dtype=pl.String
        ),
        model_requested=fields.text("model"),
        input_tokens=fields.whole("entry.prompt_tokens", "entry.input_metrics.text_tokens"),
        output_tokens=fields.whole("entry.output_tokens", "entry.output_metrics.text_tokens"),
        status=status,
        error_kind=pl.when(status == "error").then(pl.lit("unknown")),
    )


FORMAT = Format(
    name="guidellm_report",
    title="GuideLLM report",
    written_by="guidellm benchmark: benchmarks.json",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="a JSON object with benchmarks and GuideLLM's version or type names",
    recognise=_recognise,
    map=_map,
    structure={
        "benchmarks": [
            {
                "config": {"backend": {"model": "VARCHAR"}},
                "worker": {"backend_model": "VARCHAR"},
                "requests": {name: [_REQUEST] for name in _OUTCOMES},
            }
        ]
    },
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        (
            "Requests are grouped by outcome, not in order of time; incomplete ones were cut off at the end of a run: "
            "cancelled, with the tokens they had."
        ),
        "Requests may be a sample of those made (sample_requests): rates over them understate.",
        (
            "Older releases state start_time, end_time and first_token_time, newer ones info.timings; both in unix "
            "seconds. Errors may lack a start: rejected, as nothing was sent."
        ),
        "prompt, output and the texts of errors are not read. Backends may hold an api_key: not read.",
    ),
)
