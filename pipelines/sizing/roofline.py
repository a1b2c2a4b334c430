"""How long one step of a continuous-batching engine takes on given hardware, and what that means for a call.

Belongs here: the ideal work of a step, its time under fitted coefficients, prefill time. Does not belong here:
how the coefficients are fitted (`fit.py`), intervals and benchmark rows (`predict.py`), how many replicas a load
needs (`replicas.py`), queues over time (a replay). Coefficients, their sources and residuals:
`warehouse/reference/fitted.toml`; assumptions: `warehouse/reference/step_time.toml`. The model and its
validation: `docs/decisions/0010-step-time-model.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import numpy as np

from pipelines.efficiency.flops import (
    Array,
    Counts,
    attention_weight_bytes,
    decode_flops,
    expert_coverage,
    expert_weight_bytes,
    head_flops,
    kv_read_bytes,
    linear_flops_per_token,
    prefill_flops,
    steady_weight_bytes,
)
from pipelines.sizing.memory import MemoryPlan, kv_copies, plan
from warehouse.catalogue import Accelerator, Model, Precision, parameters

BYTES_PER_ACTIVATION = 2
MICRO = 1e-6

Calibration: TypeAlias = tuple[tuple[str, float], ...]
"""Factors on coefficients by their name, from measured points of the user's own fleet."""


@dataclass(frozen=True)
class Replica:
    """One copy of a model on `accelerators` accelerators.

    Within a pipeline stage, attention runs in `attention_dp` groups of `tensor_parallel` accelerators, each with
    its own sequences; all other layers are divided over the whole stage. `engine` is `vllm`, `sglang` or
    `trtllm`; None, or another, takes what is common to them. `series` names a series of measurements whose
    offset is known (see `fitted.toml`); None for use in the field.
    """

    model: Model
    accelerator: Accelerator
    tensor_parallel: int
    precision: Precision
    pipeline_parallel: int = 1
    attention_dp: int = 1
    engine: str | None = None
    series: str | None = None
    calibration: Calibration = ()

    @property
    def stage(self) -> int:
        """Accelerators of one pipeline stage."""
        return self.tensor_parallel * self.attention_dp

    @property
    def accelerators(self) -> int:
        """Accelerators of the replica."""
        return self.stage * self.pipeline_parallel

    @cached_property
    def memory(self) -> MemoryPlan:
        """How its memory is divided."""
        return plan(
            self.model,
            self.accelerator,
            self.tensor_parallel,
            self.precision,
            self.attention_dp,
            self.pipeline_parallel,
        )

    @property
    def peak_flops(self) -> float | None:
        """Dense peak of a stage in FLOP/s; None if the precision is not supported or unknown."""
        peak = self.accelerator.peak_flops(self.precision)
        return None if peak is None else peak * self.stage

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Memory bandwidth of a stage."""
        return self.accelerator.bandwidth_bytes_per_s * self.stage

    @cached_property
    def traits(self) -> tuple[str, ...]:
        """What the coefficients may depend on."""
        found = []
        if self.engine is not None:
            found.append(f"engine.{self.engine}")
        if self.series is not None:
            found.append(f"series.{self.series}")
        if self.accelerator.architecture.startswith("Blackwell"):
            found.append("generation.blackwell")
        bits = {
            "fp8": "precision.8bit",
            "int8": "precision.8bit",
            "fp4": "precision.4bit",
            "int4": "precision.4bit",
        }
        if self.precision in bits:
            found.append(bits[self.precision])
        if self.model.is_moe:
            found.append("architecture.experts")
        if self.model.is_mla:
            found.append("architecture.latent_attention")
        if self.attention_dp > 1:
            found.append("parallelism.attention_dp")
        return tuple(found)


@dataclass(frozen=True)
class Coefficients:
    """What the measured points say of real hardware and engines. Floats, or arrays over rows.

    The three efficiencies are shares of what the accelerator can do: of its memory bandwidth for weights and
    for the KV cache, of its largest measured matrix products. The rest are seconds that nothing hides.
    """

    weight_efficiency: Counts
    kv_efficiency: Counts
    compute_efficiency: Counts
    layer_s: Counts
    expert_layer_s: Counts
    all_reduce_s: Counts
    sequence_s: Counts
    step_s: Counts


COEFFICIENTS = tuple(field.name for field in fields(Coefficients))
EFFICIENCIES = frozenset(name for name in COEFFICIENTS if name.endswith("_efficiency"))


@dataclass(frozen=True)
class Work:
    """One step's work, per accelerator: seconds at the data sheet's rates, and how often each fixed cost falls due."""

    weight_s: Array
    kv_s: Array
    compute_s: Array
    sent_s: Array
    layers: Counts
    expert_layers: Counts
    all_reduces: Counts
    sequences: Array


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

    The prompt tokens follow `prompt_context` tokens that stand before them already. Arguments broadcast and
    count the whole replica. With pipeline stages the step is one pass of 1 / `pipeline_parallel` of the batch
    through all stages.

    Raises:
        ValueError: the accelerator has no known peak at the replica's precision.

    """
    return timed(work(replica, batch, context, prompt_tokens, prompt_context), coefficients(replica))


