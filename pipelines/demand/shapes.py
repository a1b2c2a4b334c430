"""The shapes of calls: how long inputs and outputs are, and how the input of a session grows turn by turn.

Belongs here: counts and quantiles for the charts of them. Does not belong here: tokens over time (`spread.py`),
which of a session's history is waste (`pipelines/waste/`).
"""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from pipelines.calls import is_demand, output_tokens

EDGES = (0, *sorted({round(2 ** (half / 2)) for half in range(2 * 24 + 1)}))
"""Bounds of the bins: powers of two and one between each two; zero has its own."""
_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))


def lengths(requests: pl.LazyFrame) -> pl.DataFrame:
    """Calls that an engine or a provider worked on, by length.

    Args:
        requests: REQUESTS.

    Returns:
        `measure` (input, output), `from_tokens` (included), `to_tokens` (not included), `calls`, and the
        quantiles `p50`, `p95`, `p99`, `max` of the measure in each of its rows. Calls of unknown length are
        left out.

    """
    counts = requests.filter(is_demand()).select(input="input_tokens", output=output_tokens())
    return pl.concat([_measure(counts, name) for name in ("input", "output")])


def _measure(counts: pl.LazyFrame, name: str) -> pl.DataFrame:
    known = counts.select(tokens=pl.col(name).cast(pl.Int64)).filter(pl.col("tokens") >= 0)
    # Equal lengths are many: one row per length is little.
    sizes = known.group_by("tokens").agg(calls=pl.len().cast(pl.Int64)).sort("tokens").collect()
    order = pl.DataFrame({"from_tokens": EDGES}, schema={"from_tokens": pl.Int64})
    upper = dict(pairwise(EDGES))
    rank = pl.col("calls").cum_sum() / pl.col("calls").sum()
    quantiles = {
        key: sizes.filter(rank >= at - 1e-12)["tokens"].first() if sizes.height else None
        for key, at in _QUANTILES
    }
    return (
        sizes.join_asof(order, left_on="tokens", right_on="from_tokens", coalesce=False)
        .group_by("from_tokens")
        .agg(pl.col("calls").sum())
        .sort("from_tokens")
        .select(
            pl.lit(name).alias("measure"),
            "from_tokens",
            pl.col("from_tokens")
            .replace_strict(upper, default=None, return_dtype=pl.Int64)
            .alias("to_tokens"),
            "calls",
            *(pl.lit(value, pl.Int64).alias(key) for key, value in quantiles.items()),
        )
    )


def session_growth(requests: pl.LazyFrame) -> pl.DataFrame:
    """Input by turn of the sessions of two calls or more.

    Args:
        requests: REQUESTS.

    Returns:
        `turn` (the first of a bin; single turns up to 8), `sessions` that came so far, `input_p50`, `input_p90`
        and `input_max` of their calls there.

    """
    told = requests.filter(
        is_demand() & pl.col("session_id").is_not_null() & pl.col("input_tokens").is_not_null()
    )
    at = pl.col("started_at").rank("ordinal").over("session_id")
    turns = told.select(
        "session_id", "input_tokens", turn=at.cast(pl.Int64), last=pl.len().over("session_id")
    )
    starts = pl.LazyFrame({"start": [*range(1, 8), *EDGES[EDGES.index(8) :]]}, schema={"start": pl.Int64})
    return (
        turns.filter(pl.col("last") > 1)
        .sort("turn")
        .join_asof(starts, left_on="turn", right_on="start", coalesce=False)
        .group_by(pl.col("start").alias("turn"))
        .agg(
            sessions=pl.col("session_id").n_unique().cast(pl.Int64),
            input_p50=pl.col("input_tokens").quantile(0.5, "nearest").cast(pl.Int64),
            input_p90=pl.col("input_tokens").quantile(0.9, "nearest").cast(pl.Int64),
            input_max=pl.col("input_tokens").max().cast(pl.Int64),
        )
        .sort("turn")
        .collect()
    )
