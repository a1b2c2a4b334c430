"""Mart `repetition`: prompt prefixes that were sent again, against the cache reads that were reported.

Belongs here: what repeats in each call, how much of it the provider's rules could have read from cache, what
was missed and what that cost; and the sums by scope. Does not belong here: the hit ratio of a cache of
limited size (`cache_curve.py`), the rules themselves (`caching_rules.py`).

Definitions. Calls are in order of arrival.
    seen before: the longest unbroken prefix whose blocks an earlier call in the same cache held, whatever
        its age; all blocks of a call are known after it. Cut to the call's input.
    cacheable: the longest prefix that an earlier call held which had given its first token when this one
        started, and whose last use lies within the provider's lifetime; cut to a multiple of the provider's
        step and at most input - 1; nothing below the provider's minimum. A call that starts while its twin
        is still being worked on misses nothing.
    missed: cacheable - cache reads reported, not below 0. Unknown where reads are not reported.
    missed money: missed x (price of input - price of a cache read), less what writing the prefix would have
        cost above input where the provider charges writes: once for each run of uses within the lifetime
        that nobody had written.
    block hit ratio: blocks seen before / blocks, pooled over calls with a hash chain.
    token hit ratio: tokens seen before / input, pooled over calls with exact evidence; mean request hit
        ratio: the mean of the same over calls.
    upper bound: for calls known by session only, min(input, input + output of the session's call before on
        the same model) if that had ended its prefill and lies within the lifetime and the input did not
        shrink, by the provider's minimum and step, less reported reads. An estimate that can't be exceeded,
        not a claim.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from parsers.records import MONEY
from pipelines.waste.blocks import MICROSECONDS, Blocks, cache_codes, exact_blocks, uses_of_prefixes
from pipelines.waste.caching_rules import CachingRule, with_lifetime_in_use
from pipelines.waste.evidence import EXACT, LEVELS, exact_calls
from pipelines.waste.lookup import at_rows
from pipelines.waste.row_prices import with_unit_prices
from pipelines.waste.scopes import by_scope, known_sum
from warehouse.waste_tables import REPETITION

_METERS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
_MEASURED = {
    "call": pl.UInt32,
    "blocks": pl.Int64,
    "hit_blocks": pl.Int64,
    "seen_before_tokens": pl.Int64,
    "reusable_tokens": pl.Int64,
    "unwritten_tokens": pl.Int64,
}

_OF_SESSION = (
    *("session_id", "provider", "model", "evidence", "generating", "started_us", "ready_us"),
    *("input_tokens", "output_tokens", "cache_read_tokens", "lifetime_s", "step_tokens", "minimum_tokens"),
)


def repeated_prefixes(
    requests: pl.LazyFrame,
    prices: pl.DataFrame,
    rules: tuple[CachingRule, ...],
    blocks: Blocks | None = None,
) -> pl.DataFrame:
    """Measure, call by call, what repeats and what of it was not read from cache.

    Args:
        requests: rows of `requests`.
        prices: frame of `row_prices.PRICES_SCHEMA`.
        rules: caching rules, from the first to try to the last.
        blocks: `exact_blocks` of the same requests and rules, where they have been read already.

    Returns:
        The calls of `served_calls` (without hash lists) with their rule and prices, and
        `blocks, hit_blocks` (chains only), `seen_before_tokens, cacheable_tokens, missed_tokens, missed_usd`
        (exact evidence only; cacheable is null for operations without a prefix cache), `upper_bound_tokens`
        (session evidence only), `repeated_prompt` (the whole prompt had been answered before; null without a
        prompt hash).

    """
    blocks = exact_blocks(requests, rules) if blocks is None else blocks
    calls = with_lifetime_in_use(blocks.calls).with_row_index("call")
    measured = (_measured(calls, blocks), _repeated_prompts(calls), _session_upper_bounds(calls))
    calls = pl.concat(
        [calls, *(at_rows(found.drop("call"), found["call"], calls.height) for found in measured)],
        how="horizontal",
    )
    calls = with_unit_prices(calls, prices, _METERS)
    cacheable = pl.when("generating").then("reusable_tokens")
    calls = calls.with_columns(
        cacheable_tokens=cacheable,
        missed_tokens=(cacheable - pl.col("cache_read_tokens")).clip(lower_bound=0),
    )
    return calls.with_columns(missed_usd=_missed_usd()).drop("call")


def repetition(calls: pl.DataFrame) -> pl.DataFrame:
    """Sum the calls of `repeated_prefixes` by scope: the mart `repetition`."""
    exact = pl.col("evidence").is_in(EXACT)
    seen, tokens = pl.col("seen_before_tokens"), pl.col("input_tokens")
    repeated = (seen > 0) | (pl.col("upper_bound_tokens") > 0)
    share = pl.when(exact & (tokens > 0)).then(seen / tokens)
    measures = [
        pl.len().alias("requests"),
        *(_of_level(level) for level in LEVELS),
        *(
            tokens.filter(pl.col("evidence") == level).sum().alias(f"{level}_input_tokens")
            for level in LEVELS
        ),
        known_sum(pl.col("blocks")).alias("blocks"),
        known_sum(pl.col("hit_blocks")).alias("hit_blocks"),
        known_sum(seen).alias("seen_before_tokens"),
        known_sum(pl.col("cache_read_tokens").filter(exact)).alias("cache_read_tokens"),
        known_sum(pl.col("missed_tokens")).alias("missed_tokens"),
        known_missed_usd().alias("missed_usd"),
        (exact & pl.col("missed_tokens").is_null()).sum().alias("requests_missed_unknown"),
        (pl.col("missed_tokens").is_not_null() & pl.col("missed_usd").is_null())
        .sum()
        .alias("requests_unpriced"),
        (pl.col("missed_tokens") > 0)
        .and_(pl.col("rule_assumed").is_not_null())
        .sum()
        .alias("requests_rule_assumed"),
        _ratio(pl.col("hit_blocks").sum(), pl.col("blocks").sum()).alias("block_hit_ratio"),
        _ratio(seen.sum(), tokens.filter(exact).sum()).alias("token_hit_ratio"),
        share.mean().alias("mean_request_hit_ratio"),
        known_sum(pl.col("upper_bound_tokens")).alias("upper_bound_tokens"),
        pl.col("started_at").filter(repeated).min().alias("first_at"),
        pl.col("started_at").filter(repeated).max().alias("last_at"),
    ]
    return REPETITION.conform(by_scope(calls, measures))


def known_missed_usd() -> pl.Expr:
    """Money of a group: null where tokens were missed and none of them has a price.

    Calls that missed nothing cost nothing; their zeros must not turn an unknown sum into a measured zero.
    """
    usd, missed = pl.col("missed_usd"), pl.col("missed_tokens") > 0
    priced = (missed & usd.is_not_null()).any()
    return pl.when(priced | ~missed.any()).then(known_sum(usd))


def _of_level(level: str) -> pl.Expr:
    return (pl.col("evidence") == level).sum().alias(f"{level}_requests")


def _ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole)


def _measured(calls: pl.DataFrame, blocks: Blocks) -> pl.DataFrame:
    """`blocks`: those of the calls with exact evidence, in the same order."""
    exact = exact_calls(calls)
    if exact.is_empty():
        return pl.DataFrame(schema=_MEASURED)
    from pipelines.waste.block_kernels import prefixes_seen

    hit_blocks, seen_tokens, reusable, unwritten = prefixes_seen(*uses_of_prefixes(exact, blocks))
    measured = pl.DataFrame(
        [
            exact["call"],
            pl.Series("blocks", np.diff(blocks.offsets)),
            pl.Series("hit_blocks", hit_blocks),
            pl.Series("seen_before_tokens", seen_tokens),
            pl.Series("reusable_tokens", reusable),
            pl.Series("unwritten_tokens", unwritten),
        ],
        schema=_MEASURED,
    )
    chained = exact["evidence"] == "hash_chain"
    return measured.with_columns(pl.when(chained).then(pl.col("blocks", "hit_blocks")))


def write_price() -> pl.Expr:
    """USD per token of a cache write, for the lifetime in use.

    A write is charged above input only where the provider's rule says so; its listed price goes before the multiple.
    """
    input_price = pl.col("usd_per_input_token")
    listed = (
        pl.when("writes_for_longer")
        .then("usd_per_cache_write_1h_token")
        .otherwise("usd_per_cache_write_5m_token")
    )
    charged = pl.coalesce(listed, input_price * pl.col("write_multiple").cast(MONEY))
    return pl.when(pl.col("write_multiple").is_not_null()).then(charged).otherwise(input_price)


def _missed_usd() -> pl.Expr:
    missed, read_price = pl.col("missed_tokens"), pl.col("usd_per_cache_read_token")
    input_price = pl.col("usd_per_input_token")
    saved = missed * (input_price - read_price) - pl.col("unwritten_tokens") * (write_price() - input_price)
    nothing = pl.lit(0).cast(MONEY)
    return (
        pl.when(missed == 0)
        .then(nothing)
        .when(saved.is_not_null())
        # A call whose saving the write would eat up loses nothing by not caching.
        .then(pl.max_horizontal(saved.cast(MONEY), nothing))
    )


def _repeated_prompts(calls: pl.DataFrame) -> pl.DataFrame:
    hashed = exact_calls(calls).filter(pl.col("prompt_hash").is_not_null())
    if hashed.is_empty():
        return pl.DataFrame(schema={"call": pl.UInt32, "repeated_prompt": pl.Boolean})
    from pipelines.waste.block_kernels import answered_before, number_blocks

    each = np.arange(hashed.height + 1)
    numbers, distinct = number_blocks(
        hashed["prompt_hash"].to_numpy(writable=True), cache_codes(hashed), each
    )
    repeated = answered_before(
        numbers, distinct, hashed["started_us"].to_numpy(writable=True), hashed["ended_us"].to_numpy()
    )
    return pl.DataFrame([hashed["call"], pl.Series("repeated_prompt", repeated)])


def _session_upper_bounds(calls: pl.DataFrame) -> pl.DataFrame:
    key = ["session_id", "provider", "model"]
    of_session = pl.col("evidence") == "session"
    if not calls.select(of_session.any()).item():
        return pl.DataFrame(schema={"call": pl.UInt32, "upper_bound_tokens": pl.Int64})
    # Sorting and looking one row back takes a fraction of the time of a window per session.
    turns = calls.select("call", *_OF_SESSION).filter(pl.col("session_id").is_not_null())
    turns = turns.sort(key, maintain_order=True)
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in key)

    def before(name: str) -> pl.Expr:
        return pl.when(same).then(pl.col(name).shift(1))

    tokens = pl.col("input_tokens")
    # Without the output of the call before, all of the input may have been sent: the bound stays a bound.
    sent = pl.min_horizontal(tokens, before("input_tokens") + before("output_tokens").fill_null(tokens))
    age = pl.col("started_us") - before("started_us")
    alive = pl.col("lifetime_s").is_null() | (age <= pl.col("lifetime_s") * MICROSECONDS)
    grew = tokens >= before("input_tokens")
    stepped = sent - sent % pl.col("step_tokens")
    reusable = (
        (before("ready_us") <= pl.col("started_us")) & alive & grew & (stepped >= pl.col("minimum_tokens"))
    )
    bound = (stepped - pl.col("cache_read_tokens").fill_null(0)).clip(lower_bound=0)
    estimated = of_session & pl.col("generating")
    return turns.select(
        "call",
        pl.when(estimated)
        .then(pl.when(reusable.fill_null(value=False)).then(bound).otherwise(0))
        .alias("upper_bound_tokens"),
    )
