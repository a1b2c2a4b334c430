"""Calls that were seen at more than one hop: by the client, a proxy, a gateway or two, the engine behind it.

Belongs here: which rows of one log are calls that a better-placed log of another product has too. Does not belong here:
doubles within one product's logs, which share identities (`linking.py`); sums and samples, which are no calls
(`demand/sums.py`).

Logs of two hops share no identity, but a call ends at all of them at almost one instant, with the same output. So rows are
paired in order of their ends, those with counts by equal output, the others by time alone. A log is another view of the
same traffic only if most of its rows that lie in the other log's time find their pair; single rows that happen to meet
do not make one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

SLACK_US = 2_000_000
"""Ends of one call differ by the way of its last bytes, and by clocks that write whole seconds."""
PAIRED_SHARE = 0.8
LEAST_ROWS = 5
"""Fewer rows are too few to tell a view of the same traffic from a chance; with equal counts two are enough."""
LEAST_COUNTED_ROWS = 2

HOPS = ("gateway", "client", "engine", "proxy")
"""The best first: a gateway knows who called and what was charged; a proxy knows only that there was a call."""


def seen_elsewhere(calls: pl.DataFrame) -> pl.DataFrame:
    """Find the rows that are calls of a better hop's log.

    Args:
        calls: `source_format, file_rank, source_line`, `hop` (place in HOPS), `end_us` (Int64, never null),
            `output_tokens`.

    Returns:
        `file_rank, source_line` of the rows that are there already.

    """
    doubles = [calls.clear().select("file_rank", "source_line")]
    logs = sorted(
        calls.partition_by("hop", "source_format", maintain_order=True),
        key=lambda log: (log["hop"][0], -log.height),
    )
    kept = logs[0] if logs else calls
    for log in logs[1:]:
        # Two gateways may be as busy as each other: there, an equal instant alone shows nothing.
        candidates = (
            log if log["hop"][0] > logs[0]["hop"][0] else log.filter(pl.col("output_tokens").is_not_null())
        )
        found = candidates.filter(_paired(candidates, kept)).select("file_rank", "source_line")
        doubles.append(found)
        kept = pl.concat([kept, log.join(found, on=["file_rank", "source_line"], how="anti")])
    return pl.concat(doubles)


def _paired(log: pl.DataFrame, kept: pl.DataFrame) -> pl.Series:
    """Which rows of a log have their pair among the kept; none if the log is no view of the same traffic."""
    if log.is_empty() or kept.is_empty():
        return pl.Series([False] * log.height, dtype=pl.Boolean)
    first, last = kept["end_us"].min(), kept["end_us"].max()
    inside = log["end_us"].is_between(first - SLACK_US, last + SLACK_US)  # type: ignore[operator]
    counted = log["output_tokens"].is_not_null()
    by_count = _pairs(log.filter(counted), kept.filter(pl.col("output_tokens").is_not_null()))
    found = np.zeros(log.height, dtype=bool)
    found[counted.to_numpy()] = by_count
    if not counted.all():
        by_time = _pairs(
            log.filter(~counted).with_columns(output_tokens=pl.lit(0, pl.Int64)),
            kept.with_columns(output_tokens=pl.lit(0, pl.Int64)),
        )
        found[(~counted).to_numpy()] = by_time
    within, least = int(inside.sum()), LEAST_COUNTED_ROWS if counted.all() else LEAST_ROWS
    same = within >= least and found.sum() >= PAIRED_SHARE * within
    return pl.Series(found if same else np.zeros(log.height, dtype=bool))


def _pairs(log: pl.DataFrame, kept: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Pair rows of equal output whose ends are near, each row once, in order of their ends."""
    order = log.select("output_tokens", "end_us").with_row_index("place").sort("output_tokens", "end_us")
    others = kept.select("output_tokens", "end_us").sort("output_tokens", "end_us")
    outputs, ends = order["output_tokens"].to_list(), order["end_us"].to_list()
    their_outputs, their_ends = others["output_tokens"].to_list(), others["end_us"].to_list()
    found = np.zeros(log.height, dtype=bool)
    place, at = order["place"].to_list(), 0
    for row, (output, end) in enumerate(zip(outputs, ends, strict=True)):
        while at < len(their_ends) and (their_outputs[at], their_ends[at]) < (output, end - SLACK_US):
            at += 1
        if at < len(their_ends) and their_outputs[at] == output and their_ends[at] <= end + SLACK_US:
            found[place[row]] = True
            at += 1
    return found
