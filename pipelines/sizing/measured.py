"""Measured points as arrays, and which parameters make up each row's coefficients.

Belongs here: reading `reference/points`, what the coefficients may depend on, and the step's time of all rows at
given parameters, with its slopes. Does not belong here: priors and fitting (`fit.py`), the model (`roofline.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import resources
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.efficiency.flops import Array
from pipelines.sizing.intervals import generation_of, stratum_of
from pipelines.sizing.points import read_points, replicas
from pipelines.sizing.roofline import COEFFICIENTS, EFFICIENCIES, Coefficients, StepTime, Work, steady_time
from pipelines.sizing.serving import Serving, serving
from warehouse.catalogue import Model, models

FACTORS: dict[str, dict[str, float]] = {
    "weight_efficiency": {"engine": 0.2, "generation": 0.2, "precision": 0.2, "experts": 0.3, "series": 0.2},
    "kv_efficiency": {"disaggregated": 0.5},
    "compute_efficiency": {
        "engine": 0.2,
        "generation": 0.2,
        "precision": 0.3,
        "experts": 0.4,
        "mlenergy": 0.2,
    },
    "layer_s": {"engine": 0.3, "generation": 0.3, "latent_attention": 0.4, "series": 0.3},
    "all_reduce_s": {"generation": 0.3, "attention_dp": 0.4},
    "sequence_s": {"engine": 0.4, "series": 1.0},
}
"""What a coefficient may depend on, and the standard deviation of the log of that factor: the shrinkage."""

TRAITS: dict[str, tuple[str, ...]] = {
    "engine": ("engine.vllm", "engine.sglang", "engine.trtllm"),
    "generation": ("generation.blackwell",),
    "precision": ("precision.8bit", "precision.4bit"),
    "experts": ("architecture.experts",),
    "latent_attention": ("architecture.latent_attention",),
    "attention_dp": ("parallelism.attention_dp",),
    "series": ("series.mlenergy", "series.disaggregated"),
    "mlenergy": ("series.mlenergy",),
    "disaggregated": ("series.disaggregated",),
}
ALL_TRAITS = tuple(dict.fromkeys(trait for traits in TRAITS.values() for trait in traits))
FACTOR_NAMES: tuple[tuple[str, str], ...] = tuple(
    (coefficient, trait) for coefficient, kinds in FACTORS.items() for kind in kinds for trait in TRAITS[kind]
)
"""Coefficient and trait of each factor, in the order of the parameters."""


_SMALL = 1e-5


def _capped(logs: Array) -> Coefficients:
    return Coefficients(
        **{
            name: np.exp(np.minimum(log, 0.0) if name in EFFICIENCIES else log)
            for name, log in zip(COEFFICIENTS, logs, strict=True)
        }
    )


@dataclass(frozen=True)
class Measured:
    """Measured points as arrays, one value per row that can be predicted.

    `index` is the row's number among the points read; `design` [coefficients, rows, parameters] says which
    parameters make up a coefficient's log, `traits` [rows, all traits] which traits hold. Measured values are NaN
    where they are unknown; power is that of one accelerator over its TDP.
    """

    index: NDArray[np.int64]
    family: NDArray[np.str_]
    stratum: NDArray[np.str_]
    generation: NDArray[np.str_]
    accelerator: NDArray[np.str_]
    task: NDArray[np.str_]
    plain: Work
    mixed: Work
    alone: Work
    share: Array
    resident: Array
    crowd: Array
    pictures: Array
    accelerators: Array
    traits: Array
    design: Array
    tpot_s: Array
    ttft_s: Array
    power_ratio: Array

    def coefficients(self, parameters: Array) -> Coefficients:
        """Coefficients of each row at parameters."""
        return _capped(self.design @ parameters)

    def step(self, parameters: Array) -> StepTime:
        """Mean step of each row."""
        return steady_time(self.plain, self.mixed, self.share, self.coefficients(parameters))

    def step_slopes(self, parameters: Array) -> Array:
        """[rows, parameters] derivatives of the log of a step's time.

        A parameter acts by its coefficients alone, so one small change of each coefficient tells all slopes.
        """
        logs = self.design @ parameters
        now = np.log(self.step(parameters).total)
        slopes = np.zeros((len(now), len(parameters)))
        for position, _ in enumerate(COEFFICIENTS):
            moved = logs.copy()
            moved[position] += _SMALL
            total = steady_time(self.plain, self.mixed, self.share, _capped(moved)).total
            slopes += ((np.log(total) - now) / _SMALL)[:, None] * self.design[position]
        return slopes

    def only(self, rows: NDArray[np.bool_]) -> Measured:
        """The same of some rows."""
        kept: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Work):
                kept[field.name] = Work(
                    **{part.name: getattr(value, part.name)[rows] for part in fields(Work)}
                )
            else:
                kept[field.name] = value[:, rows] if field.name == "design" else value[rows]
        return Measured(**kept)

    def has(self, trait: str) -> Array:
        """Whether a trait holds, as 0 or 1."""
        return self.traits[:, ALL_TRAITS.index(trait)]


def measured_points() -> pl.DataFrame:
    """The points under `reference/points`, resolved, with `measured_*` columns beside."""
    parts = []
    for name in ("latency_points.csv", "energy_points.csv"):
        text = resources.files("warehouse").joinpath("reference", "points", name).read_bytes()
        rows = pl.read_csv(text, infer_schema=False)
        number = {name: pl.col(name).cast(pl.Float64, strict=False) for name in rows.columns}
        unknown = pl.lit(None, pl.Float64)
        taken = {
            "measured_tpot_s": number["silicon_tpot_ms"] / 1e3
            if "silicon_tpot_ms" in number
            else number["max_num_seqs"] / number["out_tok_s"],
            "measured_ttft_s": number["silicon_ttft_ms"] / 1e3 if "silicon_ttft_ms" in number else unknown,
            "measured_power_w": number.get("avg_power_w", unknown),
        }
        parts.append(pl.concat([read_points(rows), rows.select(**taken)], how="horizontal"))
    return pl.concat(parts)


def measured(points: pl.DataFrame) -> Measured:
    """Stack the rows that can be predicted (see `measured_points`)."""
    groups = [(serving(replica, rows), rows) for replica, rows in replicas(points.with_row_index(), models())]

    def stacked(part: Callable[[Serving, pl.DataFrame], Any]) -> Any:
        return np.concatenate([np.broadcast_to(part(load, rows), load.share.shape) for load, rows in groups])

    def works(name: str) -> Work:
        return Work(**{field.name: stacked(_getter(name, field.name)) for field in fields(Work)})

    return Measured(
        index=stacked(lambda _, rows: rows["index"].to_numpy()),
        family=stacked(lambda load, _: family(load.replica.model)),
        stratum=stacked(lambda load, rows: stratum_of(load.replica, rows["task"][0])),
        generation=stacked(lambda load, _: generation_of(load.replica)),
        accelerator=stacked(lambda load, _: load.replica.accelerator.name),
        task=stacked(lambda _, rows: rows["task"].fill_null("").to_numpy().astype(str)),
        plain=works("plain"),
        mixed=works("mixed"),
        alone=works("alone"),
        share=stacked(lambda load, _: load.share),
        resident=stacked(lambda load, _: load.resident),
        crowd=stacked(lambda load, _: load.crowd),
        pictures=stacked(lambda load, _: load.pictures),
        accelerators=stacked(lambda load, _: load.replica.accelerators),
        traits=np.concatenate(
            [
                np.tile([float(t in load.replica.traits) for t in ALL_TRAITS], (len(rows), 1))
                for load, rows in groups
            ]
        ),
        design=np.concatenate([_design(load) for load, _ in groups], axis=1),
        tpot_s=stacked(lambda _, rows: rows["measured_tpot_s"].to_numpy()),
        ttft_s=stacked(lambda _, rows: rows["measured_ttft_s"].to_numpy()),
        power_ratio=stacked(
            lambda load, rows: (
                rows["measured_power_w"].to_numpy()
                / load.replica.accelerators
                / (load.replica.accelerator.tdp_w or np.nan)
            )
        ),
    )


def _getter(name: str, part: str) -> Callable[[Serving, pl.DataFrame], Any]:
    return lambda load, _: getattr(getattr(load, name), part)


def family(model: Model) -> str:
    """One name for models of the same architecture: to leave one out is to leave all out."""
    shape = (model.layers, model.hidden, model.heads, model.kv_heads, model.n_experts, model.attention)
    return next(
        other.name
        for other in models().values()
        if (other.layers, other.hidden, other.heads, other.kv_heads, other.n_experts, other.attention)
        == shape
    )


def _design(group: Serving) -> Array:
    """[coefficients, rows, parameters]: 1 where a parameter belongs to a coefficient of the group's replica."""
    one = np.zeros((len(COEFFICIENTS), len(COEFFICIENTS) + len(FACTOR_NAMES)))
    one[:, : len(COEFFICIENTS)] = np.eye(len(COEFFICIENTS))
    for position, (coefficient, trait) in enumerate(FACTOR_NAMES, start=len(COEFFICIENTS)):
        one[COEFFICIENTS.index(coefficient), position] = trait in group.replica.traits
    return np.repeat(one[:, None, :], len(group.share), axis=1)
