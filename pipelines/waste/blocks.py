"""Prefix blocks of many calls as flat arrays.

Belongs here: reading the calls that count, the way from their list columns to the arrays that `block_kernels.py` and
`stack_kernels.py` work on, and which calls share a cache. Does not belong here: what the arrays
tell (`repetition.py`, `cache_curve.py`).

Calls share a cache if they have the same kind of evidence, provider, model and, with a cache of scope
`account`, organisation and region. A log that names none of these has one cache.

Memory. The lists of the facts take 16 bytes per block, twice that while they become arrays; they are read some
`BATCH_BLOCKS` blocks at a time, and numbered in a thread while the next ones are read. What stays are 8 bytes per
block (a number and a count of tokens), 8 per distinct block, and the calls without their lists; while numbers are
given, 24 to 48 bytes per distinct block (12 more for each slot in the moment in which the table grows). The work is
done once: the repetition and the cache curve go on from it.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import polars as pl

from pipelines.waste.block_kernels import (
    Array,
    block_tokens,
    bounded_counts,
    new_table,
    number_blocks,
    number_more,
)
from pipelines.waste.caching_rules import CachingRule, with_rules
from pipelines.waste.evidence import (
    CHAIN,
    EXACT,
    MEDIA,
    in_order_of_arrival,
    served_calls,
    with_session_evidence,
)

MICROSECONDS = 1_000_000
BATCH_BLOCKS = 2_000_000
"""Blocks whose lists are in memory at once, about: more where very many calls arrive at the same instant."""
FIRST_CALLS = 20_000
"""Calls of the first batch, from which the size of the next one is reckoned."""
MOST_GROWTH = 8
"""A batch has at most so many times the calls of the one before."""
LEAST_DENSITY = 4
"""Blocks per call that are reckoned with at least: calls without any may be followed by others with many."""
CALL_SCHEMA = pl.Schema(
    {
        "model": pl.String,
        "session_id": pl.String,
        "input_tokens": pl.Int64,
        "blocks": pl.Int64,
    }
)
"""One row per call with a hash chain: what the cache curve needs to know of it."""
Uses: TypeAlias = tuple[
    Array, int, Array, Array, Array, Array, Array, Array, Array, Array, Array, Array, Array
]
_KEY = ("provider", "model", "organization", "region")
_NEEDED = ("evidence", *_KEY, "cache_scope", "input_tokens", "prompt_hash", *CHAIN)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Calls in order of arrival, and the blocks of those with exact evidence.

    Those of the i-th call with exact evidence lie at [offsets[i], offsets[i + 1]).
    """

    numbers: Array
    """int32 per block: equal numbers are equal prefixes in one cache."""
    offsets: Array
    """int64, calls + 1."""
    counts: Array
    """Per block: cumulative tokens, never falling, at most the call's input; int32 unless an input is beyond."""
    hashes: Array
    """uint64 per distinct number: the hash it stands for. Equal hashes in several caches have several numbers."""
    calls: pl.DataFrame
    """All of the `served_calls`, with their rules and without their lists."""

    @property
    def distinct(self) -> int:
        """How many distinct numbers there are."""
        return int(self.hashes.size)

    def over_all_caches(self) -> tuple[Array, int]:
        """Numbers (int32 per block) that are equal where hashes are, in whatever cache, and how many there are."""
        one = np.array([0, self.distinct], np.int64)
        numbers, distinct = number_blocks(self.hashes, np.zeros(1, np.int32), one)
        return (self.numbers if distinct == self.distinct else numbers[self.numbers]), distinct


def cache_codes(calls: pl.DataFrame, *apart_by: str) -> Array:
    """A number (int32) per call; calls of one number share a cache (`cache_scope` comes with the rule)."""
    return _codes(calls, apart_by, {})


