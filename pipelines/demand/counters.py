"""Demand from engines' own counters: the series and its peaks where there are no rows of requests, or beside them.

Belongs here: spreading what counters grew by over the time between two samples, peaks at the resolution of the
samples, minutes. Does not belong here: which of two series of one engine counts (`pipelines/efficiency/engines.py`),
demand from requests (`series`, `peaks`).

Between two samples nothing is known but the sum, so it is spread evenly: every peak is a lower bound, and windows
shorter than the usual time between samples are not claimed. Nor is anything spread over a gap of more than
`MAX_GAP_PERIODS` usual steps: what a counter grew by there is left out, and told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from parsers.records import INSTANT
from pipelines.demand import sweep
from pipelines.demand.peaks import WINDOWS_S
from pipelines.demand.series import MINUTE_US
from pipelines.demand.sweep import Curve
from pipelines.efficiency.energy import MAX_GAP_PERIODS
from pipelines.efficiency.engines import SERIES, counter_steps, engine_totals

COUNTERS = {
    "prompt_tokens": ("prompt_tokens_total", "window_prompt_tokens"),
    "generated_tokens": ("generation_tokens_total", "window_generation_tokens"),
    "requests": ("requests_total", None),
}
"""Measure: its counter, and the sum per window that stands in where an engine prints no counter."""
RUNNING = "running"
_STEPS = pl.Schema(
    {"model": pl.String(), "measure": pl.String()}
    | dict.fromkeys(("start_us", "end_us"), pl.Int64())
    | {"amount": pl.Float64(), "period_us": pl.Float64()}
)
_Row = dict[str, Any]


@dataclass(frozen=True)
class CounterDemand:
    """What the counters of engines say of the demand."""

    peaks: list[_Row]
    """`scope`, `measure` (of COUNTERS, or running: calls at work, the mean over the window), `window_s`, `value`,
    `per_s` (null for running), `start_us`, `resolution_s`, `left_out` (amount grown over gaps), `basis`."""
    minutes: pl.DataFrame
    """All engines together: `minute_at`, `input_tokens`, `output_tokens`, `requests`, `concurrency_max`, each null
    where no counter tells it; minutes that no step of a counter touches have no row."""


def counter_demand(samples: pl.LazyFrame) -> CounterDemand:
    """Demand by the counters and gauges of the engines that count (see `engine_totals`).

    Args:
        samples: ENGINE_SAMPLES.

    """
    steps, gaps = _steps(samples)
    rows: list[_Row] = []
    models = steps["model"].drop_nulls().unique().sort().to_list()
    for scope, model in (("all", None), *((f"model:{name}", name) for name in models)):
        mine = pl.lit(value=True) if model is None else pl.col("model") == model
        for measure in (*COUNTERS, RUNNING):
            chosen = pl.col("measure") == measure
            left = 0.0 if measure == RUNNING else float(gaps.filter(mine & chosen)["amount"].sum())
            rows += [{"scope": scope, **row} for row in _peaks(measure, steps.filter(mine & chosen), left)]
    return CounterDemand(rows, _minutes(steps))


def _steps(samples: pl.LazyFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps of `_STEPS` of all measures: those to spread, and those over a gap."""
    told = engine_totals(samples).filter("counted").select(*SERIES, "basis")
    parts = []
    for measure, (counter, window) in COUNTERS.items():
        grown = counter_steps(samples, counter).filter(pl.col("grown").is_not_null()).collect()
        parts.append(_of_series(grown, told, measure, pl.col("grown")))
        if window is not None:
            windowed = told.filter(pl.col("basis") == "windows")
            printed = samples.filter(pl.col(window).is_not_null() & (pl.col("window_s") > 0)).with_columns(
                since_at=pl.col("at") - pl.duration(microseconds=pl.col("window_s") * 1e6)
            )
            parts.append(_of_series(printed.collect(), windowed, measure, pl.col(window)))
    held = (
        samples.filter(pl.col(RUNNING).is_not_null())
        .sort("at")
        .unique([*SERIES, "at"], keep="last", maintain_order=True)
        .with_columns(
            since_at=pl.col("at").shift(1).over(SERIES), was_running=pl.col(RUNNING).shift(1).over(SERIES)
        )
        .filter(pl.col("since_at").is_not_null())
        .collect()
    )
    # A gauge holds from its sample to the next: running calls x microseconds.
    amount = pl.col("was_running") * (pl.col("at") - pl.col("since_at")).dt.total_microseconds()
    parts.append(_of_series(held, told, RUNNING, amount))
    steps = pl.concat(parts)
    trusted = (pl.col("end_us") - pl.col("start_us")) <= MAX_GAP_PERIODS * pl.col("period_us")
    return steps.filter(trusted), steps.filter(~trusted)


