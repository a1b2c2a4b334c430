"""What findings free on one's own hardware: accelerator-seconds, and replicas at the peak.

Belongs here: the load of a pool before and after each finding, in the order of application, on today's replicas. Does not
belong here: what a finding takes from the load (`pipelines/waste/net_savings.py`), how the load becomes smaller
(`waste_removed.py`), whole replicas to buy or to keep (`options.py`).

All of it is modelled, with the step times of `roofline.py`. A pool's replicas are taken as full as the SLO lets them be:
seconds are then those that tokens need, not those in which half-empty replicas wait. Fractions of a replica are told, since
findings are weighed against each other; what is bought or kept comes in whole ones, with one to spare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.fleet import Fleet, Slo
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.replicas import MAX_UTILISATION, Curve, curve, planned_peak
from pipelines.sizing.roofline import Replica
from pipelines.sizing.waste_removed import Removed, without_waste

FREED = pl.Schema({"id": pl.String(), "gpu_seconds": pl.Float64(), "replicas": pl.Float64()})
"""By finding, what it frees; findings whose model no pool serves, or of which nothing is known, have no row."""

_EFFECTS = ("calls_removed", "input_removed", "computed_removed", "output_removed")


class _Need(NamedTuple):
    """What a load takes; replicas are None where its peak is unknown."""

    gpu_seconds: float
    replicas: float | None


def freed_capacity(savings: pl.DataFrame, loads: Sequence[DemandSummary], fleet: Fleet) -> pl.DataFrame:
    """Say what each finding frees on today's pools, on top of those before it.

    Args:
        savings: `net_savings.SAVINGS`, in the order of application.
        loads: the load of each pool as it is.
        fleet: the site file.

    Returns:
        FREED.

    """
    taking = savings.filter(pl.sum_horizontal(_EFFECTS) > 0)
    rows = [
        row
        for load in loads
        for row in _freed(taking.filter(pl.col("model").is_in(load.log_models)), load, fleet)
    ]
    return pl.DataFrame(rows, schema=FREED, orient="row")


def _freed(
    findings: pl.DataFrame, load: DemandSummary, fleet: Fleet
) -> Iterator[tuple[str, float, float | None]]:
    replica = _todays_replica(load)
    if replica is None or findings.is_empty():
        return
    before, removed = _need(load, replica, fleet), Removed()
    for name, *effects in findings.select("id", *_EFFECTS).iter_rows():
        removed += Removed(*effects)
        after = _need(without_waste(load, removed), replica, fleet)
        if before is None or after is None:
            return
        replicas = (
            None
            if before.replicas is None or after.replicas is None
            else max(before.replicas - after.replicas, 0.0)
        )
        yield name, max(before.gpu_seconds - after.gpu_seconds, 0.0), replicas
        before = after


def _todays_replica(load: DemandSummary) -> Replica | None:
    """The replica that serves the pool; None where none is known that could be modelled."""
    pool = load.today
    if load.model is None or pool is None or load.unmeasured:
        return None
    replica = Replica(load.model, pool.card, pool.tensor_parallel, pool.precision)
    return None if replica.peak_flops is None else replica


def _need(load: DemandSummary, replica: Replica, fleet: Fleet) -> _Need | None:
    """What the load takes on such replicas; None where its longest calls do not fit."""
    usual = curve(replica, load, load.prompt_ratio)
    if usual is None:
        return None
    output = load.output_per_s * load.window_s
    seconds = output / _output_per_s(usual, load, fleet.slo) * replica.tensor_parallel
    return _Need(seconds, _replicas(load, replica, fleet))


def _replicas(load: DemandSummary, replica: Replica, fleet: Fleet) -> float | None:
    needed = []
    for moment in load.at_moments:
        planned = planned_peak(moment, fleet.site)
        line = curve(replica, moment, moment.peak_prompt_ratio)
        if planned is not None and line is not None:
            needed.append(planned / (_output_per_s(line, moment, fleet.slo) * MAX_UTILISATION))
    return max(needed, default=None)


def _output_per_s(line: Curve, load: DemandSummary, slo: Slo) -> float:
    """Output per second of a full replica; between two batches by interpolation, so that small savings show.

    A replica that breaks the SLO at any load is filled to what it can do.
    """
    total, most = line.step.total * 1e3, float(line.output_per_s[-1])
    if load.output_mean <= 1 or total[0] > slo.tpot_p95_ms:
        return most
    return float(np.interp(slo.tpot_p95_ms, total, line.output_per_s))
