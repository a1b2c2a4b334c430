"""Comparisons with list prices: what the source states against the list, and what an API would cost instead.

Belongs here: frames for data quality and for sizing. Nothing here enters `cost_lines`.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.calls import is_demand
from pipelines.costs.calls import KEY, billable, metered
from pipelines.costs.exact import from_pico, times, to_pico
from warehouse.prices import METERS

_CLASSES = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")
_DISAGREEMENT: dict[str, pl.DataType | type[pl.DataType]] = {
    "provider": pl.String,
    "model": pl.String,
    "requests": pl.Int64,
    "requests_zero_reported": pl.Int64,
    "reported_usd": MONEY,
    "list_usd": MONEY,
    "difference_usd": MONEY,
    "reported_to_list_ratio": pl.Float64,
}


def price_disagreement(requests: pl.LazyFrame, prices: pl.DataFrame) -> pl.DataFrame:
    """Reported cost against list price, by provider and model, over the calls that have both.

    Args:
        requests: REQUESTS.
        prices: `unit_prices(price_keys(requests), ...)`.

    Returns:
        provider, model, requests, requests_zero_reported (cost stated as 0), reported_usd, list_usd,
        difference_usd (reported - list), reported_to_list_ratio (null if the list says 0); largest difference
        first.

    """
    both = billable(requests, prices, []).filter(pl.col("list_ok") & pl.col("reported_usd").is_not_null())
    groups = (
        both.group_by(*KEY, "tier")
        .agg(
            pl.len().cast(pl.Int64).alias("requests"),
            pl.col("zero_reported").sum().cast(pl.Int64).alias("requests_zero_reported"),
            pl.col(*METERS).sum(),
            pl.col("reported_usd").sum(),
        )
        .collect()
        .with_row_index("group")
    )
    listed = metered(groups, prices).group_by("group").agg(pl.col("list_usd").sum())
    summed = (
        groups.join(listed, on="group", how="left")
        .group_by("provider", "model")
        .agg(pl.col("requests", "requests_zero_reported", "reported_usd", "list_usd").sum())
    )
    difference = to_pico(pl.col("reported_usd")) - to_pico(pl.col("list_usd"))
    ratio = pl.col("reported_usd").cast(pl.Float64) / pl.col("list_usd").cast(pl.Float64)
    return (
        summed.with_columns(
            from_pico(difference).alias("difference_usd"),
            pl.when(pl.col("list_usd") > 0).then(ratio).alias("reported_to_list_ratio"),
        )
        .sort(difference.abs(), "provider", "model", descending=[True, False, False])
        .select(pl.col(name).cast(dtype) for name, dtype in _DISAGREEMENT.items())
    )


def api_cost(requests: pl.LazyFrame, prices: pl.DataFrame) -> pl.DataFrame:
    """What the tokens of served calls would cost at the list prices of other models.

    Args:
        requests: REQUESTS, already narrowed to the calls in question.
        prices: UNIT_PRICES of the candidate (provider, model, day) keys, one per UTC day of the calls,
            standard processing.

    Returns:
        provider, model, usd, requests (priced), requests_unknown (token counts unknown, in no sum),
        is_upper_bound (cache reads of some call unknown: whole input at the input price). Cached tokens are
        priced as the candidate prices them; cache writes only if it charges for them. A day without a price
        of the candidate makes usd null.

    """
    standard = prices.filter(pl.col("processing") == "standard")
    buckets = _token_buckets(requests, standard)
    tokens = buckets.unpivot(
        list(_CLASSES), index=["day", "floor"], variable_name="meter", value_name="quantity"
    )
    tokens = tokens.filter(pl.col("quantity") > 0)
    candidates = standard.select("provider", "model").unique().sort("provider", "model")
    fitting = tokens.join(standard, on=["day", "meter"]).filter(
        pl.col("context_tier_start") <= pl.col("floor")
    )
    cell = ["provider", "model", "day", "floor", "meter"]
    chosen = fitting.filter(pl.col("context_tier_start") == pl.col("context_tier_start").max().over(cell))
    cost = chosen.group_by("provider", "model").agg(
        times(pl.col("quantity"), pl.col("usd_per_token")).sum().alias("usd"), pl.len().alias("found")
    )
    counts = {name: int(buckets[name].sum()) for name in ("requests", "requests_unknown", "requests_bound")}
    summed = candidates.join(
        cost, on=["provider", "model"], how="left", nulls_equal=True, maintain_order="left"
    )
    complete = pl.col("found").fill_null(0) == tokens.height
    return summed.select(
        "provider",
        "model",
        pl.when(complete).then(pl.col("usd").fill_null(0)).alias("usd"),
        pl.lit(counts["requests"], pl.Int64).alias("requests"),
        pl.lit(counts["requests_unknown"], pl.Int64).alias("requests_unknown"),
        pl.lit(counts["requests_bound"] > 0).alias("is_upper_bound"),
    )


def _token_buckets(requests: pl.LazyFrame, prices: pl.DataFrame) -> pl.DataFrame:
    """Token classes by day and by the highest tier start, of any candidate, that the input exceeds."""
    starts = prices["context_tier_start"].unique().sort().to_list()
    size = pl.col("input_tokens")
    floor = pl.max_horizontal(pl.lit(0, pl.Int64), *(pl.when(size > start).then(start) for start in starts))
    known = size.is_not_null() & pl.col("output_tokens").is_not_null()
    read = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), size)
    writes = {name: pl.col(f"{name}_tokens").fill_null(0) for name in ("cache_write_5m", "cache_write_1h")}
    counts = {
        "input": (size - read - writes["cache_write_5m"] - writes["cache_write_1h"]).clip(lower_bound=0),
        "cache_read": read,
        **writes,
        "output": pl.col("output_tokens"),
    }
    served = requests.filter(is_demand())
    return (
        served.group_by(pl.col("started_at").dt.date().alias("day"), floor.alias("floor"))
        .agg(
            *(expr.filter(known).sum().alias(name) for name, expr in counts.items()),
            known.sum().cast(pl.Int64).alias("requests"),
            (~known).sum().cast(pl.Int64).alias("requests_unknown"),
            (known & pl.col("cache_read_tokens").is_null()).sum().cast(pl.Int64).alias("requests_bound"),
        )
        .collect()
        .sort("day", "floor")
    )
