"""Fit the step-time model to measured points: `python -m pipelines.sizing.fit` writes `fitted.toml` again.

Belongs here: which coefficients there are, what each may depend on and how strongly it is held to the common
value, the measured points as arrays, the fit, and leave-one-model-out predictions. Does not belong here: the
model (`roofline.py`), the solver (`robust.py`), the report on accuracy (`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pipelines.efficiency.flops import Array
from pipelines.sizing import robust
from pipelines.sizing.intervals import GENERATIONS, STRATA, generation_of, stratum_of
from pipelines.sizing.points import read_points, replicas
from pipelines.sizing.power import power_features
from pipelines.sizing.predict import ttft_features
from pipelines.sizing.roofline import (
    COEFFICIENTS,
    EFFICIENCIES,
    MICRO,
    Coefficients,
    StepTime,
    Work,
    steady_time,
    timed,
)
from pipelines.sizing.serving import Serving, serving
from warehouse.catalogue import Model, models

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
HUBER_WIDTH = 0.2
NOISE, POWER_NOISE = 1.2, 0.8
"""Several times the usual residual: rows of one model err together, so they count for fewer than they are."""


ALL_TRAITS = tuple(dict.fromkeys(trait for traits in TRAITS.values() for trait in traits))
POWER_FEATURES = (
    "base",
    "memory",
    "compute",
    "batch",
    "group",
    "experts",
    "blackwell",
    "pictures",
    "pictures_blackwell",
)
TAILS = (0.1, 0.9)
TTFT_FEATURES = ("prefill", "crowd")
TTFT_TRAITS = (*TRAITS["engine"], "series.disaggregated")
_HELD, _FREE, _SMALL = 1e-4, 1e3, 1e-5
FACTOR_NAMES: tuple[tuple[str, str], ...] = tuple(
    (coefficient, trait) for coefficient, kinds in FACTORS.items() for kind in kinds for trait in TRAITS[kind]
)
"""Coefficient and trait of each factor, in the order of the parameters."""


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


@dataclass(frozen=True)
class Fitted:
    """Parameters of the three models: logs for step and TTFT, shares of TDP for power."""

    step: Array
    ttft: Array
    power: Array


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


def fit(rows: Measured) -> Fitted:
    """Fit all three models to all rows.

    What only disaggregated rows tell is fitted last, with all else held: they do not say how many workers share
    their load, and most hold one architecture.
    """
    apart = rows.stratum == "disaggregated"
    step = _fit_step(rows.only(~apart & _readable(rows)))
    if apart.any():
        step = _fit_step(rows.only(apart), held=step)
    times = rows.step(step)
    return Fitted(step, _fit_ttft(rows, step, times), _fit_power(rows, times))


def _readable(rows: Measured) -> NDArray[np.bool_]:
    """Rows whose load and layout are told.

    Aggregated rows on whole racks give the accelerators of prefill and decode as one group; of ML.ENERGY's tasks
    only chat has prompts of a known kind.
    """
    readable: NDArray[np.bool_] = np.isin(rows.stratum, ["aggregated", "chat"])
    return readable


def _fit_step(rows: Measured, held: Array | None = None) -> Array:
    prior = np.array([np.log(COMMON[name][0]) for name in COEFFICIENTS] + [0.0] * len(FACTOR_NAMES))
    spread = np.array(
        [COMMON[name][1] for name in COEFFICIENTS]
        + [spread for kinds in FACTORS.values() for kind, spread in kinds.items() for _ in TRAITS[kind]]
    )
    if held is not None:
        own = np.array(
            [False] * len(COEFFICIENTS) + [trait == "series.disaggregated" for _, trait in FACTOR_NAMES]
        )
        prior, spread = np.where(own, prior, held), np.where(own, spread, _HELD)
    target = np.log(rows.tpot_s)
    return robust.fit(
        lambda at: np.log(rows.step(at).total) - target,
        rows.step_slopes,
        prior,
        spread,
        np.ones(len(target)),
        noise=NOISE,
        width=HUBER_WIDTH,
    )


def ttft_columns(rows: Measured, step_parameters: Array, step: StepTime) -> Array:
    """[rows, parameters] of the model of TTFT's log: a constant, the features, a factor for each trait."""
    alone = timed(rows.alone, rows.coefficients(step_parameters)).total
    features = ttft_features(alone, step.total, rows.crowd)
    return np.column_stack(
        [np.ones_like(alone), *features.values(), *(rows.has(trait) for trait in TTFT_TRAITS)]
    )


def _fit_ttft(rows: Measured, step_parameters: Array, step: StepTime) -> Array:
    known = np.isfinite(rows.ttft_s) & ((rows.stratum == "disaggregated") | _readable(rows))
    columns = ttft_columns(rows, step_parameters, step)[known]
    target = np.log(rows.ttft_s[known])
    return robust.fit(
        lambda at: columns @ at - target,
        lambda _: columns,
        np.zeros(columns.shape[1]),
        np.array([_FREE] + [1.0] * len(TTFT_FEATURES) + [0.3] * len(TTFT_TRAITS)),
        np.ones(len(target)),
        noise=NOISE,
        width=2 * HUBER_WIDTH,
    )


def power_columns(rows: Measured, step: StepTime) -> Array:
    """[rows, parameters] of the model of power over TDP."""
    return np.column_stack(
        list(
            power_features(
                step,
                rows.resident,
                rows.accelerators,
                rows.has("architecture.experts"),
                rows.has("generation.blackwell"),
                rows.pictures,
            ).values()
        )
    )


