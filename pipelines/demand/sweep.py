"""Curves over time, swept from starts and ends, and their exact maxima.

Belongs here: the curve of anything that is spread evenly over intervals or stands at instants (tokens, calls
in flight, KV tokens held), its integral, its maximum and the maximum of its integral over a sliding window.
Everything is arithmetic on arrays; time is in whole microseconds. Does not belong here: tables, names of
measures, what is assumed.

A curve is piecewise linear between breakpoints, plus points (amounts that stand at one instant). Intervals
and windows are half open: a call that ends when another starts does not overlap it, and a window holds the
points at its start but not those at its end. Each maximum is exact: the integral over a window [t, t + w) is
piecewise quadratic in t with pieces that end where an edge of the window meets a breakpoint, so the ends of
pieces and the vertex of each piece are all the places where it can be highest. One sort, then O(n) per
window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Instants = NDArray[np.int64]
Reals = NDArray[np.float64]

_FAR_PAST = -(2**61)
_FAR_FUTURE = 2**61
_BLOCK = 16
"""Breakpoints that are ruled out together; small, so that a block is short against the window."""
_TIE = 1e-9
"""Windows whose values differ by less than this share are equal, and the earliest counts: sums in another
order differ so."""


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile with numba; keep the machine code on disk if there is a place for it."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        # Raised at decoration where neither the package's folder nor the user's cache can be written. The
        # only loss is that the next process compiles again.
        return njit(nogil=True)(function)


@dataclass(frozen=True, slots=True)
class Curve:
    """A piecewise-linear curve over time with points.

    At and after `time[k]`, until the next breakpoint, the curve is `level[k] + slope[k] * (t - time[k])` per
    microsecond; `total[k]` is its integral up to `time[k]` plus all points up to and including that instant.
    Times strictly increase; the first and the last are in the far past and future, with nothing there, so
    that every instant lies between two of them.
    """

    time: Instants
    total: Reals
    level: Reals
    slope: Reals
    has_points: bool

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever there."""
        return len(self.time) == 2  # noqa: PLR2004 - the two far ends


def evenly(starts: Instants, ends: Instants, amounts: Reals) -> Curve:
    """Curve of amounts spread evenly over [start, end); where start = end, the amount is a point.

    Unknown (NaN) and zero amounts are left out.
    """
    order = np.argsort(np.concatenate((starts, ends)))
    at, total, level, points = _sweep_even(starts, ends, amounts, order)
    return Curve(at, total, level, np.zeros(len(at)), points > 0)


def in_flight(starts: Instants, ends: Instants) -> Curve:
    """Curve of the number of intervals [start, end) that hold each instant."""
    return evenly(starts, ends, (ends - starts).astype(np.float64))


def held(begins: Instants, grows: Instants, ends: Instants, base: Reals, growth: Reals) -> Curve:
    """Curve of tokens held: `base` from `begins`, growing by `growth` from `grows` to `ends`, then released.

    Intervals of no length hold nothing; unknown (NaN) base leaves the interval out, unknown growth counts as
    none.
    """
    order = np.argsort(np.concatenate((begins, grows, ends)))
    at, total, level, slope = _sweep_held(begins, grows, ends, base, np.nan_to_num(growth), order)
    return Curve(at, total, level, slope, has_points=False)


@_compiled
def _sweep_even(starts: Any, ends: Any, amounts: Any, order: Any) -> Any:
    """Breakpoints in order of time, with the total and the level at each, and the number of points."""
    n = len(starts)
    at = np.empty(2 * n + 2, np.int64)
    totals, levels = np.zeros(2 * n + 2), np.zeros(2 * n + 2)
    total = level = 0.0
    k = active = points = 0
    at[0] = _FAR_PAST
    for event in order:
        opens = event < n
        call = event if opens else event - n
        length = ends[call] - starts[call]
        # Not `amount <= 0`: an unknown amount (NaN) is left out as well. A point has one event, its start.
        if not amounts[call] > 0 or (length == 0 and not opens):
            continue
        now = starts[call] if opens else ends[call]
        if now != at[k]:
            if active == 0:
                # Nothing is there: drop what rounding left, so that it can't pile up over millions of events.
                level = levels[k] = 0.0
            total += level * (now - at[k])
            k += 1
            at[k] = now
        if length == 0:
            total += amounts[call]
            points += 1
        elif opens:
            level += amounts[call] / length
            active += 1
        else:
            level -= amounts[call] / length
            active -= 1
        totals[k], levels[k] = total, level
    levels[k] = 0.0
    at[k + 1], totals[k + 1] = _FAR_FUTURE, total
    return at[: k + 2].copy(), totals[: k + 2].copy(), levels[: k + 2].copy(), points


