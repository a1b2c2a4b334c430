"""The two loads that hardware is sized for: as it is, and with the waste removed.

Belongs here: taking missed and oversize tokens out of the demand of each model, and what the same tokens cost at an API.
Does not belong here: finding waste (`pipelines/waste/`), options (`options.py`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.sizing.cost import CENT_OF_A_CENT
from pipelines.sizing.load import SECONDS_PER_MONTH, demand_summary
from pipelines.sizing.options import fleet_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.fleet import Fleet
    from pipelines.sizing.load import DemandSummary


def options_of_both(
    requests: pl.LazyFrame,
    marts: Mapping[str, pl.DataFrame],
    fleet: Fleet,
) -> pl.DataFrame:
    """Rows of FLEET_OPTIONS for both scenarios.

    Args:
        requests: the facts.
        marts: demand_peaks, coverage, repetition, oversize, cost_lines by name.
        fleet: the site file.

    """
    repetition, oversize = marts["repetition"], marts["oversize"]
    as_is = demand_summary(requests, marts["demand_peaks"], marts["coverage"], fleet)
    removed = demand_summary(
        requests,
        marts["demand_peaks"],
        marts["coverage"],
        fleet,
        missed_tokens=_by_model(_of_models(repetition), "missed_tokens"),
        oversize_tokens=_by_model(_worst_rule(oversize), "excess_tokens"),
    )
    lines = marts["cost_lines"]
    return pl.concat(
        [
            fleet_options(as_is, fleet, "as_is", api_usd_per_month=_api_month(as_is, lines, {})),
            fleet_options(
                removed,
                fleet,
                "waste_removed",
                api_usd_per_month=_api_month(removed, lines, _removable_share(marts)),
            ),
        ]
    )


def _of_models(repetition: pl.DataFrame) -> pl.DataFrame:
    return repetition.filter(pl.col("scope").str.starts_with("model:") & ~pl.col("scope").str.contains("/team:"))


def _by_model(frame: pl.DataFrame, amount: str) -> dict[str, Any]:
    known = frame.filter(pl.col(amount).is_not_null())
    return dict(known.group_by("model").agg(pl.col(amount).sum()).iter_rows())


def _worst_rule(oversize: pl.DataFrame) -> pl.DataFrame:
    """One row per scope: the rule with the largest excess, since a prompt may break several."""
    return oversize.sort("excess_tokens", descending=True).unique("scope", keep="first", maintain_order=True)


def _removable_share(marts: Mapping[str, pl.DataFrame]) -> dict[str, Decimal]:
    """Share of a model's money that missed reads and oversize prompts cost; at most all of it."""
    missed = _by_model(_of_models(marts["repetition"]), "missed_usd")
    excess = _by_model(_worst_rule(marts["oversize"]), "excess_usd")
    spent = _by_model(marts["cost_lines"], "cost_usd")
    shares = {}
    for model, total in spent.items():
        waste = missed.get(model, Decimal(0)) + excess.get(model, Decimal(0))
        shares[model] = min(waste / total, Decimal(1)) if total else Decimal(0)
    return shares


def _api_month(
    loads: Sequence[DemandSummary], lines: pl.DataFrame, removed: Mapping[str, Decimal]
) -> dict[str, Decimal]:
    """By pool, what API models cost in a month like the covered time, less the removed share."""
    paid = _by_model(lines.filter(pl.col("basis").is_in(["list_price", "reported"])), "cost_usd")
    month: dict[str, Decimal] = {}
    for load in loads:
        parts = [paid[name] * (1 - removed.get(name, Decimal(0))) for name in load.log_models if name in paid]
        if parts and load.model is None:
            per_second = sum(parts, Decimal(0)) / Decimal(repr(load.window_s))
            month[load.pool] = (per_second * Decimal(SECONDS_PER_MONTH)).quantize(CENT_OF_A_CENT)
    return month
