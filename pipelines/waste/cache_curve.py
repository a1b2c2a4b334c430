"""Mart `cache_curve`: the share of prefix blocks that a cache of a given size would have held.

Belongs here: the exact hit ratio of a block LRU cache at capacities that are powers of two. Does not belong
here: what was missed with the cache there was (`repetition.py`), how much memory a token takes
(`pipelines/sizing`).

Definition. Calls with a hash chain, in order of arrival. The blocks of a call are looked up before any of
them enters; a block is a hit if it and all blocks before it in the call are held. Then they are touched from
the last to the first, so that the end of a prompt leaves the cache before its beginning, as in the engines.
Time plays no part: only room evicts. The ratio is hits / all blocks, pooled; at the last capacity, the
number of distinct blocks, it equals the block hit ratio of an infinite cache. `model:NAME` has a cache of
its own; in `all` the models share one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.waste.blocks import Blocks, flat_blocks
from pipelines.waste.caching_rules import CachingRule, with_rules
from pipelines.waste.evidence import in_order_of_arrival, served_calls
from warehouse.waste_tables import CACHE_CURVE


def cache_curve(requests: pl.LazyFrame, rules: tuple[CachingRule, ...]) -> pl.DataFrame:
    """Compute the curve of the whole log and of each model; empty where no call has a hash chain.

    Args:
        requests: rows of `requests`.
        rules: caching rules; they say which calls share a cache.

    """
    chained = served_calls(requests).filter(pl.col("evidence") == "hash_chain")
    calls = with_rules(in_order_of_arrival(chained), rules)
    if calls.is_empty():
        return CACHE_CURVE.empty()
    blocks = flat_blocks(calls)
    everything = np.arange(calls.height)
    curves = [_curve("all", blocks, everything)]
    models = calls.with_row_index("call").group_by("model").agg("call").sort("model")
    for model, rows in models.iter_rows():
        scope = f"model:{model}"
        only = models.height == 1
        curves.append(
            curves[0].with_columns(scope=pl.lit(scope))
            if only
            else _curve(scope, blocks, np.asarray(rows, dtype=np.int64))
        )
    return CACHE_CURVE.conform(pl.concat(curves))


def _curve(scope: str, blocks: Blocks, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pl.DataFrame:
    from pipelines.waste.block_kernels import stack_distances

    last = np.full(blocks.distinct, -1, np.int64)
    hits, touches, distinct = stack_distances(blocks.numbers, blocks.offsets, rows, last)
    classes = max(int(distinct) - 1, 0).bit_length()
    capacities = [*(1 << power for power in range(classes)), int(distinct)]
    # Class c counts what needs at most 2^c blocks; nothing needs more than all that there are.
    ratios = np.cumsum(hits)[: len(capacities)] / touches
    ends = blocks.offsets[rows + 1]
    tokens_per_block = float(blocks.counts[ends - 1].sum()) / float(touches)
    return pl.DataFrame(
        {
            "scope": scope,
            "capacity_blocks": capacities,
            "capacity_tokens": [round(capacity * tokens_per_block) for capacity in capacities],
            "block_hit_ratio": ratios,
            "is_sampled": False,
        }
    )
