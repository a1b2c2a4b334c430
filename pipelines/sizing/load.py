"""The load of each pool in the terms that sizing needs: how much at the peak, how much on average, calls of
what shape.

Belongs here: gathering requests by pool. Does not belong here: finding the peaks (`moments.py`), the load without its
waste (`waste_removed.py`), hardware (`replicas.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import polars as pl

from pipelines.calls import is_demand, model_name, output_tokens
from pipelines.demand.largest import MOST_MODELS, OTHER_MODELS, largest_models
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.moments import Busiest, Moment, Observed, busiest_moments
from warehouse.catalogue import Model, find_model

SECONDS_PER_MONTH = 730 * 3600.0
LEAST_COVERED_S = 86_400.0
"""Covered time that speaks of a month, and shows a peak: a day has both its busy and its idle hours."""

Measure = Literal["input", "output"]


@dataclass(frozen=True)
class DemandSummary:
    """Load of one pool. Rates are per second; None is unknown.

    `peak_*` is the demand in a window of `peak_window_s`: each measure's own maximum, or, in one of
    `at_moments`, all measures of the same moment. `model` is None where the architecture is unknown,
    `today` where no pool of the fleet file serves the model.

    `input_tokens`, `uncached_input_tokens` and `output_tokens` are sums over the calls of which they are
    known; `requests_input_missing` and `requests_output_missing` calls are not in them. A mean is taken over
    the calls that its own measure is known of; asking for one that no call tells is a ValueError, so look at
    `unmeasured` first.
    """

    pool: str
    log_models: tuple[str, ...]
    model: Model | None
    today: Pool | None
    requests: int
    requests_input_missing: int
    requests_output_missing: int
    window_s: float
    input_tokens: float
    uncached_input_tokens: float
    output_tokens: float
    uncached_input_p95: float | None
    context_p99: float | None
    arrival_cv2: float
    peak_window_s: float | None
    peak_requests_per_s: float | None
    peak_uncached_per_s: float | None
    peak_output_per_s: float | None
    basis: tuple[str, ...] = ()
    moments: tuple[Moment, ...] = ()
    observed: tuple[Observed | None, ...] = ()

    @property
    def unobserved(self) -> DemandSummary | None:
        """The load at the moments of which the log tells no latency; None where it tells that of all."""
        told = zip_longest(self.moments, self.observed)
        dark = tuple(moment for moment, seen in told if moment is not None and seen is None)
        return replace(self, moments=dark, observed=()) if dark else None

    @property
    def at_moments(self) -> tuple[DemandSummary, ...]:
        """The load at each of the busiest moments; itself where they are not known one by one."""
        return tuple(self._at(moment) for moment in self.moments) or (self,)

    def _at(self, moment: Moment) -> DemandSummary:
        """What is computed for a prompt is answered soon: its output counts even if it comes after the
        window.
        """
        output = moment.output_per_s
        if moment.uncached_per_s and self.prompt_ratio > 0:
            output = max(output or 0.0, moment.uncached_per_s / self.prompt_ratio)
        return replace(
            self,
            peak_window_s=moment.window_s,
            peak_requests_per_s=moment.requests_per_s,
            peak_uncached_per_s=moment.uncached_per_s,
            peak_output_per_s=output,
            moments=(),
        )

    @property
    def missing(self) -> dict[Measure, int]:
        """Calls without a count, by measure."""
        return {"input": self.requests_input_missing, "output": self.requests_output_missing}

    @property
    def unmeasured(self) -> tuple[Measure, ...]:
        """Measures that no call tells: without them nothing can be sized."""
        return tuple(measure for measure, missing in self.missing.items() if missing >= self.requests)

    @property
    def unknown_ratio(self) -> float:
        """Share of calls without a count, of the measure that is known the least."""
        return max(self.missing.values()) / self.requests

    @property
    def input_mean(self) -> float:
        """Input tokens per call."""
        return self.input_tokens / self._told("input")

    @property
    def uncached_mean(self) -> float:
        """Input tokens per call that have to be computed."""
        return self.uncached_input_tokens / self._told("input")

    @property
    def output_mean(self) -> float:
        """Output tokens per call; at least one, since prefill yields one."""
        return max(self.output_tokens / self._told("output"), 1.0)

    def _told(self, measure: Measure) -> int:
        told = self.requests - self.missing[measure]
        if told <= 0:
            msg = f"pool {self.pool} has no mean of {measure} tokens: no call tells a count"
            raise ValueError(msg)
        return told

    @property
    def context_mean(self) -> float:
        """Context in flight, averaged over a call's decode steps."""
        return self.input_mean + self.output_mean / 2

    @property
    def output_per_s(self) -> float:
        """Mean output rate over the covered time, one token per call at least; calls without a count are
        taken to be like the others.
        """
        return self.output_mean * self.requests / self.window_s

    @property
    def output_tokens_per_s(self) -> float:
        """Output tokens that were counted, and as many for calls without a count, over the covered time."""
        return self.output_tokens / self._told("output") * self.requests / self.window_s

    @property
    def month_tokens(self) -> float | None:
        """Input and output tokens that were counted, in a month like the covered time; None where no call
        tells one of the two. Nothing is put in for calls without a count: this is what the report's token
        totals show and what priced calls stand for, so a cost per token of hardware is an upper bound.
        """
        if self.unmeasured:
            return None
        return (self.input_tokens + self.output_tokens) / self.window_s * SECONDS_PER_MONTH

    @property
    def peak_rate(self) -> float | None:
        """Output tokens per second at the peak, at least one per call; None if the peak is unknown."""
        known = [rate for rate in (self.peak_output_per_s, self.peak_requests_per_s) if rate is not None]
        return max(known) if known else None

    @property
    def peak_prompt_ratio(self) -> float:
        """Prompt tokens to compute per output token at the peak."""
        if self.peak_uncached_per_s is None or not self.peak_rate:
            return self.prompt_ratio
        return self.peak_uncached_per_s / self.peak_rate

    @property
    def prompt_ratio(self) -> float:
        """Prompt tokens to compute per output token over the covered time."""
        return self.uncached_mean / self.output_mean

    @property
    def peak_uncached_per_call(self) -> float:
        """Prompt tokens to compute per call at the peak; the mean of all calls where the peak does not tell.

        At most the 95th percentile: a window may hold work on prompts that arrived before it.
        """
        if not self.peak_uncached_per_s or not self.peak_requests_per_s:
            return self.uncached_mean
        here = self.peak_uncached_per_s / self.peak_requests_per_s
        return here if self.uncached_input_p95 is None else min(here, max(self.uncached_input_p95, 1.0))


