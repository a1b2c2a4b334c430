"""The mart `demand_minute`: demand and load per UTC minute.

Belongs here: bins of a minute over the stretches that have data. Does not belong here: placing calls in time
(`spread`), what counts as a gap (`coverage`), maxima over windows that may begin anywhere (`peaks`).

Every minute that a covered stretch touches has a row for every scope. Minutes wholly inside a gap have none,
even where a call that began before was still running: what else ran there is unknown. A minute that is
covered in part (the first, the last, at a gap) holds what is known of it, so its sums and its mean are low.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from parsers.records import INSTANT
from pipelines.demand import sweep
from pipelines.demand.scopes import Calls, scopes
from pipelines.demand.spread import work_intervals
from pipelines.demand.sweep import Curve, Instants, Reals
from warehouse.tables import DEMAND_MINUTE

MINUTE_US = 60_000_000


def minute_series(requests: pl.LazyFrame, coverage: pl.DataFrame) -> pl.DataFrame:
    """Demand per scope and minute.

    A token column is null in a minute where calls were worked on and the counts of all of them are unknown;
    where they are unknown for some, the sum is a lower bound. Concurrency is null where no call of the scope
    has a duration.

    Args:
        requests: the fact table `requests`.
        coverage: the mart `coverage` of the same rows.

    Returns:
        A frame of `DEMAND_MINUTE`, sorted by scope and minute, `all` first.

    """
    minutes = covered_minutes(coverage)
    if len(minutes) == 0:
        return DEMAND_MINUTE.empty()
    frames: list[pl.DataFrame] = []
    for names, calls in scopes(work_intervals(requests)):
        found = _scope_minutes(calls, minutes)
        frames += [found.with_columns(scope=pl.lit(scope)) for scope in names]
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
    concurrency = calls.concurrency()
    kv = calls.resident_kv()
    mean = _per_minute(concurrency, minutes) / MINUTE_US
    requests = np.rint(_per_minute(calls.arrivals(), minutes)).astype(np.int64)
    columns = {
        "minute_at": pl.from_epoch(pl.Series(minutes), "us").cast(INSTANT),
        "input_tokens": _tokens(
            calls.tokens("input_tokens"), calls.input, calls.work_from, calls.first_token, minutes
        ),
        "uncached_input_tokens": _tokens(
            calls.tokens("uncached_input_tokens"), calls.uncached, calls.work_from, calls.first_token, minutes
        ),
        "output_tokens": _tokens(
            calls.tokens("output_tokens"), calls.output, calls.first_token, calls.ended, minutes
        ),
        "requests": requests,
        "concurrency_mean": None if concurrency.is_empty else mean,
        "concurrency_max": None
        if concurrency.is_empty
        else np.rint(sweep.highest_within(concurrency, minutes, MINUTE_US)).astype(np.int64),
        "resident_kv_tokens_max": None if kv.is_empty else sweep.highest_within(kv, minutes, MINUTE_US),
    }
    height = len(minutes)
    return pl.DataFrame(
        {
            name: pl.repeat(None, height, eager=True) if values is None else values
            for name, values in columns.items()
        }
    )


def _per_minute(curve: Curve, minutes: Instants) -> Reals:
    """Integral and points of the curve inside each minute."""
    inside = sweep.total_before(curve, minutes + MINUTE_US) - sweep.total_before(curve, minutes)
    return np.maximum(inside, 0.0)


def _tokens(curve: Curve, counts: Reals, begins: Instants, ends: Instants, minutes: Instants) -> pl.Series:
    values = pl.Series(_per_minute(curve, minutes))
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
