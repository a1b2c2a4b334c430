"""What fits into an accelerator's memory: weights, KV cache, and how many sequences at once.

Belongs here: bytes of weights per accelerator, the KV cache's pool, the largest batch. Does not belong here:
how fast it runs (`roofline.py`). Constants and their sources: `warehouse/reference/memory.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.efficiency.flops import (
    Array,
    Counts,
    attention_weight_bytes,
    expert_weight_bytes,
    kv_bytes_of,
    steady_weight_bytes,
)
from warehouse.catalogue import BYTES_PER_PARAMETER, Accelerator, Model, Precision, parameters

GIB = 2**30


@dataclass(frozen=True)
class MemoryPlan:
    """Memory of one replica in bytes, over all its accelerators. `kv_pool_bytes` <= 0: it does not fit."""

    weight_bytes: float
    kv_pool_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the weights leave room for any KV cache."""
        return self.kv_pool_bytes > 0


def weight_bytes(model: Model, precision: Precision) -> float:
    """Bytes of all weights; vocabulary matrices stay at 16 bits, as quantised checkpoints leave them."""
    embedding = 0 if model.tied_embeddings else model.embedding_params * BYTES_PER_PARAMETER["bf16"]
    attention = attention_weight_bytes(model, precision)
    return (
        attention + steady_weight_bytes(model, precision) + expert_weight_bytes(model, precision) + embedding
    )


def plan(
    model: Model,
    accelerator: Accelerator,
    tensor_parallel: int,
    precision: Precision,
    attention_dp: int = 1,
    pipeline_parallel: int = 1,
) -> MemoryPlan:
    """Divide the memory of a replica of `tensor_parallel` x `attention_dp` x `pipeline_parallel` accelerators.

    Each of the `attention_dp` groups holds the attention projections whole; all other weights are divided
    over all accelerators.
    """
    constants = parameters("memory")
    count = tensor_parallel * attention_dp * pipeline_parallel
    activation = constants["activation_moe_gib"] if model.is_moe else constants["activation_dense_gib"]
    other = constants["non_torch_tp1_gib"] if count == 1 else constants["non_torch_tp_gib"]
    weights = weight_bytes(model, precision) + (attention_dp - 1) * attention_weight_bytes(model, precision)
    usable = accelerator.memory_bytes * constants["utilisation_ratio"]
    per_accelerator = usable - weights / count - (activation + other) * GIB
    return MemoryPlan(weights, per_accelerator * count)


def kv_copies(model: Model, tensor_parallel: int) -> int:
    """Copies of each KV entry in a group: latents on every rank, heads on ranks beyond their number."""
    if model.is_mla:
        return tensor_parallel
    return max(1, tensor_parallel // model.kv_heads)


def sequences_that_fit(
    model: Model, memory: MemoryPlan, tensor_parallel: int, context_tokens: Counts
) -> Array:
    """How many sequences of `context_tokens` (input and output) the KV pool of a replica holds at once."""
    block = parameters("memory")["kv_block_tokens"]
    rounded = np.maximum(np.ceil(np.asarray(context_tokens, dtype=np.float64) / block), 1) * block
    per_sequence = kv_bytes_of(model, rounded) * kv_copies(model, tensor_parallel)
    fitting: Array = np.floor(max(memory.kv_pool_bytes, 0.0) / per_sequence)
    return fitting


def max_sequences(model: Model, memory: MemoryPlan, tensor_parallel: int, context_tokens: float) -> int:
    """`sequences_that_fit` for sequences of one length."""
    return int(sequences_that_fit(model, memory, tensor_parallel, context_tokens))