def demand_summary(
    requests: pl.LazyFrame,
    coverage: pl.DataFrame,
    fleet: Fleet,
) -> list[DemandSummary]:
    """Summarise the load by pool, largest input first.

    Args:
        requests: the facts; only served calls (ok, cancelled) that no response cache answered count.
        coverage: COVERAGE; its stretches without gap are the time that means refer to.
        fleet: the site file. A model that no pool serves becomes a pool under its own name, if it is one of the
            largest of these (see `largest_models`); the others become one pool.

    """
    pool_of = _pools(requests, fleet)
    if not pool_of:
        return []
    table = _shapes(requests, pool_of)
    window_s = _window_s(requests, coverage)
    busiest = busiest_moments(requests, pool_of)
    pools = {pool.name: pool for pool in fleet.pools}
    summaries = []
    for row in table.iter_rows(named=True):
        log_models = tuple(sorted(row["models"]))
        pool = pools.get(row["pool"])
        busy = busiest.get(row["pool"], Busiest())
        summary = DemandSummary(
            pool=row["pool"],
            log_models=log_models,
            model=pool.model if pool else _model(row["pool"]),
            today=pool,
            requests=row["requests"],
            requests_input_missing=row["input_missing"],
            requests_output_missing=row["output_missing"],
            window_s=window_s,
            input_tokens=float(row["input"] or 0),
            uncached_input_tokens=float(row["uncached"] or 0),
            output_tokens=float(row["output"] or 0),
            uncached_input_p95=row["uncached_p95"],
            context_p99=row["context_p99"],
            arrival_cv2=busy.arrival_cv2,
            peak_window_s=busy.moments[0].window_s if busy.moments else None,
            peak_requests_per_s=_highest(moment.requests_per_s for moment in busy.moments),
            peak_uncached_per_s=_highest(moment.uncached_per_s for moment in busy.moments),
            peak_output_per_s=_highest(moment.output_per_s for moment in busy.moments),
            moments=busy.moments,
            observed=busy.observed,
        )
        summaries.append(_explained(summary, row["cache_unknown"], is_relative=row["relative"]))
    return summaries


