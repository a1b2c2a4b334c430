"""Short, simple calls to a large model that has a small one on the same price list: the 80/20 rule as a what-if.

Belongs here: which calls are simple, the small model of each large one, and what most of the calls would cost there.
Does not belong here: whether the small model answers well enough: no log tells. Try it on a sample before routing.

A call is simple with at most `INPUT_TOKENS` of input and `OUTPUT_TOKENS` of output, no reasoning, and no tool called
(by its finish reason; whether tools were offered is not in the log). An application is a candidate when nearly all of
its calls to the large model are simple, and it does not send most of its simple calls to the small one already. Four of
five of them are moved and one stays, for what the small model can't do. Which ones is not decided: each call counts by
four fifths of its saving. Money: the difference at list prices of the day, counts taken as they are (the small model may
write more or fewer tokens). Pairs: `warehouse/reference/small_models.csv`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

import polars as pl

from parsers.records import MONEY
from pipelines.waste.application_rules import Rule
from pipelines.waste.applications import MINIMUM_CALLS
from pipelines.waste.row_prices import PRICES_SCHEMA
from warehouse.prices import load_price_table, unit_prices

INPUT_TOKENS, OUTPUT_TOKENS = 1_500, 250
SIMPLE_SHARE = 0.8
MOVED, OF = 4, 5
ROUTED_SHARE = 0.6
"""An application that sends this share of its simple calls to the small model already routes."""
TOOL_CALLS = ("tool_calls", "tool_use", "function_call")


_IS_SIMPLE = (
    (pl.col("input_tokens") <= INPUT_TOKENS)
    & (pl.col("output_tokens") <= OUTPUT_TOKENS)
    & (pl.col("reasoning_tokens").fill_null(0) == 0)
    & ~pl.col("finish_reason").str.to_lowercase().is_in(TOOL_CALLS).fill_null(value=False)
)
_SAVED = ((pl.col("list_usd") - pl.col("small_usd")) * MOVED / OF).cast(MONEY)


def _with_those_at_the_small_model(sums: pl.DataFrame) -> pl.DataFrame:
    """Adds `simple_at_small`: simple calls that the same application sends to the small model."""
    who = ["team", "app_kind", "app", "small_model"]
    small = sums.select(*who[:-1], pl.col("listed_model").alias("small_model"), "simple").drop_nulls(
        "small_model"
    )
    there = small.group_by(who).agg(pl.col("simple").sum().alias("simple_at_small"))
    return sums.join(there, on=who, how="left", nulls_equal=True).with_columns(
        pl.col("simple_at_small").fill_null(0)
    )


ROUTING = Rule(
    kind="routing_candidate",
    basis="what_if",
    behind=_IS_SIMPLE & (pl.col("processing") == "standard") & (pl.col("small_usd") < pl.col("list_usd")),
    among=pl.col("output_tokens").is_not_null(),
    usd=_SAVED,
    evidence="modelled",
    step="routed",
    change={"price_ratio": ((pl.col("list_usd") - _SAVED) / pl.col("list_usd")).cast(MONEY)},
    further=(
        _IS_SIMPLE.fill_null(value=False).sum().cast(pl.Int64).alias("simple"),
        pl.col("small_model").drop_nulls().first(),
        pl.col("listed_model").drop_nulls().first(),
    ),
    derive=_with_those_at_the_small_model,
    material=(pl.col("requests") >= MINIMUM_CALLS)
    & (pl.col("simple") >= SIMPLE_SHARE * pl.col("requests_judged"))
    & (pl.col("simple_at_small") < ROUTED_SHARE * (pl.col("simple") + pl.col("simple_at_small"))),
)


def listed_models(keys: pl.DataFrame) -> pl.DataFrame:
    """What price lists call the models of a log, and the small model of each.

    Args:
        keys: `provider, model`.

    Returns:
        Distinct `provider, model, listed_model, small_model`, the latter two null where none is known.

    """
    pairs = keys.select("provider", "model").unique().sort("provider", "model")
    rows = [(provider, model, *_listed(provider, model)) for provider, model in pairs.iter_rows()]
    schema = dict.fromkeys(("provider", "model", "listed_model", "small_model"), pl.String())
    return pl.DataFrame(rows, schema=schema, orient="row")


def _listed(provider: str | None, model: str) -> tuple[str | None, str | None]:
    match = load_price_table().names.find(provider, model)
    if match is None:
        return None, None
    smaller = (
        small
        for maker, pattern, small in _pairs()
        if maker == match.priced_as and fnmatchcase(match.model, pattern)
    )
    return match.model, next(smaller, None)


def small_model_prices(
    keys: pl.DataFrame, listed: pl.DataFrame, overrides: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Prices of the small model of each large one.

    Args:
        keys: distinct `provider, model, day`.
        listed: of `listed_models`.
        overrides: a site's own prices (columns of `warehouse.prices.OVERRIDES`).

    Returns:
        Columns of `PRICES_SCHEMA`, keyed by the large model; no row where there is no small one or it has no price.

    """
    large = keys.join(listed.drop_nulls("small_model"), on=["provider", "model"], nulls_equal=True)
    asked = large.select("provider", pl.col("small_model").alias("model"), "day")
    prices = unit_prices(asked, overrides=overrides).filter(pl.col("context_tier_start") == 0)
    named = prices.rename({"model": "small_model"})
    priced = large.join(named, on=["provider", "small_model", "day"], nulls_equal=True)
    return priced.select(PRICES_SCHEMA.names())


@cache
def _pairs() -> list[tuple[str, str, str]]:
    text = (files("warehouse") / "reference" / "small_models.csv").read_bytes()
    return list(pl.read_csv(text, comment_prefix="#", infer_schema=False).iter_rows())
