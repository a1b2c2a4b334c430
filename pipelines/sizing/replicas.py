"""How many replicas carry a load within the SLO, and how they would perform.

Belongs here: the throughput of a replica by batch, its capacity at the SLO, the number of replicas with
headroom and one to spare, estimates of TTFT and TPOT. Does not belong here: time of a step (`roofline.py`),
prices (`options.py`), replaying arrivals one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from pipelines.efficiency.flops import Array
from pipelines.fleet import Site, Slo
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.memory import max_sequences
from pipelines.sizing.roofline import Replica, StepTime, chunk_tokens, prefill_s, steady_step, step_time
from warehouse.catalogue import parameters

MAX_UTILISATION = 0.85
"""Highest planned load / capacity. Close to 1 a small error of capacity becomes a large one of latency."""

Limit = Literal["compute", "bandwidth", "memory", "latency"]


@dataclass(frozen=True)
class Curve:
    """Steady state of one replica by batch: sequences, seconds per step, output tokens per second."""

    batch: Array
    step: StepTime
    output_per_s: Array

    def batch_at(self, output_per_s: float) -> float:
        """Batch that yields a rate; below 1 it is the share of time that a single sequence is in flight."""
        slowest = float(self.output_per_s[0])
        if output_per_s <= slowest:
            return output_per_s / slowest
        return float(np.interp(output_per_s, self.output_per_s, self.batch))

    def step_s_at(self, output_per_s: float) -> float:
        """Seconds per step at a rate."""
        return float(np.interp(max(self.batch_at(output_per_s), 1.0), self.batch, self.step.total))


@dataclass(frozen=True)
class Capacity:
    """Most that one replica carries within the SLO. `output_per_s` = 0: it can't at any load."""

    output_per_s: float
    batch: float
    breaks_first: Limit


@dataclass(frozen=True)
class Performance:
    """A number of replicas under the load. Utilisation = load / capacity at the SLO."""

    replicas: int
    utilisation: float
    peak_utilisation: float
    mean_batch: float
    busy_ratio: float
    ttft_ms_p50: float
    ttft_ms_p95: float
    tpot_ms_p50: float
    tpot_ms_p95: float


def curve(replica: Replica, load: DemandSummary, prompt_ratio: float) -> Curve | None:
    """Steady state by batch if an output token brings `prompt_ratio` prompt tokens; None if nothing fits."""
    sequence = load.input_mean + load.output_mean
    largest_call = max(load.context_p99 or sequence, sequence)
    if max_sequences(replica.model, replica.memory, replica.tensor_parallel, largest_call) < 1:
        return None
    most = max_sequences(replica.model, replica.memory, replica.tensor_parallel, sequence)
    most = min(most, parameters("step_time")["max_sequences"])
    batch = np.unique(np.round(np.geomspace(1, most, 96))).astype(np.float64)
    step = steady_step(
        replica,
        batch,
        load.context_mean,
        batch * prompt_ratio,
        load.uncached_mean,
        load.input_mean - load.uncached_mean,
    )
    # A larger batch never yields less: an engine need not fill it.
    return Curve(batch, step, np.maximum.accumulate(batch / step.total))


def capacity(replica: Replica, line: Curve, load: DemandSummary, slo: Slo) -> Capacity:
    """Most output per second within the SLO, and what limits it."""
    total = line.step.total
    prompt = load.uncached_input_p95 if load.uncached_input_p95 is not None else load.uncached_mean
    allowed = np.ones_like(total, dtype=bool) if load.output_mean <= 1 else total * 1e3 <= slo.tpot_p95_ms
    alone = (
        prefill_s(replica, prompt, 1.0, load.context_mean)
        + parameters("step_time")["request_overhead_ms"] / 1e3
    )
    if not allowed[0] or alone * 1e3 > slo.ttft_p95_ms:
        return Capacity(0.0, 0.0, "latency")
    last = int(np.flatnonzero(allowed)[-1])
    return Capacity(float(line.output_per_s[last]), float(line.batch[last]), _limit(line, last))


def unconstrained(line: Curve) -> Capacity:
    """Most output per second whatever the latency: what a replica reaches that breaks the SLO at any load."""
    return Capacity(float(line.output_per_s[-1]), float(line.batch[-1]), "latency")


def _limit(line: Curve, last: int) -> Limit:
    """Name what stops a replica at a point of its curve."""
    if last == len(line.batch) - 1 and line.batch[last] < parameters("step_time")["max_sequences"]:
        return "memory"
    compute, memory, overhead = (
        float(part[last]) for part in (line.step.compute, line.step.memory, line.step.overhead)
    )
    if overhead > max(compute, memory):
        return "latency"
    return "compute" if compute > memory else "bandwidth"


