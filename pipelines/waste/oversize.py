"""Mart `oversize`: prompts far larger than is usual for their model and team, or for their task.

Belongs here: the rules that call a prompt oversize, and what the input beyond their thresholds cost. Does
not belong here: repeated input (`repetition.py`), and whether a model's context is enough
(`pipelines/sizing`).

Rules, on the calls of applications (`applications.py`; the first two need `MINIMUM_CALLS` of one, and their thresholds
are at least `LEAST_TOKENS`).
    outlier: input above both 1.5 x the 99th percentile of the calls that are not themselves suspect and the
        median x exp(6 robust standard deviations of log input). Suspect = beyond the latter. A robust
        standard deviation is 1.4826 x the median absolute deviation, at least ln(2)/6, so that nothing under
        twice the median is called oversize.
    input_output_ratio: all prompts of the application are large for what they give back. Its input:output,
        pooled, is at least 100 and ten times that of the other calls to the model (to any model where there
        are too few), and its median input four times theirs. Threshold: 1.5 x their 99th percentile. Input
        that was read from cache is left out of the ratio: a conversation that is sent again at a tenth of the
        price is no dump, however long it grows.
    context_share, where the model's context is given: input above half of the context.
    price_cliff, where the model's price has steps: input above a step by at most 5 %, so that trimming it
        would have cost the lower price for all of it. Excess money is exact: what every class of tokens (computed,
        read, written, output) cost more than just below that step at the list prices of the day.
One call may break several rules: rules overlap and are not to be added up.
Excess money of the other rules: excess x what the call paid per input token, cache reads at their own price
(none where they are unknown). An estimate of what trimming saves: it can't be known from a log which part of
a prompt would go.
What the excess takes beside money, both estimates: KV cache, excess x the time in flight (tokens times seconds); TTFT, the
computed part of the excess x the slope of the model's line (`ttft_by_input.py`; a slope below 0 counts as 0).
"""

from __future__ import annotations

import math

import polars as pl

from parsers.normalise import MAX_COUNT
from parsers.records import MONEY
from pipelines.costs.exact import times
from pipelines.waste.applications import APP, MINIMUM_CALLS, app_scope, judged_calls
from pipelines.waste.call_prices import METERS, meters
from pipelines.waste.evidence import in_order_of_arrival
from pipelines.waste.kv_held import seconds_in_flight
from pipelines.waste.lookup import beside
from pipelines.waste.row_prices import with_unit_prices
from pipelines.waste.scopes import known_sum
from warehouse.application_tables import TTFT_BY_INPUT

LEAST_TOKENS = 1024
"""Prompts up to this size are not worth trimming, however small the others are."""
_P99_FACTOR = 1.5
_ROBUST_Z = 6.0
_MAD_TO_SIGMA = 1.4826  # 1 / the 75th percentile of the standard normal distribution
_LEAST_SIGMA = math.log(2) / _ROBUST_Z
_TASK_RATIO = 100.0
_TASK_RATIO_FACTOR = 10.0
_TASK_INPUT_FACTOR = 4.0
_CONTEXT_SHARE = 0.5
CLIFF_MARGIN_PERCENT = 5

CONTEXTS_SCHEMA = pl.Schema({"model": pl.String, "context_tokens": pl.Int64})
STEP_METERS = tuple(f"{meter}_usd_more" for meter in METERS)
CLIFFS_SCHEMA = pl.Schema(
    {
        "provider": pl.String(),
        "model": pl.String(),
        "day": pl.Date(),
        "cliff_tokens": pl.Int64(),
        **dict.fromkeys(STEP_METERS, MONEY),
    }
)
"""Price cliffs: with more input than `cliff_tokens`, every token of a meter costs so much more USD than just below."""

_NEEDED = (
    *("provider", "day", "source_file", "source_line", "started_at"),
    *("input_tokens", "cache_read_tokens", "output_tokens"),
    *("cache_write_5m_tokens", "cache_write_1h_tokens"),
)
OVERSIZE_DETAIL = (*APP, "scope", "rule")


