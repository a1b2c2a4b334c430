"""How uneven arrivals are: what queueing formulas and the search for gaps need beyond a rate.

Belongs here: dispersion of counts and variation of the time between arrivals. Does not belong here: the peaks
themselves (`peaks`), which stretches are gaps (`coverage`). Not a mart: `sizing` calls it.

A Poisson stream has an index of dispersion of 1 and a squared coefficient of variation of 1; bursts raise
both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.calls import is_demand
from pipelines.demand.series import MINUTE_US, covered_minutes
from pipelines.demand.spread import started_us
from pipelines.demand.sweep import Instants, Reals

HOUR_US = 60 * MINUTE_US


@dataclass(frozen=True, slots=True)
class Burstiness:
    """Unevenness of arrivals; a figure is None where there are too few arrivals or minutes to tell."""

    requests: int
    minute_dispersion: float | None
    """Variance / mean of the arrivals per covered minute: rhythm of the day and bursts together."""
    within_hour_dispersion: float | None
    """The same inside clock hours, pooled over hours: bursts without the rhythm of the day."""
    interarrival_cv2: float | None
    """Variance / mean² of the time between arrivals, times that span a gap left out."""
    busiest_hour_cv2: float | None
    """The same inside the clock hour with the most arrivals."""


def burstiness(requests: pl.LazyFrame, coverage: pl.DataFrame) -> Burstiness:
    """Measure the arrivals of the demand (served, not from the response cache).

    Args:
        requests: the fact table `requests`.
        coverage: the mart `coverage` of the same rows.

    """
    starts = requests.filter(is_demand()).select(started_us()).collect()["started_us"].sort().to_numpy()
    minutes = covered_minutes(coverage)
    gap_starts = coverage.filter(pl.col("is_gap"))["start_at"].dt.timestamp("us").to_numpy()
    between = np.diff(starts)
    # An inter-arrival time spans a gap if a gap starts inside it.
    inside = np.searchsorted(gap_starts, starts, side="left")
    between = between[np.diff(inside) == 0]
    hours, arrivals = np.unique(starts // HOUR_US, return_counts=True)
    busiest = starts[starts // HOUR_US == hours[np.argmax(arrivals)]] if len(hours) else starts
    return Burstiness(
        requests=len(starts),
        minute_dispersion=_dispersion(counts_per_minute(starts, minutes)),
        within_hour_dispersion=within_hour_dispersion(starts, minutes),
        interarrival_cv2=_cv2(between),
        busiest_hour_cv2=_cv2(np.diff(busiest)),
    )


def counts_per_minute(starts: Instants, minutes: Instants) -> Instants:
    """Arrivals in each minute; `starts` and `minutes` (starts of minutes) are sorted microseconds."""
    return np.searchsorted(starts, minutes + MINUTE_US) - np.searchsorted(starts, minutes)


def within_hour_dispersion(starts: Instants, minutes: Instants) -> float | None:
    """Pooled index of dispersion of the arrivals per minute inside clock hours.

    The variances inside the hours are summed and divided by the summed means. None without arrivals in an
    hour of which at least two minutes are covered.

    Args:
        starts: arrivals, sorted microseconds.
        minutes: starts of the minutes to look at, sorted microseconds.

    """
    counts = counts_per_minute(starts, minutes).astype(np.float64)
    _, hour, size = np.unique(minutes // HOUR_US, return_inverse=True, return_counts=True)
    mean = np.bincount(hour, counts) / size
    squares = np.bincount(hour, (counts - mean[hour]) ** 2)
    several = size > 1
    mean_sum = float(mean[several].sum())
    if mean_sum == 0:
        return None
    return float((squares[several] / (size[several] - 1)).sum()) / mean_sum


def _dispersion(counts: Instants) -> float | None:
    return float(counts.var(ddof=1) / counts.mean()) if len(counts) > 1 and counts.any() else None


def _cv2(between: Instants | Reals) -> float | None:
    return float(between.var(ddof=1) / between.mean() ** 2) if len(between) > 1 and between.any() else None
