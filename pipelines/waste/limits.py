"""Mart `output_limits`: limits on output against what is written, and prompts that leave the answer no room.

Belongs here: per application the length of outputs, the limit that its calls ask for (`max_tokens`), the share of the
model's context that a call needs, and the rules on them. Does not belong here: answers that were cut off (`streams.py`).

    near_context: input and the output that the application needs (the 99th percentile of its outputs) fill more than
        `NEAR_CONTEXT` of the model's context: the next turns fail or are cut off. Tokens: the input above that mark.
    output_limit: the median limit is ten times the 99th percentile of the outputs or more. Engines that plan by the limit
        reserve KV cache for it, and providers count it against rate limits. No tokens, no money: nothing was used.
    unbounded_output: calls without a limit wrote far more than is usual for the application (six robust standard
        deviations of the logarithm). Judged only where the log's format states limits: elsewhere their absence says
        nothing. Tokens and money: the output above that mark.
"""

from __future__ import annotations

import math

import polars as pl

from pipelines.costs.exact import times
from pipelines.waste.application_rules import Rule, of_requests, where
from pipelines.waste.applications import APP, MINIMUM_CALLS, app_scope
from warehouse.application_tables import OUTPUT_LIMITS

NEAR_CONTEXT = 0.9
NEAR_SHARE = 0.01
LIMIT_FACTOR = 10
LEAST_LIMIT = 4_096
"""Limits below this reserve little."""
LEAST_RUNAWAYS = 3
_ROBUST_Z = 6.0
_QUARTILE = 0.6745  # of the standard normal distribution
_LEAST_SIGMA = math.log(2) / _ROBUST_Z

_BEYOND = pl.col("output_tokens") - pl.col("runaway_tokens")

NEAR = Rule(
    kind="near_context",
    basis="none",
    behind=pl.col("input_tokens") > pl.col("near_tokens"),
    among=pl.col("near_tokens").is_not_null(),
    rows=where("input_tokens > {near_tokens:d}"),
    tokens=pl.col("input_tokens") - pl.col("near_tokens"),
    further=(pl.col("near_tokens").first(), pl.col("context_tokens").first()),
    material=of_requests(NEAR_SHARE) & (pl.col("requests_judged") >= MINIMUM_CALLS),
)
LIMIT = Rule(
    kind="output_limit",
    basis="none",
    behind=pl.col("max_output_tokens").is_not_null(),
    rows=where("max_output_tokens IS NOT NULL"),
    tokens=pl.lit(None, pl.Int64),
    further=(
        pl.col("max_output_tokens").median().alias("limit_tokens"),
        pl.col("output_p99").first(),
    ),
    material=(pl.col("requests") >= MINIMUM_CALLS)
    & (pl.col("limit_tokens") >= LEAST_LIMIT)
    & (pl.col("limit_tokens") >= LIMIT_FACTOR * pl.col("output_p99")),
)
UNBOUNDED = Rule(
    kind="unbounded_output",
    basis="exact",
    behind=pl.col("states_limit") & pl.col("max_output_tokens").is_null() & (_BEYOND > 0),
    among=pl.col("states_limit")
    & pl.col("max_output_tokens").is_null()
    & pl.col("output_tokens").is_not_null(),
    tokens=_BEYOND,
    usd=times(_BEYOND, pl.col("list_output")),
    step="trimmed",
    change={"cut_output_tokens": _BEYOND},
    further=(pl.col("runaway_tokens").first(),),
    material=of_requests(0.0, LEAST_RUNAWAYS) & (pl.col("requests_judged") >= MINIMUM_CALLS),
)
RULES = (NEAR, LIMIT, UNBOUNDED)


def application_lengths(calls: pl.LazyFrame, contexts: pl.DataFrame) -> pl.DataFrame:
    """Lengths and limits of each application.

    Holds input, output and limit of each call in memory: 24 bytes.

    Args:
        calls: of `applications.judged_calls`.
        contexts: frame of `oversize.CONTEXTS_SCHEMA`.

    Returns:
        one row per application: APP, `requests, requests_output_unknown, output_p50, output_p99, output_max,
        requests_limited, limit_p50, input_p99`, `context_tokens`, `near_tokens` (input above which the answer lacks room;
        null if the context is unknown), `runaway_tokens` (output that is far from usual).

    """
    output = pl.col("output_tokens")
    log = output.filter(output > 0).log()
    median = log.median()
    sigma = pl.max_horizontal((log.quantile(0.75, "linear") - median) / _QUARTILE, pl.lit(_LEAST_SIGMA))
    known = contexts.filter(pl.col("context_tokens") > 0).unique("model", keep="first")
    p99 = pl.col("output_p99").fill_null(0)
    near = (pl.col("context_tokens") * NEAR_CONTEXT).floor().cast(pl.Int64) - p99
    return (
        calls.group_by(APP)
        .agg(
            pl.len().cast(pl.Int64).alias("requests"),
            output.null_count().cast(pl.Int64).alias("requests_output_unknown"),
            output.median().round().cast(pl.Int64).alias("output_p50"),
            output.quantile(0.99, "linear").ceil().cast(pl.Int64).alias("output_p99"),
            output.max().alias("output_max"),
            pl.col("max_output_tokens").count().cast(pl.Int64).alias("requests_limited"),
            pl.col("max_output_tokens").median().round().cast(pl.Int64).alias("limit_p50"),
            pl.col("input_tokens").quantile(0.99, "linear").ceil().cast(pl.Int64).alias("input_p99"),
            # The spread of very unlike outputs puts the mark beyond any count: then nothing is far from usual.
            pl.min_horizontal(median + _ROBUST_Z * sigma, pl.lit(math.log(2**53)))
            .exp()
            .ceil()
            .cast(pl.Int64)
            .alias("runaway_tokens"),
        )
        .collect()
        .join(known, on="model", how="left")
        .with_columns(near.clip(lower_bound=0).alias("near_tokens"))
    )


def output_limits(lengths: pl.DataFrame) -> pl.DataFrame:
    """The mart `output_limits`, of what `application_lengths` returned."""
    need = pl.col("input_p99") + pl.col("output_p99").fill_null(0)
    return OUTPUT_LIMITS.conform(
        lengths.with_columns(
            app_scope(),
            application=pl.col("app"),
            limit_to_p99=pl.when(pl.col("output_p99") > 0).then(pl.col("limit_p50") / pl.col("output_p99")),
            context_share_p99=need / pl.col("context_tokens"),
        ).sort("scope")
    )
