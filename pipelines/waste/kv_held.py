"""Mart `kv_held`: who holds the KV cache, in tokens times seconds.

Belongs here: what each application's calls hold while they are in flight, and when few calls hold most of it. Does not
belong here: KV tokens at a moment and their peaks (`pipelines/demand/`), bytes per token (`pipelines/sizing/memory.py`).

An estimate from times of the gateway: a call holds its input from the end of the queue to its end, and its output, which
grows evenly, on average by half. What it shares with other calls through a prefix cache is counted for each. The time of
a call is its duration, else from start to end; calls of unknown time or output are left out and counted.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines.waste.applications import APP, MINIMUM_CALLS, app_scope, rows_of
from pipelines.waste.findings import Finding, Found
from pipelines.waste.sentences import figure, percent, shown_name, who
from warehouse.price_names import is_self_hosted

KV_SHARE = 0.5
KV_FACTOR = 5.0
"""A finding: at least half of what all calls of a model hold, and five times the share of calls."""
_US_PER_S = 1_000_000
_MS_PER_S = 1_000


def seconds_in_flight() -> pl.Expr:
    """For how long a call of `applications.judged_calls` holds its input; null if unknown."""
    span = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / _US_PER_S
    whole = pl.coalesce(pl.col("duration_ms") / _MS_PER_S, span)
    return (whole - pl.col("queue_ms").fill_null(0) / _MS_PER_S).clip(lower_bound=0)


def held_by_application(calls: pl.LazyFrame) -> pl.DataFrame:
    """What the calls of each application hold.

    Args:
        calls: of `applications.judged_calls`.

    Returns:
        columns of the mart `kv_held` and, for findings, APP, `input_p50, model_input_p50, own` (whether every call of
        the model was served by an engine of one's own), by scope.

    """
    # Whole numbers: a sum of floats depends on the order in which threads add them up.
    held_us = (seconds_in_flight() * _US_PER_S).round().cast(pl.Int64)
    held = (2 * pl.col("input_tokens") + pl.col("output_tokens")).cast(pl.Int128) * held_us
    known = held.is_not_null()
    apps = (
        calls.group_by(APP)
        .agg(
            pl.len().cast(pl.Int64).alias("requests"),
            (~known).sum().cast(pl.Int64).alias("requests_unknown"),
            held.sum().alias("half_token_us"),
            held_us.filter(known).sum().alias("held_us"),
            pl.col("input_tokens").median().alias("input_p50"),
            pl.col("provider").unique().alias("providers"),
            pl.col("started_at").min().alias("first_at"),
            pl.col("started_at").max().alias("last_at"),
        )
        .collect(engine="streaming")
    )
    judged = pl.col("requests") - pl.col("requests_unknown")
    of_model = pl.col("half_token_us").sum().over("model")
    token_seconds = pl.col("half_token_us") / (2 * _US_PER_S)
    shares = apps.with_columns(
        app_scope(),
        judged=judged,
        kv_share=pl.when(of_model > 0).then(pl.col("half_token_us") / of_model),
        requests_share=pl.when(judged.sum().over("model") > 0).then(judged / judged.sum().over("model")),
        mean_kv_tokens=pl.when(pl.col("held_us") > 0).then(pl.col("half_token_us") / 2 / pl.col("held_us")),
        kv_token_seconds=pl.when(judged > 0).then(token_seconds),
        others=judged.sum().over("model") - judged,
        own=pl.Series(
            [
                all(is_self_hosted(provider, model) for provider in providers)
                for model, providers in apps.select("model", "providers").iter_rows()
            ],
            dtype=pl.Boolean,
        ),
    )
    few = (pl.col("kv_share") >= KV_SHARE) & (pl.col("kv_share") >= KV_FACTOR * pl.col("requests_share"))
    enough = (pl.col("judged") >= MINIMUM_CALLS) & (pl.col("others") >= MINIMUM_CALLS)
    return shares.with_columns(
        is_finding=(few & enough & pl.col("own")).fill_null(value=False), application=pl.col("app")
    ).sort("scope")


def kv_held_findings(held: pl.DataFrame) -> Found:
    """Few calls that hold most of the KV cache of one's own engines. They claim no saving: the oversize rules do."""
    return Found.of([_finding(row) for row in held.filter("is_finding").iter_rows(named=True)])


def _finding(row: dict[str, Any]) -> Finding:
    named = "" if row["app"] is None else f", {shown_name(row['app'])}"
    return Finding(
        kind="kv_held",
        scope=row["scope"],
        model=row["model"],
        team=row["team"],
        application=row["app"],
        step=None,
        title=(
            f"{who(row)}{named}: {percent(row['requests_share'], 1)} of the model's calls hold "
            f"{percent(row['kv_share'], 1)} of its KV cache over time (estimate); one of them holds "
            f"{figure(round(row['mean_kv_tokens']))} tokens while it is in flight."
        ),
        evidence_level="modelled",
        advice=(
            "Shorten these prompts or their answers, or serve them apart: KV cache that they hold is room that other "
            "calls wait for."
        ),
        tokens=None,
        usd=None,
        first_at=row["first_at"],
        last_at=row["last_at"],
        requests=row["requests"],
        query=rows_of(row, "TRUE"),
    )
