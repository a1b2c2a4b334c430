"""Whether an option holds the SLO where the load was highest, call by call.

Belongs here: replaying a pool's busiest moments on an option of FLEET_OPTIONS. Does not belong here: finding the
moments (`pipelines/sizing/moments.py`), estimating options (`candidates.py`), choosing one (`choice.py`).

It is bounded: of a moment a few minutes are replayed, with a run before it so that batches and caches are filled,
and one after it so that its last calls are not served by engines that fall idle. The arrivals are those that
were logged: growth and headroom, which an option is sized for, are not added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from pipelines.calls import model_name
from pipelines.fleet import Slo
from pipelines.sizing.moments import Moment
from pipelines.sizing.replay.simulate import Setup, simulate
from pipelines.sizing.replay.summary import summary
from pipelines.sizing.replay.workload import trace_of
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import accelerators, models

SPANS_S = ((300.0, 300.0), (60.0, 60.0), (0.0, 10.0))
"""Least time measured around a moment, and time replayed before and after it; the first that is few enough
calls counts."""
MOST_CALLS = 300_000
"""Calls of a moment: about a second of one core."""


@dataclass(frozen=True)
class Simulated:
    """What a replay of one moment tells of an option; simulated, not measured."""

    start_at: datetime
    window_s: float
    calls: int
    """Calls measured."""
    left_out: int
    """Calls around the moment without token counts, which were not replayed."""
    ttft_ms_p50: float | None
    ttft_ms_p95: float | None
    tpot_ms_p50: float | None
    tpot_ms_p95: float | None
    holds: bool | None
    """Whether 95 % of the calls keep the SLO; None where no call tells."""


def replica_of_option(option: Mapping[str, Any]) -> Replica:
    """The replica that a row of FLEET_OPTIONS describes (one with an accelerator, so no API)."""
    return Replica(
        models()[option["model"]],
        accelerators()[option["accelerator"]],
        int(option["count"]) // int(option["replicas"]),
        option["precision"],
    )


def confirm(
    requests: pl.LazyFrame,
    log_models: Collection[str],
    option: Mapping[str, Any],
    moments: Sequence[Moment],
    slo: Slo,
) -> tuple[Simulated, ...]:
    """Replay the moments of a pool on an option.

    Args:
        requests: the facts.
        log_models: names of the pool's models in the log.
        option: row of FLEET_OPTIONS.
        moments: when the pool was busiest.
        slo: the latency that 95 % of the calls keep.

    Raises:
        ValueError: the model does not fit, or its speed is unknown.

    """
    setup = Setup(replica_of_option(option), replicas=int(option["replicas"]))
    calls = requests.filter(model_name().is_in(list(log_models)))
    return tuple(_confirmed(calls, setup, moment, slo) for moment in moments)


def _confirmed(calls: pl.LazyFrame, setup: Setup, moment: Moment, slo: Slo) -> Simulated:
    start, end, around = _around(calls, moment)
    trace = trace_of(around)
    workload, window_s = trace.workload, (end - start).total_seconds()
    if not len(workload):
        return Simulated(start, window_s, 0, trace.unknown_tokens, None, None, None, None, None)
    since_s, until_s = ((edge - workload.start_at).total_seconds() for edge in (start, end))
    told = summary(workload, simulate(workload, setup), slo, since_s, until_s)
    return Simulated(
        start,
        window_s,
        told["calls"]["measured"],
        trace.unknown_tokens,
        told["ttft_ms"]["p50"],
        told["ttft_ms"]["p95"],
        told["tpot_ms"]["p50"],
        told["tpot_ms"]["p95"],
        told["slo"]["holds"],
    )


def _around(calls: pl.LazyFrame, moment: Moment) -> tuple[datetime, datetime, pl.LazyFrame]:
    """What is measured of a moment, and the calls from before to after it."""
    middle = datetime.fromtimestamp(0, tz=UTC) + timedelta(
        microseconds=moment.start_us, seconds=moment.window_s / 2
    )
    at = pl.col("started_at")
    halves = [(max(least, moment.window_s) / 2, beside) for least, beside in SPANS_S]
    edges = [(half + beside, half) for half, beside in halves]
    counts = (
        calls.select(
            at.is_between(middle - timedelta(seconds=far), middle + timedelta(seconds=far))
            .sum()
            .alias(str(place))
            for place, (far, _) in enumerate(edges)
        )
        .collect()
        .row(0)
    )
    few = [place for place, count in enumerate(counts) if count <= MOST_CALLS]
    far, half = (timedelta(seconds=edge) for edge in edges[few[0] if few else -1])
    inside = at.is_between(middle - far, middle + far, closed="left")
    return middle - half, middle + half, calls.filter(inside)
