"""The hours and the hourly cost of one's own pools, day by day, for `own_hardware.py`.

Belongs here: joining the fleet's prices with the hours that the efficiency stage measured. Does not belong here: the
allocation to calls (`own_hardware.py`), the price of an hour (`pipelines/sizing/cost.py`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from pipelines.costs.own_hardware import PoolDay, pool_days
from pipelines.fleet import HOURS_PER_MONTH
from pipelines.sizing.cost import monthly_usd, prices_of
from pipelines.sizing.power import wall_power_kw

if TYPE_CHECKING:
    from pipelines.fleet import Fleet, Pool

_SECONDS_PER_HOUR = Decimal(3600)


def own_days(fleet: Fleet, efficiency: pl.DataFrame) -> pl.DataFrame:
    """Pools by day with their cost per hour; a pool whose price is unknown is left out.

    Args:
        fleet: the site file.
        efficiency: EFFICIENCY_HOURLY; its covered hours are the hours that a pool is charged for, and its mean
            power goes into the energy of pools that are owned.

    """
    days = []
    for pool in fleet.pools:
        hours = efficiency.filter(pl.col("scope") == f"pool:{pool.name}")
        usd_per_hour = _usd_per_hour(pool, fleet, hours)
        if usd_per_hour is None:
            continue
        by_day = hours.group_by(pl.col("hour_at").dt.date().alias("day"), maintain_order=True).agg(
            pl.col("wall_s").sum(), pl.col("busy_s").sum(), pl.col("busy_s").null_count().alias("unknown")
        )
        for day, wall_s, busy_s, unknown in by_day.iter_rows():
            wall = _hours(wall_s)
            busy = None if unknown else min(_hours(busy_s), wall)
            days.append(PoolDay(pool.name, pool.models, day, usd_per_hour, wall, busy))
    return pool_days(days)


def _usd_per_hour(pool: Pool, fleet: Fleet, hours: pl.DataFrame) -> Decimal | None:
    mean = hours.filter(pl.col("power_w_mean").is_not_null())
    watts = mean.select((pl.col("power_w_mean") * pl.col("wall_s")).sum() / pl.col("wall_s").sum()).item()
    wall_kw = None if watts is None else wall_power_kw(watts, pool.host_power_factor, fleet.site.pue)
    month = monthly_usd(pool.serving, pool.accelerators, prices_of(pool.card, pool), wall_kw, fleet.site)
    return None if month is None else (month / HOURS_PER_MONTH).quantize(Decimal("1e-9"))


def _hours(seconds: float) -> Decimal:
    return (Decimal(repr(seconds)) / _SECONDS_PER_HOUR).quantize(Decimal("1e-9"))
