"""What a capacity in tokens is in bytes of KV cache, and which capacities a reader knows by name.

Belongs here: bytes per token of a model's KV cache where its architecture is known, and the marks on a cache
curve. Does not belong here: the curve (`cache_curve.py`), what fits beside the weights (`sizing/memory.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pipelines.efficiency.flops import kv_bytes_of
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.memory import kv_copies, plan
from warehouse.catalogue import KV_BYTES, find_model

MEMORY_MARKS: Mapping[str, int] = MappingProxyType(
    {"80 GB HBM": 80 * 10**9, "1 TB host memory": 10**12, "10 TB KV store": 10**13}
)
"""Bytes, decimal: one accelerator's memory, one server's, a store beside the servers; used for KV cache alone."""


@dataclass(frozen=True, slots=True)
class KvMemory:
    """How much KV cache one token takes in a replica."""

    bytes_per_token: float | None
    """Null where the architecture is unknown."""
    marks: Mapping[str, float]
    """Tokens per replica by name."""
    basis: str


UNKNOWN = KvMemory(None, MappingProxyType({}), "bytes unknown: no known architecture of one model")


def kv_memory(model: str, mean_tokens: float, fleet: Fleet) -> KvMemory:
    """Find the memory of a model's tokens: by the pool that serves it, else by its name.

    Args:
        model: name in the log.
        mean_tokens: mean length of its prompts: what a sliding window saves depends on it.
        fleet: pools, of which one may serve it.

    """
    pool = fleet.pool_of(model)
    architecture = pool.model if pool else find_model(model)
    if architecture is None or mean_tokens <= 0:
        return UNKNOWN
    copies = kv_copies(architecture, pool.tensor_parallel) if pool else 1
    per_token = float(kv_bytes_of(architecture, mean_tokens)) / mean_tokens * copies
    marks = {name: size / per_token for name, size in MEMORY_MARKS.items()}
    basis = (
        f"bytes: {per_token:,.0f} per token of {architecture.name} in prompts of {mean_tokens:,.0f} tokens, "
        f"{KV_BYTES * 8} bit, {copies} cop{'y' if copies == 1 else 'ies'}"
    )
    return KvMemory(per_token, MappingProxyType({**_pool_mark(pool, per_token), **marks}), basis)


def _pool_mark(pool: Pool | None, bytes_per_token: float) -> dict[str, float]:
    """What the KV cache of one replica of today's pool holds."""
    if pool is None:
        return {}
    memory = plan(pool.model, pool.card, pool.tensor_parallel, pool.precision)
    if not memory.fits:
        return {}
    return {f"pool {pool.name}, one of {pool.replicas}": memory.kv_pool_bytes / bytes_per_token}
