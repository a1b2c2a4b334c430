"""Prices and context lengths of the models that a log names, as frames for the stages.

Belongs here: asking `warehouse/prices.py` and `warehouse/catalogue.py` for what occurs in the requests. Does
not belong here: price data and rules of matching (there), costs (`pipelines/costs/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from pipelines.calls import model_name
from pipelines.costs.calls import price_keys
from pipelines.waste.call_prices import METERS
from pipelines.waste.oversize import CLIFFS_SCHEMA, CONTEXTS_SCHEMA
from pipelines.waste.row_prices import PRICES_SCHEMA
from warehouse.catalogue import find_model
from warehouse.prices import unit_prices

if TYPE_CHECKING:
    from collections.abc import Iterable

UNIT_PRICES = "unit_prices"
"""The asset, and the frame it keeps: `prices_of` the facts, which several stages need."""


def prices_of(requests: pl.LazyFrame, overrides: pl.DataFrame | None = None) -> pl.DataFrame:
    """UNIT_PRICES of every provider, model, day and processing that occurs; a site's overrides come first."""
    return unit_prices(price_keys(requests), overrides=overrides)


def base_prices(prices: pl.DataFrame) -> pl.DataFrame:
    """Standard prices below any context tier: what waste is valued at."""
    standard = prices.filter(pl.col("processing") == "standard", pl.col("context_tier_start") == 0)
    return standard.select(PRICES_SCHEMA.names())


def price_cliffs(prices: pl.DataFrame) -> pl.DataFrame:
    """Input lengths above which every token of a call costs more: how much more than below, by meter and day."""
    standard = prices.filter(pl.col("processing") == "standard")
    key = ["provider", "model", "day", "meter"]
    steps = standard.sort(*key, "context_tier_start").with_columns(
        more=pl.col("usd_per_token") - pl.col("usd_per_token").shift(1).over(key)
    )
    above = steps.filter(pl.col("context_tier_start") > 0)
    return (
        above.group_by("provider", "model", "day", pl.col("context_tier_start").alias("cliff_tokens"))
        .agg(
            pl.col("more").filter(pl.col("meter") == meter).first().alias(f"{meter}_usd_more")
            for meter in METERS
        )
        .select(CLIFFS_SCHEMA.names())
        .cast(CLIFFS_SCHEMA)
    )


def context_lengths(requests: pl.LazyFrame) -> pl.DataFrame:
    """Context length of each model that the catalogue knows."""
    found = (
        (name, model.context) for name in log_models(requests) if (model := find_model(name)) is not None
    )
    return pl.DataFrame([row for row in found if row[1]], schema=CONTEXTS_SCHEMA, orient="row")


def log_models(requests: pl.LazyFrame) -> Iterable[str]:
    """Names of the models of the calls, as the log writes them."""
    return requests.select(model_name().unique()).collect()["model"].sort().to_list()
