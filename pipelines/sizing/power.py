"""Power of accelerators under load, where none was measured.

Belongs here: the curve of power over batch, idle power, what arrives at the wall. Does not belong here:
measured power (`pipelines/efficiency/energy.py`), its price. Parameters and sources:
`warehouse/reference/power.toml`.
"""

from __future__ import annotations

import numpy as np

from pipelines.efficiency.flops import Array, Counts
from warehouse.catalogue import Accelerator, parameters

WATTS_PER_KW = 1000.0


def busy_power_w(accelerator: Accelerator, batch: Counts) -> Array | None:
    """Power of one accelerator of a replica that decodes `batch` sequences; None if its TDP is unknown."""
    if accelerator.tdp_w is None:
        return None
    curve = _curve(accelerator)
    doublings = np.clip(np.log2(np.maximum(np.asarray(batch, dtype=np.float64), 1.0)), 0.0, 8.0)
    power: Array = accelerator.tdp_w * (curve["base"] + curve["slope"] * doublings / 8)
    return power


def idle_power_w(accelerator: Accelerator) -> float | None:
    """Power of one idle accelerator; None if its TDP is unknown."""
    return (
        None
        if accelerator.tdp_w is None
        else accelerator.tdp_w * float(parameters("power")["assumed"]["idle_ratio"])
    )


def mean_power_w(accelerator: Accelerator, batch: float, busy_ratio: float) -> float | None:
    """Mean power of one accelerator, busy `busy_ratio` of the time with `batch` sequences, else idle."""
    busy, idle = busy_power_w(accelerator, batch), idle_power_w(accelerator)
    return None if busy is None or idle is None else float(busy) * busy_ratio + idle * (1 - busy_ratio)


def wall_power_kw(accelerators_w: float, host_factor: float, pue: float) -> float:
    """Power at the site's meter for the power of the accelerators: hosts and cooling included."""
    return accelerators_w * host_factor * pue / WATTS_PER_KW


def curve_basis(accelerator: Accelerator) -> str:
    """Say in words which curve stands behind a modelled power."""
    own = accelerator.name in parameters("power")["curves"]
    return "Power modelled from TDP and batch" + ("" if own else " with the H100's curve")


def _curve(accelerator: Accelerator) -> dict[str, float]:
    power = parameters("power")
    curves: dict[str, dict[str, float]] = power["curves"]
    return curves.get(accelerator.name) or curves[power["assumed"]["curve"]]