def work(
    replica: Replica,
    batch: Counts,
    context: Counts,
    prompt_tokens: Counts = 0.0,
    prompt_context: Counts = 0.0,
) -> Work:
    """Work of a step, as `step_time` describes it.

    Raises:
        ValueError: the accelerator has no known peak at the replica's precision.

    """
    peak = replica.peak_flops
    if peak is None:
        msg = f"{replica.accelerator.name} has no known peak at {replica.precision}"
        raise ValueError(msg)
    model, stage = replica.model, replica.stage
    sequences = np.asarray(batch, dtype=np.float64) / replica.pipeline_parallel
    prompt = np.asarray(prompt_tokens, dtype=np.float64) / replica.pipeline_parallel
    tokens = sequences + prompt
    bandwidth = replica.accelerator.bandwidth_bytes_per_s
    weights = (
        attention_weight_bytes(model, replica.precision) / replica.tensor_parallel
        + (
            steady_weight_bytes(model, replica.precision)
            + expert_weight_bytes(model, replica.precision) * expert_coverage(model, tokens)
        )
        / stage
    )
    kv = sequences * kv_read_bytes(model, context) * kv_copies(model, replica.tensor_parallel) / stage
    all_reduces = 2 * model.layers if stage > 1 else 0
    return Work(
        weight_s=weights / bandwidth,
        kv_s=kv / bandwidth,
        compute_s=_compute_s(replica, peak, sequences, context, prompt, prompt_context),
        sent_s=all_reduces * _ring_s(replica, tokens),
        layers=model.layers,
        expert_layers=model.moe_layers or 0,
        all_reduces=all_reduces,
        sequences=sequences / replica.attention_dp,
    )


def _compute_s(
    replica: Replica, peak: float, sequences: Array, context: Counts, prompt: Array, prompt_context: Counts
) -> Array:
    """Seconds of a step's FLOPs: products with weights at the precision's peak, attention at 16 bits."""
    model = replica.model
    half = (
        replica.accelerator.peak_flops("bf16") or replica.accelerator.peak_flops("fp16") or peak
    ) * replica.stage
    heads = head_flops(model) * sequences
    linear = linear_flops_per_token(model) * (sequences + prompt) + heads
    decoded = (
        sequences * decode_flops(model, context, 2.0) - linear_flops_per_token(model) * sequences - heads
    )
    # prefill_flops counts one output head and the products with weights, which stand in `linear` already.
    prefilled = (
        prefill_flops(model, prompt, prompt_context)
        - head_flops(model) * (prompt > 0)
        - linear_flops_per_token(model) * prompt
    )
    reachable = replica.accelerator.matmul_ratio or parameters("step_time")["assumed_matmul_ratio"]
    seconds: Array = (linear / peak + (decoded + prefilled) / half) / reachable
    return seconds


def _ring_s(replica: Replica, tokens: Array) -> Array:
    """Seconds on the wire of one ring all-reduce of all tokens' activations; 0 where the link is not known."""
    link = replica.accelerator.interconnect_gbs
    if not link or replica.stage == 1:
        return np.zeros_like(tokens)
    sent: Array = (
        2 * (replica.stage - 1) / replica.stage * tokens * replica.model.hidden * BYTES_PER_ACTIVATION
    )
    return sent / (link * 1e9)


