"""Curves and their maxima against slow references in exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.demand import sweep

LAST = 40
instants = st.integers(0, LAST)
amounts = st.integers(0, 50)
spreads = st.lists(st.tuples(instants, instants, amounts), min_size=1, max_size=25).map(
    lambda rows: [(min(a, b), max(a, b), amount) for a, b, amount in rows]
)
holdings = st.lists(st.tuples(instants, instants, instants, amounts, amounts), min_size=1, max_size=20).map(
    lambda rows: [(*sorted((a, b, c)), base, growth) for a, b, c, base, growth in rows]
)
quick = settings(max_examples=80, deadline=None)


def columns(rows):
    *times, _ = zip(*rows, strict=True)
    return [np.array(column, np.int64) for column in times]


def even_curve(rows):
    starts, ends, amount = (np.array(column) for column in zip(*rows, strict=True))
    return sweep.evenly(starts.astype(np.int64), ends.astype(np.int64), amount.astype(np.float64))


def held_curve(rows):
    begins, grows, ends, base, growth = (np.array(column) for column in zip(*rows, strict=True))
    times = (column.astype(np.int64) for column in (begins, grows, ends))
    return sweep.held(*times, base.astype(np.float64), growth.astype(np.float64))


def even_inside(rows, left, right):
    """Amounts in [left, right), one interval at a time."""
    total = Fraction(0)
    for start, end, amount in rows:
        if start == end:
            total += amount if left <= start < right else 0
        else:
            overlap = max(Fraction(0), min(Fraction(end), right) - max(Fraction(start), left))
            total += amount * overlap / (end - start)
    return total


def held_until(begin, grow, end, base, growth, instant):
    """Integral of one holding from its begin to the instant."""
    if end <= begin:
        return Fraction(0)
    instant = min(max(Fraction(instant), Fraction(begin)), Fraction(end))
    ramp = max(Fraction(0), instant - grow)
    steep = Fraction(growth, end - grow) if end > grow else Fraction(0)
    return base * (instant - begin) + steep * ramp * ramp / 2


def held_inside(rows, left, right):
    return sum((held_until(*row, right) - held_until(*row, left) for row in rows), Fraction(0))


def held_at(rows, instant, *, just_before=False):
    """Tokens held at an instant, or just before it."""
    total = Fraction(0)
    for begin, grow, end, base, growth in rows:
        inside = begin < instant <= end if just_before else begin <= instant < end
        if inside:
            grown = Fraction(growth, end - grow) * max(0, instant - grow) if end > grow else 0
            total += base + grown
    return total


def window_limits(window):
    return st.tuples(instants, instants).map(lambda pair: (min(pair), max(pair)))


@quick
@given(spreads, st.integers(1, 30), window_limits(1))
def test_busiest_window_of_spread_amounts_and_points_is_the_best_of_all_whole_microseconds(
    rows, window, limits
):
    curve = even_curve(rows)
    if curve.is_empty:
        return
    first, last = limits
    value, start = sweep.busiest_window(curve, window, first, last)
    earliest = max(first, min(int(curve.time[1]), last))
    best = max(even_inside(rows, t, t + window) for t in range(earliest, last + 1))
    assert value == pytest.approx(float(best), rel=1e-9, abs=1e-9)
    assert float(even_inside(rows, start, start + window)) == pytest.approx(value, rel=1e-8, abs=1e-9)
    assert earliest <= start <= last


@quick
@given(spreads, st.integers(1, 30))
def test_no_window_that_begins_before_the_first_breakpoint_is_better(rows, window):
    curve = even_curve(rows)
    if curve.is_empty:
        return
    value, _ = sweep.busiest_window(curve, window, -100, LAST + 100)
    assert value >= float(max(even_inside(rows, t, t + window) for t in range(-40, LAST + 2))) - 1e-9


@quick
@given(holdings, st.integers(1, 30), window_limits(1))
def test_busiest_window_of_held_tokens_finds_maxima_between_breakpoints(rows, window, limits):
    """Between whole microseconds the integral is one parabola: three values give its vertex."""
    curve = held_curve(rows)
    if curve.is_empty:
        return
    first, last = limits
    value, start = sweep.busiest_window(curve, window, first, last)
    earliest = max(first, min(int(curve.time[1]), last))
    best = held_inside(rows, earliest, earliest + window)
    for t in range(earliest, last):
        f0, f1, f2 = (held_inside(rows, t + step, t + step + window) for step in (0, Fraction(1, 2), 1))
        best = max(best, f2)
        square, line = 2 * (f2 - 2 * f1 + f0), 4 * f1 - 3 * f0 - f2
        if square < 0 and 0 < -line / (2 * square) < 1:
            best = max(best, f0 - line * line / (4 * square))
    assert value == pytest.approx(float(best), rel=1e-9, abs=1e-9)
    assert earliest <= start <= last


@quick
@given(spreads, st.lists(st.integers(-5, LAST + 5), min_size=1, max_size=10))
def test_total_before_holds_the_points_before_but_not_at_the_instant(rows, at):
    totals = sweep.total_before(even_curve(rows), np.array(at, np.int64))
    assert totals == pytest.approx([float(even_inside(rows, -100, t)) for t in at], rel=1e-9, abs=1e-9)


@quick
@given(spreads)
def test_in_flight_counts_half_open_intervals(rows):
    starts, ends = columns(rows)
    curve = sweep.in_flight(starts, ends)
    counts = [sum(start <= t < end for start, end, _ in rows) for t in range(LAST + 1)]
    if curve.is_empty:
        assert max(counts) == 0
        return
    value, instant = sweep.highest(curve)
    assert value == max(counts)
    assert instant == counts.index(max(counts))
    inside = sweep.highest_within(curve, np.arange(0, LAST, 7, dtype=np.int64), 7)
    assert inside.tolist() == [max(counts[t : t + 7]) for t in range(0, LAST, 7)]


@quick
@given(holdings)
def test_highest_of_held_tokens_looks_just_before_releases(rows):
    curve = held_curve(rows)
    if curve.is_empty:
        return
    at = {t: max(held_at(rows, t), held_at(rows, t, just_before=True)) for t in range(LAST + 1)}
    value, instant = sweep.highest(curve)
    assert value == pytest.approx(float(max(at.values())), rel=1e-9, abs=1e-9)
    assert float(at[instant]) == pytest.approx(value, rel=1e-8, abs=1e-9)


@quick
@given(holdings)
def test_highest_within_bins_of_held_tokens(rows):
    starts = np.arange(0, LAST, 5, dtype=np.int64)
    inside = sweep.highest_within(held_curve(rows), starts, 5)
    slow = [
        max(
            *(held_at(rows, t) for t in range(start, start + 5)),
            *(held_at(rows, t, just_before=True) for t in range(start + 1, start + 6)),
        )
        for start in starts.tolist()
    ]
    assert inside == pytest.approx([float(value) for value in slow], rel=1e-9, abs=1e-9)


def test_a_window_of_equal_points_begins_at_the_first_of_them():
    points = np.array([100, 130, 180], np.int64)
    curve = sweep.evenly(points, points, np.ones(3))
    assert sweep.busiest_window(curve, 50, 0, 1000) == (2.0, 100)
    assert sweep.busiest_window(curve, 51, 0, 1000) == (2.0, 100)
    assert sweep.busiest_window(curve, 81, 0, 1000) == (3.0, 100)


def test_unknown_amounts_are_left_out_and_an_empty_curve_says_so():
    times = np.array([0, 5], np.int64)
    assert sweep.evenly(times, times + 5, np.array([np.nan, 0.0])).is_empty
    assert sweep.evenly(times, times + 5, np.array([np.nan, 2.0])).time[1:-1].tolist() == [5, 10]
    assert sweep.held(times, times, times + 5, np.array([np.nan, np.nan]), np.ones(2)).is_empty


def test_rounding_does_not_pile_up_over_many_busy_periods():
    """After each busy period the level is exactly zero again."""
    rng = np.random.default_rng(3)
    starts = np.arange(20_000, dtype=np.int64) * 1000
    curve = sweep.evenly(starts, starts + rng.integers(1, 999, 20_000), rng.uniform(0.1, 1e6, 20_000))
    assert curve.level[2:-1:2].tolist() == [0.0] * 20_000