@_compiled
def _sweep_held(begins: Any, grows: Any, ends: Any, base: Any, growth: Any, order: Any) -> Any:
    """Breakpoints in order of time, with the total, the level and the slope at each."""
    n = len(begins)
    at = np.empty(3 * n + 2, np.int64)
    totals, levels, slopes = np.zeros(3 * n + 2), np.zeros(3 * n + 2), np.zeros(3 * n + 2)
    total = level = slope = 0.0
    k = active = 0
    at[0] = _FAR_PAST
    for event in order:
        kind, call = event // n, event % n
        if ends[call] <= begins[call] or np.isnan(base[call]):
            continue
        now = begins[call] if kind == 0 else grows[call] if kind == 1 else ends[call]
        if now != at[k]:
            if active == 0:
                # As above; only here, as events of one instant come in any order.
                level = slope = levels[k] = slopes[k] = 0.0
            dt = float(now - at[k])
            total += level * dt + 0.5 * slope * dt * dt
            level += slope * dt
            k += 1
            at[k] = now
        grown = growth[call] if ends[call] > grows[call] else 0.0
        steep = grown / (ends[call] - grows[call]) if grown > 0 else 0.0
        if kind == 0:
            level += base[call]
            active += 1
        elif kind == 1:
            slope += steep
        else:
            level -= base[call] + grown
            slope -= steep
            active -= 1
        totals[k], levels[k], slopes[k] = total, level, slope
    levels[k] = slopes[k] = 0.0
    at[k + 1], totals[k + 1] = _FAR_FUTURE, total
    return at[: k + 2].copy(), totals[: k + 2].copy(), levels[: k + 2].copy(), slopes[: k + 2].copy()


def total_before(curve: Curve, instants: Instants) -> Reals:
    """Integral of the curve up to each instant, plus the points before it."""
    k = np.searchsorted(curve.time, instants, side="left") - 1
    dt = (instants - curve.time[k]).astype(np.float64)
    return np.asarray(curve.total[k] + curve.level[k] * dt + 0.5 * curve.slope[k] * dt * dt)


def highest(curve: Curve) -> tuple[float, int]:
    """Maximum of the curve (points aside) and the earliest instant at or just before which it is reached.

    Args:
        curve: not empty.

    """
    value, instant = _highest(curve.time, curve.level, curve.slope)
    return float(value), int(instant)


@_compiled
def _highest(time: Any, level: Any, slope: Any) -> Any:
    best, instant = 0.0, time[1]
    for k in range(1, len(time) - 1):
        if level[k] > best * (1 + _TIE):
            best, instant = level[k], time[k]
        grown = level[k] + slope[k] * (time[k + 1] - time[k])
        if slope[k] > 0 and grown > best * (1 + _TIE):
            best, instant = grown, time[k + 1]
    return best, instant


def highest_within(curve: Curve, starts: Instants, length: int) -> Reals:
    """Maximum of the curve (points aside) in each window [start, start + length); starts increase."""
    return np.asarray(_highest_within(curve.time, curve.level, curve.slope, starts, length))


