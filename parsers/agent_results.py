"""What coding agents print at the end of a run that a script started: sums over the calls of the run, by model.

Belongs here: rows of REQUESTS from such sums. Does not belong here: where an agent keeps them (`formats/`), and its
sessions' own files, which state each call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.durations import before
from parsers.fields import Fields
from parsers.records import INSTANT

if TYPE_CHECKING:
    from parsers.format import Context

TRAPS = (
    "A row is the sum of a run's calls of one model (flag calls_summed), unless it says otherwise: sizes of single",
    "calls, their times and their number are not stated. duration_ms is that of the whole run.",
    "Where the run states no time, the file's is taken for its end: time_from_file.",
    "The same calls are in the agent's session files, one by one: where these are given too, they count alone.",
)


def rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of sums: `key`, `session`, `model`, `ended`, `duration_ms`, counts, `cost`, `failure`, `calls`.

    `is_call` marks rows that are a single call.
    """
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    stated, took, cost = fields.instant("ended"), fields.number("duration_ms"), fields.money("cost")
    from_file = stated.value.is_null() & pl.lit(context.modified_at is not None)
    ended = pl.coalesce(stated.value, pl.lit(context.modified_at, dtype=INSTANT))
    written, hour = whole("written"), whole("written_1h")
    is_split = (hour.value <= written.value).fill_null(value=False)
    is_sum = ~fields.truth("is_call").value.fill_null(value=False)
    failure = text("failure")
    return fields.rows(
        request_id=text("key"),
        record_key=text("key"),
        session_id=text("session"),
        started_at=before(ended, took.value),
        ended_at=pl.when(took.value.is_not_null()).then(ended),
        project=text("cwd"),
        model_served=text("model"),
        operation=pl.lit("chat"),
        input_tokens=whole("input"),
        cache_read_tokens=whole("cached"),
        cache_write_5m_tokens=pl.when(is_split).then(written.value - hour.value).otherwise(written.value),
        cache_write_1h_tokens=pl.when(is_split).then(hour.value),
        output_tokens=whole("output"),
        reasoning_tokens=whole("thoughts"),
        _total_tokens=whole("total"),
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
        status=pl.when(failure.is_not_null()).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=failure,
        flags=flag_list({"calls_summed": is_sum, "time_from_file": from_file}),
    )
