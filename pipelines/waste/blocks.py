"""Prefix blocks of many calls as flat arrays.

Belongs here: the way from list columns to the arrays that `block_kernels.py` works on, and which calls share
    a cache.
Does not belong here: what the arrays tell (`repetition.py`, `cache_curve.py`).

Calls share a cache if they have the same kind of evidence, provider, model and, with a cache of scope
`account`, organisation and region. A log that names none of these has one cache.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.waste.block_kernels import Array, bounded_counts, number_blocks


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of calls in order; those of call i lie at [offsets[i], offsets[i + 1])."""

    numbers: Array
    """int32 per block: equal numbers are equal prefixes in one cache."""
    offsets: Array
    """int64, calls + 1."""
    counts: Array
    """int64 per block: cumulative tokens, never falling, at most the call's input."""
    distinct: int


def cache_codes(calls: pl.DataFrame, *apart_by: str) -> Array:
    """A number (int32) per call; calls of one number share a cache (`cache_scope` comes with the rule)."""
    own_account = pl.col("cache_scope") == "account"
    keys = calls.select(
        *apart_by,
        "provider",
        "model",
        pl.when(own_account).then("organization").alias("organization"),
        pl.when(own_account).then("region").alias("region"),
    )
    order = keys.unique().with_row_index("cache")
    caches = keys.join(order, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return caches["cache"].cast(pl.Int32).to_numpy()


def flat_blocks(calls: pl.DataFrame) -> Blocks:
    """Lay out the blocks of calls with exact evidence; a call known by its prompt hash alone has one block.

    Args:
        calls: rows of `served_calls` with exact evidence and their caching rules.

    """
    chained = pl.col("evidence") == "hash_chain"
    lists = calls.select(
        pl.when(chained).then("prefix_hashes").otherwise(pl.concat_list("prompt_hash")).alias("hashes"),
        pl.when(chained)
        .then("prefix_token_counts")
        .otherwise(pl.concat_list("input_tokens"))
        .alias("counts"),
    )
    offsets = np.zeros(calls.height + 1, np.int64)
    np.cumsum(lists["hashes"].list.len().to_numpy(), out=offsets[1:])
    numbers, distinct = number_blocks(
        _flat(lists["hashes"], pl.UInt64), cache_codes(calls, "evidence"), offsets
    )
    counts = bounded_counts(_flat(lists["counts"], pl.Int64), offsets, calls["input_tokens"].to_numpy())
    return Blocks(numbers, offsets, counts, int(distinct))


def _flat(lists: pl.Series, dtype: type[pl.DataType]) -> Array:
    return lists.explode().cast(dtype).to_numpy()
