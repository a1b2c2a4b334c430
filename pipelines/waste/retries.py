"""Mart `retries`: failed attempts, what they carried, and which calls came through later.

Belongs here: the sums over failed attempts by kind of error. Does not belong here: linking attempts to calls
(ingest fills `call_id` and `attempt`), cost lines.

Tokens of failed attempts never enter a total of usage. What an attempt counts as:
    rejected: the provider turned it away (`calls.was_turned_away`): its tokens are estimates, its cost is 0.
    billed: any other failure whose usage was reported. Its cost is the cost reported in USD (or
        without a currency, as for the lines of cost), else unknown.
    estimated: any other failure whose usage the gateway guessed, a time-out after dispatch for example. The
        provider may have charged it; its cost is unknown.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.calls import is_in_usd, model_name, reached_a_model, was_turned_away
from pipelines.waste.scopes import by_scope, known_sum
from warehouse.waste_tables import RETRIES

_ORDER = ("started_at", "source_file", "source_line")


def failed_attempts(requests: pl.LazyFrame) -> pl.DataFrame:
    """Measure failed attempts one by one.

    Returns:
        One row per attempt with status error: `model, team, error_kind, call (an identity), recovered,
        billed_tokens, estimated_tokens, cost_usd, started_at, source_file, source_line`. `recovered` is true
        if a later attempt of
        the same call_id ended ok: by attempt number where both have one, else by time.

    """
    attempts = requests.filter(reached_a_model())
    ok = attempts.filter((pl.col("status") == "ok") & pl.col("call_id").is_not_null())
    successes = ok.group_by("call_id").agg(
        pl.col("attempt").max().alias("ok_attempt"), pl.col("started_at").max().alias("ok_started_at")
    )
    numbered = pl.col("ok_attempt") > pl.col("attempt")
    later = pl.coalesce(numbered, pl.col("ok_started_at") >= pl.col("started_at"))
    tokens = pl.when(pl.any_horizontal(pl.col("input_tokens", "output_tokens").is_not_null())).then(
        pl.sum_horizontal("input_tokens", "output_tokens")
    )
    rejected = was_turned_away()
    reported = pl.col("usage_origin") == "reported"
    in_usd = pl.when(is_in_usd()).then("cost_reported")
    own_call = pl.format("{}\n{}", "source_file", "source_line")
    return (
        attempts.filter(pl.col("status") == "error")
        .join(successes, on="call_id", how="left")
        .select(
            model_name(),
            pl.when(pl.col("team") != "").then("team").alias("team"),
            pl.col("error_kind").fill_null("unknown"),
            pl.struct(
                pl.col("call_id"), pl.when(pl.col("call_id").is_null()).then(own_call).alias("own")
            ).alias("call"),
            later.fill_null(value=False).alias("recovered"),
            pl.when(reported & ~rejected).then(tokens).alias("billed_tokens"),
            pl.when(~reported | rejected).then(tokens).alias("estimated_tokens"),
            pl.when(rejected).then(pl.lit(0).cast(MONEY)).when(reported).then(in_usd).alias("cost_usd"),
            *_ORDER,
        )
        .sort(_ORDER)
        .collect()
    )


def retries(attempts: pl.DataFrame) -> pl.DataFrame:
    """Sum the attempts of `failed_attempts` by scope and kind of error: the mart `retries`."""
    measures = [
        pl.len().alias("attempts"),
        pl.col("call").n_unique().alias("calls"),
        pl.col("call").filter("recovered").n_unique().alias("recovered_calls"),
        *(known_sum(pl.col(name)).alias(name) for name in ("billed_tokens", "estimated_tokens", "cost_usd")),
    ]
    return RETRIES.conform(by_scope(attempts, measures, ["error_kind"]))
