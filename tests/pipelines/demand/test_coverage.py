"""Gaps in the data are told from low traffic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from parsers.records import INSTANT
from pipelines.demand.coverage import coverage, coverage_ratio
from warehouse.tables import COVERAGE

HOUR = 3600
DAY = 24 * HOUR
MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def log(seconds, flags=()):
    """Records that last a second each."""
    starts = (
        pl.Series(np.sort(np.asarray(seconds, np.float64)) * 1e6).cast(pl.Int64)
        + int(MONDAY.timestamp()) * 10**6
    )
    started = pl.from_epoch(starts, "us").cast(INSTANT)
    return pl.LazyFrame({"started_at": started}).with_columns(
        ended_at=pl.lit(None, INSTANT),
        duration_ms=pl.lit(1000.0),
        flags=pl.lit(list(flags), pl.List(pl.String)),
    )


def office(rng, per_hour, days=7, weekend=0.0):
    """Arrivals of an office: busy from 8 to 18, a tenth of it in the evening, none at night."""
    seconds = []
    for day in range(days):
        scale = weekend if day % 7 >= 5 else 1.0
        for hour in range(24):
            rate = per_hour * scale * (1.0 if 8 <= hour < 18 else 0.1 if 18 <= hour < 22 else 0.0)
            seconds.append(day * DAY + hour * HOUR + rng.uniform(0, HOUR, rng.poisson(rate)))
    return np.concatenate(seconds)


def steady(rng, per_hour, hours):
    return rng.uniform(0, hours * HOUR, rng.poisson(per_hour * hours))


def without(seconds, begin, end):
    return seconds[(seconds < begin) | (seconds >= end)]


def gaps(frame):
    """Gaps as hours after Monday, rounded."""
    assert COVERAGE.problems(frame) == {}
    assert (frame["start_at"][1:] == frame["end_at"][:-1]).all()
    return [
        (
            round((row["start_at"] - MONDAY) / timedelta(hours=1)),
            round((row["end_at"] - MONDAY) / timedelta(hours=1)),
        )
        for row in frame.filter("is_gap").iter_rows(named=True)
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_hour", [2, 20, 600])
def test_quiet_nights_and_weekends_are_no_gaps(seed, per_hour):
    seconds = office(np.random.default_rng(seed), per_hour)
    assert gaps(coverage(log(seconds))) == []


@pytest.mark.parametrize("seed", range(5))
def test_low_traffic_at_any_hour_is_no_gap(seed):
    rng = np.random.default_rng(seed)
    assert gaps(coverage(log(steady(rng, 1.5, 7 * 24)))) == []
    bursts = np.concatenate([start + rng.uniform(0, 300, 30) for start in steady(rng, 0.5, 7 * 24)])
    assert gaps(coverage(log(bursts))) == []


@pytest.mark.parametrize("seed", range(5))
def test_two_lost_hours_of_a_working_day_are_a_gap(seed):
    seconds = without(office(np.random.default_rng(seed), 300), DAY + 10 * HOUR, DAY + 12 * HOUR)
    found = coverage(log(seconds))
    assert gaps(found) == [(34, 36)]
    assert "from the same clock time on 4 other days" in found.filter("is_gap")["reason"][0]
    assert coverage_ratio(found) == pytest.approx(1 - 2 / ((seconds.max() - seconds.min()) / HOUR), abs=0.01)


def test_a_lost_day_is_a_gap_and_so_are_two_at_the_same_hours():
    seconds = office(np.random.default_rng(1), 300)
    lost_day = without(seconds, 2 * DAY, 3 * DAY)
    # The night before and after is quiet; the gap spans it, from the last record to the next.
    ((begin, end),) = gaps(coverage(log(lost_day)))
    assert begin <= 48
    assert end >= 72
    twice = without(
        without(seconds, DAY + 10 * HOUR, DAY + 12 * HOUR), 3 * DAY + 10 * HOUR, 3 * DAY + 12 * HOUR
    )
    assert gaps(coverage(log(twice))) == [(34, 36), (82, 84)]


def test_a_busy_log_of_one_day_shows_an_abrupt_hole_but_not_its_night():
    rng = np.random.default_rng(2)
    day = office(rng, 300, days=1)
    two_days = np.concatenate((day, day + DAY))
    assert gaps(coverage(log(two_days[two_days < 34 * HOUR]))) == []
    assert gaps(coverage(log(without(day, 10 * HOUR, 11 * HOUR)))) == [(10, 11)]


def test_an_hour_long_trace_has_no_gap():
    seconds = steady(np.random.default_rng(3), 8000, 1)
    assert gaps(coverage(log(without(seconds, 1000, 1240)))) == []


def test_a_relative_clock_is_judged_by_neighbours_only():
    seconds = steady(np.random.default_rng(4), 100, 72)
    found = coverage(log(without(seconds, 30 * HOUR, 32 * HOUR), flags=["relative_clock"]))
    assert gaps(found) == [(30, 32)]
    assert "from the hours before and after" in found.filter("is_gap")["reason"][0]


def test_a_record_with_a_clock_of_1970_does_not_cover_half_a_century():
    seconds = steady(np.random.default_rng(5), 50, 48)
    found = coverage(log(np.append(seconds, -MONDAY.timestamp() + 5)))
    assert found["is_gap"].to_list() == [False, True, False]
    assert coverage_ratio(found) < 0.001


def test_the_window_can_be_given_and_what_lies_before_the_first_record_is_judged_too():
    seconds = steady(np.random.default_rng(6), 200, 24) + DAY
    window = (MONDAY, MONDAY + timedelta(days=2))
    found = coverage(log(seconds), window)
    assert gaps(found) == [(0, 24)]
    assert found["start_at"][0] == window[0]
    assert found["end_at"][-1] == window[1]
    assert coverage_ratio(found) == pytest.approx(0.5, abs=0.01)
    outside = coverage(log(seconds), (MONDAY - timedelta(days=1), MONDAY))
    assert coverage_ratio(outside) == 0.0
    assert outside["reason"].to_list() == ["no record in the window"]


def test_records_at_both_ends_of_the_window_stay_covered():
    seconds = steady(np.random.default_rng(7), 500, 10) + 5 * HOUR
    found = coverage(log(np.concatenate((seconds, [0, 23 * HOUR]))))
    assert not found["is_gap"][0]
    assert not found["is_gap"][-1]


def test_empty_and_single():
    empty = coverage(log([]))
    assert empty.schema == COVERAGE.schema
    assert coverage_ratio(empty) is None
    single = coverage(log([5.0]))
    assert single["is_gap"].to_list() == [False]
    assert coverage_ratio(single) == 1.0


def test_false_alarms_are_rare_on_bursty_traffic_at_any_rate():
    """Sessions of agents: several calls close together. Forty weeks, no false gap."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sessions = steady(rng, rng.choice([0.3, 1, 3, 10]), 7 * 24)
        size = rng.geometric(1 / 8, len(sessions))
        calls = np.repeat(sessions, size) + rng.uniform(0, 600, size.sum())
        alarms += len(gaps(coverage(log(calls))))
    assert alarms == 0
