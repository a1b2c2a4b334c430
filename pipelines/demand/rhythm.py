"""Rhythm, growth, and what so short a log can't show: demand by hour of day, weekday and day.

Belongs here: means of the minute series by clock and calendar. Does not belong here: the series (`series`),
peaks and their confidence (`peak_confidence`).

Means are over covered minutes: a gap is no zero. Hours and days are those of the site's time zone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl

from pipelines.demand.sweep import Reals

MINUTES_PER_DAY = 1440
WHOLE_DAY_RATIO = 0.8
"""A day of which less is covered says nothing of the day's mean."""
LEAST_MINUTES = 60
"""Fewer covered minutes of a day are no sight of it."""
CONFIDENCE = 0.95
_SATURDAY = 6
_DAYS_PER_WEEK, _DAYS_PER_YEAR = 7, 365
_TOKENS = pl.col("input_tokens") + pl.col("output_tokens")


def rhythm(minutes: pl.DataFrame, zone: str) -> dict[str, list[dict[str, Any]]]:
    """Mean demand by hour of day and by weekday.

    Args:
        minutes: DEMAND_MINUTE of one scope.
        zone: name of the site's time zone.

    Returns:
        `hour_of_day` (`hour` 0..23) and `weekday` (1 = Monday .. 7), each with `seen` (of how many different days
        half of it or more is covered), `minutes` covered, `requests_per_s`, `tokens_per_s` (input +
        output; null where no minute tells both) and `busiest_minute_requests`.

    """
    local = minutes.with_columns(pl.col("minute_at").dt.convert_time_zone(zone).alias("local"))
    told = local.with_columns(
        hour=pl.col("local").dt.hour().cast(pl.Int64),
        weekday=pl.col("local").dt.weekday().cast(pl.Int64),
        day=pl.col("local").dt.date(),
        tokens=_TOKENS,
    )
    return {"hour_of_day": _by(told, "hour", 60), "weekday": _by(told, "weekday", MINUTES_PER_DAY)}


def _by(told: pl.DataFrame, key: str, length: int) -> list[dict[str, Any]]:
    is_seen = pl.len().over(key, "day") >= length / 2
    return (
        told.with_columns(seen_day=pl.when(is_seen).then("day"))
        .group_by(key)
        .agg(
            seen=pl.col("seen_day").drop_nulls().n_unique().cast(pl.Int64),
            minutes=pl.len().cast(pl.Int64),
            requests_per_s=pl.col("requests").mean() / 60,
            tokens_per_s=pl.col("tokens").mean() / 60,
            busiest_minute_requests=pl.col("requests").max(),
        )
        .sort(key)
        .to_dicts()
    )