def _codes(calls: pl.DataFrame, apart_by: tuple[str, ...], known: dict[tuple[object, ...], int]) -> Array:
    """Codes of caches, of which some may be known from calls before; `known` learns the new ones."""
    own_account = pl.col("cache_scope") == "account"
    keys = calls.select(
        *apart_by,
        "provider",
        "model",
        pl.when(own_account).then("organization").alias("organization"),
        pl.when(own_account).then("region").alias("region"),
    )
    order = keys.unique()
    codes = [known.setdefault(key, len(known)) for key in order.iter_rows()]
    order = order.with_columns(cache=pl.Series(codes, dtype=pl.Int32))
    caches = keys.join(order, on=keys.columns, how="left", nulls_equal=True, maintain_order="left")
    return caches["cache"].to_numpy(writable=True)


def exact_blocks(
    requests: pl.LazyFrame, rules: tuple[CachingRule, ...], batch_blocks: int = BATCH_BLOCKS
) -> Blocks:
    """Read the calls that count and their blocks; a call known by its prompt hash alone has one block.

    Args:
        requests: rows of `requests`.
        rules: caching rules; they say which calls share a cache.
        batch_blocks: how many blocks to read at once, about.

    Returns:
        The calls, in order of arrival, and the blocks of those with evidence in `EXACT`.

    """
    caches: dict[tuple[object, ...], int] = {}
    numbered = _Numbered([np.empty(0, np.int32)], new_table(), 0)
    offsets, counts, frames = [np.zeros(1, np.int64)], [np.empty(0, np.int32)], []
    batches, read, placed = _batches(requests, batch_blocks), None, 0
    with ThreadPoolExecutor(1) as aside:
        done = [aside.submit(lambda: None)]
        while (part := _next(batches, read)) is not None:
            calls = with_rules(in_order_of_arrival(served_calls(part)), rules)
            exact = calls.select(_NEEDED).filter(pl.col("evidence").is_in(EXACT))
            frames.append(calls.drop(CHAIN, *MEDIA))
            lists = _lists(exact)
            ends = _offsets(lists["hashes"].list.len())
            hashes, codes = _flat(lists["hashes"], pl.UInt64), _codes(exact, ("evidence",), caches)
            done.pop().result()  # of the batch before: no more than two are in memory
            done.append(aside.submit(numbered.add, hashes, codes, ends))
            counts.append(_counts(lists["counts"], ends, exact["input_tokens"]))
            read = hashes.size
            offsets.append(ends[1:] + placed)
            placed += read
        done.pop().result()
    hashes = numbered.table[1][: numbered.distinct]
    found = _joined(numbered.numbers)
    del numbered  # the slots are the largest part of all
    return Blocks(
        found, np.concatenate(offsets), _joined(counts), hashes, with_session_evidence(pl.concat(frames))
    )


def _joined(parts: list[Array]) -> Array:
    """Parts as one array; they are let go of."""
    whole = np.concatenate(parts)
    parts.clear()
    return whole


@dataclass(slots=True)
class _Numbered:
    """Numbers of the blocks so far, of one batch after the other."""

    numbers: list[Array]
    table: tuple[Array, Array, Array]
    distinct: int

    def add(self, hashes: Array, scopes: Array, offsets: Array) -> None:
        """Number the blocks of the next batch."""
        found, self.table, self.distinct = number_more(hashes, scopes, offsets, self.table, self.distinct)
        self.numbers.append(found)


