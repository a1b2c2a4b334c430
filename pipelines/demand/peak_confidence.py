"""How far the highest demand that was seen may be from the highest to expect: one week's peak is one draw.

Belongs here: resampling days, the tail of daily maxima, the factor that follows. Does not belong here: the
exact peaks of the log (`peaks`), growth (`rhythm`).

Two answers, from the minutes of the days:

- Resampling days (bootstrap): how much a high quantile of the minutes (p99) depends on which days were seen.
- The tail: daily maxima follow an extreme-value distribution. Gumbel's, fitted by L-moments, from five
  days on; the general one (Hosking, Wallis and Wood, Technometrics 27, 1985) from twenty days on, as its shape can't be
  told from fewer. It gives the median of the highest minute of a month, with an interval from fitting again
  to draws of the fitted distribution. Days are taken as independent and alike, so where working days and
  weekends differ only the kind of day that holds the peak is used, if there are five of it.

With fewer days nothing is claimed beyond what was seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.demand.rhythm import MINUTES_PER_DAY, WHOLE_DAY_RATIO
from pipelines.demand.sweep import Reals

LEAST_BLOCKS = 5
LEAST_BLOCKS_WITH_SHAPE = 20
HORIZON_DAYS = 30
QUANTILE = 0.99
INTERVAL = 0.8
RESAMPLES = 400
SEED = 20_250_101
"""Draws are repeatable: the same log gives the same figures."""
MEASURES = ("requests", "total_tokens", "output_tokens", "concurrency_max")
_EULER = 0.5772156649015329
_SATURDAY = 6


@dataclass(frozen=True, slots=True)
class Tail:
    """Extreme-value distributions of a block's maximum, one per fit; `shape` 0 is Gumbel's, negative has the
    heavier tail.
    """

    place: Reals
    scale: Reals
    shape: Reals

    def level(self, probability: Reals | float) -> Reals:
        """Quantile of the maximum, by fit (or of one fit at several probabilities)."""
        reduced = -np.log(np.asarray(probability, dtype=np.float64))
        shape = np.where(self.shape == 0, 1.0, self.shape)
        bent = (1 - reduced**shape) / shape
        return np.asarray(self.place + self.scale * np.where(self.shape == 0, -np.log(reduced), bent))

    def highest_of(self, blocks: int) -> Reals:
        """Median of the maximum of so many blocks, by fit."""
        return self.level(0.5 ** (1 / blocks))


def fit_tail(maxima: Reals, *, with_shape: bool) -> Tail:
    """Fit by L-moments along the last axis; maxima that are all equal give a tail without width."""
    ordered = np.sort(maxima, axis=-1)
    n = ordered.shape[-1]
    rank = np.arange(n)
    b0 = ordered.mean(axis=-1)
    b1 = (ordered * rank).sum(axis=-1) / (n * (n - 1))
    l2 = np.maximum(2 * b1 - b0, 0.0)
    gumbel = l2 / math.log(2)
    if not with_shape:
        return Tail(b0 - _EULER * gumbel, gumbel, np.zeros_like(gumbel))
    b2 = (ordered * rank * (rank - 1)).sum(axis=-1) / (n * (n - 1) * (n - 2))
    c = l2 / np.where(l2 > 0, 3 * b2 - b0, 1.0) - math.log(2) / math.log(3)
    shape = 7.8590 * c + 2.9554 * c * c
    # Near a shape of zero, and without width, the formulas below divide zero by zero: Gumbel's stand there.
    straight = (np.abs(shape) < 1e-6) | (l2 == 0)  # noqa: PLR2004
    safe = np.where(straight, 0.5, shape)
    gamma = np.vectorize(math.gamma)(1 + safe)
    scale = np.where(straight, gumbel, l2 * safe / (gamma * (1 - 2.0**-safe)))
    offset = np.where(straight, _EULER * scale, scale * (1 - gamma) / safe)
    return Tail(b0 - offset, scale, np.where(straight, 0.0, shape))


def peak_confidence(minutes: pl.DataFrame, zone: str) -> list[dict[str, Any]]:
    """Say how sure the highest minute of a scope is.

    Args:
        minutes: DEMAND_MINUTE of one scope.
        zone: name of the site's time zone; days are its days.

    Returns:
        One row per measure that some minute tells: `measure`, `days` (whole ones), `observed_max` (highest
        minute of the whole days), `p99`, `p99_low`, `p99_high` (80 % over resampled days),
        `expected_max` (median of the highest minute of 30 days), `expected_max_low`, `expected_max_high` (80 %),
        `factor` (expected_max_high / observed_max, at least 1), `blocks` the tail was fitted to, `method`
        (gumbel, gev or null) and `basis`. Null: too few days.

    """
    local = pl.col("minute_at").dt.convert_time_zone(zone)
    told = minutes.with_columns(
        day=local.dt.date(),
        is_weekend=local.dt.weekday() >= _SATURDAY,
        total_tokens=pl.col("input_tokens") + pl.col("output_tokens"),
    )
    whole = told.filter(pl.len().over("day") >= WHOLE_DAY_RATIO * MINUTES_PER_DAY)
    rows = []
    for measure in MEASURES:
        known = whole.select(
            "day", "is_weekend", pl.col(measure).cast(pl.Float64).alias("value")
        ).drop_nulls()
        if known.height and known["value"].max() > 0:  # type: ignore[operator]
            rows.append({"measure": measure, **_confidence(known)})
    return rows


def _confidence(known: pl.DataFrame) -> dict[str, Any]:
    days = (
        known.group_by("day")
        .agg(pl.col("value").max().alias("top"), pl.col("is_weekend").first())
        .sort("day")
    )
    observed = float(days["top"].max())  # type: ignore[arg-type]
    p99, low, high = resampled_quantile(known["value"].to_numpy(), known["day"].to_physical().to_numpy())
    several = days.height >= LEAST_BLOCKS
    row: dict[str, Any] = {
        "days": days.height,
        "observed_max": observed,
        "p99": p99,
        "p99_low": low if several else None,
        "p99_high": high if several else None,
    }
    busier = days.filter(pl.col("is_weekend") == days.sort("top")["is_weekend"].last())
    alike = busier if busier.height >= LEAST_BLOCKS else days
    return row | _tail(alike["top"].to_numpy(), observed, same_kind=alike.height < days.height)


def _tail(maxima: Reals, observed: float, *, same_kind: bool) -> dict[str, Any]:
    blocks = len(maxima)
    if blocks < LEAST_BLOCKS:
        unknown = dict.fromkeys(("expected_max", "expected_max_low", "expected_max_high", "factor", "method"))
        why = f"too few blocks: {blocks} whole days, a tail needs {LEAST_BLOCKS}"
        return unknown | {"blocks": blocks, "basis": why}
    with_shape = blocks >= LEAST_BLOCKS_WITH_SHAPE
    fitted = fit_tail(maxima, with_shape=with_shape)
    uniform = np.random.default_rng(SEED).uniform(size=(RESAMPLES, blocks))
    again = fit_tail(fitted.level(uniform), with_shape=with_shape).highest_of(HORIZON_DAYS)
    low, high = (float(value) for value in np.quantile(again, ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2)))
    kind = " of the kind of day with the peak" if same_kind else ""
    name = "general extreme-value" if with_shape else "Gumbel"
    return {
        "expected_max": float(fitted.highest_of(HORIZON_DAYS)),
        "expected_max_low": low,
        "expected_max_high": high,
        "factor": max(high / observed, 1.0),
        "method": "gev" if with_shape else "gumbel",
        "blocks": blocks,
        "basis": f"{name} tail of {blocks} daily maxima{kind}; median of the highest minute of {HORIZON_DAYS} such "
        f"days, 80 % interval by parametric bootstrap",
    }


def resampled_quantile(values: Reals, days: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """p99 of all values, and the ends of its 80 % interval when days are drawn with replacement.

    A quantile of days put together lies between the least and the greatest of the days' own, so values below
    the least are only counted.
    """
    names, index = np.unique(days, return_inverse=True)
    sizes = np.bincount(index)
    least = min(
        float(np.quantile(values[index == k], QUANTILE, method="inverted_cdf")) for k in range(len(names))
    )
    kept = values >= least
    order = np.argsort(values[kept])
    top, day_of = values[kept][order], index[kept][order]
    by_day = np.zeros((len(top), len(names)))
    by_day[np.arange(len(top)), day_of] = 1
    from_top = np.cumsum(by_day[::-1], axis=0)[::-1]
    draws = np.random.default_rng(SEED).multinomial(
        len(names), np.full(len(names), 1 / len(names)), RESAMPLES
    )
    weights = np.vstack((np.ones(len(names)), draws)).T
    # The quantile is the smallest value that at most 1 % of all are above: count those from it upwards.
    at_least, all_of = from_top @ weights, sizes @ weights
    above = np.vstack((at_least[1:], np.zeros(weights.shape[1])))
    place = np.argmax(above <= (1 - QUANTILE) * all_of + 1e-9, axis=0)
    found = top[place]
    low, high = np.quantile(found[1:], ((1 - INTERVAL) / 2, (1 + INTERVAL) / 2))
    return float(found[0]), float(low), float(high)