def _of_series(grown: pl.DataFrame, told: pl.DataFrame, measure: str, amount: pl.Expr) -> pl.DataFrame:
    start, end = (pl.col(name).dt.timestamp("us") for name in ("since_at", "at"))
    return (
        grown.join(told, on=SERIES, how="semi", nulls_equal=True)
        .select(
            *SERIES,
            pl.lit(measure).alias("measure"),
            start.alias("start_us"),
            end.alias("end_us"),
            amount.cast(pl.Float64).alias("amount"),
        )
        .with_columns(period_us=(pl.col("end_us") - pl.col("start_us")).median().over(SERIES))
        .select(_STEPS.names())
        .cast(_STEPS)
    )


def _curve(steps: pl.DataFrame) -> Curve:
    return sweep.evenly(*(steps[name].to_numpy() for name in ("start_us", "end_us", "amount")))


def _peaks(measure: str, steps: pl.DataFrame, left_out: float) -> list[_Row]:
    curve = _curve(steps)
    if curve.is_empty:
        return []
    resolution_s = float(steps["period_us"].max()) / 1e6  # type: ignore[arg-type]
    first, last = int(steps["start_us"].min()), int(steps["end_us"].max())  # type: ignore[arg-type]
    words = "held from each sample to the next" if measure == RUNNING else "spread evenly between samples"
    common = {"resolution_s": resolution_s, "left_out": left_out, "basis": f"{words}: a lower bound"}
    rows: list[_Row] = []
    if measure == RUNNING:
        value, start = sweep.highest(curve)
        rows.append({"window_s": 0.0, "value": value, "per_s": None, "start_us": start})
    for window_s in WINDOWS_S:
        width = window_s * 1_000_000
        if window_s < resolution_s or width > last - first:
            continue
        value, start = sweep.busiest_window(curve, width, first, last + 1 - width)
        value = value / width if measure == RUNNING else value
        per_s = None if measure == RUNNING else value / window_s
        rows.append({"window_s": float(window_s), "value": value, "per_s": per_s, "start_us": start})
    return [{"measure": measure, **row, **common} for row in rows]


def _minutes(steps: pl.DataFrame) -> pl.DataFrame:
    schema = {
        "minute_at": INSTANT,
        **dict.fromkeys(("input_tokens", "output_tokens", "requests", "concurrency_max"), pl.Float64()),
    }
    if steps.is_empty():
        return pl.DataFrame(schema=schema)
    touched = sweep.in_flight(steps["start_us"].to_numpy(), steps["end_us"].to_numpy())
    first, last = int(steps["start_us"].min()), int(steps["end_us"].max())  # type: ignore[arg-type]
    every = np.arange(first // MINUTE_US, last // MINUTE_US + 1, dtype=np.int64) * MINUTE_US
    minutes = every[sweep.highest_within(touched, every, MINUTE_US) > 0]
    columns: dict[str, Any] = {"minute_at": pl.from_epoch(pl.Series(minutes), "us").cast(INSTANT)}
    for name, measure in (
        ("input_tokens", "prompt_tokens"),
        ("output_tokens", "generated_tokens"),
        ("requests", "requests"),
    ):
        curve = _curve(steps.filter(pl.col("measure") == measure))
        if not curve.is_empty:
            columns[name] = sweep.total_before(curve, minutes + MINUTE_US) - sweep.total_before(
                curve, minutes
            )
    running = _curve(steps.filter(pl.col("measure") == RUNNING))
    if not running.is_empty:
        columns["concurrency_max"] = sweep.highest_within(running, minutes, MINUTE_US)
    missing = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in columns]
    return pl.DataFrame(columns).with_columns(missing).select(list(schema)).cast(schema)  # type: ignore[arg-type]
