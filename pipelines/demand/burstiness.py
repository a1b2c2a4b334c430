"""How uneven arrivals are, by length of window: what queueing formulas need beyond a rate.

Belongs here: dispersion of counts and variation of the time between arrivals. Does not belong here: the peaks
themselves (`peaks`), which stretches are gaps (`coverage`).

A Poisson stream has an index of dispersion of 1 at every window and a squared coefficient of variation (cv²)
of the time between arrivals of 1; bursts raise both. Dispersion that grows with the window is the rhythm of
the day; the figure inside clock hours leaves that out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from pipelines.demand.scopes import Calls
from pipelines.demand.sweep import Instants, Reals

HOUR_US = 3_600_000_000
WINDOWS_S = (1, 10, 60, 300, 600, 3600)
LEAST_ARRIVALS = 20
"""Fewer arrivals in a window say nothing of the time between them."""

Stretches = tuple[Instants, Instants]


def covered_stretches(coverage: pl.DataFrame) -> Stretches:
    """Starts and ends, in microseconds, of the stretches that have data."""
    stretches = coverage.filter(~pl.col("is_gap"))
    starts, ends = (stretches[name].dt.timestamp("us").to_numpy() for name in ("start_at", "end_at"))
    return starts, ends


def burstiness(calls: Calls, stretches: Stretches, beat_us: int = 0) -> list[dict[str, Any]]:
    """Measure the arrivals of a scope over fixed windows aligned to UTC, those wholly inside a stretch with data.

    Args:
        calls: the calls of a scope.
        stretches: `covered_stretches`.
        beat_us: windows shorter than the beat of a clock that stamps calls in batches are left out.

    Returns:
        One row per window length of which at least two windows are covered: `window_s`, `windows`,
        `mean_requests` per window, `dispersion` (variance / mean of the counts), `dispersion_within_hour`
        (the same inside clock hours, pooled; null for windows of an hour), `count_cv2` (variance / mean² of
        the counts), `interarrival_cv2_p50` and `_p90` (of the times between arrivals inside a window, over
        the windows with `LEAST_ARRIVALS` or more). Null: too few to tell.

    """
    starts = np.sort(calls.started)
    rows = []
    for window_s in WINDOWS_S:
        width = window_s * 1_000_000
        first = whole_windows(stretches, width)
        if width < beat_us or len(first) < 2:  # noqa: PLR2004 - no variance of one
            continue
        counts = counts_of(starts, first, width)
        variance, mean = float(counts.var(ddof=1)), float(counts.mean())
        between = _interarrival_cv2(starts, first, width)
        rows.append(
            {
                "window_s": window_s,
                "windows": len(first),
                "mean_requests": mean,
                "dispersion": variance / mean if mean else None,
                "dispersion_within_hour": within_hours(counts, first) if width < HOUR_US else None,
                "count_cv2": variance / mean**2 if mean else None,
                "interarrival_cv2_p50": float(np.median(between)) if len(between) else None,
                "interarrival_cv2_p90": float(np.quantile(between, 0.9)) if len(between) else None,
            }
        )
    return rows


def whole_windows(stretches: Stretches, width: int) -> Instants:
    """Starts of the windows, multiples of `width`, that lie wholly inside a stretch; sorted."""
    return np.concatenate([np.zeros(0, np.int64), *_whole(stretches, width)])


def _whole(stretches: Stretches, width: int) -> Iterator[Instants]:
    for start, end in zip(*stretches, strict=True):
        yield np.arange(-(-int(start) // width), int(end) // width, dtype=np.int64) * width


def counts_of(starts: Instants, first: Instants, width: int) -> Instants:
    """Arrivals in each window [first, first + width); both sorted."""
    if not len(starts) or not len(first):
        return np.zeros(len(first), np.int64)
    base = int(first[0]) // width
    at = starts // width - base
    size = int(first[-1]) // width - base + 1
    return np.bincount(at[(at >= 0) & (at < size)], minlength=size)[first // width - base]


def within_hours(counts: Instants, first: Instants) -> float | None:
    """Pooled index of dispersion of counts inside clock hours.

    The variances inside the hours are summed and divided by the summed means. None without arrivals in an
    hour of which at least two windows are covered.
    """
    _, hour, size = np.unique(first // HOUR_US, return_inverse=True, return_counts=True)
    mean = np.bincount(hour, counts) / size
    squares = np.bincount(hour, (counts - mean[hour]) ** 2)
    several = size > 1
    mean_sum = float(mean[several].sum())
    return float((squares[several] / (size[several] - 1)).sum()) / mean_sum if mean_sum else None


def _interarrival_cv2(starts: Instants, first: Instants, width: int) -> Reals:
    """cv² of the times between arrivals inside each window that holds enough of them."""
    between = np.diff(starts).astype(np.float64)
    window = starts // width
    same = window[1:] == window[:-1]
    names, index, size = np.unique(window[1:][same], return_inverse=True, return_counts=True)
    mean = np.bincount(index, between[same]) / np.maximum(size, 1)
    squares = np.bincount(index, (between[same] - mean[index]) ** 2)
    enough = (size + 1 >= LEAST_ARRIVALS) & (mean > 0) & np.isin(names, first // width)
    return np.asarray(squares[enough] / (size[enough] - 1) / mean[enough] ** 2)
