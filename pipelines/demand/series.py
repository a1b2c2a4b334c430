"""The mart `demand_minute`: demand and load per UTC minute.

Belongs here: bins of a minute over the stretches that have data. Does not belong here: placing calls in time
(`spread`), what counts as a gap (`coverage`), maxima over windows that may begin anywhere (`peaks`).

Every minute that a covered stretch touches has a row for every scope. Minutes wholly inside a gap have none,
even where a call that began before was still running: what else ran there is unknown. A minute that is
covered in part (the first, the last, at a gap) holds what is known of it, so its sums and its mean are low.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl

from parsers.records import INSTANT
from pipelines.demand import sweep
from pipelines.demand.scopes import Calls, scopes
from pipelines.demand.sweep import Curve, Instants, Reals
from warehouse.tables import DEMAND_MINUTE

MINUTE_US = 60_000_000


def minute_series(work: pl.DataFrame, coverage: pl.DataFrame) -> pl.DataFrame:
    """Demand per scope and minute.

    A token column is null in a minute where calls were worked on and the counts of all of them are unknown;
    where they are unknown for some, the sum is a lower bound. Concurrency is null where no call of the scope
    has a duration.

    Args:
        work: the calls, a frame of `spread.WORK_SCHEMA`.
        coverage: the mart `coverage` of the same calls.

    Returns:
        A frame of `DEMAND_MINUTE`, sorted by scope and minute, `all` first.

    """
    minutes = covered_minutes(coverage)
    if len(minutes) == 0:
        return DEMAND_MINUTE.empty()

    def of_scope(scoped: tuple[tuple[str, ...], Calls]) -> list[pl.DataFrame]:
        names, calls = scoped
        found = _scope_minutes(calls, minutes)
        return [found.with_columns(scope=pl.lit(scope)) for scope in names]

    # As in `peaks`: the arithmetic leaves the interpreter.
    with ThreadPoolExecutor() as pool:
        frames = [frame for found in pool.map(of_scope, scopes(work)) for frame in found]
    return DEMAND_MINUTE.conform(pl.concat(frames)) if frames else DEMAND_MINUTE.empty()


def covered_minutes(coverage: pl.DataFrame) -> Instants:
    """Starts, in microseconds since 1970 UTC, of the minutes that a stretch with data touches, its end
    included.
    """
    stretches = coverage.filter(~pl.col("is_gap")).select(
        pl.col("start_at").dt.timestamp("us"), pl.col("end_at").dt.timestamp("us")
    )
    ranges = [
        np.arange(start // MINUTE_US, end // MINUTE_US + 1, dtype=np.int64)
        for start, end in stretches.iter_rows()
    ]
    return np.unique(np.concatenate(ranges)) * MINUTE_US if ranges else np.zeros(0, np.int64)


def _scope_minutes(calls: Calls, minutes: Instants) -> pl.DataFrame:
    concurrency, kv = calls.concurrency(), calls.resident_kv()
    worked_on = {
        "input_tokens": (calls.input, calls.work_from, calls.first_token),
        "uncached_input_tokens": (calls.uncached, calls.work_from, calls.first_token),
        "output_tokens": (calls.output, calls.first_token, calls.ended),
    }
    no_usage = np.isnan(calls.input) & np.isnan(calls.output)
    frame = pl.DataFrame(
        {
            "minute_at": pl.from_epoch(pl.Series(minutes), "us").cast(INSTANT),
            **{name: _tokens(*counts, minutes) for name, counts in worked_on.items()},
            "requests": _arrived(calls.started, minutes),
            "requests_usage_missing": _arrived(calls.started[no_usage], minutes),
            "requests_cache_unknown": _arrived(calls.started[np.isnan(calls.uncached)], minutes),
        }
    )
    if not concurrency.is_empty:
        frame = frame.with_columns(
            concurrency_mean=_per_minute(concurrency, minutes) / MINUTE_US,
            concurrency_max=np.rint(sweep.highest_within(concurrency, minutes, MINUTE_US)),
        )
    if not kv.is_empty:
        frame = frame.with_columns(resident_kv_tokens_max=sweep.highest_within(kv, minutes, MINUTE_US))
    return DEMAND_MINUTE.conform(frame)


def _arrived(starts: Instants, minutes: Instants) -> Instants:
    starts = np.sort(starts)
    return np.searchsorted(starts, minutes + MINUTE_US) - np.searchsorted(starts, minutes)


def _per_minute(curve: Curve, minutes: Instants) -> Reals:
    """Integral and points of the curve inside each minute."""
    inside = sweep.total_before(curve, minutes + MINUTE_US) - sweep.total_before(curve, minutes)
    return np.maximum(inside, 0.0)


def _tokens(counts: Reals, begins: Instants, ends: Instants, minutes: Instants) -> pl.Series:
    """Tokens per minute; null where calls were at work and the counts of all of them are unknown."""
    values = pl.Series(_per_minute(sweep.evenly(begins, ends, counts), minutes))
    unknown = np.isnan(counts)
    if not unknown.any():
        return values
    dark = (_at_work(begins[unknown], ends[unknown], minutes) > 0) & (
        _at_work(begins[~unknown], ends[~unknown], minutes) == 0
    )
    return values.set(pl.Series(dark), None)


def _at_work(begins: Instants, ends: Instants, minutes: Instants) -> Instants:
    """How many intervals [begin, end] touch each minute."""
    begun = np.searchsorted(np.sort(begins), minutes + MINUTE_US, side="left")
    over = np.searchsorted(np.sort(ends), minutes, side="left")
    return begun - over
