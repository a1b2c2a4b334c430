"""Mart `session_history`: conversations and agents that send a growing history again, and what would shorten it.

Belongs here: growth per turn, the share sent again, and three what-ifs. Does not belong here: which call continues
which (`conversations.py`), missed cache reads of other calls (`repetition.py`), the demand of whole tasks.

Calls that generate, in sessions of at least two of them. With a hash chain, what was sent again is exact: the longest
prefix that an earlier call of the session sent. With a session id and counts only it is an estimate, at most: min(input,
input + output of the session's call before), and a smaller input than before begins a new branch (a compaction, or a
sub-agent).
    growth: input of a call - input of the call it continues; the median of a session, then the median of the sessions.
    paid in full: sent again - cache reads reported, not below 0; unknown where reads are.
What-ifs. The head, the input of a branch's first call, always stays. Money is at the list prices of input, cache reads
and output, without charges for cache writes; unknown where a price or the reads are.
    window: the head and what was added in the last `WINDOW_TURNS` turns. What slides can't be read from cache, since its
        beginning changes at each turn: a call that leaves something out reads its head at most. So it may cost more than
        it saves.
    compaction: before every `COMPACT_EVERY`-th turn a call reads the whole history and writes a summary of
        `SUMMARY_PERCENT` % of it (charged: its input as that of the turn, its output); the turn after it reads the head at
        most, later ones all but what they add.
    caching: the missed tokens of these calls, a part of `repetition`, net of writes.
They exclude each other and are not to be added up. What shorter histories do to answers is not known here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.records import MONEY
from pipelines.waste.evidence import exact_calls
from pipelines.waste.scopes import by_scope, known_sum
from warehouse.reuse_tables import SESSION_HISTORY

if TYPE_CHECKING:
    from pipelines.waste.conversations import Conversations

WINDOW_TURNS, COMPACT_EVERY, SUMMARY_PERCENT = 10, 20, 20
ASSUMED = (
    f"window: head and last {WINDOW_TURNS} turns, what slides is not cached; compaction: every {COMPACT_EVERY} turns to "
    f"{SUMMARY_PERCENT} % of the history, the summary's call paid; no cache writes charged"
)
_NEEDED = (
    *("model", "team", "evidence", "started_at", "input_tokens", "output_tokens", "cache_read_tokens"),
    *("missed_tokens", "missed_usd"),
    *("usd_per_input_token", "usd_per_cache_read_token", "usd_per_output_token"),
)


def session_history(calls: pl.DataFrame, conversations: Conversations) -> pl.DataFrame:
    """Sum the sessions by scope: the mart `session_history`.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        conversations: of `conversations.found` for the same.

    """
    parts = [_by_chain(calls, conversations), _by_counts(calls)]
    rows = pl.concat([_what_ifs(part) for part in parts]).with_columns(_marks())
    return SESSION_HISTORY.conform(
        by_scope(rows, _measures(), ["evidence"]).with_columns(assumed=pl.lit(ASSUMED))
    )


def _by_chain(calls: pl.DataFrame, conversations: Conversations) -> pl.DataFrame:
    """Calls with a chain in sessions, with `session, parent, turn, resent_tokens, is_rewritten`."""
    exact = exact_calls(calls).with_columns(
        session=pl.Series(conversations.session, dtype=pl.Int64),
        parent=pl.Series(conversations.parent, dtype=pl.Int64),
        turn=pl.Series(conversations.turn, dtype=pl.Int64),
        resent_tokens=pl.Series(conversations.resent_tokens, dtype=pl.Int64),
        is_rewritten=pl.Series(conversations.left_behind_tokens > 0, dtype=pl.Boolean),
    )
    kept = pl.col("generating") & (pl.col("evidence") == "hash_chain")
    return _of_two(exact.with_row_index("row").filter(kept)).with_columns(parent=_renumbered())


def _by_counts(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls known by their session id alone, likewise."""
    session = pl.col("session_id").rank("dense").cast(pl.Int64)
    turns = calls.filter((pl.col("evidence") == "session") & pl.col("generating")).with_columns(
        session=session
    )
    turns = turns.sort("session", maintain_order=True).with_row_index("row")
    before, tokens = pl.col("input_tokens").shift(1), pl.col("input_tokens")
    grew = (pl.col("session") == pl.col("session").shift(1)).fill_null(value=False) & (tokens >= before)
    sent = before + pl.col("output_tokens").shift(1).fill_null(tokens)
    turns = turns.with_columns(
        parent=pl.when(grew.fill_null(value=False)).then(pl.col("row").cast(pl.Int64) - 1).otherwise(-1),
        resent_tokens=pl.when(grew.fill_null(value=False)).then(pl.min_horizontal(tokens, sent)).otherwise(0),
        is_rewritten=((pl.col("session") == pl.col("session").shift(1)) & (tokens < before)).fill_null(
            value=False
        ),
    )
    start = pl.when(pl.col("parent") < 0).then(pl.col("row")).forward_fill()
    turns = turns.with_columns(turn=(pl.col("row") - start).cast(pl.Int64) + 1)
    return _of_two(turns).with_columns(parent=_renumbered())


