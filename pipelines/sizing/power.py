"""Power of accelerators under load, where none was measured.

Belongs here: the curve of power over the use of memory and compute units, idle power, what arrives at the wall.
Does not belong here: measured power (`pipelines/efficiency/energy.py`), its price. Fitted figures:
`warehouse/reference/fitted.toml`; assumed ones: `warehouse/reference/power.toml`.
"""

from __future__ import annotations

import numpy as np

from pipelines.efficiency.flops import Array, Counts
from pipelines.sizing.roofline import Replica, StepTime, step_time
from warehouse.catalogue import Accelerator, parameters

WATTS_PER_KW = 1000.0
_FULL_BATCH_DOUBLINGS = 9.0


def power_features(
    step: StepTime, batch: Counts, accelerators: Counts, experts: Counts, blackwell: Counts, pictures: Counts
) -> dict[str, Array]:
    """What the share of TDP depends on; each array broadcasts to the steps.

    Shares of the step in which memory and compute units are busy; the batch; doublings of the group, in which
    accelerators wait for each other; whether the model has experts, whether the accelerator is of the Blackwell
    generation, and whether prompts hold pictures, which the host prepares while accelerators wait (0 or 1).
    """
    total = step.total
    doublings = np.log2(np.maximum(np.asarray(batch, dtype=np.float64), 1.0))
    return {
        "base": np.ones_like(total),
        "memory": step.memory / total,
        "compute": step.compute / total,
        "batch": np.minimum(doublings, _FULL_BATCH_DOUBLINGS) / _FULL_BATCH_DOUBLINGS + 0 * total,
        "group": np.log2(np.asarray(accelerators, dtype=np.float64)) + 0 * total,
        "experts": experts + 0 * total,
        "blackwell": blackwell + 0 * total,
        "pictures": pictures * (1 - np.asarray(blackwell)) + 0 * total,
        "pictures_blackwell": pictures * np.asarray(blackwell) + 0 * total,
    }


def busy_power_w(replica: Replica, batch: Counts, context: Counts) -> Array | None:
    """Power of one accelerator of a replica that decodes `batch` sequences of `context` tokens.

    None if its TDP is unknown.
    """
    return step_power_w(replica, step_time(replica, batch, context), batch)


def step_power_w(replica: Replica, step: StepTime, batch: Counts, pictures: Counts = 0.0) -> Array | None:
    """Mean power of one accelerator of a replica that runs such steps; None if its TDP is unknown."""
    tdp, idle = replica.accelerator.tdp_w, idle_power_w(replica.accelerator)
    if tdp is None or idle is None:
        return None
    fitted = parameters("fitted")["power"]
    features = power_features(
        step,
        batch,
        replica.accelerators,
        float(replica.model.is_moe),
        float("generation.blackwell" in replica.traits),
        pictures,
    )
    share = np.zeros_like(step.total)
    for name, value in features.items():
        share = share + fitted["shares_of_tdp"][name] * value
    power: Array = np.clip(share * tdp, idle, tdp * parameters("power")["assumed"]["highest_ratio"])
    return power


def idle_power_w(accelerator: Accelerator) -> float | None:
    """Power of one idle accelerator; None if its TDP is unknown."""
    return (
        None
        if accelerator.tdp_w is None
        else accelerator.tdp_w * float(parameters("power")["assumed"]["idle_ratio"])
    )


def mean_power_w(replica: Replica, batch: float, context: float, busy_ratio: float) -> float | None:
    """Mean power of one accelerator, busy `busy_ratio` of the time with `batch` sequences, else idle."""
    busy, idle = busy_power_w(replica, batch, context), idle_power_w(replica.accelerator)
    return None if busy is None or idle is None else float(busy) * busy_ratio + idle * (1 - busy_ratio)


def wall_power_kw(accelerators_w: float, host_factor: float, pue: float) -> float:
    """Power at the site's meter for the power of the accelerators: hosts and cooling included."""
    return accelerators_w * host_factor * pue / WATTS_PER_KW


def curve_basis(accelerator: Accelerator) -> str:
    """Say in words what stands behind a modelled power."""
    measured = accelerator.name in parameters("power")["measured_on"]
    return "Power modelled from TDP and load" + ("" if measured else ", fitted on H100 and B200")
