"""The mart `cost_lines`: money by day, payer, model and meter, from calls, prices and the cost of pools.

Belongs here: summing calls into lines and what each line says about its price. Does not belong here: which
basis a call has (`calls.py`), the split of a pool's cost (`own_hardware.py`).

A line of basis `list_price` has one unit price, so quantity x unit price = cost on each line. A line of basis
`reported` carries what the source stated, split over meters in proportion to list prices where there are any.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY, TEXT
from pipelines.costs.calls import KEY, PAYER, billable, metered
from pipelines.costs.exact import split, to_pico
from pipelines.costs.own_hardware import globs, own_hardware_lines
from warehouse.prices import METERS
from warehouse.tables import COST_LINES

_MARKS = ("reads_unknown", "writes_unknown", "is_estimated", "zero_reported", "odd_tier")
_GROUP = (*PAYER, *KEY, "tier", "basis", "list_ok", "reason", "pool", *_MARKS)
_LINE_TEXT = ("provider", "model", "meter", "unit", "basis", "price_source")
_UPPER_BOUND = "cache reads unknown: upper bound"


def cost_lines(requests: pl.LazyFrame, prices: pl.DataFrame, own: pl.DataFrame | None = None) -> pl.DataFrame:
    """Compute the lines of cost.

    Args:
        requests: REQUESTS. Served calls count, and failed ones for which the source states a cost above 0 unless
            the provider turned them away; answers from a gateway's response cache do not.
        prices: `unit_prices(price_keys(requests), ...)`.
        own: pools by day (`own_hardware.pool_days`), or None.

    Returns:
        COST_LINES, sorted. Cost is null only where `basis` is `unpriced`; each unpriced call is counted on
        exactly one line. The day of a cost is the UTC day on which the call started.

    """
    groups = _groups(requests, prices, own)
    by_basis = {
        basis: groups.filter(pl.col("basis") == basis) for basis in ("list_price", "reported", "own_hardware")
    }
    reported = _reported(by_basis["reported"], prices)
    parts = [
        _list_lines(metered(by_basis["list_price"], prices)),
        *reported,
        _unpriced_lines(groups.filter(pl.col("basis") == "unpriced")),
    ]
    if own is not None:
        # A pool's cost is split across groups: who gets the last picodollar must not depend on their order.
        parts.append(own_hardware_lines(by_basis["own_hardware"].sort(_GROUP), own))
    return _merged(pl.concat([COST_LINES.conform(part) for part in parts]))


def _groups(requests: pl.LazyFrame, prices: pl.DataFrame, own: pl.DataFrame | None) -> pl.DataFrame:
    calls = billable(requests, prices, globs(own))
    summed = calls.group_by(*_GROUP).agg(
        pl.len().cast(pl.Int64).alias("requests"),
        pl.col(*METERS).sum(),
        pl.col("reported_usd").sum(),
    )
    return summed.collect().with_row_index("group")


def _list_lines(long: pl.DataFrame) -> pl.DataFrame:
    tier = pl.when(pl.col("tier") > 0).then(pl.format("price of input over {} tokens", "tier"))
    return long.with_columns(
        pl.lit("tokens").alias("unit"),
        pl.col("usd_per_token").alias("unit_price_usd"),
        pl.col("list_usd").alias("cost_usd"),
        _text(pl.col("price_source"), tier, *_mark_texts()).alias("price_source"),
    )


def _mark_texts() -> list[pl.Expr]:
    """What must be said of a line that rests on an assumption."""
    return [
        pl.when(pl.col("reads_unknown") & (pl.col("meter") == "input")).then(pl.lit(_UPPER_BOUND)),
        pl.when(pl.col("writes_unknown") & (pl.col("meter") == "input")).then(
            pl.lit("cache writes unknown: taken as none, lower bound")
        ),
        pl.when(pl.col("is_estimated")).then(pl.lit("token counts estimated by the source")),
        pl.when(pl.col("zero_reported")).then(pl.lit("source states a cost of 0 without a reason")),
        pl.when(pl.col("odd_tier").is_not_null()).then(
            pl.format(
                "no price known for service tier {}: standard price", pl.col("odd_tier").str.slice(0, 40)
            )
        ),
    ]


def _reported(groups: pl.DataFrame, prices: pl.DataFrame) -> list[pl.DataFrame]:
    """Lines of what the source stated: by meter where list prices can split it, else whole."""
    long = metered(groups.filter("list_ok"), prices).with_columns(to_pico(pl.col("list_usd")).alias("weight"))
    heavy = long.filter((pl.col("weight").sum().over("group") > 0) & (pl.col("quantity") > 0))
    divided = split(heavy, amount="reported_usd", weight="weight", by=["group"], into="cost_usd")
    whole = groups.join(divided.select("group").unique(), on="group", how="anti")
    return [
        divided.with_columns(
            pl.lit("tokens").alias("unit"),
            _text(
                pl.lit("reported by the source, split over meters by list prices"), pl.col("price_source")
            ).alias("price_source"),
        ),
        whole.with_columns(
            pl.lit("request").alias("meter"),
            pl.col("requests").alias("quantity"),
            pl.lit("requests").alias("unit"),
            pl.col("reported_usd").alias("cost_usd"),
            pl.lit("reported by the source").alias("price_source"),
        ),
    ]


def _unpriced_lines(groups: pl.DataFrame) -> pl.DataFrame:
    return groups.with_columns(
        pl.lit("request").alias("meter"),
        pl.col("requests").alias("quantity"),
        pl.lit("requests").alias("unit"),
        pl.lit(None, MONEY).alias("cost_usd"),
        pl.col("reason").alias("price_source"),
    )


def _merged(lines: pl.DataFrame) -> pl.DataFrame:
    """Add up lines that differ in nothing a reader sees."""
    same = [*PAYER, *_LINE_TEXT, "unit_price_usd"]
    known = pl.col("cost_usd").is_not_null().any()
    summed = lines.group_by(same).agg(
        pl.col("requests").sum(),
        pl.col("quantity").sum(),
        pl.when(known).then(pl.col("cost_usd").sum()).alias("cost_usd"),
    )
    return COST_LINES.conform(summed).sort(same)


def _text(*parts: pl.Expr) -> pl.Expr:
    return pl.concat_str(*(part.cast(TEXT) for part in parts), separator="; ", ignore_nulls=True)
