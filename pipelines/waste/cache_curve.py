"""Mart `cache_curve`: the share of prefix blocks that caches of a given size would have held.

Belongs here: which curves there are, and what their capacities are in tokens and bytes. Does not belong here:
how one curve is computed, routed and sampled (`replica_curves.py`), what was missed with the cache there was
(`repetition.py`), how much memory a token takes (`kv_capacity.py`).

Definition. Calls with a hash chain, in order of arrival. The blocks of a call are looked up before any of
them enters; a block is a hit if it and all blocks before it in the call are held. Then they are touched from
the last to the first, so that the end of a prompt leaves the cache before its beginning, as in the engines.
Time plays no part: only room evicts. The block hit ratio is hits / all blocks, the token hit ratio tokens in
hits / all input, both pooled; at the number of distinct blocks they equal those of a cache without limit.
`model:NAME` has caches of its own; in `all` the models share them.

Capacities are powers of two, the number of distinct blocks, and named marks where the model's bytes per token
are known. One replica is computed for all calls and each of the `MOST_MODELS` models with most blocks; 2, 4 and
8 replicas, with each routing, for all calls and the `REPLICATED_MODELS` models with most. Sizes are per replica
and of all replicas together.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from pipelines.demand.largest import MOST_MODELS
from pipelines.fleet import Fleet
from pipelines.waste.block_kernels import Array
from pipelines.waste.kv_capacity import UNKNOWN, KvMemory, kv_memory
from pipelines.waste.replica_curves import (
    LOAD_BOUND,
    REPLICAS,
    RESOLUTION,
    ROUTINGS,
    SINGLE,
    SUBSAMPLES,
    Sample,
    Traffic,
    curve,
    distinct_blocks,
    sampled,
)
from warehouse.waste_tables import CACHE_CURVE

REPLICATED_MODELS = 8
THREADS = 2
"""Curves of one scope are apart; the kernels release the interpreter."""
_ROUTING_WORDS = {
    SINGLE: "one replica takes all calls",
    "round_robin": "calls go to the replicas in turn",
    "session_sticky": "sessions go to the replicas in turn, each with all its calls; without a session, calls do",
    "prefix_aware": "a call goes to the replica that was sent the longest part of its prefix, ties to the least "
    f"loaded, passing over those above {LOAD_BOUND:g} x the mean load",
}


@dataclass(frozen=True, slots=True)
class _Scope:
    name: str
    model: str | None
    rows: Array
    """int64: its calls, ascending."""
    memory: KvMemory
    is_replicated: bool


def cache_curve(calls: pl.DataFrame, blocks: pl.DataFrame, fleet: Fleet) -> pl.DataFrame:
    """Compute the curves of the whole log and of each model; empty where no call has a hash chain.

    Args:
        calls: of `blocks.chained_frames`.
        blocks: the same.
        fleet: its pools name the model's architecture, and the size of today's cache.

    """
    if blocks.is_empty():
        return CACHE_CURVE.empty()
    numbers = blocks["number"].to_numpy()
    offsets = np.zeros(calls.height + 1, np.int64)
    np.cumsum(calls["blocks"].to_numpy(), out=offsets[1:])
    log = partial(Traffic, numbers, blocks["tokens"].to_numpy(), offsets, int(numbers.max()) + 1)
    sessions, inputs = _sessions(calls), calls["input_tokens"].to_numpy()
    with ThreadPoolExecutor(THREADS) as threads:
        frames = [
            _curves(scope, log(scope.rows), sessions[scope.rows], int(inputs[scope.rows].sum()), threads)
            for scope in _scopes(calls, fleet)
        ]
    if calls["model"].n_unique() == 1:
        frames.append(frames[0].with_columns(scope=pl.lit("all"), model=pl.lit(None, pl.String)))
    return CACHE_CURVE.conform(pl.concat(frames).sort("scope", "replicas", "routing", "capacity_blocks"))


def _scopes(calls: pl.DataFrame, fleet: Fleet) -> list[_Scope]:
    """The models with most blocks, and all calls unless they are of one model."""
    models = (
        calls.with_row_index("call")
        .group_by("model")
        .agg("call", pl.col("blocks").sum(), mean_tokens=pl.col("input_tokens").mean())
        .sort("blocks", "model", descending=[True, False])
        .head(MOST_MODELS)
    )
    found = [
        _Scope(
            f"model:{model}",
            model,
            np.asarray(rows, np.int64),
            kv_memory(model, mean_tokens, fleet),
            rank < REPLICATED_MODELS,
        )
        for rank, (model, rows, _, mean_tokens) in enumerate(models.iter_rows())
    ]
    if len(found) > 1:
        found.append(_Scope("all", None, np.arange(calls.height), UNKNOWN, is_replicated=True))
    return found


def _sessions(calls: pl.DataFrame) -> Array:
    """Per call, the place of the first call of its session; its own where it has none."""
    place = pl.col("place").cast(pl.Int64)
    first = pl.when(pl.col("session_id").is_null()).then(place).otherwise(place.min().over("session_id"))
    return calls.select("session_id").with_row_index("place").select(first).to_series().to_numpy()


def _curves(
    scope: _Scope, traffic: Traffic, sessions: Array, input_tokens: int, threads: ThreadPoolExecutor
) -> pl.DataFrame:
    """All curves of a scope, one below the other."""
    sample = sampled(traffic)
    references, distinct = traffic.references, distinct_blocks(sample.whole)
    tokens_per_block = traffic.block_tokens / references
    points = _points(distinct, scope.memory.marks, tokens_per_block, sample.rate)
    inside = [blocks for blocks in points if blocks <= distinct]
    kinds = [(1, SINGLE)]
    if scope.is_replicated:
        known = np.unique(sessions).size < sessions.size
        routings = [routing for routing in ROUTINGS if known or routing != "session_sticky"]
        kinds += [(replicas, routing) for replicas in REPLICAS[1:] for routing in routings]
    results = threads.map(lambda kind: curve(sample, kind[1], kind[0], sessions, inside), kinds)
    # Nothing needs more room than all distinct blocks take.
    place = np.minimum(np.arange(len(points)), len(inside) - 1)
    capacity = pl.DataFrame(
        {"capacity_blocks": list(points), "mark": list(points.values())},
        schema={"capacity_blocks": pl.Int64, "mark": pl.String},
    )
    frames = [
        capacity.with_columns(
            scope=pl.lit(scope.name),
            model=pl.lit(scope.model, pl.String),
            replicas=pl.lit(replicas, pl.Int64),
            routing=pl.lit(routing),
            block_hit_ratio=pl.Series(found.block_hit_ratio[place]),
            block_hit_ratio_error=pl.Series(found.block_hit_ratio_error[place]),
            token_hit_ratio=pl.Series(found.hit_tokens[place] / input_tokens) if input_tokens else None,
            busiest_replica_ratio=pl.lit(found.busiest_ratio),
            sample_ratio=pl.lit(sample.rate),
            is_sampled=pl.lit(sample.rate < 1),
            basis=pl.lit(_basis(routing, sample, scope.memory)),
        )
        for (replicas, routing), found in zip(kinds, results, strict=True)
    ]
    tokens = pl.col("capacity_blocks") * tokens_per_block
    in_bytes = tokens * pl.lit(scope.memory.bytes_per_token, pl.Float64)
    return pl.concat(frames).with_columns(
        capacity_tokens=tokens.round().cast(pl.Int64),
        capacity_bytes=in_bytes.round().cast(pl.Int64),
        total_capacity_tokens=(tokens * pl.col("replicas")).round().cast(pl.Int64),
        total_capacity_bytes=(in_bytes * pl.col("replicas")).round().cast(pl.Int64),
    )


def _points(
    distinct: int, marks: Mapping[str, float], tokens_per_block: float, rate: float
) -> dict[int, str | None]:
    """Capacities in blocks, ascending, each with its mark or null; marks that fall together share a point."""
    powers = [1 << power for power in range(max(distinct - 1, 0).bit_length())]
    points: dict[int, str | None] = dict.fromkeys([*powers, distinct])
    for name, tokens in marks.items():
        blocks = int(tokens / tokens_per_block) if tokens_per_block else 0
        if blocks:
            points[blocks] = "; ".join(filter(None, (points.get(blocks), name)))
    least = 1 if rate == 1 else RESOLUTION / rate
    return {blocks: points[blocks] for blocks in sorted(points) if blocks >= min(least, distinct)}


def _basis(routing: str, sample: Sample, memory: KvMemory) -> str:
    """What a row rests on, in words."""
    exact = "exact: all blocks were followed"
    estimate = (
        f"estimated from {sample.rate:.2%} of the distinct blocks, chosen by hash; standard error from "
        f"{SUBSAMPLES} sub-samples"
    )
    words = (_ROUTING_WORDS[routing], exact if sample.rate == 1 else estimate, memory.basis)
    return "; ".join(words)