def timed(done: Work, fitted: Coefficients) -> StepTime:
    """Time of a step's work."""
    return StepTime(
        compute=done.compute_s / fitted.compute_efficiency,
        memory=done.weight_s / fitted.weight_efficiency + done.kv_s / fitted.kv_efficiency,
        overhead=done.sent_s
        + done.layers * fitted.layer_s
        + done.expert_layers * fitted.expert_layer_s
        + done.all_reduces * fitted.all_reduce_s
        + done.sequences * fitted.sequence_s
        + fitted.step_s,
    )


def coefficients(replica: Replica) -> Coefficients:
    """Coefficients that hold for a replica: what is common, times a factor for each of its traits."""
    return _coefficients(replica.traits, replica.calibration)


@lru_cache(maxsize=4096)
def _coefficients(traits: tuple[str, ...], calibration: Calibration) -> Coefficients:
    fitted = parameters("fitted")["step_time"]
    values = {name: _in_seconds(name, fitted["common"]) for name in COEFFICIENTS}
    for trait in traits:
        kind, _, which = trait.partition(".")
        for name, factor in fitted["factors"].get(kind, {}).get(which, {}).items():
            values[name] *= factor
    for name, factor in calibration:
        values[name] *= factor
    return Coefficients(
        **{name: min(value, 1.0) if name in EFFICIENCIES else value for name, value in values.items()}
    )


def _in_seconds(name: str, common: Mapping[str, Any]) -> float:
    if name in EFFICIENCIES:
        return float(common[name])
    return float(common[f"{name.removesuffix('_s')}_us"]) * MICRO


def steady_step(
    replica: Replica,
    batch: Counts,
    context: Counts,
    prompt_tokens: Counts,
    prompt_length: Counts,
    cached: Counts = 0.0,
) -> StepTime:
    """Mean step where `batch` sequences decode and, on average, `prompt_tokens` are prefilled per step.

    Prompts come in chunks: some steps carry one and most carry none, so their compute is not hidden behind the
    memory traffic of the steps between. `prompt_length` is the length of the computed part of a prompt, after
    `cached` tokens.
    """
    done = steady_work(replica, batch, context, prompt_tokens, prompt_length, cached)
    return steady_time(*done, coefficients(replica))


def steady_work(
    replica: Replica,
    batch: Counts,
    context: Counts,
    prompt_tokens: Counts,
    prompt_length: Counts,
    cached: Counts = 0.0,
) -> tuple[Work, Work, Array]:
    """Work of a step without prompt, of one with a chunk, and the share of the steps that carry a chunk."""
    mean: Array = np.asarray(prompt_tokens, dtype=np.float64)
    typical = parameters("step_time")["typical_chunk_tokens"] * replica.attention_dp
    chunk: Array = np.maximum(np.minimum(typical, np.asarray(prompt_length) * replica.attention_dp), mean)
    chunk = np.maximum(chunk, 1.0)
    # So that the mean token of the chunk stands at the middle of its prompt, be the chunk a part of a prompt or
    # several prompts (then it is negative).
    before = np.asarray(cached) + (np.asarray(prompt_length) - chunk) / 2
    plain = work(replica, batch, context)
    return plain, work(replica, batch, context, chunk, before), mean / chunk


def steady_time(plain: Work, mixed: Work, share: Array, fitted: Coefficients) -> StepTime:
    """Mean time over steps without and with a chunk of prompts."""
    one, other = timed(plain, fitted), timed(mixed, fitted)
    compute, memory, overhead = (
        (1 - share) * getattr(one, part) + share * getattr(other, part)
        for part in ("compute", "memory", "overhead")
    )
    total = (1 - share) * one.total + share * other.total
    # Within a step compute and memory traffic overlap, from one step to the next they do not: the larger of
    # the two takes what no overlap hides.
    core = total - overhead
    return StepTime(
        np.where(compute > memory, core, compute), np.where(compute > memory, memory, core), overhead
    )


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