def _of_two(rows: pl.DataFrame) -> pl.DataFrame:
    """The calls of sessions of at least two."""
    columns = ("session", "parent", "turn", "resent_tokens", "is_rewritten")
    return rows.filter(pl.len().over("session") > 1).select("row", *columns, *_NEEDED)


def _renumbered() -> pl.Expr:
    """Index of the call continued among those that are left; -1 where it is not."""
    at = pl.col("row").cast(pl.Int64)
    place = at.search_sorted(pl.col("parent")).cast(pl.Int64).clip(upper_bound=pl.len() - 1)
    return pl.when((pl.col("parent") >= 0) & (at.gather(place) == pl.col("parent"))).then(place).otherwise(-1)


def _what_ifs(rows: pl.DataFrame) -> pl.DataFrame:
    from pipelines.waste.conversation_kernels import shortened

    head, slid, compacted, summary = shortened(
        rows["parent"].to_numpy(writable=True),
        rows["turn"].to_numpy(writable=True),
        rows["input_tokens"].to_numpy(writable=True),
        WINDOW_TURNS,
        COMPACT_EVERY,
        SUMMARY_PERCENT,
    )
    parent = rows["parent"].to_numpy(writable=True)
    inputs = rows["input_tokens"].to_numpy(writable=True)
    before = np.where(parent >= 0, inputs[np.maximum(parent, 0)], 0) if inputs.size else inputs
    return rows.with_columns(
        head=pl.Series(head, dtype=pl.Int64),
        slid=pl.Series(slid, dtype=pl.Int64),
        compacted=pl.Series(compacted, dtype=pl.Int64),
        summary=pl.Series(summary, dtype=pl.Int64),
        growth=pl.when(pl.col("parent") >= 0).then(
            pl.col("input_tokens") - pl.Series(before, dtype=pl.Int64)
        ),
    ).with_columns(_window_usd().alias("window_usd"), _compaction_usd().alias("compaction_usd"))


def _cost(tokens: pl.Expr, read: pl.Expr) -> pl.Expr:
    return read * pl.col("usd_per_cache_read_token") + (tokens - read) * pl.col("usd_per_input_token")


def _window_usd() -> pl.Expr:
    tokens, slid = pl.col("input_tokens"), pl.col("slid")
    read = pl.min_horizontal("cache_read_tokens", tokens)
    saved = _cost(tokens, read) - _cost(tokens - slid, pl.min_horizontal(read, "head"))
    return (
        pl.when((slid > 0) & pl.col("cache_read_tokens").is_not_null())
        .then(saved)
        .when(slid == 0)
        .then(0)
        .cast(MONEY)
    )


