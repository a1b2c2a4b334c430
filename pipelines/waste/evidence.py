"""Which calls count for waste, in which order, and how strong the evidence of repetition is for each.

Belongs here: the selection of served calls, their order, their evidence level, and the moment from which
what they sent can be read from a cache. Does not belong here: what repeats (`repetition.py`).

Evidence of a call, the strongest that it has:
    hash_chain   its prefix hashes, each with its token count;
    prompt_hash  the hash of its whole prompt;
    session      a session id that other calls share: an estimate at best;
    none         nothing.
A chain with a gap, or whose token counts are absent or of another length, says nothing about tokens and does
not count.
"""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_demand, model_name
from pipelines.waste.caching_rules import ANY_DAY

NOT_GENERATING = ("embedding", "rerank", "image", "audio", "moderation")
"""Operations without a prefix cache and without text output; an unknown operation counts as generating."""

LEVELS = ("hash_chain", "prompt_hash", "session", "none")
EXACT = ("hash_chain", "prompt_hash")

TEMPLATE_TOKENS = 128
"""More than a chat template adds to a prompt without tools."""

CHAIN = ("prefix_hashes", "prefix_token_counts")
"""The list columns of `served_calls`: as large as all others together, so who does not need them drops them."""

MEDIA = ("image_input_tokens", "audio_input_tokens")
"""Columns that nothing but the evidence rests on."""

_KEPT = (
    "source_file",
    "source_line",
    "started_at",
    "provider",
    "organization",
    "team",
    "project",
    "api_key_alias",
    "api_key_hash",
    "region",
    "gateway",
    "instance",
    "session_id",
    "operation",
    "input_tokens",
    "cache_read_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "output_tokens",
    "prompt_bytes",
    "tools_hash",
    "tools_bytes",
    *MEDIA,
    "prompt_hash",
    *CHAIN,
)


def served_calls(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Select the calls that count and say how far each can be trusted.

    Args:
        requests: rows of `requests`.

    Returns:
        One row per served call with known input that the gateway did not answer from its own cache: columns
        of `requests`, with `model`, `day` (UTC),
        `rule_day` (for caching rules), `generating`, `cache_write_tokens` (both lives; null if unknown),
        `evidence` (`session` only after `with_session_evidence`),
        `started_us` and `ready_us` (Int64, microseconds: what the call sent can be reused from
        then on; the first token, else the end, else just after the start).

    """
    return (
        requests.filter(is_demand() & pl.col("input_tokens").is_not_null())
        .select(*_KEPT, model_name(), *_derived())
        .with_columns(
            evidence=_own_evidence(),
            # No prefill takes no time: a call that starts at the very same instant can't reuse.
            ready_us=pl.max_horizontal("ready_us", pl.col("started_us") + 1),
            # A name of no characters is no name.
            team=pl.when(pl.col("team") != "").then("team"),
        )
    )


def with_session_evidence(calls: pl.DataFrame) -> pl.DataFrame:
    """All of the `served_calls`, those without evidence of their own by whether others share their session."""
    shared = (pl.col("evidence") == "none") & pl.col("session_id").is_not_null()
    if not calls.select(shared.any()).item():
        return calls
    shared &= pl.len().over("session_id") > 1
    return calls.with_columns(evidence=pl.when(shared).then(pl.lit("session")).otherwise("evidence"))


def exact_calls(calls: pl.DataFrame) -> pl.DataFrame:
    """Those of the calls that have exact evidence; the frame itself where all have, since it is large."""
    exact = calls["evidence"].is_in(EXACT)
    return calls if exact.all() else calls.filter(exact)


def in_order_of_arrival(calls: pl.LazyFrame) -> pl.DataFrame:
    """Collect calls, the earliest first; those of one instant stay in the order of the facts."""
    frame = calls.collect()
    # Facts are in order: to sort a week again would take as much memory as it has.
    if frame["started_at"].is_sorted():
        return frame
    return frame.sort("started_at", maintain_order=True)


def _derived() -> list[pl.Expr]:
    relative = pl.col("flags").list.contains("relative_clock").fill_null(value=False)
    day = pl.col("started_at").dt.date()
    writes = [pl.col("cache_write_5m_tokens"), pl.col("cache_write_1h_tokens")]
    return [
        day.alias("day"),
        pl.when(relative).then(pl.lit(ANY_DAY)).otherwise(day).alias("rule_day"),
        ~pl.col("operation").is_in(NOT_GENERATING).fill_null(value=False).alias("generating"),
        pl.when(pl.any_horizontal(write.is_not_null() for write in writes))
        .then(pl.sum_horizontal(writes))
        .alias("cache_write_tokens"),
        pl.col("started_at").cast(pl.Int64).alias("started_us"),
        pl.coalesce("first_token_at", "ended_at").cast(pl.Int64).alias("ready_us"),
        pl.coalesce("ended_at", "first_token_at", "started_at").cast(pl.Int64).alias("ended_us"),
    ]


def _own_evidence() -> pl.Expr:
    """What a call shows by itself."""
    hashes, counts = pl.col("prefix_hashes"), pl.col("prefix_token_counts")
    length = hashes.list.len()
    nulls = pl.element().null_count()
    chained = (
        (length > 0)
        & (length == counts.list.len())
        & (hashes.list.agg(nulls) == 0)
        & (counts.list.agg(nulls) == 0)
    )
    # Media are tokens without text.
    media = pl.sum_horizontal(MEDIA)
    whole = (pl.col("input_tokens") - media <= pl.col("prompt_bytes") + TEMPLATE_TOKENS).fill_null(value=True)
    return (
        pl.when(chained.fill_null(value=False) & whole)
        .then(pl.lit("hash_chain"))
        .when(pl.col("prompt_hash").is_not_null() & whole)
        .then(pl.lit("prompt_hash"))
        .otherwise(pl.lit("none"))
    )
