"""The two loads that hardware is sized for: as it is, and with the waste removed.

Belongs here: taking what the findings save, net of each other, out of the demand of each model and out of what its API
costs. Does not belong here: finding waste and what it saves (`pipelines/waste/`), options (`options.py`), prices of
APIs (`api_offers.py`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from pipelines.sizing.api_offers import hosted_offers, paid_offers
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.options import fleet_options
from pipelines.sizing.waste_removed import Removed, all_without_waste
from pipelines.waste.net_savings import removed_by_model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.fleet import Fleet


def options_of_both(
    as_is: Sequence[DemandSummary],
    requests: pl.LazyFrame,
    savings: pl.DataFrame,
    marts: Mapping[str, pl.DataFrame],
    fleet: Fleet,
) -> pl.DataFrame:
    """Rows of FLEET_OPTIONS for both scenarios.

    Args:
        as_is: the load of each pool.
        requests: the facts.
        savings: what findings save, `net_savings.SAVINGS`.
        marts: efficiency_hourly, cost_lines by name.
        fleet: the site file.

    """
    lines = marts["cost_lines"]
    by_model = removed_by_model(savings)
    removed = all_without_waste(as_is, _removed(by_model))
    watts = _measured_w(marts["efficiency_hourly"])
    shares = _removable_share(by_model, lines)
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


def _removed(by_model: pl.DataFrame) -> dict[str, Removed]:
    columns = ("model", "calls_removed", "input_removed", "computed_removed", "output_removed")
    return {model: Removed(*amounts) for model, *amounts in by_model.select(columns).iter_rows()}


def _removable_share(by_model: pl.DataFrame, lines: pl.DataFrame) -> dict[str, Decimal]:
    """Share of what each model costs that its findings save, net of each other; at most all of it.

    Args:
        by_model: `model, usd` of `net_savings.removed_by_model`.
        lines: COST_LINES.

    """
    spent = lines.group_by("model").agg(pl.col("cost_usd").sum().alias("spent"))
    saved = spent.join(by_model, on="model", how="left").select("model", "usd", "spent")
    return {
        model: min(usd / total, Decimal(1)) if usd and total else Decimal(0)
        for model, usd, total in saved.iter_rows()
    }
