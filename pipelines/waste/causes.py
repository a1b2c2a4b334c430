"""Mart `missed_causes`: why input that had been sent before was not read from cache, and what to change.

Belongs here: naming the cause of every token of every prefix that an earlier call held. Does not belong here: prompts
that should have had a known prefix and had none (`unstable_prompts.py`), gaps and longer lifetimes (`gaps.py`),
the size of a cache (`cache_curve.py`).

Calls with exact evidence that generate. The longest prefix that any earlier call held, in whatever cache, is split by
position; the parts of a call add up to it exactly:
    read                 up to the cache reads that the call reports.
    in_flight            an earlier call held it and had not given its first token: no miss.
    below_minimum        alive, and too short a prefix for the provider to cache.
    step                 alive, cut off by the provider's step (or the last token, which is always computed).
    no_prefix_cache      the provider cached nothing on that day.
    reads_unknown        the log does not say what was read.
    expired              its last use is longer ago than the lifetime, in every cache.
    model_switch, region_switch, account_spread: alive, but in the cache of another model; of another region; of another
                         provider or organisation.
and what could have been read and was not, the missed tokens of `repetition`, all of a call under one cause, that of its
first missed token:
    no_cache_control     the provider caches only on request, and the call neither read nor wrote (where the log does not
                         tell writes: nor did any call of its model and team).
    beyond_breakpoint    the same provider, and the token lies beyond what the call read or wrote: its last breakpoint.
    cache_off            one's own engine, and no call of this model there reads anything.
    replica_spread       alive in the cache, but not at this instance (for calls that no gateway passed on: with this key).
    evicted              one's own engine: more tokens went through its cache since the last use than it has been seen to
                         hold: the 99th percentile of the stack distances at which calls read (an estimate).
    unexplained          none of these.

Money. Of missed tokens: that of `repetition`, net of writes. Of expired and switched ones: tokens x (price of input -
price of a cache read), before what a longer lifetime or a write costs. Of unknown reads: unknown. The others lose
nothing: 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.records import MONEY
from pipelines.waste.blocks import cache_codes, microseconds
from pipelines.waste.cause_sentences import WHAT_TO_CHANGE
from pipelines.waste.evidence import exact_calls
from pipelines.waste.scopes import by_scope, known_sum
from warehouse.reuse_tables import MISSED_CAUSES

if TYPE_CHECKING:
    from pipelines.waste.block_kernels import Array
    from pipelines.waste.blocks import Blocks

_PARTS = (
    *("read", "in_flight", "below_minimum", "step", "no_prefix_cache", "missed", "expired"),
    *("model_switch", "region_switch", "account_spread", "reads_unknown"),
)
"""Columns of `cause_kernels.split_seen`."""
MISSED = ("no_cache_control", "beyond_breakpoint", "cache_off", "replica_spread", "evicted", "unexplained")
"""Causes of the missed tokens of `repetition`."""
AVOIDABLE = ("expired", "model_switch", "region_switch", "account_spread")
"""Causes outside of the missed tokens that a change of the caller's could do away with."""
HELD_QUANTILE = 0.99
"""Of the stack distances at which a cache was read: it holds at least as much."""

CAUSES_SCHEMA = pl.Schema(
    {
        "model": pl.String(),
        "team": pl.String(),
        "cause": pl.String(),
        "is_estimate": pl.Boolean(),
        "started_at": pl.Datetime("us", "UTC"),
        "source_file": pl.String(),
        "source_line": pl.Int64(),
        "tokens": pl.Int64(),
        "usd": MONEY,
        "differing_block": pl.Int64(),
        "tokens_before": pl.Int64(),
    }
)
"""One row per call and cause; `differing_block` (from 1) and `tokens_before` are of unstable prompts only."""


def causes_of(calls: pl.DataFrame, blocks: Blocks) -> pl.DataFrame:
    """Name the causes of every call.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        blocks: `blocks.exact_blocks` of the same requests.

    Returns:
        Frame of `CAUSES_SCHEMA`: a row for every cause with tokens of every call with exact evidence that generates.

    """
    exact = exact_calls(calls)
    if exact.is_empty():
        return CAUSES_SCHEMA.to_frame()
    split, first_missed, alive_narrow, narrow = _split(exact, blocks)
    exact = exact.with_columns(
        missed_cause=_missed_cause(
            exact, first_missed, alive_narrow, _evicted(exact, blocks, first_missed, narrow)
        )
    )
    gross = pl.col("tokens") * (pl.col("usd_per_input_token") - pl.col("usd_per_cache_read_token"))
    rows = []
    for part, name in enumerate(_PARTS):
        missed = name == "missed"
        lost = gross if name in AVOIDABLE else pl.lit(None if name == "reads_unknown" else 0)
        usd = pl.col("missed_usd") if missed else lost
        rows.append(
            exact.with_columns(tokens=pl.Series(split[:, part]))
            .filter(pl.col("generating") & (pl.col("tokens") > 0))
            .select(
                *(name for name in CAUSES_SCHEMA.names() if name in exact.columns),
                "tokens",
                pl.col("missed_cause").alias("cause") if missed else pl.lit(name).alias("cause"),
                usd.cast(MONEY).alias("usd"),
                (pl.col("missed_cause") == "evicted" if missed else pl.lit(value=False)).alias("is_estimate"),
            )
        )
    return _conform(pl.concat(rows))


