"""What a number of accelerators costs per month, rented or owned.

Belongs here: amortisation, energy, rent, per month of 730 hours and in exact decimals. Does not belong here:
prices of tokens (the costs stage), how many accelerators are needed (`replicas.py`). The share for servers,
network and building beside a purchase: `warehouse/reference/ownership.toml`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pipelines.fleet import HOURS_PER_MONTH, HOURS_PER_YEAR, Pool, Site
from warehouse.catalogue import Accelerator, parameters

CENT_OF_A_CENT = Decimal("0.0001")
CENTS_BELOW = 10
"""Dollars below which cents are written out."""
SERVER_KINDS = frozenset({"sxm", "oam", "rack"})


@dataclass(frozen=True)
class Prices:
    """Prices of one accelerator in USD; None is unknown. `owned` is how many of it the pool owns already."""

    capex: Decimal | None
    hour: Decimal | None
    owned: int = 0


def prices_of(accelerator: Accelerator, today: Pool | None) -> Prices:
    """Prices for an accelerator: the site's own where it runs it today, else the catalogue's middle."""
    capex, hour = decimal(accelerator.capex_usd), decimal(accelerator.cloud_usd_per_hour)
    if today is None or today.card != accelerator:
        return Prices(capex, hour)
    stated = today.capex_usd_per_accelerator
    rent = today.usd_per_accelerator_hour
    return Prices(
        capex if stated is None else stated,
        hour if rent is None else rent,
        today.accelerators if today.serving == "own" else 0,
    )


def decimal(value: float | None) -> Decimal | None:
    """A float's shortest decimal."""
    return None if value is None else Decimal(repr(value))


def monthly_usd(
    serving: Literal["own", "cloud"], count: int, prices: Prices, wall_kw: float | None, site: Site
) -> Decimal | None:
    """Cost per month; None if its price (or, for own hardware, its power) is unknown.

    Rented: count x hours. Owned: amortisation plus energy at the meter; accelerators beyond those owned
    already come with a share for servers, network, building and staff.
    """
    if serving == "cloud":
        return (
            None if prices.hour is None else (prices.hour * count * HOURS_PER_MONTH).quantize(CENT_OF_A_CENT)
        )
    if prices.capex is None or wall_kw is None:
        return None
    had = min(count, prices.owned)
    on_top = Decimal(repr(parameters("ownership")["on_top_ratio"]))
    value = prices.capex * had + prices.capex * (count - had) * (1 + on_top)
    months = Decimal(repr(site.amortisation_years * HOURS_PER_YEAR / HOURS_PER_MONTH))
    return (value / months + energy_usd(wall_kw, site)).quantize(CENT_OF_A_CENT)


def energy_usd(wall_kw: float, site: Site) -> Decimal:
    """Energy per month at a mean power at the meter."""
    return Decimal(repr(round(wall_kw, 6))) * HOURS_PER_MONTH * site.electricity_usd_per_kwh


def bought_count(accelerator: Accelerator, count: int, tensor_parallel: int, owned: int) -> int:
    """Accelerators to own for `count` needed: those that are bought come in whole servers if built so."""
    extra = max(count - owned, 0)
    if extra and accelerator.kind in SERVER_KINDS:
        server = accelerator.scale_up_size
        extra = math.ceil(extra / server) * server
    total = max(count, owned + extra) if extra else count
    return total // tensor_parallel * tensor_parallel


def spelled(usd: Decimal) -> str:
    """Whole dollars, or cents below ten."""
    return f"{usd:,.0f}" if usd >= CENTS_BELOW else f"{usd:,.2f}"
