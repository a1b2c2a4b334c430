"""The time over which each call was worked on, with every assumption marked.

Belongs here: which tokens had to be computed, and the instants between which they were. Does not belong
here: which calls are demand (`pipelines/calls.py`), adding calls up (`sweep`), choosing windows (`peaks`),
bins (`series`).

Input is worked on from the start of work (arrival + queue) to the first token, output from the first token to
the end. Three things may be missing:

- The first token (not streamed, or logged as the end). Then the time is split as input : pace ratio x output.
  The pace ratio says how many input tokens take as long as one output token: the median of the model's own
  streamed calls where there are enough of them, else `PUBLISHED_PACE_RATIO`.
- The end. Then all tokens stand at the arrival, and the call has no concurrency and holds no KV cache that we
  know of.
- Token counts. Then the call counts as a call and in concurrency only.

Computed input is input - cache read: a cache write is prefill that is computed and then kept, so unlike the
billing class of the same name it is not subtracted. It is null where cache reads are unknown.
"""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_demand, model_name

WORK_INTERVALS = "work_intervals"
"""The asset, and the frame it keeps, which minutes, peaks and the profile are made from."""

PUBLISHED_PACE_RATIO = 50.0
"""TPOT / (TTFT / input length): median 49.9, quartiles 18 and 104, over the 3,415 measured points (14 models,
6 systems) of ai-dynamo/aiconfigurator, Apache-2.0."""

MEASURED_PACE_CALLS = 20
"""Streamed calls of a model from which its own pace ratio is taken: the median of 20 is within about a third
of the quartile range above."""

LONGEST_CALL_S = 48 * 3600.0
"""No call lasts longer (a batch may take 24 h); an end beyond that is held to be unknown."""

WORK_SCHEMA = pl.Schema(
    {
        "model": pl.String(),
        "started_us": pl.Int64(),
        "work_from_us": pl.Int64(),
        "first_token_us": pl.Int64(),
        "ended_us": pl.Int64(),
        "input_tokens": pl.Float64(),
        "uncached_input_tokens": pl.Float64(),
        "output_tokens": pl.Float64(),
        "is_timed": pl.Boolean(),
        "assumed_pace_ratio": pl.Float64(),
    }
)
"""One row per call that is demand, sorted by model and arrival. Instants are microseconds since 1970 UTC, in
order: started <= work_from <= first_token <= ended; all equal where `is_timed` is false. `assumed_pace_ratio`
is null unless the first token was assumed."""


def started_us() -> pl.Expr:
    """Arrival in microseconds since 1970 UTC."""
    return pl.col("started_at").dt.timestamp("us").alias("started_us")


def ended_us() -> pl.Expr:
    """End in microseconds since 1970 UTC; null where unknown, before the arrival, or later than a call can
    last.
    """
    lasted_us = pl.coalesce(
        pl.col("ended_at").dt.timestamp("us") - pl.col("started_at").dt.timestamp("us"),
        _us(pl.col("duration_ms")),
    )
    plausible = lasted_us.is_between(0, int(LONGEST_CALL_S * 1e6))
    return pl.when(plausible).then(started_us() + lasted_us).alias("ended_us")


def work_intervals(requests: pl.LazyFrame) -> pl.DataFrame:
    """When each call of the demand was worked on, and on how many tokens.

    Args:
        requests: the fact table `requests`.

    Returns:
        A frame of `WORK_SCHEMA`.

    """
    uncached = pl.col("input_tokens") - pl.col("cache_read_tokens")
    calls = requests.filter(is_demand()).select(
        model_name(),
        started_us(),
        ended_us(),
        pl.col("input_tokens").cast(pl.Float64),
        uncached.clip(lower_bound=0).cast(pl.Float64).alias("uncached_input_tokens"),
        pl.col("output_tokens").cast(pl.Float64),
        *_stated_instants(),
    )
    placed = _split_assumed(_first_token_measured(calls))
    return placed.select(WORK_SCHEMA.names()).sort("model", "started_us").collect()