def missed_causes(causes: pl.DataFrame) -> pl.DataFrame:
    """Sum causes by scope: the mart `missed_causes`.

    Args:
        causes: rows of `CAUSES_SCHEMA`.

    """
    priced = pl.col("usd").is_not_null().any()
    rows = by_scope(
        causes,
        [
            pl.len().alias("requests"),
            pl.col("tokens").sum(),
            pl.when(priced).then(known_sum(pl.col("usd"))).alias("usd"),
            pl.col("usd").is_null().sum().alias("requests_unpriced"),
            pl.col("is_estimate").any(),
            pl.col("differing_block").median().round().cast(pl.Int64),
            pl.col("tokens_before").median().round().cast(pl.Int64),
            pl.col("started_at").min().alias("first_at"),
            pl.col("started_at").max().alias("last_at"),
        ],
        ["cause"],
    )
    words = pl.col("cause").replace_strict(WHAT_TO_CHANGE, return_dtype=pl.String)
    return MISSED_CAUSES.conform(rows.with_columns(advice=words))


def _conform(rows: pl.DataFrame) -> pl.DataFrame:
    known = set(rows.columns)
    return rows.select(
        (pl.col(name) if name in known else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in CAUSES_SCHEMA.items()
    )


def _codes(values: pl.Series) -> Array:
    return values.rank("dense").fill_null(0).cast(pl.Int32).to_numpy(writable=True)


def _narrow_codes(exact: pl.DataFrame) -> Array:
    """Who could have a cache of one's own inside of a cache: an instance, and a key where no gateway passes it on."""
    key = pl.when(pl.col("gateway").is_null() & (pl.col("cache_scope") == "account")).then("api_key_hash")
    return cache_codes(exact.with_columns(key=key), "evidence", "instance", "key")


def _split(exact: pl.DataFrame, blocks: Blocks) -> tuple[Array, Array, Array, tuple[Array, Array, int]]:
    """Split of each call's prefix, its first missed block, whether that is alive at its instance; the instances."""
    from pipelines.waste.block_kernels import number_blocks
    from pipelines.waste.cause_kernels import split_seen

    wide, wide_distinct = blocks.over_all_caches()
    codes = _narrow_codes(exact)
    narrow, narrow_distinct = number_blocks(blocks.numbers.astype(np.uint64), codes, blocks.offsets)
    ready = exact["ready_us"].to_numpy(writable=True)
    split, _, first_missed, alive_narrow = split_seen(
        blocks.numbers,
        blocks.distinct,
        wide,
        wide_distinct,
        narrow,
        narrow_distinct,
        blocks.offsets,
        blocks.counts,
        exact["input_tokens"].to_numpy(writable=True),
        exact["started_us"].to_numpy(writable=True),
        ready,
        np.argsort(ready, kind="stable"),
        exact["cache_read_tokens"].fill_null(-1).to_numpy(writable=True),
        exact["minimum_tokens"].fill_null(-1).to_numpy(writable=True),
        exact["step_tokens"].to_numpy(writable=True),
        microseconds(exact["lifetime_s"]),
        _codes(exact["model"]),
        _codes(exact["region"]),
    )
    return split, first_missed, alive_narrow, (codes, narrow, narrow_distinct)


def _evicted(
    exact: pl.DataFrame, blocks: Blocks, first_missed: Array, narrow: tuple[Array, Array, int]
) -> pl.Series:
    """Whether the first missed block lies deeper in the stack than its cache was ever seen to reach; own engines only."""
    from pipelines.waste.cause_kernels import last_read, tokens_between

    codes, numbers, distinct = narrow
    deepest = last_read(
        blocks.offsets, blocks.counts, exact["cache_read_tokens"].fill_null(0).to_numpy(writable=True)
    )
    last, weight = np.full(distinct, -1, np.int64), np.zeros(distinct, np.int64)
    evicted = np.zeros(exact.height, np.bool_)
    own = exact.with_row_index("row").filter(
        pl.col("lifetime_s").is_null() & pl.col("minimum_tokens").is_not_null()
    )
    grouped = (
        own.with_columns(cache=pl.Series(codes)[own["row"]]).group_by("cache", maintain_order=True).agg("row")
    )
    for rows in grouped["row"]:
        index = rows.to_numpy(writable=True).astype(np.int64)
        missed = first_missed[index]
        watched = np.where(missed >= 0, missed, deepest[index])
        found = tokens_between(numbers, blocks.offsets, blocks.counts, index, watched, last, weight)
        held = found[(missed < 0) & (found >= 0)]
        if held.size:
            evicted[index] = (missed >= 0) & (found > np.quantile(held, HELD_QUANTILE))
    return pl.Series(evicted)


def _missed_cause(
    exact: pl.DataFrame, first_missed: Array, alive_narrow: Array, evicted: pl.Series
) -> pl.Series:
    """Cause of the missed tokens of each call, by its first one; null where none was missed."""
    read, written = pl.col("cache_read_tokens"), pl.col("cache_write_tokens")
    covered = read + written.fill_null(0)
    opt_in = pl.col("activation") == "opt_in"
    reports_writes = written.is_not_null() & pl.col("write_multiple").is_not_null()
    leaf_asks = (read.fill_null(0) + written.fill_null(0) > 0).any().over("model", "team")
    own = pl.col("cache_scope") == "fleet"
    never_read = (read.fill_null(0) == 0).all().over("provider", "model")
    cause = (
        pl.when(opt_in & (covered == 0) & (reports_writes | ~leaf_asks))
        .then(pl.lit("no_cache_control"))
        .when(opt_in & reports_writes & (covered <= read))
        .then(pl.lit("beyond_breakpoint"))
        .when(own & never_read)
        .then(pl.lit("cache_off"))
        .when(~pl.lit(pl.Series(alive_narrow)))
        .then(pl.lit("replica_spread"))
        .when(pl.lit(evicted))
        .then(pl.lit("evicted"))
        .otherwise(pl.lit("unexplained"))
    )
    return exact.select(pl.when(pl.lit(pl.Series(first_missed >= 0))).then(cause).alias("cause")).to_series()
