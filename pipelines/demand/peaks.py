"""The mart `demand_peaks`: the highest demand over sliding windows, with its moment and how sure it is.

Belongs here: which windows are claimed for which measure, and the words that say what a value rests on. Does
not belong here: placing calls in time (`spread`), the search for the maximum (`sweep`).

What is not claimed:

- a window longer than the span of the data (first arrival to last end);
- tokens in windows under a minute where more than `POINT_SHARE_LIMIT` of the calls have no duration: their
  tokens stand at the arrival, and a call commonly lasts longer than such a window;
- arrivals in windows shorter than the beat of a clock that stamps calls in batches;
- concurrency and resident KV tokens where no call has a duration; a measure that is unknown for every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import polars as pl

from parsers.records import INSTANT
from pipelines.demand import sweep
from pipelines.demand.scopes import TOKEN_MEASURES, Calls, scopes
from pipelines.demand.spread import PUBLISHED_PACE_RATIO, ended_us, started_us
from pipelines.demand.sweep import Curve
from warehouse.tables import DEMAND_PEAKS

WINDOWS_S = (1, 10, 60, 300, 3600)
SHORTEST_UNTIMED_WINDOW_S = 60
POINT_SHARE_LIMIT = 0.01
BATCHED_SHARE = 0.5
"""Above this share of calls that have their instant in common with another, the clock stamps batches, not
arrivals."""

Span = tuple[int, int]
Row = dict[str, Any]


def peaks(work: pl.DataFrame, span: Span | None) -> pl.DataFrame:
    """Sliding-window maxima of every measure, for all calls and for each model.

    Args:
        work: the calls, a frame of `spread.WORK_SCHEMA`.
        span: `data_span` of the facts that they are from.

    Returns:
        A frame of `DEMAND_PEAKS`: tokens and requests as sums inside the window, concurrency and resident KV
        tokens as means over it, window 0 as the highest instant. Values are rounded to a millionth.

    """
    if span is None:
        return DEMAND_PEAKS.empty()
    whole: Span = span

    def of_scope(scoped: tuple[tuple[str, ...], Calls]) -> list[Row]:
        names, calls = scoped
        found = list(_rows(calls, whole))
        return [{"scope": scope, **row} for scope in names for row in found]

    # The kernels leave the interpreter: the scope of all calls and those of the models run side by side.
    with ThreadPoolExecutor() as pool:
        rows = [row for found in pool.map(of_scope, scopes(work)) for row in found]
    if not rows:
        return DEMAND_PEAKS.empty()
    frame = pl.from_dicts(rows, infer_schema_length=None)
    return DEMAND_PEAKS.conform(
        frame.with_columns(pl.from_epoch("start_us", "us").cast(INSTANT).alias("start_at"))
    )


def data_span(requests: pl.LazyFrame) -> Span | None:
    """First arrival and last end (arrival, where no end is known) of all records, in microseconds; None
    without any.
    """
    last_known = pl.max_horizontal(started_us().max(), ended_us().max())
    edges = requests.select(first=started_us().min(), last=last_known)
    first, last = edges.collect().row(0)
    return None if first is None else (first, last)


def _rows(calls: Calls, span: Span) -> Iterator[Row]:
    assumed = (calls.untimed + calls.split_assumed) / len(calls)
    fine = calls.untimed <= POINT_SHARE_LIMIT * len(calls)
    for measure in TOKEN_MEASURES:
        windows = [w for w in WINDOWS_S if fine or w >= SHORTEST_UNTIMED_WINDOW_S]
        curve = calls.tokens(measure)
        yield from _sums(measure, curve, windows, span, assumed, _token_basis(calls, measure))
    windows = [w for w in WINDOWS_S if w * 1e6 >= beat_us(calls)]
    yield from _sums("requests", calls.arrivals(), windows, span, 0.0, "Arrivals as logged.")
    yield from _means("concurrency", calls.concurrency(), span, 0.0, _concurrency_basis(calls))
    split = calls.split_assumed / len(calls)
    yield from _means("resident_kv_tokens", calls.resident_kv(), span, split, _kv_basis(calls))


def _sums(
    measure: str, curve: Curve, windows: list[int], span: Span, assumed: float, basis: str
) -> Iterator[Row]:
    for window_s, value, start in _busiest(curve, windows, span):
        yield _row(measure, window_s, value, start, assumed, basis) | {"per_s": round(value / window_s, 6)}


def _means(measure: str, curve: Curve, span: Span, assumed: float, basis: str) -> Iterator[Row]:
    if curve.is_empty:
        return
    value, start = sweep.highest(curve)
    yield _row(measure, 0, value, start, assumed, basis) | {"per_s": None}
    for window_s, integral, start in _busiest(curve, list(WINDOWS_S), span):
        yield _row(measure, window_s, integral / (window_s * 1e6), start, assumed, basis) | {"per_s": None}


def _busiest(curve: Curve, windows: list[int], span: Span) -> Iterator[tuple[int, float, int]]:
    """Each window that fits the span: its length in seconds, the largest integral, the start of the
    window.
    """
    first, end = span
    if curve.is_empty:
        return
    for window_s in windows:
        width = window_s * 1_000_000
        if width <= end - first:
            # One microsecond past the end, so that a point at the very end can be inside.
            yield window_s, *sweep.busiest_window(curve, width, first, end + 1 - width)


def _row(measure: str, window_s: float, value: float, start: int, assumed: float, basis: str) -> Row:
    return {
        "measure": measure,
        "window_s": float(window_s),
        "value": round(max(value, 0.0), 6),
        "start_us": start,
        "assumed_ratio": assumed,
        "basis": basis,
    }


def beat_us(calls: Calls) -> int:
    """Shortest time between two instants at which a batching clock stamps calls; 0 where arrivals are stamped
    singly.
    """
    between = np.diff(np.sort(calls.started))
    same = between == 0
    shared = np.concatenate((same, [False])) | np.concatenate(([False], same))
    if same.all() or shared.sum() <= BATCHED_SHARE * len(calls):
        return 0
    return int(between[~same].min())


def _token_basis(calls: Calls, measure: str) -> str:
    n, untimed, assumed = len(calls), calls.untimed, calls.split_assumed
    parts = []
    if untimed < n:
        parts.append(
            "Spread evenly: input from start of work to first token, output from first token to end."
        )
    if assumed:
        ratios = np.unique(calls.pace_ratio[~np.isnan(calls.pace_ratio)])
        parts.append(f"First token assumed for {assumed} of {n} calls: {_pace_words(ratios)}.")
    if untimed:
        parts.append(f"{untimed} of {n} calls have no duration; their tokens stand at the arrival.")
    if measure == "uncached_input_tokens":
        parts.append("Uncached is input - cache read; cache writes are computed and count.")
    return " ".join(parts + _lower_bound(calls, measure))


def _pace_words(ratios: np.ndarray[Any, Any]) -> str:
    published = bool((ratios == PUBLISHED_PACE_RATIO).any())
    own = ratios[ratios != PUBLISHED_PACE_RATIO]
    sources = []
    if len(own):
        low, high = f"{own.min():.3g}", f"{own.max():.3g}"
        between = low if low == high else f"{low} to {high}"
        sources.append(f"{between} input tokens (median of the model's streamed calls)")
    if published:
        sources.append(f"{PUBLISHED_PACE_RATIO:g} input tokens (median of published measurements)")
    return f"one output token is taken to last as long as {', or '.join(sources)}"


def _concurrency_basis(calls: Calls) -> str:
    return " ".join(["Calls from arrival to end, queueing included.", *_lower_bound(calls, "concurrency")])


def _kv_basis(calls: Calls) -> str:
    text = (
        "All input is held from start of work to end, output grows evenly from first token to end; "
        "a prefix that calls share is counted for each."
    )
    assumed = f"First token assumed for {calls.split_assumed} of {len(calls)} calls."
    return " ".join(
        [text, *([assumed] if calls.split_assumed else []), *_lower_bound(calls, "resident_kv_tokens")]
    )


def _lower_bound(calls: Calls, measure: str) -> list[str]:
    what = {
        "input_tokens": "input unknown",
        "uncached_input_tokens": "cache reads or input unknown",
        "output_tokens": "output unknown",
        "total_tokens": "token counts unknown",
        "concurrency": "duration unknown",
        "resident_kv_tokens": "duration or input unknown",
    }
    unknown = calls.unknown(measure)
    return [f"Lower bound: {what[measure]} for {unknown} of {len(calls)} calls."] if unknown else []
