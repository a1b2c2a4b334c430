"""BurstGPT traces: one CSV row per call of a campus gateway, seconds since the start and two token counts.

Covers the releases with and without failed calls, and those with Session ID and Elapsed time. Does not belong
here: aggregates that were made from the trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.values import number, present, read_fields, relative_origin, since, whole

if TYPE_CHECKING:
    from parsers.format import Context, Head

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")


def _recognise(head: Head) -> bool:
    return set(COLUMNS) <= set(head.csv_header)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    cell = Fields(frame).raw
    at, request, response = COLUMNS
    origin = relative_origin(context)
    read = read_fields(
        frame,
        {
            "started_at": since(cell(at), at, "s", origin).needed(at),
            "input_tokens": whole(cell(request), request).needed(request),
            "output_tokens": whole(cell(response), response).needed(response),
            "duration_ms": number(cell("Elapsed time"), "Elapsed time", factor=1000),
        },
    )
    failed = read["output_tokens"] == 0
    return read.drop("_flags").with_columns(
        frame.select(
            "source_line",
            session_id=present(cell("Session ID")),
            model_requested=present(cell("Model")),
            tags=pl.when(present(cell("Log Type")).is_not_null()).then(
                pl.concat_list(present(cell("Log Type")))
            ),
            # A second header: files put on end of one another.
            _other=cell(at).eq_missing(at),
        ),
        status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        usage_origin=pl.lit("reported"),
        flags=pl.lit(["relative_clock", "status_assumed"], dtype=pl.List(pl.String)),
    )


FORMAT = Format(
    name="burstgpt_trace",
    title="BurstGPT traces",
    written_by="HPMLL/BurstGPT, CC-BY-4.0: BurstGPT_1.csv, BurstGPT_without_fails_1.csv and their successors",
    target=REQUESTS,
    container="csv",
    recognised_by="a CSV header with Timestamp, Request tokens and Response tokens",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "Timestamp is seconds since the start of the trace; there is no wall clock (option `origin`).",
        "A row with 0 response tokens is a failed call: its request tokens were sent, and no answer came.",
        "The files without_fails repeat the rows of the others: give one of the two.",
        "Log Type (Conversation log, API log) is kept as a tag; the first releases have no session or duration.",
        "No cache or reasoning counts: unknown (null).",
    ),
)