@_compiled
def _highest_within(time: Any, level: Any, slope: Any, starts: Any, length: int) -> Any:
    out = np.zeros(len(starts))
    k = 0
    for w in range(len(starts)):
        end = starts[w] + length
        while time[k + 1] <= starts[w]:
            k += 1
        best = max(0.0, level[k] + slope[k] * (starts[w] - time[k]))
        j = k
        while time[j + 1] < end:
            # The curve at a breakpoint, and what it grew to just before.
            best = max(best, level[j] + slope[j] * (time[j + 1] - time[j]), level[j + 1])
            j += 1
        out[w] = max(best, level[j] + slope[j] * (end - time[j]))
    return out


def busiest_window(curve: Curve, window: int, first: int, last: int) -> tuple[float, int]:
    """Largest integral (plus points) over any window [t, t + window), first <= t <= last; the earliest such
    t.

    The window begins no earlier than the first breakpoint unless `last` forces it to. Among windows that hold
    the same points, the one that begins at a point stands for all of them.

    Args:
        curve: not empty.
        window: length in microseconds.
        first: earliest start, microseconds.
        last: latest start, microseconds; not before `first`.

    """
    first = max(first, min(int(curve.time[1]), last))
    # Where there are only points, sliding a window right to its first point loses none.
    enter_late = curve.has_points and bool((curve.level != 0).any())
    value, instant = _busiest_window(
        curve.time, curve.total, curve.level, curve.slope, window, first, last, enter_late
    )
    return float(value), int(instant)


@_compiled
def _held_by(curve: Any, i: int, j: int, left: float, right: float) -> float:
    """Integral and points in [left, right); i and j are the last breakpoints before left and right."""
    time, total, level, slope = curve
    a, b = left - time[i], right - time[j]
    upto_right = total[j] + level[j] * b + 0.5 * slope[j] * b * b
    return upto_right - (total[i] + level[i] * a + 0.5 * slope[i] * a * a)  # type: ignore[no-any-return]


@_compiled
def _busiest_window(
    time: Any, total: Any, level: Any, slope: Any, window: int, first: int, last: int, enter_late: bool
) -> Any:
    curve = (time, total, level, slope)
    i = np.searchsorted(time, first) - 1
    j = np.searchsorted(time, first + window) - 1
    t = first
    best, instant = _held_by(curve, i, j, t, t + window), t
    while t < last:
        while time[i + 1] <= t:
            i += 1
        # No window that begins in (t, end] holds more than (t, end + window). Most blocks can't beat the
        # best so far.
        end = min(time[min(i + _BLOCK, len(time) - 1)], last)
        ahead = j
        while time[ahead + 1] < end + window:
            ahead += 1
        if _held_by(curve, i, ahead, t, end + window) > best + _TIE * abs(best):
            best, instant = _walk(curve, i, j, t, end, window, enter_late, best, instant)
        while time[i + 1] < end:
            i += 1
        j = ahead
        t = end
    return best, instant


@_compiled
def _walk(
    curve: Any, i: int, j: int, t: int, end: int, window: int, enter_late: bool, best: float, instant: int
) -> Any:
    """Better of `best` and the windows that begin in (t, end], piece by piece."""
    time, _, level, slope = curve
    while t < end:
        # Step over the breakpoints that the edges stand on; the next ones bound the piece that begins here.
        while time[i + 1] <= t:
            i += 1
        was = j
        while time[j + 1] <= t + window:
            j += 1
        after = min(time[i + 1], time[j + 1] - window, end)
        if enter_late and j > was:
            # A point at the right edge is inside only from the next microsecond on.
            value = _held_by(curve, i, j, t + 1, t + 1 + window)
            if value > best + _TIE * abs(best):
                best, instant = value, t + 1
        rise = level[j] + slope[j] * (t + window - time[j]) - (level[i] + slope[i] * (t - time[i]))
        bend = slope[j] - slope[i]
        if bend < 0 and 0 < rise < -bend * (after - t):
            vertex = t + rise / -bend
            value = _held_by(curve, i, j, vertex, vertex + window)
            if value > best + _TIE * abs(best):
                best, instant = value, int(np.rint(vertex))
        t = after
        value = _held_by(curve, i, j, t, t + window)
        if value > best + _TIE * abs(best):
            best, instant = value, t
    return best, instant