def _fit_power(rows: Measured, step: StepTime) -> Array:
    known = np.isfinite(rows.power_ratio)
    relative = power_columns(rows, step)[known] / rows.power_ratio[known, None]
    free = relative.shape[1] - 1
    return robust.fit(
        lambda at: relative @ at - 1,
        lambda _: relative,
        np.array([0.5] + [0.0] * free),
        np.array([_FREE] + [0.3] * free),
        np.ones(len(relative)),
        noise=POWER_NOISE,
        width=HUBER_WIDTH / 2,
    )


@dataclass(frozen=True)
class Predicted:
    """Predictions for each row, beside the measured values of `Measured`."""

    tpot_s: Array
    ttft_s: Array
    power_ratio: Array


def predicted(rows: Measured, fitted: Fitted) -> Predicted:
    """Predict each row."""
    step = rows.step(fitted.step)
    return Predicted(
        tpot_s=step.total,
        ttft_s=np.exp(ttft_columns(rows, fitted.step, step) @ fitted.ttft),
        power_ratio=power_columns(rows, step) @ fitted.power,
    )


def leave_one_model_out(rows: Measured) -> Predicted:
    """Predict each architecture's rows by a fit to the others."""
    columns = {field.name: np.full(len(rows.index), np.nan) for field in fields(Predicted)}
    for name in sorted(set(rows.family)):
        out = rows.family == name
        found = predicted(rows.only(out), fit(rows.only(~out)))
        for key, values in columns.items():
            values[out] = getattr(found, key)
    return Predicted(**columns)


def intervals(
    rows: Measured, whole: Predicted, left: Predicted
) -> dict[str, dict[str, tuple[float, float, int]]]:
    """Ends of the 80 % interval of measured / predicted by kind of point, and the rows behind them.

    By the fit that had not seen the architecture. Racks are in no fit of the step, and disaggregated rows hold one
    architecture but for a few: these by the whole fit.
    """
    found: dict[str, dict[str, tuple[float, float, int]]] = {}
    for key in ("tpot_s", "ttft_s", "power_ratio"):
        true = getattr(rows, key)
        kinds, labels = (GENERATIONS, rows.generation) if key == "power_ratio" else (STRATA, rows.stratum)
        found[key.partition("_")[0]] = {}
        for kind in kinds:
            source = whole if kind in {"racks", "disaggregated"} else left
            every = true / getattr(source, key)
            own = every[(labels == kind) & np.isfinite(every)]
            low, high = np.quantile(own if len(own) else every[np.isfinite(every)], TAILS)
            found[key.partition("_")[0]][kind] = (float(low), float(high), len(own))
    return found


def toml(rows: Measured, fitted: Fitted, left: Predicted, day: date) -> str:
    """The text of `fitted.toml`."""
    lines = [
        "# Written by `python -m pipelines.sizing.fit` from reference/points; not to be edited by hand.",
        f"fit_date = {day.isoformat()}",
        f"rows = {len(rows.index)}",
        "",
        "[step_time.common]",
    ]
    values = np.exp(fitted.step)
    for name, value in zip(COEFFICIENTS, values, strict=False):
        lines.append(
            f"{name} = {value:.4g}"
            if name in EFFICIENCIES
            else f"{name.removesuffix('_s')}_us = {value / MICRO:.4g}"
        )
    factors = dict(zip(FACTOR_NAMES, values[len(COEFFICIENTS) :], strict=True))
    for trait in ALL_TRAITS:
        own = {coefficient: value for (coefficient, of), value in factors.items() if of == trait}
        lines += [
            "",
            f"[step_time.factors.{trait}]",
            *(f"{name} = {value:.4g}" for name, value in own.items()),
        ]
    first, *rest = fitted.ttft
    exponents, traits = rest[: len(TTFT_FEATURES)], rest[len(TTFT_FEATURES) :]
    lines += ["", "[ttft]", f"factor = {np.exp(first):.4g}", "", "[ttft.exponents]"]
    lines += [f"{name} = {value:.4g}" for name, value in zip(TTFT_FEATURES, exponents, strict=True)]
    for trait, value in zip(TTFT_TRAITS, traits, strict=True):
        kind, _, which = trait.partition(".")
        lines += ["", f"[ttft.factors.{kind}]"] if f"[ttft.factors.{kind}]" not in lines else []
        lines.append(f"{which} = {np.exp(value):.4g}")
    lines += ["", "[power.shares_of_tdp]"]
    lines += [f"{name} = {value:.4g}" for name, value in zip(POWER_FEATURES, fitted.power, strict=True)]
    lines += [
        "",
        "# 80 % of the points of models that a fit had not seen lie between these multiples of the estimate.",
    ]
    for key, strata in intervals(rows, predicted(rows, fitted), left).items():
        for stratum, (low, high, count) in strata.items():
            lines += [
                "",
                f"[intervals.{key}.{stratum}]",
                f"low_ratio = {low:.3f}",
                f"high_ratio = {high:.3f}",
                f"rows = {count}",
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Fit, leave one model out, and write the file."""
    rows = measured(measured_points())
    text = toml(rows, fit(rows), leave_one_model_out(rows), datetime.now(UTC).date())
    Path(__file__).parents[2].joinpath("warehouse", "reference", "fitted.toml").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