def oversize(
    requests: pl.LazyFrame,
    prices: pl.DataFrame,
    contexts: pl.DataFrame | None = None,
    cliffs: pl.DataFrame | None = None,
    ttft: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Find the scopes with oversize prompts: `summed` of `oversize_calls`."""
    return summed(oversize_calls(requests, prices, contexts, cliffs, ttft))


def oversize_calls(
    requests: pl.LazyFrame,
    prices: pl.DataFrame,
    contexts: pl.DataFrame | None = None,
    cliffs: pl.DataFrame | None = None,
    ttft: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Find the oversize prompts, call by call and rule by rule.

    Args:
        requests: rows of `requests`.
        prices: frame of `row_prices.PRICES_SCHEMA`.
        contexts: frame of `CONTEXTS_SCHEMA`; without it the rule context_share is not applied.
        cliffs: frame of `CLIFFS_SCHEMA`; without it the rule price_cliff is not applied.
        ttft: the mart `ttft_by_input`; without it `excess_ttft_s` is unknown.

    Returns:
        One row per call and rule that it breaks: `model, team, app_kind (project, api_key_alias, api_key_hash or null),
        app, scope, rule, source_file, source_line, started_at, threshold_tokens, typical_tokens, input_tokens,
        excess_tokens, excess_usd, excess_kv_token_seconds, excess_ttft_s` (the latter two estimates).

    """
    lines = TTFT_BY_INPUT.empty() if ttft is None else ttft
    slopes = lines.select("model", ms_per_token=pl.col("ms_per_1k_tokens").clip(lower_bound=0) / 1_000)
    judged = judged_calls(requests).select(*APP, *_NEEDED, seconds=seconds_in_flight())
    calls = with_unit_prices(in_order_of_arrival(judged), prices, ("input", "cache_read"))
    calls = beside(calls, slopes, ["model"])
    typical = calls.group_by(APP).agg(
        pl.col("input_tokens").median().round().cast(pl.Int64).alias("typical_tokens")
    )
    parts = [
        _over(beside(calls, _outliers(calls), APP), "outlier", _excess_usd()),
        _over(beside(calls, _large_for_task(calls), APP), "input_output_ratio", _excess_usd()),
    ]
    if contexts is not None:
        parts.append(_over(_near_context(calls, contexts), "context_share", _excess_usd()))
    if cliffs is not None:
        parts.append(_over(_past_cliffs(calls, cliffs), "price_cliff", _cliff_usd()))
    return beside(pl.concat(parts), typical, APP).with_columns(app_scope())


def _outliers(calls: pl.DataFrame) -> pl.DataFrame:
    log = pl.col("input_tokens").log()
    median = log.median().over(APP)
    marked = calls.select(*APP, "input_tokens", log.alias("log"), median.alias("median"))
    spread = (pl.col("log") - pl.col("median")).abs().median().over(APP) * _MAD_TO_SIGMA
    marked = marked.with_columns(
        robust=(pl.col("median") + _ROBUST_Z * pl.max_horizontal(spread, pl.lit(_LEAST_SIGMA))).exp()
    )
    usual = pl.col("input_tokens").filter(pl.col("input_tokens") <= pl.col("robust"))
    beyond = pl.max_horizontal(
        _P99_FACTOR * usual.quantile(0.99, "linear"), pl.col("robust").first(), pl.lit(float(LEAST_TOKENS))
    )
    return (
        marked.group_by(APP)
        .agg(
            pl.len().alias("calls"),
            # The spread of very unlike inputs puts the threshold beyond any count: then nothing is an outlier.
            beyond.clip(upper_bound=float(MAX_COUNT)).ceil().cast(pl.Int64).alias("threshold_tokens"),
        )
        .filter(pl.col("calls") >= MINIMUM_CALLS)
        .drop("calls")
    )


def _large_for_task(calls: pl.DataFrame) -> pl.DataFrame:
    known = calls.filter(pl.col("output_tokens").is_not_null()).with_columns(
        new_tokens=pl.col("input_tokens") - _read()
    )
    sums = [pl.len().alias("calls"), pl.col("new_tokens").sum(), pl.col("output_tokens").sum()]
    apps = known.group_by(APP).agg(*sums, pl.col("input_tokens").median().alias("median_tokens"))
    found: list[tuple[str, str | None, str | None, str | None, int]] = []
    suspects = apps.filter(
        (pl.col("calls") >= MINIMUM_CALLS)
        & (pl.col("new_tokens") >= _TASK_RATIO * pl.col("output_tokens").clip(lower_bound=1))
    )
    for app in suspects.sort(APP).iter_rows(named=True):
        same_app = pl.all_horizontal(pl.col(name).eq_missing(pl.lit(app[name], pl.String)) for name in APP)
        others = known.filter((pl.col("model") == app["model"]) & ~same_app)
        if others.height < MINIMUM_CALLS:
            others = known.filter(~same_app)
        if others.height < MINIMUM_CALLS:
            continue
        theirs, p99, given, returned = others.select(
            pl.col("input_tokens").median(),
            pl.col("input_tokens").quantile(0.99, "linear").alias("p99"),
            pl.col("new_tokens").sum().alias("given"),
            pl.col("output_tokens").sum(),
        ).row(0)
        ratio = app["new_tokens"] / max(app["output_tokens"], 1)
        if ratio >= _TASK_RATIO_FACTOR * given / max(returned, 1) and (
            app["median_tokens"] >= _TASK_INPUT_FACTOR * theirs
        ):
            found.append((*(app[name] for name in APP), max(math.ceil(_P99_FACTOR * p99), LEAST_TOKENS)))
    schema = {**dict.fromkeys(APP, pl.String()), "threshold_tokens": pl.Int64()}
    return pl.DataFrame(found, schema=schema, orient="row")


def _near_context(calls: pl.DataFrame, contexts: pl.DataFrame) -> pl.DataFrame:
    known = contexts.filter(pl.col("context_tokens") > 0).unique("model", keep="first")
    half = (pl.col("context_tokens") * _CONTEXT_SHARE).floor().cast(pl.Int64)
    return beside(calls, known.select("model", half.alias("threshold_tokens")), ["model"])


def _read() -> pl.Expr:
    return pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), "input_tokens")


