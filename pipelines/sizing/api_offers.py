"""What a pool's tokens cost at an API: the one that serves it today, or one that hosts the same open weights.

Belongs here: the monthly cost of API models as they are paid, and list prices of hosted copies of self-hosted
models. Does not belong here: prices (`warehouse/prices.py`), what calls would cost at them
(`pipelines/costs/compare.py`), whether to take an offer (`choice.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

import polars as pl

from pipelines.calls import is_demand, model_name
from pipelines.costs.compare import api_cost
from pipelines.sizing.cost import CENT_OF_A_CENT, spelled
from pipelines.sizing.load import LEAST_COVERED_S, SECONDS_PER_MONTH, DemandSummary
from warehouse.catalogue import find_model
from warehouse.price_names import is_self_hosted
from warehouse.prices import load_price_table, unit_prices

_DERIVED_MARK = "distill"
"""In a model's name: other weights in the same architecture."""


@dataclass(frozen=True)
class ApiOffer:
    """Cost per month at an API (None is unknown); `is_today`: it is what serves the pool."""

    usd_per_month: Decimal | None
    is_today: bool
    reasons: tuple[str, ...] = ()


def paid_offers(
    loads: Sequence[DemandSummary], lines: pl.DataFrame, removed: Mapping[str, Decimal]
) -> dict[str, ApiOffer]:
    """What API models cost in a month like the covered time.

    Args:
        loads: pools; those that a pool of the fleet file serves have no such offer.
        lines: COST_LINES.
        removed: by log model, the share of its cost that is waste and is taken out.

    """
    stated = pl.col("basis").is_in(["list_price", "reported"]) & (pl.col("cost_usd") > 0)
    paid = lines.filter(stated).group_by("provider", "model").agg(pl.col("cost_usd").sum())
    offers = {}
    for load in loads:
        mine = paid.filter(pl.col("model").is_in(load.log_models)).sort("provider", "model")
        if load.today is not None or mine.is_empty():
            continue
        if any(is_self_hosted(provider, model) for provider, model, _ in mine.iter_rows()):
            offers[load.pool] = ApiOffer(None, is_today=False, reasons=(_OWN_ENGINE,))
            continue
        if load.window_s < LEAST_COVERED_S:
            offers[load.pool] = ApiOffer(None, is_today=True, reasons=(_TOO_SHORT,))
            continue
        shares = {model: removed.get(model, Decimal(0)) for model in load.log_models}
        total = sum((usd * (1 - shares[model]) for _, model, usd in mine.iter_rows()), Decimal(0))
        words = "As it is paid today" + (", less the waste" if any(shares.values()) else "")
        offers[load.pool] = ApiOffer(_month(total, load), is_today=True, reasons=(words,))
    return offers


_OWN_ENGINE = (
    "An engine of one's own serves it, which no pool of the fleet file names: state the pool to have it sized"
)
_TOO_SHORT = "Paid today; less than a day of data is too short to speak of a month"


def hosted_offers(requests: pl.LazyFrame, loads: Sequence[DemandSummary]) -> dict[str, ApiOffer]:
    """Cheapest list price of a provider that hosts the same open weights, for pools of one's own hardware.

    Args:
        requests: the facts.
        loads: pools, waste included or not: tokens that a load no longer has are taken off in proportion.

    """
    offers = {}
    for load in loads:
        if load.today is None or load.model is None or load.window_s < LEAST_COVERED_S:
            continue
        own = requests.filter(model_name().is_in(load.log_models))
        costs = _hosted_costs(own, load.model.name)
        if costs.is_empty():
            continue
        cheapest, dearest = costs.row(0, named=True), costs.row(-1, named=True)
        tokens = Decimal(int(cheapest["tokens"]))
        share = (
            min(Decimal(repr(load.input_tokens + load.output_tokens)) / tokens, Decimal(1)) if tokens else 1
        )
        low, high = (_month(entry["usd"] * share, load) for entry in (cheapest, dearest))
        offers[load.pool] = ApiOffer(low, is_today=False, reasons=_hosted_words(costs, low, high))
    return offers


def _hosted_costs(requests: pl.LazyFrame, model: str) -> pl.DataFrame:
    """`provider, model, usd, tokens` of hosted copies with a price on every day, cheapest first."""
    days = requests.select(pl.col("started_at").dt.date().alias("day")).unique().collect()
    keys = pl.DataFrame(_hosts(model), schema={"provider": pl.String, "model": pl.String}, orient="row")
    prices = unit_prices(keys.join(days, how="cross"))
    if prices.is_empty():
        return pl.DataFrame(schema={"usd": pl.Decimal(38, 12)})
    counted = requests.filter(is_demand()).select(
        pl.col("input_tokens").sum() + pl.col("output_tokens").sum()
    )
    tokens = counted.collect().item()
    costs = api_cost(requests, prices).filter(pl.col("usd") > 0).sort("usd", "provider", "model")
    return costs.with_columns(tokens=pl.lit(tokens, pl.Int64))


@lru_cache(maxsize=256)
def _hosts(model: str) -> tuple[tuple[str, str], ...]:
    """(provider, model) of the price table that stand for an architecture's own weights."""
    names = load_price_table().prices.select("provider", "model").unique().sort("provider", "model").rows()
    return tuple(
        (provider, name)
        for provider, name in names
        if _DERIVED_MARK not in name.casefold()
        and (found := find_model(name)) is not None
        and found.name == model
    )


def _hosted_words(costs: pl.DataFrame, low: Decimal, high: Decimal) -> tuple[str, ...]:
    first = costs.row(0, named=True)
    dearest = f" (the dearest would cost {spelled(high)} USD a month)" if high > low else ""
    host = f"{first['provider']} {first['model']}"
    told = [
        f"List price of the same open weights, the cheapest of {costs.height}: {host}{dearest}",
        "Listed for comparison: prompts would leave the site; its latency and precision are not known here",
    ]
    if first["is_upper_bound"]:
        told.append("Cache reads are unknown for some calls: their whole input is priced")
    return tuple(told)


def _month(usd: Decimal, load: DemandSummary) -> Decimal:
    return (usd / Decimal(repr(load.window_s)) * Decimal(SECONDS_PER_MONTH)).quantize(CENT_OF_A_CENT)
