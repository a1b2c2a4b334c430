"""Readings of a row of the table `logs` of one-api and new-api: what kind it is, whose, and when.

Belongs here: what fields say together (names of attempts, the clock, cache writes). Does not belong here: the
containers that hold rows, and the mapping to columns (`formats/new_api_logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import usage
from parsers.clock import flag_list
from parsers.durations import before, span

if TYPE_CHECKING:
    from parsers.fields import Fields, Read

CONSUME, ERROR = 2, 5
_TRUE = ("true", "t", "1")
_GONE = "client_gone"
_NORMAL_ENDS = ("done", "eof", "handler_stop")
_TEST_FAILED = "测试失败"
_KEY = (
    "request_id",
    "created_at",
    "type",
    "channel",
    "channel_id",
    "quota",
    "prompt_tokens",
    "completion_tokens",
)


def truth(word: pl.Expr) -> pl.Expr:
    """A Boolean as JSON, Postgres or MySQL write it; null stays null."""
    return word.str.to_lowercase().is_in(_TRUE)


def is_one_api(fields: Fields) -> pl.Expr:
    """new-api's rows have `use_time`; one-api's have `elapsed_time` or, before that, neither."""
    return fields.raw("use_time").is_null()


def is_failed(fields: Fields, kind: pl.Expr) -> pl.Expr:
    """Type 5 is an error of new-api and a channel's test of one-api, whose text says how it went."""
    broken = fields.text("content").str.contains(_TEST_FAILED, literal=True).fill_null(value=False)
    return ((kind == ERROR) & (~is_one_api(fields) | broken)).fill_null(value=False)


def is_no_call(fields: Fields, kind: pl.Expr, quota: pl.Expr) -> pl.Expr:
    """Top-ups, management, refunds (type 6, once a negative quota), settlements of tasks, forks' kinds."""
    is_settlement = fields.text("other.actual_quota").is_not_null() | (quota < 0)
    return (~kind.is_in([CONSUME, ERROR]) | is_settlement).fill_null(value=False)


def stream_end(fields: Fields) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """How a stream ended, where the row says so; whether the client left it; whether it broke off otherwise."""
    reason = fields.text("other.stream_status.end_reason")
    gone = (reason == _GONE).fill_null(value=False)
    return reason, gone, ~gone & ~reason.is_in(_NORMAL_ENDS).fill_null(value=True)


def request_id(fields: Fields, failed: pl.Expr) -> pl.Expr:
    """One call's own name: failed attempts share `request_id` with the one that was served."""
    shared, number = fields.text("request_id"), fields.text("id")
    of_failed = pl.when(failed).then(pl.concat_str(shared, number, separator="#"))
    return pl.coalesce(fields.text("upstream_request_id"), of_failed, shared, number)


def record_key(fields: Fields, failed: pl.Expr) -> pl.Expr:
    """A user's own pages renumber `id`: it is part of the key only where rows have no better name."""
    number = pl.when(failed | fields.text("request_id").is_null()).then(fields.text("id"))
    parts = [*(fields.text(name) for name in _KEY), number]
    return pl.concat_str([part.fill_null("") for part in parts], separator="|")


def cache_writes(fields: Fields) -> tuple[dict[str, pl.Expr], list[Read]]:
    """Columns of cache writes."""
    total = fields.whole(
        "other.cache_write_tokens", "other.cache_creation_tokens", "metadata.cached_write_tokens"
    )
    five, hour = (
        fields.whole(f"other.cache_creation_tokens_{life}", f"metadata.cache_write_tokens.ephemeral_{life}")
        for life in ("5m", "1h")
    )
    columns = usage.by_lifetime(total.value, five.value, hour.value)
    return columns, [total, five, hour]


def times(fields: Fields, kind: pl.Expr) -> tuple[dict[str, pl.Expr], list[Read]]:
    """Columns of instants, from the end, which is what is logged, back to the start.

    `use_time` is cut to whole seconds and, like `frt`, counts from the client's call: an attempt begins no
    earlier than the failure before it ended. A duration of 0 is below the clock's step: unknown.
    """
    ended = fields.instant("created_at").needed("created_at")
    seconds, frt = fields.number("use_time"), fields.number("other.frt")
    milliseconds = fields.number("elapsed_time", "request_time")
    first_ms = pl.when(frt.value >= 0).then(frt.value)
    spent_ms = pl.max_horizontal(milliseconds.value, seconds.value * 1000, first_ms)
    known = (spent_ms > 0).fill_null(value=False)
    arrived = before(ended.value, spent_ms)
    call = fields.text("request_id")
    previous = ended.value.shift().over(call, order_by=[ended.value, kind != ERROR, "source_line"])
    started = pl.max_horizontal(arrived, pl.when(call.is_not_null()).then(previous))
    columns = {
        "started_at": started,
        "ended_at": pl.when(started < ended.value).then(ended.value),
        "first_token_at": pl.when(truth(fields.text("is_stream"))).then(arrived + span(first_ms)),
        "flags": flag_list({"whole_second_times": known & milliseconds.value.is_null()}),
    }
    return columns, [ended, seconds, milliseconds, frt]