def _compaction_usd() -> pl.Expr:
    tokens, left_out, summary = pl.col("input_tokens"), pl.col("compacted"), pl.col("summary")
    read = pl.min_horizontal("cache_read_tokens", tokens)
    shorter = tokens - left_out
    later = (shorter - (tokens - read)).clip(lower_bound=0)
    still_read = pl.when(summary > 0).then(pl.min_horizontal(read, "head")).otherwise(later)
    written = (
        pl.when(summary > 0).then(_cost(tokens, read) + summary * pl.col("usd_per_output_token")).otherwise(0)
    )
    saved = _cost(tokens, read) - _cost(shorter, still_read) - written
    known = pl.col("cache_read_tokens").is_not_null()
    return pl.when((left_out > 0) & known).then(saved).when(left_out == 0).then(0).cast(MONEY)


def _marks() -> tuple[pl.Expr, ...]:
    key = ["evidence", "session"]
    place = pl.int_range(pl.len()).over(key)
    siblings = pl.int_range(pl.len()).over([*key, "parent"])
    return (
        (place == 0).alias("is_first"),
        (place == pl.len().over(key) - 1).alias("is_last"),
        pl.col("growth").median().over(key).alias("session_growth"),
        (((pl.col("parent") < 0) & (place > 0)) | ((pl.col("parent") >= 0) & (siblings > 0))).alias(
            "is_branch"
        ),
    )


def _measures() -> list[pl.Expr]:
    resent, read = pl.col("resent_tokens"), pl.col("cache_read_tokens")
    of_read = pl.min_horizontal(resent, read)
    first, last = pl.col("is_first"), pl.col("is_last")
    paid_for_summary = pl.when(pl.col("summary") > 0).then("input_tokens").otherwise(0)
    return [
        pl.col("session").n_unique().alias("sessions"),
        pl.len().alias("requests"),
        pl.col("is_branch").sum().alias("branches"),
        pl.col("is_rewritten").sum().alias("rewritten"),
        pl.col("input_tokens").sum(),
        _median(pl.col("input_tokens").filter(first)).alias("first_input_tokens"),
        _median(pl.col("input_tokens").filter(last)).alias("last_input_tokens"),
        _median(pl.col("session_growth").filter(first)).alias("growth_tokens_per_turn"),
        resent.sum().alias("resent_tokens"),
        pl.when(pl.col("input_tokens").sum() > 0)
        .then(resent.sum() / pl.col("input_tokens").sum())
        .alias("resent_ratio"),
        known_sum(pl.when(read.is_not_null()).then(of_read)).alias("resent_read_tokens"),
        known_sum(pl.when(read.is_not_null()).then(resent - of_read)).alias("resent_paid_tokens"),
        read.is_null().sum().alias("requests_reads_unknown"),
        pl.col("slid").sum().alias("window_tokens"),
        _known_usd("window_usd", "slid"),
        (pl.col("compacted") - paid_for_summary).sum().alias("compaction_tokens"),
        _known_usd("compaction_usd", "compacted"),
        known_sum(pl.col("missed_tokens")).alias("caching_tokens"),
        _known_usd("missed_usd", "missed_tokens").alias("caching_usd"),
        pl.col("usd_per_input_token").is_null().sum().alias("requests_unpriced"),
        pl.col("started_at").min().alias("first_at"),
        pl.col("started_at").max().alias("last_at"),
    ]


def _median(value: pl.Expr) -> pl.Expr:
    return value.median().round().cast(pl.Int64)


def _known_usd(usd: str, tokens: str) -> pl.Expr:
    """Sum of money; null where tokens are at stake and none of them has a price."""
    stake = pl.col(tokens) > 0
    known = (stake & pl.col(usd).is_not_null()).any()
    return pl.when(known | ~stake.fill_null(value=False).any()).then(known_sum(pl.col(usd))).alias(usd)