def _excess_usd() -> pl.Expr:
    tokens, read = pl.col("input_tokens"), _read()
    reads_usd = (
        pl.when(read > 0).then(read * pl.col("usd_per_cache_read_token")).otherwise(pl.lit(0).cast(MONEY))
    )
    paid = (tokens - read) * pl.col("usd_per_input_token") + reads_usd
    return ((paid * pl.col("excess_tokens")) / tokens).cast(MONEY)


def _past_cliffs(calls: pl.DataFrame, cliffs: pl.DataFrame) -> pl.DataFrame:
    """Calls with `threshold_tokens`, the highest cliff below their input, if it is near, and what it costs per token."""
    passed = (
        calls.select("provider", "model", "day", "input_tokens")
        .with_row_index("place")
        .sort("input_tokens")
        .join_asof(
            cliffs.sort("cliff_tokens"),
            left_on="input_tokens",
            right_on="cliff_tokens",
            by=["provider", "model", "day"],
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,  # both are sorted just above; Polars can't check this within groups
            coalesce=False,
        )
        .sort("place")
    )
    near = pl.col("input_tokens") <= pl.col("cliff_tokens") * (100 + CLIFF_MARGIN_PERCENT) // 100
    return calls.hstack(
        passed.select(pl.when(near).then("cliff_tokens").alias("threshold_tokens"), *STEP_METERS)
    )


def _cliff_usd() -> pl.Expr:
    """Each class of tokens at its own step; null where a class that the call used has no price."""
    parts = [
        pl.when(tokens == 0).then(pl.lit(0).cast(MONEY)).otherwise(times(tokens, pl.col(f"{meter}_usd_more")))
        for meter, tokens in meters().items()
    ]
    return pl.max_horizontal(pl.sum_horizontal(parts, ignore_nulls=False), pl.lit(0).cast(MONEY)).cast(MONEY)


def _over(judged: pl.DataFrame, rule: str, excess_usd: pl.Expr) -> pl.DataFrame:
    excess = pl.col("input_tokens") - pl.col("threshold_tokens")
    computed = 1 - _read() / pl.col("input_tokens")
    return (
        judged.filter(excess > 0)
        .with_columns(excess_tokens=excess)
        .select(
            *APP,
            pl.lit(rule).alias("rule"),
            *(
                "source_file",
                "source_line",
                "started_at",
                "threshold_tokens",
                "input_tokens",
                "excess_tokens",
            ),
            excess_usd.alias("excess_usd"),
            (pl.col("excess_tokens") * pl.col("seconds")).alias("excess_kv_token_seconds"),
            (pl.col("excess_tokens") * computed * pl.col("ms_per_token") / 1_000).alias("excess_ttft_s"),
        )
    )


def summed(calls: pl.DataFrame) -> pl.DataFrame:
    """Sum the rows of `oversize_calls`.

    Returns:
        The columns of the mart `oversize` for each scope and rule with at least one such call, and, for findings,
        `model, team, app_kind, app`.

    """
    sums = calls.group_by(*OVERSIZE_DETAIL).agg(
        pl.col("threshold_tokens").min(),
        pl.col("typical_tokens").first(),
        pl.len().cast(pl.Int64).alias("requests"),
        pl.col("input_tokens").sum(),
        pl.col("excess_tokens").sum(),
        known_sum(pl.col("excess_usd")).alias("excess_usd"),
        pl.col("excess_usd").null_count().cast(pl.Int64).alias("requests_unpriced"),
        known_sum(pl.col("excess_kv_token_seconds")).alias("excess_kv_token_seconds"),
        known_sum(pl.col("excess_ttft_s")).alias("excess_ttft_s"),
        pl.col("started_at").min().alias("first_at"),
        pl.col("started_at").max().alias("last_at"),
    )
    return sums.sort("scope", "rule")
