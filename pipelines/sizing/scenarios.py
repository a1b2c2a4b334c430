"""The two loads that hardware is sized for: as it is, and with the waste removed.

Belongs here: taking missed and oversize tokens out of the demand of each model and out of what its API
costs. Does not belong here: finding waste (`pipelines/waste/`), options (`options.py`), prices of APIs
(`api_offers.py`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.sizing.api_offers import hosted_offers, paid_offers
from pipelines.sizing.load import all_without_waste, demand_summary
from pipelines.sizing.options import fleet_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.fleet import Fleet


def options_of_both(
    requests: pl.LazyFrame,
    marts: Mapping[str, pl.DataFrame],
    fleet: Fleet,
) -> pl.DataFrame:
    """Rows of FLEET_OPTIONS for both scenarios.

    Args:
        requests: the facts.
        marts: coverage, repetition, oversize, efficiency_hourly, cost_lines by name.
        fleet: the site file.

    """
    coverage, lines = marts["coverage"], marts["cost_lines"]
    as_is = demand_summary(requests, coverage, fleet)
    removed = all_without_waste(
        as_is,
        missed_tokens=_by_model(_of_models(marts["repetition"]), "missed_tokens"),
        oversize_tokens=_by_model(_worst_rule(marts["oversize"]), "excess_tokens"),
    )
    watts = _measured_w(marts["efficiency_hourly"])
    shares = _removable_share(marts)
    return pl.concat(
        [
            fleet_options(
                as_is,
                fleet,
                "as_is",
                apis={**paid_offers(as_is, lines, {}), **hosted_offers(requests, as_is)},
                measured_w=watts,
            ),
            fleet_options(
                removed,
                fleet,
                "waste_removed",
                apis={**paid_offers(removed, lines, shares), **hosted_offers(requests, removed)},
                measured_w=watts,
            ),
        ]
    )


def _measured_w(efficiency: pl.DataFrame) -> dict[str, float]:
    """Mean measured power by pool over the hours with data; pools with a modelled hour are left out."""
    weight = pl.col("power_w_mean") * pl.col("wall_s")
    by_pool = efficiency.group_by("scope").agg(
        watts=weight.sum() / pl.col("wall_s").sum(),
        measured=((pl.col("power_source") == "measured") | (pl.col("wall_s") == 0))
        .fill_null(value=False)
        .all(),
    )
    known = by_pool.filter(pl.col("measured") & pl.col("watts").is_finite())
    return {scope.removeprefix("pool:"): watts for scope, watts in known.select("scope", "watts").iter_rows()}


def _of_models(repetition: pl.DataFrame) -> pl.DataFrame:
    return repetition.filter(
        pl.col("scope").str.starts_with("model:") & ~pl.col("scope").str.contains("/team:")
    )


def _by_model(frame: pl.DataFrame, amount: str) -> dict[str, Any]:
    known = frame.filter(pl.col(amount).is_not_null())
    return dict(known.group_by("model").agg(pl.col(amount).sum()).iter_rows())


def _worst_rule(oversize: pl.DataFrame) -> pl.DataFrame:
    """One row per scope: the rule with the largest excess, since a prompt may break several."""
    return oversize.sort("excess_tokens", descending=True).unique("scope", keep="first", maintain_order=True)


def _removable_share(marts: Mapping[str, pl.DataFrame]) -> dict[str, Decimal]:
    """Share of a model's money that oversize prompts and missed reads cost; at most all of it.

    Excess goes first and missed reads are taken off what remains, as with the tokens of `without_waste`:
    excess + missed x (1 - excess), both as shares of the money.
    """
    missed = _by_model(_of_models(marts["repetition"]), "missed_usd")
    excess = _by_model(_worst_rule(marts["oversize"]), "excess_usd")
    spent = _by_model(marts["cost_lines"], "cost_usd")
    shares = {}
    for model, total in spent.items():
        first, then = (_share(usd.get(model), total) for usd in (excess, missed))
        shares[model] = first + then * (1 - first)
    return shares


def _share(part: Decimal | None, whole: Decimal | None) -> Decimal:
    return min(part / whole, Decimal(1)) if part and whole else Decimal(0)
