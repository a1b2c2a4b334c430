"""Fit the step-time model to measured points: `python -m pipelines.sizing.fit` writes `fitted.toml` again.

Belongs here: the priors, the fit, predictions by fits that left an architecture out, and the file's text. Does not
belong here: the points as arrays (`measured.py`), the model (`roofline.py`), the solver (`robust.py`), the report
on accuracy (`benchmarks/accuracy.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, date, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pipelines.efficiency.flops import Array
from pipelines.sizing import robust
from pipelines.sizing.intervals import GENERATIONS, STRATA
from pipelines.sizing.measured import (
    ALL_TRAITS,
    FACTOR_NAMES,
    FACTORS,
    TRAITS,
    Measured,
    measured,
    measured_points,
)
from pipelines.sizing.power import power_features
from pipelines.sizing.predict import ttft_features
from pipelines.sizing.roofline import COEFFICIENTS, EFFICIENCIES, MICRO, StepTime, timed

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

HUBER_WIDTH = 0.2
NOISE, POWER_NOISE = 1.2, 0.8
"""Several times the usual residual: rows of one model err together, so they count for fewer than they are."""


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
_HELD, _FREE = 1e-4, 1e3


@dataclass(frozen=True)
class Fitted:
    """Parameters of the three models: logs for step and TTFT, shares of TDP for power."""

    step: Array
    ttft: Array
    power: Array


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
