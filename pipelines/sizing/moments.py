"""The busiest moments of each pool: what it had to do at once, and how fast it answered then.

Belongs here: the windows in which a pool's demand was highest by each measure, all measures at the same
moment, over all names of its model together; how uneven arrivals were there; the latency that the log shows
there. Does not belong here: the mart of peaks (`pipelines/demand/peaks.py`), what hardware could do
(`roofline.py`, `replicas.py`).

Latency that was logged at the peak is evidence about today's hardware that no estimate can outweigh. A call
that failed for want of capacity (no status, 408, 429, 5xx) is a call without a first token: it counts as
one that took for ever.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.calls import failed_for_capacity, model_name, output_tokens
from pipelines.demand import sweep
from pipelines.demand.peaks import WINDOWS_S, data_span
from pipelines.demand.scopes import Calls
from pipelines.demand.spread import started_us, work_intervals
from pipelines.demand.sweep import Instants

PEAK_WINDOW_S = 60
MIN_ARRIVALS = 30
"""Fewer arrivals than this say nothing of burstiness; Poisson arrivals are assumed."""
MIN_OBSERVED = 20
"""Fewer calls than this have no 95th percentile to speak of."""
P95_DILUTION = 20
"""A window is widened to at most this multiple of the peak's: its busiest part then still holds at least 5 %
of the calls, so that a p95 sees it.
"""


@dataclass(frozen=True)
class Moment:
    """Demand of a pool in one window, per second; None is unknown."""

    start_us: int
    window_s: float
    requests_per_s: float
    uncached_per_s: float | None
    output_per_s: float | None

    def dominates(self, other: Moment) -> bool:
        """Whether everything is at least as high as at another moment."""
        pairs = (
            (self.requests_per_s, other.requests_per_s),
            (self.uncached_per_s or 0.0, other.uncached_per_s or 0.0),
            (self.output_per_s or 0.0, other.output_per_s or 0.0),
        )
        return all(mine >= theirs for mine, theirs in pairs)


@dataclass(frozen=True)
class Observed:
    """Latency in the log around a moment, of `calls` measured ones that arrived in `window_s` from
    `start_us`.

    `failed` calls there failed for want of capacity; more than 5 % of all make the p95 infinite. `*_p50_ms`
    is over the whole log.
    """

    start_us: int
    window_s: float
    calls: int
    failed: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float


@dataclass(frozen=True)
class Busiest:
    """What is known of a pool's busiest moments; `moments` is empty where nothing is.

    `observed` has the latency of each moment, None where too few calls there tell theirs.
    """

    moments: tuple[Moment, ...] = ()
    arrival_cv2: float = 1.0
    observed: tuple[Observed | None, ...] = ()


def busiest_moments(requests: pl.LazyFrame, pool_of: Mapping[str, str]) -> dict[str, Busiest]:
    """Find the busiest moments of every pool.

    Args:
        requests: the facts.
        pool_of: log model -> pool. Models that share a pool share its moments: their peaks are not added up.

    Returns:
        By pool, the windows nearest to a minute with the most arrivals, computed input and output, without
        those that another one exceeds in everything. Calls whose cache reads are unknown count with their
        whole input, calls without a count with the mean of the pool's others: a peak without them would be
        too low.

    """
    span = data_span(requests)
    window_s = None if span is None else _window_s(span[1] - span[0])
    if span is None or window_s is None:
        return {}
    names = pl.DataFrame({"model": list(pool_of), "pool": list(pool_of.values())}).lazy()
    of_pool = (
        requests.with_columns(model_name(), output_tokens())
        .join(names, on="model")
        .with_columns(model_served=pl.col("pool"))
    )
    work = work_intervals(of_pool.select(requests.collect_schema().names())).with_columns(
        uncached_input_tokens=pl.coalesce("uncached_input_tokens", "input_tokens")
    )
    failed = _overloaded(of_pool)
    found = {}
    for (pool,), part in work.group_by("model", maintain_order=True):
        calls = Calls.of(_like_the_others(part))
        moments = _moments(calls, window_s, span)
        hardest = _undominated(moments)
        lost = failed.filter(pl.col("pool") == pool)["started_us"].to_numpy()
        found[str(pool)] = Busiest(
            hardest, _arrival_cv2(calls.started, moments), _observed(part, lost, hardest)
        )
    return found


def _like_the_others(work: pl.DataFrame) -> pl.DataFrame:
    """Give calls without a count the mean of those with one; where there are none it stays unknown."""
    counts = pl.col("uncached_input_tokens", "output_tokens")
    return work.with_columns(counts.fill_null(counts.mean()))


def _window_s(span_us: int) -> int | None:
    """The window nearest to a minute that the data holds."""
    fitting = [window for window in WINDOWS_S if window * 1_000_000 <= span_us]
    return min(fitting, key=lambda window: abs(window - PEAK_WINDOW_S)) if fitting else None


def _moments(calls: Calls, window_s: int, span: tuple[int, int]) -> list[Moment]:
    """The window with the most arrivals first, then those with the most computed input and output."""
    curves = [calls.arrivals(), calls.tokens("uncached_input_tokens"), calls.tokens("output_tokens")]
    width, (first, end) = window_s * 1_000_000, span
    starts = [
        sweep.busiest_window(curve, width, first, end + 1 - width)[1]
        for curve in curves
        if not curve.is_empty
    ]
    out = []
    for start in dict.fromkeys(starts):
        edges = np.array([start, start + width])
        arrived, uncached, output = (
            None
            if curve.is_empty
            else max(float(np.diff(sweep.total_before(curve, edges))[0]) / window_s, 0.0)
            for curve in curves
        )
        out.append(Moment(start, float(window_s), arrived or 0.0, uncached, output))
    return out


def _undominated(moments: list[Moment]) -> tuple[Moment, ...]:
    kept: list[Moment] = []
    for moment in moments:
        if not any(other.dominates(moment) for other in kept):
            kept = [other for other in kept if not moment.dominates(other)] + [moment]
    return tuple(kept)


def _widened(moment: Moment, factor: int) -> tuple[int, int]:
    """Start and end of a window `factor` times as long around a moment, in microseconds."""
    middle = moment.start_us + int(moment.window_s * 500_000)
    half = int(moment.window_s * 500_000 * factor)
    return middle - half, middle + half


def _inside(sorted_us: Instants, start: int, end: int) -> Instants:
    low, high = np.searchsorted(sorted_us, [start, end])
    return sorted_us[low:high]


def _arrival_cv2(started: Instants, moments: list[Moment]) -> float:
    """Squared coefficient of variation of the gaps between arrivals at the peak; 1 = Poisson.

    Taken in the shortest window around the peak with enough arrivals: the rate is that of the peak, so its
    own rise and fall over an hour must not count a second time as burstiness.
    """
    arrivals = np.sort(started)
    for factor in (1, 5, P95_DILUTION):
        between = np.diff(_inside(arrivals, *_widened(moments[0], factor))) if moments else np.empty(0)
        if len(between) + 1 >= MIN_ARRIVALS and between.any():
            return float(between.var(ddof=1) / between.mean() ** 2)
    return 1.0


def _overloaded(of_pool: pl.LazyFrame) -> pl.DataFrame:
    """Arrivals of calls that failed for want of capacity, by pool."""
    return of_pool.filter(failed_for_capacity()).select("pool", started_us()).sort("started_us").collect()


def _observed(work: pl.DataFrame, lost: Instants, moments: tuple[Moment, ...]) -> tuple[Observed | None, ...]:
    """What the log shows of each moment; `work` is a frame of `WORK_SCHEMA`, `lost` the failed arrivals."""
    timed = work.filter(
        pl.col("is_timed")
        & pl.col("assumed_pace_ratio").is_null()
        & (pl.col("first_token_us") < pl.col("ended_us"))
        & (pl.col("output_tokens") > 1)
    ).select(
        "started_us",
        ttft=(pl.col("first_token_us") - pl.col("started_us")) / 1e3,
        tpot=(pl.col("ended_us") - pl.col("first_token_us")) / 1e3 / (pl.col("output_tokens") - 1),
    )
    served = work["started_us"].sort().to_numpy()
    return tuple(_observed_at(timed, served, lost, moment) for moment in moments)


def _observed_at(timed: pl.DataFrame, served: Instants, lost: Instants, moment: Moment) -> Observed | None:
    for factor in (1, 5, P95_DILUTION):
        start, end = _widened(moment, factor)
        calls = timed.filter(pl.col("started_us").is_between(start, end, closed="left"))
        if calls.height < MIN_OBSERVED:
            continue
        failed = len(_inside(lost, start, end))
        return Observed(
            start,
            moment.window_s * factor,
            calls.height,
            failed,
            ttft_p50_ms=_quantile(timed["ttft"], 0.5),
            ttft_p95_ms=_p95_with_failed(calls["ttft"], failed / (len(_inside(served, start, end)) + failed)),
            tpot_p50_ms=_quantile(timed["tpot"], 0.5),
            tpot_p95_ms=_quantile(calls["tpot"], 0.95),
        )
    return None


def _p95_with_failed(values: pl.Series, failed_ratio: float) -> float:
    """p95 over calls of which a share has no first token at all: infinite if that share is above 5 %."""
    rank = 0.95 / (1 - failed_ratio)
    return math.inf if rank > 1 else _quantile(values, rank)


def _quantile(values: pl.Series, share: float) -> float:
    return float(values.quantile(share, "higher") or 0.0)
