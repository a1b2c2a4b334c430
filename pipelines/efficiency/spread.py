"""Intervals of time against hours: spreading amounts over them, and the time that intervals cover together.

Belongs here: arithmetic on intervals given as UTC instants in microseconds. Does not belong here: what the
amounts mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

HOUR_US = 3_600_000_000


def over_hours(intervals: pl.DataFrame, amounts: Sequence[str], keys: Sequence[str] = ()) -> pl.DataFrame:
    """Spread amounts evenly over the time of their interval and sum them by hour.

    Args:
        intervals: `start_us`, `end_us` (Int64, end >= start), the amounts (Float64, null = unknown) and the
        keys. An
            interval without length puts all into the hour it lies in.
        amounts: columns to spread.
        keys: columns to keep apart.

    Returns:
        `hour_us`, the keys, the amounts (null where every part is unknown) and `time_s`, the summed time.

    """
    length = pl.col("end_us") - pl.col("start_us")
    first, last = (
        pl.col("start_us") // HOUR_US,
        (pl.max_horizontal("start_us", pl.col("end_us") - 1)) // HOUR_US,
    )
    pieces = (
        intervals.lazy()
        .with_columns(hour=pl.int_ranges(first, last + 1))
        .explode("hour", empty_as_null=True)
        .with_columns(
            inside=pl.min_horizontal("end_us", (pl.col("hour") + 1) * HOUR_US)
            - pl.max_horizontal("start_us", pl.col("hour") * HOUR_US)
        )
        .with_columns(share=pl.when(length > 0).then(pl.col("inside") / length).otherwise(1.0))
    )
    sums = [
        pl.when(pl.col(name).count() > 0)
        .then((pl.col(name) * pl.col("share")).sum())
        .otherwise(None)
        .alias(name)
        for name in amounts
    ]
    return (
        pieces.group_by("hour", *keys)
        .agg(*sums, time_s=pl.col("inside").sum() / 1e6)
        .with_columns(hour_us=pl.col("hour") * HOUR_US)
        .drop("hour")
        .sort("hour_us", *keys)
        .collect()
    )


def union(intervals: pl.DataFrame) -> pl.DataFrame:
    """Merge intervals (`start_us`, `end_us`) that overlap or touch, in order of time."""
    reach = pl.col("end_us").cum_max().shift(1)
    return (
        intervals.lazy()
        .select("start_us", "end_us")
        .sort("start_us", "end_us")
        .with_columns(stretch=(pl.col("start_us") > reach).fill_null(value=False).cum_sum())
        .group_by("stretch", maintain_order=True)
        .agg(pl.col("start_us").min(), pl.col("end_us").max())
        .drop("stretch")
        .collect()
    )