def planned_peak(load: DemandSummary, site: Site) -> float | None:
    """Output per second to plan for: the observed peak with a year's growth and headroom; None if unknown."""
    if load.peak_rate is None:
        return None
    return load.peak_rate * (1 + site.growth_per_year) * (1 + site.headroom_ratio)


def replicas_needed(planned_per_s: float, each_per_s: float) -> int:
    """Replicas for a planned peak: below the highest utilisation, and still enough when one fails.

    Raises:
        ValueError: a replica carries nothing.

    """
    if each_per_s <= 0:
        msg = "a replica that carries nothing can't be multiplied to carry a load"
        raise ValueError(msg)
    capped = math.ceil(planned_per_s / (each_per_s * MAX_UTILISATION))
    spare = math.ceil(planned_per_s / each_per_s) + 1
    return max(capped, spare)


def performance(
    replica: Replica, line: Curve, each: Capacity, load: DemandSummary, replicas: int, usual: Curve
) -> Performance:
    """Estimate how `replicas` carry the load: p50 at the mean load, p95 at the peak.

    `line` is the curve at the peak's mix of prompt and output tokens, `usual` at the mean mix.
    """
    mean, peak = load.output_per_s / replicas, (load.peak_rate or load.output_per_s) / replicas
    batch_mean, batch_peak = usual.batch_at(mean), line.batch_at(peak)
    prompt_p95 = load.uncached_input_p95 if load.uncached_input_p95 is not None else load.uncached_mean
    calls_peak = load.peak_requests_per_s or load.requests / load.window_s
    prompts_peak = load.peak_uncached_per_s
    if prompts_peak is None:
        prompts_peak = calls_peak * load.uncached_mean
    step_mean, step_peak = usual.step_s_at(mean), line.step_s_at(peak)
    wait = prompt_wait_p95_s(replica, load, batch_peak, prompts_peak / replicas)
    wait += slot_wait_p95_s(
        peak / each.output_per_s, each.batch * replicas, step_peak * load.output_mean, load.arrival_cv2
    )
    overhead = parameters("step_time")["request_overhead_ms"] / 1e3
    # A call waits for the step in progress: half of it on average, nearly all of it at p95.
    first_p50 = (
        overhead
        + 0.5 * step_mean * min(batch_mean, 1.0)
        + prefill_s(replica, load.uncached_mean, max(batch_mean, 1.0), load.context_mean)
    )
    first_p95 = (
        overhead + step_peak + wait + prefill_s(replica, prompt_p95, max(batch_peak, 1.0), load.context_mean)
    )
    return Performance(
        replicas=replicas,
        utilisation=mean / each.output_per_s,
        peak_utilisation=peak / each.output_per_s,
        mean_batch=max(batch_mean, 1.0),
        busy_ratio=min(batch_mean, 1.0),
        ttft_ms_p50=first_p50 * 1e3,
        ttft_ms_p95=max(first_p95, first_p50) * 1e3,
        tpot_ms_p50=min(step_mean, step_peak) * 1e3,
        tpot_ms_p95=max(step_mean, step_peak) * 1e3,
    )


def prompt_wait_p95_s(replica: Replica, load: DemandSummary, batch: float, prompt_per_s: float) -> float:
    """Wait of a prompt for room in the steps' token budget: one server, heavy-traffic tail (Kingman).

    Infinite where `prompt_per_s`, the prompt tokens to compute, arrive faster than full steps can take them.
    """
    budget = chunk_tokens(batch)
    full = float(step_time(replica, max(batch, 1.0), load.context_mean, budget, 0.0).total)
    service = full * load.peak_uncached_per_call / budget
    busy = prompt_per_s * full / budget
    if busy >= 1:
        return math.inf
    if busy <= TAIL:
        return 0.0
    return service * (1 + load.arrival_cv2) / 2 / (1 - busy) * math.log(busy / TAIL)


def slot_wait_p95_s(busy: float, slots: float, service_s: float, arrival_cv2: float) -> float:
    """Wait for a place in a batch: `slots` servers, Sakasegawa's approximation with an exponential tail.

    Infinite at a utilisation of 1 and above.
    """
    if busy >= 1:
        return math.inf
    waits = busy ** (math.sqrt(2 * (slots + 1)) - 1)
    if waits <= TAIL:
        return 0.0
    mean_of_waiting = service_s * (1 + arrival_cv2) / 2 / (slots * (1 - busy))
    return mean_of_waiting * math.log(waits / TAIL)


TAIL = 0.05
"""Share of calls beyond p95."""