def daily(minutes: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Whole days of a scope: `day`, `is_weekend`, `requests_per_s`, `tokens_per_s` (null: unknown)."""
    day = pl.col("minute_at").dt.convert_time_zone(zone).dt.date().alias("day")
    return (
        minutes.group_by(day)
        .agg(
            requests_per_s=pl.col("requests").mean() / 60,
            tokens_per_s=_TOKENS.mean() / 60,
            covered=pl.len(),
        )
        .filter(pl.col("covered") >= WHOLE_DAY_RATIO * MINUTES_PER_DAY)
        .select(
            "day", (pl.col("day").dt.weekday() >= _SATURDAY).alias("is_weekend"), pl.selectors.ends_with("_s")
        )
        .sort("day")
    )


def growth(days: pl.DataFrame, measure: str) -> dict[str, Any]:
    """Trend of a daily mean, as growth per week.

    Least squares of its logarithm on the day, with a level of its own for weekends; the interval is Student's,
    as if days were independent.

    Args:
        days: `daily`.
        measure: `requests_per_s` or `tokens_per_s`.

    Returns:
        `measure`, `days` used, `growth_per_week` (0.1 = 10 % more each week), `low`, `high` (95 %), and `basis`:
        how it was made, or why it is unknown (then the three are null).

    """
    used = days.filter(pl.col(measure) > 0)
    weekend_level = used["is_weekend"].n_unique() > 1
    parameters = 3 if weekend_level else 2
    freedom = used.height - parameters
    out: dict[str, Any] = {"measure": measure, "days": used.height}
    if freedom < 2:  # noqa: PLR2004 - with one degree of freedom an interval spans everything
        why = f"unknown: {used.height} whole days with demand, a trend needs {parameters + 2}"
        return out | {"growth_per_week": None, "low": None, "high": None, "basis": why}
    columns = [
        np.ones(used.height),
        used["day"].to_physical().to_numpy() - float(used["day"].to_physical()[0]),
    ]
    if weekend_level:
        columns.append(used["is_weekend"].to_numpy().astype(np.float64))
    matrix = np.column_stack(columns)
    log_rate = np.log(used[measure].to_numpy())
    fitted, *_ = np.linalg.lstsq(matrix, log_rate, rcond=None)
    variance = float(((log_rate - matrix @ fitted) ** 2).sum()) / freedom
    error = math.sqrt(variance * float(np.linalg.inv(matrix.T @ matrix)[1, 1]))
    half = student_quantile((1 + CONFIDENCE) / 2, freedom) * error
    slope = float(fitted[1])
    weekly = {
        name: math.expm1(min(_DAYS_PER_WEEK * value, 50.0))
        for name, value in (("growth_per_week", slope), ("low", slope - half), ("high", slope + half))
    }
    level = ", weekends with a level of their own" if weekend_level else ""
    basis = f"log-linear trend over {used.height} whole days{level}; 95 % interval, days taken as independent"
    return out | weekly | {"basis": basis}


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t for a probability above one half, by integrating its density.

    The substitution t = sqrt(v) tan(u) turns the density into cos(u)^(v - 1), which is smooth and bounded.
    """
    angle: Reals = np.linspace(0.0, math.pi / 2, 20_001)
    density = np.cos(angle) ** (freedom - 1)
    mass = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2)))
    at = float(np.interp(2 * probability - 1, mass / mass[-1], angle))
    return math.sqrt(freedom) * math.tan(at)


def cannot_show(minutes: pl.DataFrame, zone: str, *, has_calendar: bool) -> list[dict[str, str]]:
    """What the days that were seen say nothing about: `what` and `why`, in words."""
    if minutes.is_empty():
        return [{"what": "any rhythm", "why": "no minute of demand is known"}]
    if not has_calendar:
        return [{"what": "any day or hour", "why": "the log's clock counts from its own start"}]
    covered = minutes["minute_at"].dt.convert_time_zone(zone).dt.date().alias("day").value_counts()
    # The last minute of a week may be the first of the next day.
    days = covered.filter((pl.col("count") >= LEAST_MINUTES) | (pl.len() == 1))["day"].sort()
    seen = len(days)
    out = []
    unseen = sorted(set(range(1, 8)) - set(days.dt.weekday().to_list()))
    if unseen:
        names = ", ".join(("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[day - 1] for day in unseen)
        out.append({"what": "every weekday", "why": f"no minute of {names} was seen"})
    days_seen = "1 day was seen" if seen == 1 else f"{seen} days were seen"
    if seen < 2 * _DAYS_PER_WEEK:
        most = "once" if seen <= _DAYS_PER_WEEK else "twice"
        out.append({"what": "how weeks differ", "why": f"{days_seen}: each weekday at most {most}"})
    if not (days.dt.day() == days.dt.month_end().dt.day()).any():
        out.append({"what": "month end", "why": "no last day of a month was seen"})
    if not (days.dt.month().is_in([3, 6, 9, 12]) & (days == days.dt.month_end())).any():
        out.append({"what": "quarter end", "why": "no last day of a quarter was seen"})
    if seen < _DAYS_PER_YEAR:
        out.append({"what": "seasons and holidays", "why": f"{days_seen}: less than a year"})
    out.append({"what": "launches", "why": "what new users and products will ask for is in no log"})
    return out
