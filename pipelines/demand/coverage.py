"""The mart `coverage`: which stretches of the window have data, and which are gaps in the data.

Belongs here: telling missing data from low traffic. Does not belong here: rows that were rejected
(`rejects`), demand.

A stretch is silent if no record starts or ends in it. A silent stretch is held to be a gap in the data when
it is longer than `SHORTEST_GAP_S` and so long a silence has a chance below `FALSE_ALARM` given the traffic
around it. With at most 672 stretches of that length in a week, fewer than one false gap is expected in a
thousand weeks, as far as the model holds:

- Calls come in bursts; n calls with index of dispersion d are worth n / d independent arrivals. If times of
  length T that are alike brought n calls, a silence of length t has the chance (T / (T + t))^(n / d): all
  arrivals fell into T by luck.
- Alike is the same clock hour on other days of the same kind (working day, weekend), so nights and weekends
  that are always quiet are no gaps. Of four or more such days the extremes are left out: one more outage, or
  one batch night, does not decide. Such days must speak for half of the stretch.
- Where they do not (short logs, clocks without a calendar), the hours before and after speak, and for one
  hour at most: what a busy hour says of a whole night is unknown. Nor do they speak if one of them has less
  than half the mean rate outside silences: traffic that fades into a silence and grows out of it is a rhythm.
- A silence longer than a week is first judged by the days that had any record, then as above by its first
  week.
- The dispersion is at least 1 and the largest of three: of quarters of an hour; of hours; of the days
  compared. The first two come from successive differences, which a slow rhythm hardly moves; for hours,
  differences between days at one clock time are taken where they are smaller, as no daily rhythm moves them.
  The stretch itself is left out.

Bursts much longer than an hour that come by themselves are the limit of the method.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np
import polars as pl

from parsers.records import INSTANT
from pipelines.demand.burstiness import HOUR_US
from pipelines.demand.series import MINUTE_US
from pipelines.demand.spread import ended_us, started_us
from pipelines.demand.sweep import Instants, Reals
from warehouse.tables import COVERAGE

SHORTEST_GAP_S = 15 * 60
FALSE_ALARM = 1e-6
LOG_FALSE_ALARM = math.log(FALSE_ALARM)
TRIMMED_FROM_DAYS = 4

DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US
_FIRST_SATURDAY = 2
"""Days from 1970-01-01 (a Thursday) to the first Saturday."""

Stretch = tuple[int, int]


@dataclass(frozen=True)
class _Traffic:
    """What the judgement looks at: sorted arrivals in microseconds between two instants."""

    starts: Instants
    first: int
    last: int
    busy_rate: float
    """Mean arrivals per microsecond outside silences."""
    has_calendar: bool

    def count(self, begins: Instants, ends: Instants) -> Instants:
        """Arrivals inside each (begin, end): those that bound a silence are not part of it."""
        return np.searchsorted(self.starts, ends, "left") - np.searchsorted(self.starts, begins, "right")

    @cached_property
    def _hours(self) -> Reals:
        return self._bins(HOUR_US)

    @cached_property
    def _quarters(self) -> Reals:
        return self._bins(HOUR_US // 4)

    def _bins(self, length: int) -> Reals:
        edges = np.arange(self.first, self.last + 1, length, dtype=np.int64)
        return np.diff(np.searchsorted(self.starts, edges)).astype(np.float64)

    def dispersion(self, begin: int, end: int) -> float:
        """Index of dispersion of the arrivals, at least 1, bins that the stretch touches left out."""
        hours, quarters = self._hours.copy(), self._quarters.copy()
        for bins, length in ((hours, HOUR_US), (quarters, HOUR_US // 4)):
            bins[(begin - self.first) // length : (end - self.first) // length + 1] = np.nan
        between_hours = _dispersion(hours, 1)
        between_days = _dispersion(hours, DAY_US // HOUR_US) if self.has_calendar else None
        of_hours = min(between_hours or 1.0, between_days or np.inf)
        return max(1.0, of_hours, _dispersion(quarters, 1) or 1.0)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Why a silence is improbable: arrivals expected, the log of the chance of none, and where that comes
    from.
    """

    expected: float
    log_chance: float
    source: str


