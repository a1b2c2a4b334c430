"""How far predictions are off measured points of models that the fit had not seen: `make accuracy`.

For each architecture among the points (`warehouse/reference/points`) the models of step time, TTFT and power are fitted
to all others and predict its rows. Printed: the mean and median error against the gate, the coverage of the 80 %
interval (whose width comes from the other architectures too), the worst groups by name, and bounds that no point may
break. Exit code 1 if a gate fails.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines.sizing.fit import TAILS, Predicted, leave_one_model_out
from pipelines.sizing.intervals import STRATA
from pipelines.sizing.measured import Measured, measured, measured_points
from pipelines.sizing.roofline import StepTime

Rows = NDArray[np.bool_]
WORST = 8


@dataclass(frozen=True)
class Gate:
    """One figure: which rows, measured and predicted values, and the largest mean error allowed (None: none)."""

    name: str
    rows: Rows
    true: NDArray[np.float64]
    predicted: NDArray[np.float64]
    most: float | None


def gates(points: Measured, left: Predicted) -> list[Gate]:
    servers, racks, apart, chat, tasks = (points.stratum == kind for kind in STRATA)
    h100 = points.accelerator == "H100 SXM5 80GB"
    tpot, ttft, power = (
        (points.tpot_s, left.tpot_s),
        (points.ttft_s, left.ttft_s),
        (points.power_ratio, left.power_ratio),
    )
    return [
        Gate("TPOT, ML.ENERGY chat", chat, *tpot, 0.17),
        Gate("TPOT, aggregated, servers", servers, *tpot, 0.22),
        Gate("TPOT, aggregated, racks (layout not told)", racks, *tpot, None),
        Gate("TPOT, disaggregated (workers not told)", apart, *tpot, None),
        Gate("TPOT, ML.ENERGY, other tasks (lengths not told)", tasks, *tpot, None),
        Gate("TTFT, aggregated, servers", servers, *ttft, 0.35),
        Gate("TTFT, disaggregated", apart, *ttft, None),
        Gate("power, H100", (chat | tasks) & h100, *power, 0.12),
        Gate("power, B200", (chat | tasks) & ~h100, *power, 0.20),
    ]


def coverage(points: Measured, gate: Gate) -> float:
    """Share of the rows inside an interval that comes from the errors on other architectures of their kind."""
    ratio = gate.true / gate.predicted
    known = np.isfinite(ratio)
    inside = np.zeros(len(ratio), dtype=bool)
    for name in set(points.family[gate.rows]):
        own, others = (
            gate.rows & known & (points.family == name),
            gate.rows & known & (points.family != name),
        )
        if own.any() and others.any():
            low, high = np.quantile(ratio[others], TAILS)
            inside[own] = (ratio[own] >= low) & (ratio[own] <= high)
    return float(inside[gate.rows & known].mean())


def worst(points: Measured, gate: Gate) -> list[str]:
    error = np.abs(gate.predicted / gate.true - 1)
    groups: dict[tuple[str, str], list[float]] = {}
    for row in np.flatnonzero(gate.rows & np.isfinite(error)):
        groups.setdefault((str(points.family[row]), str(points.accelerator[row])), []).append(
            float(error[row])
        )
    ranked = sorted(groups.items(), key=lambda group: -float(np.mean(group[1])))
    return [
        f"{model} on {card}: {np.mean(errors):.0%} of {len(errors)} rows" for (model, card), errors in ranked
    ]


def above_the_roofline(points: Measured) -> list[str]:
    """Points faster than the data sheet allows: a wrong catalogue row, speculative decoding, or cache hits."""
    bound = _ideal(points)
    found: dict[tuple[str, str], int] = {}
    for row in np.flatnonzero(points.tpot_s < bound):
        key = (str(points.family[row]), str(points.accelerator[row]))
        found[key] = found.get(key, 0) + 1
    return [f"{model} on {card}: {count} rows" for (model, card), count in sorted(found.items())]


def _ideal(points: Measured) -> NDArray[np.float64]:
    none = np.zeros_like(points.share)
    step = StepTime(points.plain.compute_s, points.plain.weight_s + points.plain.kv_s, none)
    return step.total


def main() -> int:
    points = measured(measured_points())
    left = leave_one_model_out(points)
    failed = False
    print(
        f"{'leave one architecture out':48}{'rows':>6}{'MAPE':>8}{'gate':>7}{'median':>8}{'p90':>7}{'covered':>9}"
    )
    for gate in gates(points, left):
        error = np.abs(gate.predicted / gate.true - 1)[gate.rows]
        error = error[np.isfinite(error)]
        fails = gate.most is not None and error.mean() > gate.most
        failed |= fails
        allowed = "" if gate.most is None else f"{gate.most:.0%}"
        print(
            f"{gate.name:48}{len(error):6}{error.mean():8.1%}{allowed:>7}{np.median(error):8.1%}"
            f"{np.quantile(error, 0.9):7.0%}{coverage(points, gate):9.0%}{'  FAILS' if fails else ''}"
        )
    for gate in gates(points, left):
        if gate.most is not None:
            print(f"worst of {gate.name}: " + "; ".join(worst(points, gate)[:WORST]))
    print("faster than the roofline: " + ("; ".join(above_the_roofline(points)) or "none"))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
