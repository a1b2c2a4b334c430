"""How long one step of a continuous-batching engine takes on given hardware, and what that means for a call.

Belongs here: step time from FLOPs, bytes and fixed costs; prefill time; the interval around an estimate. Does
not belong here: how many replicas a load needs (`replicas.py`), queues over time (a replay), fitting of the
parameters. Parameters, their sources and residuals: `warehouse/reference/step_time.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.efficiency.flops import (
    Array,
    Counts,
    decode_flops,
    head_flops,
    kv_read_bytes,
    prefill_flops,
    streamed_weight_bytes,
)
from pipelines.sizing.memory import MemoryPlan, kv_copies, plan
from warehouse.catalogue import Accelerator, Model, Precision, parameters

BYTES_PER_ACTIVATION = 2


@dataclass(frozen=True)
class Replica:
    """One copy of a model on `tensor_parallel` accelerators."""

    model: Model
    accelerator: Accelerator
    tensor_parallel: int
    precision: Precision

    @cached_property
    def memory(self) -> MemoryPlan:
        """How its memory is divided."""
        return plan(self.model, self.accelerator, self.tensor_parallel, self.precision)

    @property
    def peak_flops(self) -> float | None:
        """Dense peak of the whole replica in FLOP/s; None if the precision is not supported or unknown."""
        peak = self.accelerator.peak_flops(self.precision)
        return None if peak is None else peak * self.tensor_parallel

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth of the whole replica."""
        return self.accelerator.bandwidth_bytes_per_s * self.tensor_parallel


@dataclass(frozen=True)
class StepTime:
    """Time of a step in seconds, by what takes it. `compute` and `memory` overlap, `overhead` does not."""

    compute: Array
    memory: Array
    overhead: Array

    @property
    def total(self) -> Array:
        """Time of the step."""
        total: Array = np.maximum(self.compute, self.memory) + self.overhead
        return total


def step_time(
    replica: Replica,
    batch: Counts,
    context: Counts,
    prompt_tokens: Counts = 0.0,
    prompt_context: Counts = 0.0,
) -> StepTime:
    """Time of a step in which `batch` sequences of `context` tokens decode and `prompt_tokens` are prefilled.

    The prompt tokens follow `prompt_context` tokens that stand before them already. Arguments broadcast.

    Raises:
        ValueError: the accelerator has no known peak at the replica's precision.

    """
    peak = replica.peak_flops
    if peak is None:
        msg = f"{replica.accelerator.name} has no known peak at {replica.precision}"
        raise ValueError(msg)
    fitted, model = parameters("step_time"), replica.model
    sequences = np.asarray(batch, dtype=np.float64)
    tokens = sequences + np.asarray(prompt_tokens, dtype=np.float64)
    kv = sequences * kv_read_bytes(model, context) * kv_copies(model, replica.tensor_parallel)
    moved = streamed_weight_bytes(model, replica.precision, tokens) + kv
    # prefill_flops counts one output head; the decode side counts one per sequence, so it is taken out here.
    prefill = prefill_flops(model, prompt_tokens, prompt_context)
    prefill = prefill - head_flops(model) * (np.asarray(prompt_tokens) > 0)
    flops = sequences * decode_flops(model, context, 2.0) + prefill
    return StepTime(
        compute=flops / (peak * fitted["compute_efficiency"]),
        memory=moved / (replica.bandwidth_bytes_per_s * fitted["bandwidth_efficiency"]),
        overhead=_overhead(replica, sequences, tokens),
    )


def _overhead(replica: Replica, sequences: Array, tokens: Array) -> Array:
    fitted, layers, group = parameters("step_time"), replica.model.layers, replica.tensor_parallel
    layer_s, sequence_s, all_reduce_s = (
        float(fitted[name]) * 1e-6 for name in ("layer_us", "sequence_us", "all_reduce_us")
    )
    fixed = layers * layer_s + sequences * sequence_s
    if group == 1:
        return fixed
    link = replica.accelerator.interconnect_gbs
    if link:
        sent = 2 * (group - 1) / group * tokens * replica.model.hidden * BYTES_PER_ACTIVATION
        fixed = fixed + 2 * layers * sent / (link * 1e9)
    return fixed + 2 * layers * all_reduce_s


def prefill_s(replica: Replica, prompt_tokens: float, batch: float, context: float) -> float:
    """Time to prefill a prompt whose chunks ride on steps with `batch` decoding sequences, without queue."""
    budget = chunk_tokens(batch)
    chunks = int(np.ceil(max(prompt_tokens, 1.0) / budget))
    before: Array = np.arange(chunks, dtype=np.float64) * budget
    sizes: Array = np.minimum(budget, prompt_tokens - before)
    return float(step_time(replica, batch, context, sizes, before).total.sum())


def chunk_tokens(batch: float) -> float:
    """Prompt tokens that fit into a step beside `batch` decoding sequences."""
    return float(max(parameters("step_time")["prefill_budget_tokens"] - batch, 1.0))


def tpot_interval(tpot_ms: float) -> tuple[float, float]:
    """80 % interval around an estimated TPOT, from the residuals on measured points."""
    ratios = parameters("step_time")["tpot_interval"]
    return tpot_ms * ratios["low_ratio"], tpot_ms * ratios["high_ratio"]


def ttft_interval(ttft_ms: float) -> tuple[float, float]:
    """Range around an estimated TTFT; wide, because benchmarks' TTFT is ruled by how they start."""
    ratios = parameters("step_time")["ttft_interval"]
    return ttft_ms * ratios["low_ratio"], ttft_ms * ratios["high_ratio"]