def coverage(requests: pl.LazyFrame, window: tuple[datetime, datetime] | None = None) -> pl.DataFrame:
    """Stretches with data and gaps, in order of time.

    Args:
        requests: the fact table `requests`; rows of every status count, each proves that the log was being
            written.
        window: first and last instant (aware) to judge; rows that start outside are ignored. None: from the
            first arrival to the last end.

    Returns:
        A frame of `COVERAGE`, without overlap, from the start of the window to its end. Empty without rows
        and window.

    """
    rows = requests.select(started_us(), ended_us(), is_relative())
    if window is not None:
        first, last = (int(pl.Series([edge], dtype=INSTANT).dt.timestamp("us")[0]) for edge in window)
        rows = rows.filter((pl.col("started_us") >= first) & (pl.col("started_us") < last))
    records = rows.collect()
    starts = records["started_us"].sort().to_numpy()
    ends = records["ended_us"].drop_nulls().sort().to_numpy()
    if window is None:
        if records.is_empty():
            return COVERAGE.empty()
        first, last = int(starts[0]), int(max(starts[-1], ends[-1] if len(ends) else starts[-1]))
    elif records.is_empty():
        return _stretches(first, last, [(first, last, "no record in the window")], edges_are_records=False)
    gaps = _gaps(starts, ends[ends < last], first, last, has_calendar=not records["is_relative"].any())
    return _stretches(first, last, gaps, edges_are_records=window is None)


def coverage_ratio(coverage: pl.DataFrame) -> float | None:
    """Share of the window that has data, 0..1; None for a frame without stretches.

    Args:
        coverage: a frame of `COVERAGE`. A window of no length is covered in full.

    """
    if coverage.is_empty():
        return None
    lengths = coverage.select("is_gap", us=(pl.col("end_at") - pl.col("start_at")).dt.total_microseconds())
    whole = int(lengths["us"].sum())
    return 1.0 - int(lengths.filter("is_gap")["us"].sum()) / whole if whole else 1.0


def is_relative() -> pl.Expr:
    """Whether the call's clock counts from its own start, so that it has no calendar."""
    return pl.col("flags").list.contains("relative_clock").fill_null(value=False).alias("is_relative")


def _gaps(
    starts: Instants, ends: Instants, first: int, last: int, *, has_calendar: bool
) -> list[tuple[int, int, str]]:
    silences = _silences(starts, ends, first, last)
    gaps: list[tuple[int, int, str]] = []
    edges = [first]
    for begin, end in silences:
        if end - begin > WEEK_US:
            evidence = _by_days_with_records(starts, begin, end, last - first)
            if _improbable(evidence):
                gaps.append((begin, end, _reason(begin, end, evidence)))
                edges += [begin, end]
    edges.append(last)
    for since, until in zip(edges[::2], edges[1::2], strict=True):
        inside = starts[(starts >= since) & (starts <= until)]
        here = [silence for silence in silences if since <= silence[0] and silence[1] <= until]
        traffic = _traffic(inside, since, until, here, has_calendar=has_calendar)
        for begin, end in here:
            evidence = _by_other_days(traffic, begin, end) or _by_neighbours(traffic, begin, end)
            if _improbable(evidence):
                gaps.append((begin, end, _reason(begin, end, evidence)))
    return sorted(gaps)


def _silences(starts: Instants, ends: Instants, first: int, last: int) -> list[Stretch]:
    """Stretches longer than the shortest gap in which no record starts or ends."""
    events = np.sort(np.concatenate((starts, ends, np.array([first, last]))))
    long = np.flatnonzero(np.diff(events) > SHORTEST_GAP_S * 1_000_000)
    return [(int(events[k]), int(events[k + 1])) for k in long]


def _traffic(
    starts: Instants, first: int, last: int, silences: list[Stretch], *, has_calendar: bool
) -> _Traffic:
    loud = last - first - sum(end - begin for begin, end in silences)
    return _Traffic(starts, first, last, len(starts) / max(1, loud), has_calendar)


def _dispersion(bins: Reals, lag: int) -> float | None:
    """Index of dispersion from differences between bins `lag` apart; None without any or without arrivals."""
    differences = bins[lag:] - bins[:-lag]
    differences = differences[~np.isnan(differences)]
    mean = np.nanmean(bins) if len(differences) else 0.0
    return float((differences**2).mean() / 2 / mean) if mean > 0 else None


def _log_chance(calls: float, dispersion: float, alike: float, silence: float) -> float:
    """Log of the chance that all of `calls` fell into the time that is alike and none into the silence."""
    return calls / dispersion * math.log(alike / (alike + silence))


