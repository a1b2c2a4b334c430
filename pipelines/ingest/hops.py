"""Calls that were seen at more than one hop: by the client, a proxy, a gateway or two, the engine behind it.

Belongs here: which rows of one log are calls that a better-placed log of another product has too. Does not belong here:
doubles within one product's logs, which share identities (`linking.py`); sums and samples, which are no calls
(`demand/sums.py`).

A row whose identity (`request_id`, `call_id`) another product's log states within the hour is that log's call. The
others are paired by what a call has at all hops: it begins or ends at almost one instant, with the same output and
about the same input; rows without counts by their instants alone. Of these a log is another view of the same traffic
only if most of its rows that lie in the other log's time find their pair, and if they would not find as many with its
clock put wrong: busy logs of unrelated traffic meet by chance. Why: docs/decisions/0008-one-call-several-logs.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK_US = 2_000_000
"""Instants of one call differ by the way of its bytes, and by clocks that write whole seconds."""
SAME_IDENTITY_US = 3_600_000_000
"""Short identities are used again; the longest call and a slow export lie within the hour."""
PAIRED_SHARE = 0.8
CHANCE_SHARE = 0.5
"""Of the pairs found: more by a clock put wrong, and the pairs say nothing."""
WRONG_BY_US = tuple(seconds * 1_000_000 for seconds in (-41, -17, 7, 23))
"""Traffic with a period of its own meets itself at some of these, dense traffic at all."""
CHANCE_ROWS = 2_000
"""Rows that are tried at a wrong time."""
SAME_INPUT_RATIO, SAME_INPUT_TOKENS = 0.25, 64
"""Engines count the chat template, and some gateways estimate: inputs of one call differ by as much."""
MOST_TRIED = 64
"""Calls of equal output at one instant that are looked at for one of about the same input."""
LEAST_ROWS = 5
"""Fewer rows are too few to tell a view of the same traffic from a chance; with equal counts two are enough."""
LEAST_COUNTED_ROWS = 2
_PLACE = ("file_rank", "source_line")

HOPS = ("gateway", "client", "engine", "proxy")
"""The best first: a gateway knows who called and what was charged; a proxy knows only that there was a call."""


def seen_elsewhere(calls: pl.DataFrame) -> pl.DataFrame:
    """Find the rows that are calls of a better hop's log.

    Args:
        calls: `source_format, file_rank, source_line`, `hop` (place in HOPS), `start_us` (Int64, never null), `end_us`
            (Int64), `input_tokens`, `output_tokens`, `gateway`, `request_id`, `call_id`.

    Returns:
        `file_rank, source_line` of the rows that are there already.

    """
    doubles = [calls.clear().select(_PLACE)]
    logs = sorted(
        calls.partition_by("hop", "source_format", maintain_order=True),
        key=lambda log: (log["hop"][0], -log.height),
    )
    kept = logs[0] if logs else calls
    for log in logs[1:]:
        named = _named(log, kept)
        rest = log.join(named, on=_PLACE, how="anti")
        # Where identities are shared, one that is not there is another call.
        candidates = rest if named.is_empty() else rest.filter(pl.col("request_id").is_null())
        if log["hop"][0] == logs[0]["hop"][0]:
            # Two gateways may be as busy as each other: there, an equal instant alone shows nothing.
            candidates = candidates.filter(pl.col("output_tokens").is_not_null())
        found = candidates.filter(_paired(candidates, kept)).select(_PLACE)
        doubles += [named, found]
        kept = pl.concat([kept, rest.join(found, on=_PLACE, how="anti")])
    return pl.concat(doubles)


def _named(log: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """The rows of a log whose identity a kept row of another product states, too, within the hour.

    A bare number is no identity. Logs of one gateway have met before; here their attempts would be taken for doubles.
    """

    def identities(rows: pl.DataFrame) -> pl.DataFrame:
        both = [rows.select(*_PLACE, "start_us", "gateway", id=name) for name in ("request_id", "call_id")]
        return pl.concat(both).filter(pl.col("id").str.contains("[A-Za-z]"))

    pairs = identities(log).join(identities(kept).select("id", other_us="start_us", other="gateway"), on="id")
    near = (pl.col("start_us") - pl.col("other_us")).abs() <= SAME_IDENTITY_US
    is_other = (pl.col("gateway") != pl.col("other")).fill_null(value=True)
    return pairs.filter(near, is_other).select(_PLACE).unique(maintain_order=True)


def _paired(log: pl.DataFrame, kept: pl.DataFrame) -> pl.Series:
    """Which rows of a log have their pair among the kept; none if the log is no view of the same traffic."""
    found = np.zeros(log.height, dtype=bool)
    if log.is_empty() or kept.is_empty():
        return pl.Series(found)
    at = pl.coalesce("end_us", "start_us")
    first, last = kept.select(pl.min("start_us"), at.max().alias("last")).row(0)
    within = int(log.select(at.is_between(first - SLACK_US, last + SLACK_US).sum()).item())
    counted = log["output_tokens"].is_not_null()
    by_count = _by_count(log.filter(counted), kept.filter(pl.col("output_tokens").is_not_null()))
    found[counted.to_numpy()] = by_count
    if not counted.all():
        bare = pl.lit(0, pl.Int64).alias("output_tokens"), pl.lit(None, pl.Int64).alias("input_tokens")
        mine, theirs = (rows.with_columns(*bare, at_us=at) for rows in (log.filter(~counted), kept))
        found[(~counted).to_numpy()] = _pairs(mine, theirs)
    least = LEAST_COUNTED_ROWS if counted.all() else LEAST_ROWS
    same = within >= least and found.sum() >= PAIRED_SHARE * within
    return pl.Series(found if same else np.zeros(log.height, dtype=bool))


def _by_count(log: pl.DataFrame, kept: pl.DataFrame) -> NDArray[np.bool_]:
    """Which rows have a pair of equal output, by the instants that find the most; none if chance finds as many.

    Some logs write when a call ended, some when it began. Exactly equal inputs tell more than equal outputs, where both
    hops count alike: so they are tried first.
    """
    best = np.zeros(log.height, dtype=bool)
    for at in (pl.coalesce("end_us", "start_us"), pl.col("start_us")):
        mine, theirs = (rows.with_columns(at_us=at) for rows in (log, kept))
        for ratio, tokens in ((0.0, 0), (SAME_INPUT_RATIO, SAME_INPUT_TOKENS)):
            found = _pairs(mine, theirs, ratio, tokens)
            if found.sum() > best.sum() and not _by_chance(mine, theirs, found, ratio, tokens):
                best = found
            if best.sum() >= PAIRED_SHARE * log.height:
                return best
    return best


def _by_chance(
    log: pl.DataFrame, kept: pl.DataFrame, found: NDArray[np.bool_], ratio: float, tokens: int
) -> bool:
    """Whether about as many rows would find a pair if the log's clock were wrong."""
    tried = log.filter(pl.Series(found)).gather_every(max(1, int(found.sum()) // CHANCE_ROWS))
    return tried.height > 0 and all(
        _pairs(tried.with_columns(pl.col("at_us") + wrong), kept, ratio, tokens).sum()
        > CHANCE_SHARE * tried.height
        for wrong in WRONG_BY_US
    )


def _pairs(log: pl.DataFrame, kept: pl.DataFrame, ratio: float = 0.0, tokens: int = 0) -> NDArray[np.bool_]:
    """Pair rows of equal output whose `at_us` are near, each row once, in order of their instants.

    Inputs that both state differ by at most `ratio` of the larger or `tokens`.
    """
    columns = ("output_tokens", "at_us", "input_tokens")
    order = log.select(columns).with_row_index("place").sort("output_tokens", "at_us")
    others = kept.select(columns).sort("output_tokens", "at_us")
    theirs = list(others.iter_rows())
    is_used = bytearray(len(theirs))
    found = np.zeros(log.height, dtype=bool)
    begin = 0
    for place, output, at, stated in order.iter_rows():
        while begin < len(theirs) and (is_used[begin] or theirs[begin][:2] < (output, at - SLACK_US)):
            begin += 1
        for other in range(begin, min(begin + MOST_TRIED, len(theirs))):
            their_output, their_at, their_input = theirs[other]
            if their_output != output or their_at > at + SLACK_US:
                break
            if not is_used[other] and _alike(stated, their_input, ratio, tokens):
                is_used[other] = found[place] = True
                break
    return found


def _alike(one: int | None, other: int | None, ratio: float, tokens: int) -> bool:
    return one is None or other is None or abs(one - other) <= max(tokens, ratio * max(one, other))
