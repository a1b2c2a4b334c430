"""What inference engines counted themselves: tokens, queues and cache use by instance.

Belongs here: sums of windows and increases of counters by series, and which of two series of one engine
counts. Does not belong here: tokens of requests (usage marts), FLOPs and energy (`hourly.py`), sentences
(`reports/engines.py`). Nothing here is ever added to tokens of requests: both count the same work.
"""

from __future__ import annotations

from typing import Any

import polars as pl

SERIES = ("source_format", "instance", "model")
"""One series: what one kind of source says of one engine."""

_INCREASES = {
    "generated_increase": "generation_tokens_total",
    "prompt_increase": "prompt_tokens_total",
    "queries_increase": "prefix_cache_queries_total",
    "hits_increase": "prefix_cache_hits_total",
}


def engine_totals(samples: pl.LazyFrame) -> pl.DataFrame:
    """Totals by series (source format x instance x model).

    Args:
        samples: ENGINE_SAMPLES.

    Returns:
        `source_format`, `instance`, `model`, `samples`, `first_at`, `last_at`, `generated_tokens`,
        `prompt_tokens` (increase of the counter where there is one, else the sum of windows; null = neither),
        `running_max`, `waiting_max`, `kv_usage_max_ratio`, `prefix_cache_hit_ratio` (hits / queries by their
        counters, else as printed last), `basis` (counters, windows, or null: tokens unknown) and `counted`:
        false for a series of an engine that a better one speaks for.

    """
    totals = (
        samples.sort("at")
        .group_by(SERIES)
        .agg(
            pl.len().alias("samples"),
            pl.col("at").min().alias("first_at"),
            pl.col("at").max().alias("last_at"),
            _known("window_generation_tokens"),
            _known("window_prompt_tokens"),
            pl.col("running").max().alias("running_max"),
            pl.col("waiting").max().alias("waiting_max"),
            pl.col("kv_usage_ratio").max().alias("kv_usage_max_ratio"),
            pl.col("prefix_cache_hit_ratio").drop_nulls().last(),
        )
    )
    for name, counter in _INCREASES.items():
        totals = totals.join(_increase(samples, counter, name), on=SERIES, how="left", nulls_equal=True)
    hit_ratio = pl.when(pl.col("queries_increase") > 0).then(
        pl.col("hits_increase") / pl.col("queries_increase")
    )
    told = totals.select(
        *SERIES,
        "samples",
        "first_at",
        "last_at",
        pl.coalesce("generated_increase", "window_generation_tokens").alias("generated_tokens"),
        pl.coalesce("prompt_increase", "window_prompt_tokens").alias("prompt_tokens"),
        "running_max",
        "waiting_max",
        "kv_usage_max_ratio",
        pl.coalesce(hit_ratio, "prefix_cache_hit_ratio").alias("prefix_cache_hit_ratio"),
        pl.when(pl.col("generated_increase").is_not_null())
        .then(pl.lit("counters"))
        .when(pl.col("window_generation_tokens").is_not_null())
        .then(pl.lit("windows"))
        .alias("basis"),
    )
    found = told.sort("model", "instance", "source_format").collect()
    rows = found.to_dicts()
    return found.with_columns(counted=pl.Series([_counts(row, rows) for row in rows], dtype=pl.Boolean))


def _known(column: str) -> pl.Expr:
    """Sum of what is known; null where nothing is."""
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()).alias(column)


def counter_steps(samples: pl.LazyFrame, counter: str) -> pl.LazyFrame:
    """What a counter grew by from each sample to the next, by series: `since_at` (null: its first), `at`, `grown`.

    A value below the one before is a restart, and counts from zero (the rule of Prometheus's `increase`).
    Files that overlap sample one counter: the one that begins first speaks until it ends, then the next, so
    that nothing is counted twice and no two clocks are mixed.
    """
    of_file = (*SERIES, "source_file")
    points = samples.filter(pl.col(counter).is_not_null()).select(*of_file, "at", counter)
    spans = (
        points.group_by(of_file)
        .agg(pl.col("at").min().alias("begins"), pl.col("at").max().alias("ends"))
        .sort("begins", "ends", "source_file", descending=[False, True, False])
        .with_columns(covered=pl.col("ends").cum_max().shift(1).over(SERIES))
    )
    line = (
        points.join(spans, on=of_file, nulls_equal=True)
        .filter(pl.col("covered").is_null() | (pl.col("at") > pl.col("covered")))
        .sort(*SERIES, "at", counter)
    )
    step = pl.col(counter).diff().over(SERIES)
    return line.select(
        *SERIES,
        pl.col("at").shift(1).over(SERIES).alias("since_at"),
        "at",
        pl.when(step < 0).then(pl.col(counter)).otherwise(step).alias("grown"),
    )


def _increase(samples: pl.LazyFrame, counter: str, name: str) -> pl.LazyFrame:
    """Increase of a counter by series, from its first sample to its last; null with fewer than two."""
    return counter_steps(samples, counter).group_by(SERIES).agg(_known("grown").alias(name))


def _counts(row: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Whether no other series speaks for the same engine with a better right.

    Counters come before windows. A log names an engine by process or container, a metric by address, so two
    kinds of source are taken for one engine where the model is the same and their times overlap.
    """
    return not any(_same_engine(row, other) and _right(other) < _right(row) for other in rows)


def _same_engine(row: dict[str, Any], other: dict[str, Any]) -> bool:
    if row["source_format"] == other["source_format"] or row["model"] != other["model"]:
        return False
    overlap = row["first_at"] <= other["last_at"] and other["first_at"] <= row["last_at"]
    if row["basis"] == other["basis"]:
        # Of one kind, only the name can tell engines apart.
        return overlap and row["instance"] is not None and row["instance"] == other["instance"]
    return overlap and (row["model"] is not None or row["instance"] == other["instance"] is not None)


def _right(row: dict[str, Any]) -> tuple[int, int, str]:
    return (("counters", "windows", None).index(row["basis"]), -row["samples"], row["source_format"])
