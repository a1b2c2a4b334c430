"""80 % intervals around estimates, from the errors on points of models that a fit had not seen.

Belongs here: which errors tell those of a replica, and how an interval widens where nothing was measured. Does not
belong here: computing the errors (`fit.py`), the estimates. Figures: `warehouse/reference/fitted.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.sizing.roofline import Replica
from warehouse.catalogue import parameters


def spreads(replica: Replica) -> dict[str, tuple[float, float]]:
    """Low and high end of the 80 % interval around each estimate, as factors.

    From the errors on points of models that the fit had not seen; wider where the accelerator's generation or the
    engine was not measured either.
    """
    found: Mapping[str, Any] = parameters("fitted")["intervals"]
    widening = parameters("step_time")["widening"]
    wider = 1.0
    if replica.accelerator.name not in parameters("step_time")["measured_on"]:
        wider *= widening["accelerator"]
    if replica.engine is None and replica.series != "mlenergy":
        wider *= widening["engine"]
    stratum = stratum_of(replica)
    return {
        key: (found[key][stratum]["low_ratio"] ** wider, found[key][stratum]["high_ratio"] ** wider)
        for key in ("tpot", "ttft", "power")
    }


def stratum_of(replica: Replica) -> str:
    """The kind of points whose errors tell those of a replica."""
    if replica.series is not None:
        return replica.series
    return "latent_attention" if replica.model.is_mla else "aggregated"


def tpot_interval(replica: Replica, tpot_ms: float) -> tuple[float, float]:
    """80 % interval around an estimated TPOT."""
    low, high = spreads(replica)["tpot"]
    return tpot_ms * low, tpot_ms * high


def ttft_interval(ttft_ms: float) -> tuple[float, float]:
    """Range around a TTFT estimated from rates; wide, because benchmarks' TTFT is ruled by how they start."""
    ratios = parameters("step_time")["ttft_interval"]
    return ttft_ms * ratios["low_ratio"], ttft_ms * ratios["high_ratio"]
