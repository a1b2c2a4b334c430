"""What fits into an accelerator's memory: weights, KV cache, and how many sequences at once.

Belongs here: bytes of weights per accelerator, the KV cache's pool, the largest batch. Does not belong here:
how fast it runs (`roofline.py`). Constants and their sources: `warehouse/reference/memory.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.efficiency.flops import kv_bytes_of
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
    vocabulary = model.embedding_params * (1 if model.tied_embeddings else 2)
    return (model.params - vocabulary) * BYTES_PER_PARAMETER[precision] + vocabulary * 2


def plan(model: Model, accelerator: Accelerator, tensor_parallel: int, precision: Precision) -> MemoryPlan:
    """Divide the memory of a replica of `tensor_parallel` accelerators."""
    constants = parameters("memory")
    activation = constants["activation_moe_gib"] if model.is_moe else constants["activation_dense_gib"]
    other = constants["non_torch_tp1_gib"] if tensor_parallel == 1 else constants["non_torch_tp_gib"]
    weights = weight_bytes(model, precision)
    usable = accelerator.memory_bytes * constants["utilisation_ratio"]
    per_accelerator = usable - weights / tensor_parallel - (activation + other) * GIB
    return MemoryPlan(weights, per_accelerator * tensor_parallel)


def kv_copies(model: Model, tensor_parallel: int) -> int:
    """Copies of each KV entry in a replica: latents on every rank, heads on ranks beyond their number."""
    if model.is_mla:
        return tensor_parallel
    return max(1, tensor_parallel // model.kv_heads)


def max_sequences(model: Model, memory: MemoryPlan, tensor_parallel: int, context_tokens: float) -> int:
    """How many sequences of `context_tokens` (input and output) the KV pool of a replica holds at once."""
    if not memory.fits:
        return 0
    block = parameters("memory")["kv_block_tokens"]
    rounded = -(-context_tokens // block) * block
    per_sequence = float(kv_bytes_of(model, max(rounded, block))) * kv_copies(model, tensor_parallel)
    return int(memory.kv_pool_bytes // per_sequence)