def chained_frames(blocks: Blocks) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the cache curve needs, as frames that can be kept: calls with a hash chain, and their blocks.

    Returns:
        Frame of `CALL_SCHEMA`, in order of arrival; and one row per block of these calls, in the same order:
        `number` (Int32), `tokens` (the block's own).

    """
    calls = blocks.calls.select("evidence", *CALL_SCHEMA.names()[:-1]).filter(pl.col("evidence").is_in(EXACT))
    calls = calls.with_columns(blocks=pl.Series(np.diff(blocks.offsets), dtype=pl.Int64))
    flat = pl.DataFrame(
        {"number": blocks.numbers, "tokens": block_tokens(blocks.counts, blocks.offsets)}, nan_to_null=False
    )
    chained = calls["evidence"] == "hash_chain"
    if not chained.all():
        flat = flat.filter(pl.Series(np.repeat(chained.to_numpy(), np.diff(blocks.offsets))))
    return calls.filter(chained).drop("evidence"), flat


def uses_of_prefixes(exact: pl.DataFrame, blocks: Blocks) -> Uses:
    """What `prefixes_seen` and `gaps_between_uses` take first: the blocks, and each call's times, counts and rule.

    Args:
        exact: `evidence.exact_calls`, in the order of `blocks`.
        blocks: their blocks.

    """
    ready = exact["ready_us"].to_numpy(writable=True)
    return (
        blocks.numbers,
        blocks.distinct,
        blocks.offsets,
        blocks.counts,
        exact["input_tokens"].to_numpy(writable=True),
        exact["started_us"].to_numpy(writable=True),
        ready,
        np.argsort(ready, kind="stable"),
        exact["cache_read_tokens"].fill_null(-1).to_numpy(writable=True),
        exact["cache_write_tokens"].fill_null(0).to_numpy(writable=True),
        exact["minimum_tokens"].fill_null(-1).to_numpy(writable=True),
        exact["step_tokens"].to_numpy(writable=True),
        microseconds(exact["lifetime_s"]),
    )


def microseconds(seconds: pl.Series) -> Array:
    """Whole seconds for a kernel; -1 for null."""
    return (seconds * MICROSECONDS).fill_null(-1).to_numpy(writable=True)


def _batches(requests: pl.LazyFrame, blocks: int) -> Generator[pl.LazyFrame, int, None]:
    """Cut requests by time of arrival; those of one instant stay together. Is sent how many blocks each had."""
    started = requests.select("started_at").collect().to_series().sort()
    if started.is_empty():
        yield requests
    at, first, size = pl.col("started_at"), 0, min(FIRST_CALLS, max(blocks, 1))
    while first < started.len():
        start, end = started[first], min(first + size, started.len())
        if end < started.len():
            # The calls of the instant that the cut falls into come later, unless the batch has no others.
            before = int(started.search_sorted(started[end], side="left"))
            end = before if before > first else int(started.search_sorted(start, side="right"))
        limits = [at >= start] if first else []
        limits += [at < started[end]] if end < started.len() else []
        read = yield requests.filter(*limits) if limits else requests
        most = max(read, LEAST_DENSITY * (end - first))
        size = max(1, min((end - first) * blocks // most, size * MOST_GROWTH))
        first = end


def _next(batches: Generator[pl.LazyFrame, int, None], read: int | None) -> pl.LazyFrame | None:
    """The next batch, told how many blocks the last one had; None after the last."""
    try:
        return next(batches) if read is None else batches.send(read)
    except StopIteration:
        return None


def _lists(calls: pl.DataFrame) -> pl.DataFrame:
    """Hashes and cumulative tokens of each call's blocks."""
    chained = pl.col("evidence") == "hash_chain"
    hashes, counts = pl.col("prefix_hashes"), pl.col("prefix_token_counts")
    if not calls.select(chained.all()).item():
        hashes = pl.when(chained).then(hashes).otherwise(pl.concat_list("prompt_hash"))
        counts = pl.when(chained).then(counts).otherwise(pl.concat_list("input_tokens"))
    return calls.select(hashes.alias("hashes"), counts.alias("counts"))


def _offsets(lengths: pl.Series) -> Array:
    offsets = np.zeros(lengths.len() + 1, np.int64)
    np.cumsum(lengths.to_numpy(), out=offsets[1:])
    return offsets


def _counts(lists: pl.Series, offsets: Array, input_tokens: pl.Series) -> Array:
    """Half the memory, unless the input of a call is beyond what an int32 holds."""
    inputs = input_tokens.to_numpy(writable=True)
    narrow = inputs.size == 0 or inputs.max() <= np.iinfo(np.int32).max
    bounded = np.empty(offsets[-1], np.int32 if narrow else np.int64)
    return bounded_counts(_flat(lists, pl.Int64), offsets, inputs, bounded)


def _flat(lists: pl.Series, dtype: type[pl.DataType]) -> Array:
    return lists.explode().cast(dtype).to_numpy(writable=True)
