"""The windows that an engine's printed rates are over: tokens of a window = rate x window.

Belongs here: engines that print rates on an interval while they work, and nothing while they are idle. Does
not belong here: finding the lines (`formats/`), counters (efficiency).

The engine divides by the time since its last statistics, printed or not: after a silence the window is one
interval, not the silence. So the window is the gap to the engine's line before if that is near the interval
(the interval itself where the stamps are too coarse to tell), else the interval, marked `nominal`. The
interval is the gap that recurs most; without three gaps it is what the engine defaults to, mostly 10 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_INTERVAL_S = 10.0
LONGEST_INTERVAL_S = 600
STAMP_S = 1.0
"""Resolution of an engine's own stamps."""
RECURRENCES = 3


def interval_s(
    samples: Sequence[pl.DataFrame], keys: Sequence[str], default: float = DEFAULT_INTERVAL_S
) -> float:
    """The gap, in whole seconds, that recurs most between an engine's lines (the shorter of equals).

    Args:
        samples: frames with `at` and `keys`.
        keys: columns that tell engines apart.
        default: the interval if no gap recurs.

    """
    gaps = pl.concat(sample.select(_gap_s(keys).round().alias("gap")) for sample in samples)["gap"]
    usual = (
        gaps.drop_nulls()
        .to_frame()
        .filter(pl.col("gap").is_between(1, LONGEST_INTERVAL_S))
        .group_by("gap")
        .len()
        .sort(["len", "gap"], descending=[True, False])
    )
    if usual.is_empty() or usual["len"][0] < RECURRENCES:
        return default
    return float(usual["gap"][0])


def with_window(stats: pl.DataFrame, interval: float, keys: Sequence[str]) -> pl.DataFrame:
    """Add `window_s`, and `nominal` where nothing but the interval speaks for it.

    Args:
        stats: frame with `at`, `container_at` (a stamp finer than seconds, or null) and `keys`.
        interval: see `interval_s`.
        keys: columns that tell engines apart.

    """
    gap = _gap_s(keys)
    exact = pl.col("container_at").is_not_null() & pl.col("container_at").shift(1).over(keys).is_not_null()
    untold = (gap - interval).abs() <= pl.when(exact).then(0.0).otherwise(STAMP_S)
    near = gap.is_between(0.5 * interval, 1.5 * interval).fill_null(value=False)
    return stats.with_columns(
        pl.when(near & ~untold).then(gap).otherwise(interval).alias("window_s"), (~near).alias("nominal")
    )


def _gap_s(keys: Sequence[str]) -> pl.Expr:
    return pl.col("at").diff().over(keys).dt.total_microseconds() / 1e6