def _by_days_with_records(starts: Instants, begin: int, end: int, window: int) -> _Evidence | None:
    days = len(np.unique(starts // DAY_US))
    rest = window - (end - begin)
    if rest <= 0:
        return None
    chance = _log_chance(days, 1.0, rest, end - begin)
    return _Evidence(len(starts) * (end - begin) / rest, chance, "the rest of the window")


def _by_other_days(traffic: _Traffic, begin: int, end: int) -> _Evidence | None:
    """Evidence of the same clock time on other days; None where they speak for too little of the stretch."""
    judged = min(end, begin + WEEK_US)
    hours: list[Reals] = []
    spoken_for = days = 0
    for since, until in _by_hour(begin, judged):
        counts = _same_clock_time(traffic, since, until, (begin, end))
        if len(counts):
            spoken_for += until - since
            days = max(days, len(counts))
            hours.append(np.sort(counts)[1:-1] if len(counts) >= TRIMMED_FROM_DAYS else counts)
    if 2 * spoken_for < judged - begin:
        return None
    # Dispersion only weakens the evidence, and costs time: most silences fall without it.
    at_best = sum(_log_chance(float(counts.sum()), 1.0, len(counts), 1) for counts in hours)
    least = traffic.dispersion(begin, end) if at_best < LOG_FALSE_ALARM else 1.0
    log_chance = sum(
        _log_chance(float(counts.sum()), max(least, _variance_ratio(counts)), len(counts), 1)
        for counts in hours
    )
    plural = "day" if days == 1 else "days"
    source = f"the same clock time on {days} other {plural} of that kind"
    return _Evidence(sum(float(counts.mean()) for counts in hours), log_chance, source)


def _variance_ratio(counts: Reals) -> float:
    return float(counts.var(ddof=1) / counts.mean()) if len(counts) > 1 and counts.any() else 1.0


def _by_hour(begin: int, end: int) -> Iterator[Stretch]:
    while begin < end:
        until = min(end, (begin // HOUR_US + 1) * HOUR_US)
        yield begin, until
        begin = until


def _same_clock_time(traffic: _Traffic, since: int, until: int, silence: Stretch) -> Reals:
    """Arrivals at that clock time on every other day of the same kind that lies whole inside the traffic."""
    if not traffic.has_calendar:
        return np.zeros(0)
    day = since // DAY_US
    days = np.arange(traffic.first // DAY_US, traffic.last // DAY_US + 1, dtype=np.int64)
    begins = since + (days - day) * DAY_US
    ends = until + (days - day) * DAY_US
    usable = (begins >= traffic.first) & (ends <= traffic.last) & (_is_weekend(days) == _is_weekend(day))
    usable &= (ends <= silence[0]) | (begins >= silence[1])
    return traffic.count(begins[usable], ends[usable]).astype(np.float64)


def _is_weekend(day: int | Instants) -> np.bool_ | np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((day - _FIRST_SATURDAY) % 7 < 2)[()]  # noqa: PLR2004 - Saturday and Sunday


def _by_neighbours(traffic: _Traffic, begin: int, end: int) -> _Evidence | None:
    """Evidence of the hours before and after; None where both are short, or one of them is quiet."""
    both = ((max(traffic.first, begin - HOUR_US), begin), (end, min(traffic.last, end + HOUR_US)))
    sides = [(since, until) for since, until in both if until - since >= SHORTEST_GAP_S * 1_000_000]
    counts = [int(traffic.count(np.array([since]), np.array([until]))[0]) for since, until in sides]
    lengths = [until - since for since, until in sides]
    rates = [count / length for count, length in zip(counts, lengths, strict=True)]
    if not rates or min(rates) < traffic.busy_rate / 2:
        return None
    silence, alike = min(end - begin, HOUR_US), sum(lengths)
    where = "the hours before and after" if len(sides) > 1 else "the hour beside it"
    chance = _log_chance(sum(counts), traffic.dispersion(begin, end), alike, silence)
    return _Evidence(sum(counts) / alike * silence, chance, where)


def _improbable(evidence: _Evidence | None) -> bool:
    return evidence is not None and evidence.log_chance < LOG_FALSE_ALARM


def _reason(begin: int, end: int, evidence: _Evidence | None) -> str:
    minutes = (end - begin) // MINUTE_US
    length = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"  # noqa: PLR2004
    expected = evidence.expected if evidence else 0.0
    source = evidence.source if evidence else ""
    return (
        f"no record for {length}; about {expected:,.0f} calls expected from {source}; "
        f"chance below {FALSE_ALARM:g}"
    )


def _stretches(
    first: int, last: int, gaps: list[tuple[int, int, str]], *, edges_are_records: bool
) -> pl.DataFrame:
    """Fill what lies between gaps with stretches of data; a lone record between two gaps gets its
    microsecond.
    """
    rows: list[tuple[int, int, bool, str | None]] = []
    at = first
    for begin, end, reason in gaps:
        lone = begin == at and (begin > first or edges_are_records)
        since = begin + 1 if lone else begin
        if since > at:
            rows.append((at, since, False, None))
        rows.append((since, end, True, reason))
        at = end
    if at < last or edges_are_records or not rows:
        rows.append((at, last, False, None))
    schema = {"start_us": pl.Int64, "end_us": pl.Int64, "is_gap": pl.Boolean, "reason": pl.String}
    return COVERAGE.conform(
        pl.DataFrame(rows, schema=schema, orient="row").with_columns(
            start_at=pl.from_epoch("start_us", "us").cast(INSTANT),
            end_at=pl.from_epoch("end_us", "us").cast(INSTANT),
        )
    )
