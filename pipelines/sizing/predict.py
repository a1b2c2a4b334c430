"""Latency, throughput and power of a serving point, with 80 % intervals: `tokenworks predict`.

Belongs here: the columns that a table of points gets, TTFT of a closed loop, intervals and how they widen where
nothing was measured, and what a note says. Does not belong here: reading rows (`points.py`), time of a step
(`roofline.py`), the curve of power (`power.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.efficiency.flops import Array
from pipelines.sizing.intervals import spreads
from pipelines.sizing.points import read_points, replicas
from pipelines.sizing.power import step_power_w
from pipelines.sizing.roofline import Replica, StepTime, coefficients, steady_time, timed
from pipelines.sizing.serving import Serving, serving
from warehouse.catalogue import Model, models, parameters

PREDICTED = (
    "tpot_ms",
    "tpot_low_ms",
    "tpot_high_ms",
    "ttft_ms",
    "ttft_low_ms",
    "ttft_high_ms",
    "output_tokens_per_s",
    "power_w",
    "power_low_w",
    "power_high_w",
)
"""Columns of numbers that a point gets; `note` follows them. Power is that of all accelerators together."""

MILLI = 1e3


@dataclass(frozen=True)
class Estimate:
    """Estimates for the rows of one replica; arrays of one value per row."""

    step: StepTime
    ttft_s: Array
    output_per_s: Array
    power_w: Array


def predict(rows: pl.DataFrame, extra: Mapping[str, Model] | None = None) -> pl.DataFrame:
    """Predict each row of a table of points (see `points.read_points`).

    Args:
        rows: the table; its measured columns are not looked at.
        extra: architectures beside the catalogue's, by the name that the rows use.

    Returns:
        The columns of `PREDICTED` and `note`, one row per row, in order. A row that can't be predicted is null but
        for its note.

    """
    known = {**models(), **(extra or {})}
    points = read_points(rows, extra).with_row_index()
    parts = [_predicted(replica, part) for replica, part in replicas(points, known)]
    empty = pl.DataFrame(
        schema={"index": pl.UInt32, **dict.fromkeys(PREDICTED, pl.Float64), "said": pl.String}
    )
    found = pl.concat([empty, *parts])
    return (
        points.select("index", "note")
        .join(found, on="index", how="left", maintain_order="left")
        .select(*PREDICTED, pl.coalesce("said", "note").alias("note"))
    )


def _predicted(replica: Replica, rows: pl.DataFrame) -> pl.DataFrame:
    if replica.memory.weight_bytes > replica.accelerator.memory_bytes * replica.accelerators:
        said = (
            f"not predicted: the weights at {replica.precision} need {replica.memory.weight_bytes / 1e9:.0f} GB, "
            f"{replica.accelerators} x {replica.accelerator.name} have "
            f"{replica.accelerator.memory_bytes * replica.accelerators / 1e9:.0f} GB"
        )
        blank = [pl.lit(None, pl.Float64).alias(name) for name in PREDICTED]
        return rows.select("index", *blank, pl.lit(said).alias("said"))
    load = serving(replica, rows)
    found = estimate(load)
    spread = spreads(replica, rows["task"][0])
    columns: dict[str, Array] = {}
    for name, value, key in (
        ("tpot{}_ms", found.step.total * MILLI, "tpot"),
        ("ttft{}_ms", found.ttft_s * MILLI, "ttft"),
        ("power{}_w", found.power_w, "power"),
    ):
        low, high = spread[key]
        columns |= {
            name.format(""): value,
            name.format("_low"): value * low,
            name.format("_high"): value * high,
        }
    columns["output_tokens_per_s"] = found.output_per_s
    notes = _notes(replica, load)
    return pl.DataFrame(
        {"index": rows["index"], **{name: columns[name] for name in PREDICTED}, "said": notes},
        schema_overrides={"index": pl.UInt32},
    ).with_columns(pl.col(PREDICTED).fill_nan(None))


def estimate(load: Serving) -> Estimate:
    """Estimate the steady state and the first token of the rows of one replica."""
    replica, fitted = load.replica, coefficients(load.replica)
    step = steady_time(load.plain, load.mixed, load.share, fitted)
    first = ttft_s(load, step)
    power = step_power_w(replica, step, load.resident, load.pictures)
    if replica.series == "mlenergy":
        # A server that never runs empty: what it yields is what is in its batch, once per step.
        rate = load.resident / step.total
    else:
        rate = (
            load.sequences * load.output_tokens / (first + step.total * np.maximum(load.output_tokens - 1, 0))
        )
    missing = np.full_like(step.total, np.nan)
    return Estimate(step, first, rate, missing if power is None else power * replica.accelerators)


def ttft_features(alone_s: Array, step_s: Array, crowd: Array) -> dict[str, Array]:
    """Logs of what rules the first token in a closed loop.

    One prompt's prefill and half the step in progress; and the crowd, since sequences that start together wait
    for each other's prompts.
    """
    return {"prefill": np.log(alone_s + 0.5 * step_s), "crowd": np.log(crowd)}


def ttft_s(load: Serving, step: StepTime) -> Array:
    """Seconds to the first token where a closed loop holds the row's number of sequences in flight."""
    fitted = parameters("fitted")["ttft"]
    alone = timed(load.alone, coefficients(load.replica)).total
    log = np.full_like(step.total, np.log(fitted["factor"]))
    for trait in load.replica.traits:
        kind, _, which = trait.partition(".")
        log = log + np.log(fitted["factors"].get(kind, {}).get(which, 1.0))
    for name, value in ttft_features(alone, step.total, load.crowd).items():
        log = log + fitted["exponents"][name] * value
    seconds: Array = np.exp(log)
    return seconds


def _notes(replica: Replica, load: Serving) -> pl.Series:
    """What a reader should know of a prediction; the same words for many rows."""
    always = []
    if replica.accelerator.name not in parameters("step_time")["measured_on"]:
        always.append(f"no measured point on {replica.accelerator.name}: from its specifications")
    if not replica.memory.fits:
        always.append("by the memory estimate the weights leave no room for a KV cache")
    waits = "the KV cache holds fewer sequences than are in flight: the rest waits"
    said = ["; ".join([*always, waits] if full else always) for full in (False, True)]
    full = (load.resident < load.sequences) & replica.memory.fits
    return pl.Series("said", [said[int(flag)] for flag in full], dtype=pl.String)
