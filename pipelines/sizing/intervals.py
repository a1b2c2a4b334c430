"""80 % intervals around estimates, from the errors on points of models that a fit had not seen.

Belongs here: which errors tell those of a replica, and how an interval widens where nothing was measured. Does not
belong here: computing the errors (`fit.py`), the estimates. Figures: `warehouse/reference/fitted.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.sizing.roofline import Replica
from warehouse.catalogue import parameters

STRATA = ("aggregated", "racks", "disaggregated", "chat", "tasks")
"""Kinds of points whose errors differ: `tasks` are ML.ENERGY's whose prompt lengths are assumed."""
GENERATIONS = ("blackwell", "others")
"""Of power the errors differ by generation of accelerator."""


def stratum_of(replica: Replica, task: str | None = None) -> str:
    """The kind of points whose errors tell those of a replica."""
    if replica.series == "disaggregated":
        return replica.series
    if replica.series is not None:
        return "chat" if task == "lm-arena-chat" else "tasks"
    return "racks" if replica.accelerator.kind == "rack" else "aggregated"


def generation_of(replica: Replica) -> str:
    """The generation whose errors tell those of a replica's power."""
    return "blackwell" if "generation.blackwell" in replica.traits else "others"


def spreads(replica: Replica, task: str | None = None) -> dict[str, tuple[float, float]]:
    """Low and high end of the 80 % interval around each estimate, as factors.

    Wider where the accelerator was not measured, or the engine is not named.
    """
    found: Mapping[str, Any] = parameters("fitted")["intervals"]
    widening = parameters("step_time")["widening"]
    wider = 1.0
    if replica.accelerator.name not in parameters("step_time")["measured_on"]:
        wider *= widening["accelerator"]
    if replica.engine is None and replica.series != "mlenergy":
        wider *= widening["engine"]
    stratum = stratum_of(replica, task)
    kinds = {"tpot": stratum, "ttft": stratum, "power": generation_of(replica)}
    return {
        key: (found[key][kind]["low_ratio"] ** wider, found[key][kind]["high_ratio"] ** wider)
        for key, kind in kinds.items()
    }


def tpot_interval(replica: Replica, tpot_ms: float) -> tuple[float, float]:
    """80 % interval around an estimated TPOT."""
    low, high = spreads(replica)["tpot"]
    return tpot_ms * low, tpot_ms * high


def ttft_interval(ttft_ms: float) -> tuple[float, float]:
    """Range around a TTFT estimated from rates; wide, because benchmarks' TTFT is ruled by how they start."""
    ratios = parameters("step_time")["ttft_interval"]
    return ttft_ms * ratios["low_ratio"], ttft_ms * ratios["high_ratio"]
