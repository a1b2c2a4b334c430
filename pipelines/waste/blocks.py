"""Prefix blocks of many calls as flat arrays.

Belongs here: the way from list columns to the arrays that `block_kernels.py` and `stack_kernels.py` work on,
and which calls share a cache. Does not belong here: what the arrays tell (`repetition.py`, `cache_curve.py`).

Calls share a cache if they have the same kind of evidence, provider, model and, with a cache of scope
`account`, organisation and region. A log that names none of these has one cache.

Memory. The lists of the facts take 16 bytes per block, four times that while they are judged; they are read some
`BATCH_BLOCKS` blocks at a time. What stays are 8 bytes per block (a number and a count of tokens) and 8 per
distinct block; while numbers are given, 18 to 24 bytes per distinct block (36 for the moment in which the table
grows). The work is done once: the cache curve goes on from the frames that `chained_frames` makes of it.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.waste.block_kernels import Array, block_tokens, bounded_counts, new_table, number_more
from pipelines.waste.caching_rules import CachingRule, with_rules
from pipelines.waste.evidence import CHAIN, EXACT, in_order_of_arrival, served_calls

BATCH_BLOCKS = 2_000_000
"""Blocks whose lists are in memory at once, about: more where very many calls arrive at the same instant."""
FIRST_CALLS = 20_000
"""Calls of the first batch, from which the size of the next one is reckoned."""
MOST_GROWTH = 8
"""A batch has at most so many times the calls of the one before."""
CALL_SCHEMA = pl.Schema(
    {
        "evidence": pl.String,
        "model": pl.String,
        "session_id": pl.String,
        "input_tokens": pl.Int64,
        "blocks": pl.Int64,
    }
)
"""One row per call with exact evidence: what the cache curve needs to know of it."""
_KEY = ("provider", "model", "organization", "region")
_NEEDED = ("started_at", "evidence", *_KEY, "session_id", "rule_day", "input_tokens", "prompt_hash", *CHAIN)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of calls in order; those of call i lie at [offsets[i], offsets[i + 1])."""

    numbers: Array
    """int32 per block: equal numbers are equal prefixes in one cache."""
    offsets: Array
    """int64, calls + 1."""
    counts: Array
    """Per block: cumulative tokens, never falling, at most the call's input; int32 unless an input is beyond."""
    hashes: Array
    """uint64 per distinct number: the hash it stands for. Equal hashes in several caches have several numbers."""
    calls: pl.DataFrame
    """Frame of `CALL_SCHEMA`, one row per call."""

    @property
    def distinct(self) -> int:
        """How many distinct numbers there are."""
        return int(self.hashes.size)


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
    return caches["cache"].to_numpy()


def exact_blocks(
    requests: pl.LazyFrame, rules: tuple[CachingRule, ...], batch_blocks: int = BATCH_BLOCKS
) -> Blocks:
    """Read the blocks of all calls with exact evidence; a call known by its prompt hash alone has one block.

    Args:
        requests: rows of `requests`.
        rules: caching rules; they say which calls share a cache.
        batch_blocks: how many blocks to read at once, about.

    Returns:
        The blocks, of calls in order of arrival: those of `served_calls` with evidence in `EXACT`.

    """
    table, distinct, caches = new_table(), 0, {}  # type: ignore[var-annotated]
    numbers, counts, frames = [np.empty(0, np.int32)], [np.empty(0, np.int32)], [CALL_SCHEMA.to_frame()]
    # Most logs have hashes for a part of the calls only, and the others take as long to judge.
    hashed = requests.filter(pl.col("prefix_hashes").is_not_null() | pl.col("prompt_hash").is_not_null())
    batches, read = _batches(hashed, batch_blocks), None
    while (part := _next(batches, read)) is not None:
        exact = served_calls(part).filter(pl.col("evidence").is_in(EXACT)).select(_NEEDED)
        calls = with_rules(in_order_of_arrival(exact), rules)
        lists = _lists(calls)
        offsets = _offsets(lists["hashes"].list.len())
        known, table, distinct = number_more(
            _flat(lists["hashes"], pl.UInt64), _codes(calls, ("evidence",), caches), offsets, table, distinct
        )
        numbers.append(known)
        counts.append(_counts(lists["counts"], offsets, calls["input_tokens"]))
        read = known.size
        frames.append(calls.with_columns(blocks=pl.Series(np.diff(offsets))).select(CALL_SCHEMA.names()))
    frame = pl.concat(frames)
    return Blocks(
        np.concatenate(numbers),
        _offsets(frame["blocks"]),
        np.concatenate(counts),
        table[1][:distinct].copy(),
        frame,
    )


def chained_frames(blocks: Blocks) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What the cache curve needs, as frames that can be kept: calls with a hash chain, and their blocks.

    Returns:
        The rows of `Blocks.calls` with evidence `hash_chain`, in order of arrival; and one row per block of
        these calls, in the same order: `number` (Int32), `tokens` (the block's own).

    """
    chained = blocks.calls["evidence"] == "hash_chain"
    flat = pl.DataFrame(
        {"number": blocks.numbers, "tokens": block_tokens(blocks.counts, blocks.offsets)}, nan_to_null=False
    )
    if chained.all():
        return blocks.calls, flat
    theirs = np.repeat(chained.to_numpy(), np.diff(blocks.offsets))
    return blocks.calls.filter(chained), flat.filter(pl.Series(theirs))


def _batches(requests: pl.LazyFrame, blocks: int) -> Generator[pl.LazyFrame, int, None]:
    """Cut requests by time of arrival; those of one instant stay together. Is sent how many blocks each had."""
    started = requests.select("started_at").collect().to_series().sort()
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
        size = max(1, min((end - first) * blocks // max(read, 1), size * MOST_GROWTH))
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
    inputs = input_tokens.to_numpy()
    narrow = inputs.size == 0 or inputs.max() <= np.iinfo(np.int32).max
    bounded = np.empty(offsets[-1], np.int32 if narrow else np.int64)
    return bounded_counts(_flat(lists, pl.Int64), offsets, inputs, bounded)


def _flat(lists: pl.Series, dtype: type[pl.DataType]) -> Array:
    return lists.explode().cast(dtype).to_numpy()
