"""Fit the step-time model to measured points: `python -m pipelines.sizing.fit` writes `fitted.toml` again.

Belongs here: which coefficients there are, what each may depend on and how strongly it is held to the common
value, the measured points as arrays, the fit, and leave-one-model-out predictions. Does not belong here: the
model (`roofline.py`), the solver (`robust.py`), the report on accuracy (`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from importlib import resources

import numpy as np
import polars as pl

from pipelines.efficiency.flops import Array
from pipelines.sizing import robust
from pipelines.sizing.points import read_points, replicas
from pipelines.sizing.roofline import COEFFICIENTS, EFFICIENCIES, Coefficients, Work, steady_time
from pipelines.sizing.serving import Serving, serving
from warehouse.catalogue import models

COMMON: dict[str, tuple[float, float]] = {
    "weight_efficiency": (0.75, 0.3),
    "kv_efficiency": (0.6, 0.4),
    "compute_efficiency": (0.75, 0.4),
    "layer_s": (30e-6, 0.7),
    "expert_layer_s": (20e-6, 1.0),
    "all_reduce_s": (12e-6, 0.7),
    "sequence_s": (20e-6, 1.0),
    "step_s": (300e-6, 1.0),
}
"""Each coefficient's prior: what public fits found (docs/decisions/0010), and the standard deviation of its log."""

FACTORS: dict[str, dict[str, float]] = {
    "weight_efficiency": {"engine": 0.2, "generation": 0.2, "precision": 0.2, "experts": 0.3, "series": 0.2},
    "kv_efficiency": {"disaggregated": 0.5},
    "compute_efficiency": {"engine": 0.2, "generation": 0.2, "precision": 0.3, "experts": 0.4, "mlenergy": 0.2},
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
HUBER_WIDTH = 0.2
NOISE = 0.6
"""Three times the usual residual: rows of one model err together, so they count for fewer than they are."""


FACTOR_NAMES: tuple[tuple[str, str], ...] = tuple(
    (coefficient, trait) for coefficient, kinds in FACTORS.items() for kind in kinds for trait in TRAITS[kind]
)
"""Coefficient and trait of each factor, in the order of the parameters."""


@dataclass(frozen=True)
class Measured:
    """Measured points as arrays, one value per row that can be predicted.

    `index` is the row's number among the points read; `design` [coefficients, rows, parameters] says which
    parameters make up a coefficient's log.
    """

    index: Array
    plain: Work
    mixed: Work
    share: Array
    waiting: Array
    design: Array

    def step_s(self, parameters: Array) -> Array:
        """Mean seconds of a step of each row."""
        values = np.exp(self.design @ parameters)
        named = {
            name: np.minimum(value, 1.0) if name in EFFICIENCIES else value
            for name, value in zip(COEFFICIENTS, values, strict=True)
        }
        return steady_time(self.plain, self.mixed, self.share, Coefficients(**named)).total


def measured(points: pl.DataFrame) -> Measured:
    """Stack the rows that can be predicted (see `points.read_points`)."""
    groups = [
        (serving(replica, rows), rows["index"].to_numpy())
        for replica, rows in replicas(points.with_row_index(), dict(models()))
    ]
    return Measured(
        index=np.concatenate([index for _, index in groups]),
        plain=_stacked([group.plain for group, _ in groups], [group.share for group, _ in groups]),
        mixed=_stacked([group.mixed for group, _ in groups], [group.share for group, _ in groups]),
        share=np.concatenate([group.share for group, _ in groups]),
        waiting=np.concatenate([group.sequences / group.resident for group, _ in groups]),
        design=np.concatenate([_design(group) for group, _ in groups], axis=1),
    )


def _stacked(parts: list[Work], like: list[Array]) -> Work:
    return Work(
        **{
            field.name: np.concatenate(
                [np.broadcast_to(getattr(part, field.name), rows.shape) for part, rows in zip(parts, like, strict=True)]
            )
            for field in fields(Work)
        }
    )


def _design(group: Serving) -> Array:
    """[coefficients, rows, parameters]: 1 where a parameter belongs to a coefficient of the group's replica."""
    one = np.zeros((len(COEFFICIENTS), len(COEFFICIENTS) + len(FACTOR_NAMES)))
    one[:, : len(COEFFICIENTS)] = np.eye(len(COEFFICIENTS))
    for position, (coefficient, trait) in enumerate(FACTOR_NAMES, start=len(COEFFICIENTS)):
        one[COEFFICIENTS.index(coefficient), position] = trait in group.replica.traits
    return np.repeat(one[:, None, :], len(group.share), axis=1)


def fit_step_time(rows: Measured, tpot_s: Array, weight: Array, start: Array | None = None) -> Array:
    """Logs of the common coefficients and of the factors.

    Args:
        rows: the points.
        tpot_s: measured seconds per output token.
        weight: weight of each row; 0 leaves it out.
        start: parameters to start from.

    """
    target = np.log(tpot_s)
    prior = np.array([np.log(COMMON[name][0]) for name in COEFFICIENTS] + [0.0] * len(FACTOR_NAMES))
    spread = np.array(
        [COMMON[name][1] for name in COEFFICIENTS]
        + [
            spread for kinds in FACTORS.values() for kind, spread in kinds.items() for _ in TRAITS[kind]
        ]
    )
    return robust.fit(
        lambda at: np.log(rows.step_s(at)) - target,
        prior,
        spread,
        weight,
        noise=NOISE,
        width=HUBER_WIDTH,
        start=start,
    )
