"""Requests of Perf Analyzer (`profile_export.json`), which GenAI-Perf runs: one JSON document per run.

Belongs here: the requests with the times of their responses. Does not belong here: GenAI-Perf's summaries
(`profile_export_genai_perf.json`), AIPerf (`aiperf_records.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, Head, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context

_REQUEST = r'\{\s*"timestamp"\s*:\s*\d+'
_COUNTS = {
    "input_tokens": r'"prompt_tokens": ?(\d+)',
    "output_tokens": r'"completion_tokens": ?(\d+)',
    "cache_read_tokens": r'"cached_tokens": ?(\d+)',
    "reasoning_tokens": r'"reasoning_tokens": ?(\d+)',
}
_RECORDS = """
SELECT "timestamp", request_inputs.payload AS payload, response_timestamps[1] AS first, response_timestamps[-1] AS last,
    len(response_timestamps) AS responses,
    concat_ws(chr(10), response_outputs[-2].response, response_outputs[-1].response) AS ending
FROM document
"""


def _recognise(head: Head) -> bool:
    """Exports are larger than the head: their marks are looked for in its text."""
    marks = ('"experiments"', '"requests"', '"response_timestamps"')
    return head.text.lstrip()[:1] == "{" and all(mark in head.text for mark in marks)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    del context
    fields = Fields(frame)
    started = fields.instant("timestamp", unit="ns").needed("timestamp")
    first, last = (fields.instant(name, unit="ns") for name in ("first", "last"))
    answered = fields.whole("responses").value > 0
    payload = fields.raw("payload")
    asked = pl.when(payload.str.starts_with("{")).then(payload)
    streamed = asked.str.json_path_match("$.stream") == "true"
    limit = pl.coalesce(
        asked.str.json_path_match(f"$.{name}").cast(pl.Int64, strict=False)
        for name in ("max_completion_tokens", "max_tokens")
    )
    # Text of an answer stands there escaped: it can't hold these keys.
    usage = fields.raw("ending").str.extract(r'(?s)"usage": ?(\{.*)$', 1)
    return fields.rows(
        started_at=started,
        ended_at=last,
        ttft_ms=pl.when(streamed).then((first.value - started.value).dt.total_microseconds() / 1000),
        duration_ms=(last.value - started.value).dt.total_microseconds() / 1000,
        model_requested=asked.str.json_path_match("$.model"),
        stream=streamed,
        max_output_tokens=limit,
        **{
            name: usage.str.extract(pattern, 1).cast(pl.Int64, strict=False)
            for name, pattern in _COUNTS.items()
        },
        status=pl.when(answered).then(pl.lit("ok")).otherwise(pl.lit("error")),
        error_kind=pl.when(~answered).then(pl.lit("unknown")),
    )


FORMAT = Format(
    name="perf_analyzer_export",
    title="Perf Analyzer and GenAI-Perf requests",
    written_by="perf_analyzer --profile-export-file; genai-perf profile: profile_export.json",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="a JSON object with experiments, whose requests have response_timestamps",
    recognise=_recognise,
    map=_map,
    structure={
        "timestamp": "VARCHAR",
        "request_inputs": {"payload": "VARCHAR"},
        "response_timestamps": ["VARCHAR"],
        "response_outputs": [{"response": "VARCHAR"}],
    },
    elements=_REQUEST,
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside"),
    traps=(
        "Load that a benchmark made, not demand: do not size from it.",
        "Tokens are known where the server's answers hold usage (stream_options.include_usage); else unknown.",
        "The first response of a stream may hold no token: the time to it is taken for the time to first token.",
        "Requests of all experiments and of the warm-up windows are in one list each: all are read.",
        "Payloads and answers are texts: only model, stream, the limit and the usage are read.",
    ),
)