def measured_intervals(requests: pl.LazyFrame, *kept: pl.Expr) -> pl.LazyFrame:
    """When each call was worked on as far as the log tells it, nothing assumed.

    Args:
        requests: the fact table `requests`, or a part of it.
        kept: named expressions over it to keep beside.

    Returns:
        `started_us`, `ended_us` (null: unknown, see `ended_us`, or no later than the arrival), `is_timed`
        (it is known), `work_from_us` (never null), `measured_us` (first token; null: unknown) and the kept.

    """
    told = requests.select(
        started_us(), ended_us(), pl.col("output_tokens").cast(pl.Float64), *_stated_instants(), *kept
    )
    timed = _first_token_measured(told).with_columns(ended_us=pl.when("is_timed").then("ended_us"))
    return timed.drop("queue_us", "first_us")


def _stated_instants() -> tuple[pl.Expr, pl.Expr]:
    first = pl.coalesce(pl.col("first_token_at").dt.timestamp("us"), started_us() + _us(pl.col("ttft_ms")))
    return _us(pl.col("queue_ms")).alias("queue_us"), first.alias("first_us")


def _us(milliseconds: pl.Expr) -> pl.Expr:
    return (milliseconds * 1000).round().cast(pl.Int64, strict=False)


def _first_token_measured(calls: pl.LazyFrame) -> pl.LazyFrame:
    """Add is_timed, work_from_us and measured_us: the logged first token where it can be one.

    A queue that reaches beyond the first token or the end contradicts them and is ignored. A first token at
    the very end of an answer of several tokens is not one: gateways write the end there for calls that were
    not streamed.
    """
    timed = (pl.col("ended_us") > pl.col("started_us")).fill_null(value=False)
    one_token = pl.col("output_tokens").fill_null(0) <= 1
    can_be_first = (pl.col("first_us") > pl.col("started_us")) & (
        (pl.col("first_us") < pl.col("ended_us")) | ((pl.col("first_us") == pl.col("ended_us")) & one_token)
    )
    queued = pl.col("started_us") + pl.col("queue_us")
    ends_queue = pl.coalesce("measured_us", "ended_us")
    return (
        calls.with_columns(is_timed=timed)
        .with_columns(measured_us=pl.when(pl.col("is_timed") & can_be_first).then("first_us"))
        .with_columns(
            work_from_us=pl.when(pl.col("is_timed") & (queued < ends_queue))
            .then(queued)
            .otherwise("started_us")
        )
    )


def _split_assumed(calls: pl.LazyFrame) -> pl.LazyFrame:
    """Add first_token_us, ended_us and assumed_pace_ratio, by the rules at the top of the module."""
    to_prefill = (
        pl.when(pl.col("input_tokens") > 0)
        .then(pl.coalesce("uncached_input_tokens", "input_tokens").clip(lower_bound=1))
        .otherwise(0.0)
    )
    to_decode = pl.col("output_tokens").fill_null(0.0)
    prefill_us = pl.col("measured_us") - pl.col("work_from_us")
    decode_us = pl.col("ended_us") - pl.col("measured_us")
    row_ratio = pl.when((to_prefill > 0) & (to_decode > 1) & (decode_us > 0)).then(
        (decode_us / to_decode) / (prefill_us / to_prefill)
    )
    enough = row_ratio.count().over("model") >= MEASURED_PACE_CALLS
    pace_ratio = pl.when(enough).then(row_ratio.median().over("model")).otherwise(PUBLISHED_PACE_RATIO)
    weight = to_prefill + pl.col("pace_ratio") * to_decode
    share = pl.when(weight > 0).then(to_prefill / weight).otherwise(1.0)
    split_us = pl.col("work_from_us") + ((pl.col("ended_us") - pl.col("work_from_us")) * share).round().cast(
        pl.Int64
    )
    is_assumed = pl.col("is_timed") & pl.col("measured_us").is_null() & (to_prefill > 0) & (to_decode > 0)
    first_token = pl.coalesce("measured_us", split_us)
    return calls.with_columns(pace_ratio=pace_ratio).with_columns(
        first_token_us=pl.when("is_timed").then(first_token).otherwise("started_us"),
        ended_us=pl.when("is_timed").then("ended_us").otherwise("started_us"),
        assumed_pace_ratio=pl.when(is_assumed).then("pace_ratio"),
    )