def _highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _pools(requests: pl.LazyFrame, fleet: Fleet) -> dict[str, str]:
    """Pool of each log model: that of the fleet file, else its own, else that of all models with little load."""
    names = requests.select(model_name().unique()).collect()["model"].to_list()
    stated = {name: pool.name for name in names if (pool := fleet.pool_of(name))}
    calls = requests.filter(is_demand()).select(model_name(), "input_tokens", "output_tokens")
    own = largest_models(calls.filter(~pl.col("model").is_in(list(stated))))
    return {name: stated.get(name) or (name if name in own else OTHER_MODELS) for name in names}


def _model(pool: str) -> Model | None:
    """Architecture of a pool that is a model, or the models with little load."""
    return None if pool == OTHER_MODELS else find_model(pool)


def _shapes(requests: pl.LazyFrame, pool_of: Mapping[str, str]) -> pl.DataFrame:
    """One row per pool: counts, sums and tails."""
    keys = pl.DataFrame({"model": list(pool_of), "pool": list(pool_of.values())}).lazy()
    cached = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), "input_tokens")
    served = (
        requests.filter(is_demand())
        .select(
            model_name(),
            input="input_tokens",
            output=output_tokens(),
            uncached=pl.col("input_tokens") - cached,
            cache_unknown=pl.col("cache_read_tokens").is_null(),
            relative=pl.col("flags").list.contains("relative_clock").fill_null(value=False),
        )
        .join(keys, on="model")
    )
    shapes = served.group_by("pool").agg(
        models=pl.col("model").unique(),
        requests=pl.len(),
        input_missing=pl.col("input").is_null().sum(),
        output_missing=pl.col("output").is_null().sum(),
        # Without an input there is nothing whose cached part could be asked for.
        cache_unknown=(pl.col("cache_unknown") & pl.col("input").is_not_null()).sum(),
        relative=pl.col("relative").any(),
        input=pl.col("input").sum(),
        uncached=pl.col("uncached").sum(),
        output=pl.col("output").sum(),
        uncached_p95=pl.col("uncached").quantile(0.95, "higher"),
        context_p99=(pl.col("input") + pl.col("output").fill_null(pl.col("output").mean())).quantile(
            0.99, "higher"
        ),
    )
    return shapes.sort("input", "pool", descending=[True, False]).collect()


def _window_s(requests: pl.LazyFrame, coverage: pl.DataFrame) -> float:
    """Seconds with data; the span of the requests, an hour at least, where coverage has no stretch."""
    covered = coverage.filter(~pl.col("is_gap")).select(
        (pl.col("end_at") - pl.col("start_at")).dt.total_microseconds().sum()
    )
    seconds = float(covered.item() or 0) / 1e6
    if seconds > 0:
        return seconds
    span = (
        requests.select((pl.col("started_at").max() - pl.col("started_at").min()).dt.total_microseconds())
        .collect()
        .item()
    )
    return max(float(span or 0) / 1e6, 3600.0)


def _explained(summary: DemandSummary, cache_unknown: int, *, is_relative: bool) -> DemandSummary:
    notes = []
    if summary.pool == OTHER_MODELS:
        notes.append(
            f"{len(summary.log_models):,} models beyond the {MOST_MODELS} with most tokens, taken together"
        )
    if is_relative:
        notes.append(
            "the log has no wall clock: its peak and all that is made a month hold only if its parts ran "
            "as their offsets say"
        )
    if summary.peak_window_s is None:
        notes.append("the peak is unknown: no demand peak of this model was found")
    else:
        window = f"peak over {summary.peak_window_s:g} s"
        notes.append(f"{window}: the hardest of the windows with most calls, prompt or output")
    if cache_unknown:
        notes.append(
            f"cache reads of {cache_unknown:,} calls are unknown; their whole input is taken as computed"
        )
    notes += [
        f"{missing:,} of {summary.requests:,} calls have an unknown {measure} token count; they are sized "
        "like the others, and costs per token refer to the counted tokens alone"
        for measure, missing in summary.missing.items()
        if missing and measure not in summary.unmeasured
    ]
    return replace(summary, basis=tuple(notes))
