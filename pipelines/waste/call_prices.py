"""What a call costs at unit prices: exact products of its token counts.

Belongs here: the meters of a call and their sum at one list of prices. Does not belong here: the join of prices
(`row_prices.py` for frames in memory), which prices hold (`warehouse/prices.py`), what was billed (`pipelines/costs/`).

Classes of audio, images and reasoning with prices of their own count at the price of the class that holds them.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from parsers.records import MONEY
from pipelines.costs.exact import from_pico, to_pico
from pipelines.waste.row_prices import PRICE_KEY

METERS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")


def with_list_prices(calls: pl.LazyFrame, prices: pl.DataFrame, name: str) -> pl.LazyFrame:
    """Add a column `{name}_{meter}` (USD per token, Decimal, null if unpriced) per meter.

    Args:
        calls: with `provider, model, day`.
        prices: frame of `row_prices.PRICES_SCHEMA`, one row per key and meter.
        name: of the list: `list`, `batch` ...

    """
    return calls.join(price_columns({name: prices}).lazy(), on=list(PRICE_KEY), how="left", nulls_equal=True)


def price_columns(lists: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per key with the columns of `with_list_prices` for each list, so that a single join adds all of them.

    Args:
        lists: frames of `row_prices.PRICES_SCHEMA` by name.

    """
    named = pl.concat([prices.with_columns(list=pl.lit(name)) for name, prices in lists.items()])
    return named.group_by(PRICE_KEY).agg(
        pl.col("usd_per_token")
        .filter(pl.col("list") == name, pl.col("meter") == meter)
        .first()
        .cast(MONEY)
        .alias(f"{name}_{meter}")
        for name in lists
        for meter in METERS
    )


def meters() -> Mapping[str, pl.Expr]:
    """Tokens per meter; they add up to input and output. Unknown reads and writes count as uncached input."""
    whole = pl.col("input_tokens")
    read = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), whole)
    short = pl.min_horizontal(pl.col("cache_write_5m_tokens").fill_null(0), whole - read)
    long = pl.min_horizontal(pl.col("cache_write_1h_tokens").fill_null(0), whole - read - short)
    return {
        "input": whole - read - short - long,
        "cache_read": read,
        "cache_write_5m": short,
        "cache_write_1h": long,
        "output": pl.col("output_tokens"),
    }


def call_usd(name: str) -> pl.Expr:
    """Cost of a call at the prices `{name}_{meter}`; null if the output or the price of a class it used is unknown."""
    parts = [
        pl.when(tokens == 0)
        .then(0)
        .otherwise(tokens.cast(pl.Int128) * to_pico(pl.col(f"{name}_{meter}")))
        .cast(pl.Int128)
        for meter, tokens in meters().items()
    ]
    return from_pico(pl.sum_horizontal(parts, ignore_nulls=False))
