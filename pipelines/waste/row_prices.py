"""Unit prices beside each call.

Belongs here: turning the long frame of unit prices into columns and joining it to calls.
Does not belong here: where prices come from (`warehouse/prices.py`) and cost lines (`pipelines/costs`).
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.waste.lookup import beside

PRICE_KEY = ("provider", "model", "day")
PRICES_SCHEMA = pl.Schema(
    {
        "provider": pl.String(),
        "model": pl.String(),
        "day": pl.Date(),
        "meter": pl.String(),
        "usd_per_token": MONEY,
    }
)
"""Unit prices: provider and model as they stand in `requests`, one row per meter; no row = unpriced."""


def with_unit_prices(calls: pl.DataFrame, prices: pl.DataFrame, meters: tuple[str, ...]) -> pl.DataFrame:
    """Add a column `usd_per_<meter>_token` (Decimal, null if unpriced) per meter; rows and their order stay.

    Args:
        calls: frame with `provider`, `model`, `day`.
        prices: frame of `PRICES_SCHEMA`.
        meters: of input, cache_read, cache_write_5m, cache_write_1h, output.

    """
    wide = prices.group_by(PRICE_KEY).agg(
        pl.col("usd_per_token")
        .filter(pl.col("meter") == meter)
        .first()
        .cast(MONEY)
        .alias(f"usd_per_{meter}_token")
        for meter in meters
    )
    return beside(calls, wide, list(PRICE_KEY))
