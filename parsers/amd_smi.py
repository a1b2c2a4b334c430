"""What AMD's tools call the values of a GPU: `rocm-smi`, and its successor `amd-smi`.

Belongs here: names with units, shared by the CSV and the JSON of both. Does not belong here: how an output is
laid out (`formats/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.meters import MIB, Quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

DEVICES = ("Unique ID", "uuid", "device", "gpu")
PRODUCTS = ("Card Series", "Card Model", "market_name")
MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(
        (
            "Average Graphics Package Power (W)",
            "Current Socket Graphics Package Power (W)",
            "power_usage",
            "socket_power",
            "current_socket_power",
            "average_socket_power",
        )
    ),
    "energy_j": Quantity(("total_energy_consumption",)),
    "power_limit_w": Quantity(("Max Graphics Package Power (W)", "power_cap", "socket_power_limit")),
    "utilisation_ratio": Quantity(("GPU use (%)", "gfx_activity", "gfx"), divisor=100),
    "memory_utilisation_ratio": Quantity(("GPU Memory Read/Write Activity (%)", "umc_activity"), divisor=100),
    "memory_used_bytes": Quantity(("VRAM Total Used Memory (B)",)),
    "memory_total_bytes": Quantity(("VRAM Total Memory (B)",)),
    "temperature_c": Quantity(
        (
            "Temperature (Sensor junction) (C)",
            "Temperature (Sensor edge) (C)",
            "hotspot_temperature",
            "hotspot",
            "edge",
        )
    ),
}
IN_MB: Mapping[str, Quantity] = {
    "memory_used_bytes": Quantity(("vram_used", "used_vram"), factor=MIB),
    "memory_total_bytes": Quantity(("vram_total", "total_vram"), factor=MIB),
}
"""amd-smi counts memory in MB (of 2^20 bytes)."""

NAMES = tuple(
    dict.fromkeys((*DEVICES, *PRODUCTS, *(n for m in (MEASURED, IN_MB) for q in m.values() for n in q.names)))
)


def sample(is_data: pl.Expr) -> dict[str, pl.Expr]:
    """Columns for `meters.samples` from columns of text called by NAMES."""
    device = pl.coalesce(*(pl.col(name) for name in DEVICES))
    in_mb = meters.measured(IN_MB)
    return {
        "device": pl.when(is_data).then(pl.coalesce(device.str.strip_prefix("card"), pl.lit("?"))),
        "device_name": pl.coalesce(*(pl.col(name) for name in PRODUCTS)),
        "fault": pl.when(is_data).then(pl.coalesce(meters.unread(MEASURED), meters.unread(IN_MB))),
        "flags": pl.struct(device.str.contains(r"^(?:card)?\d{1,3}$").alias(meters.IS_INDEX)),
        **{
            name: pl.coalesce(value, in_mb[name]) if name in in_mb else value
            for name, value in meters.measured(MEASURED).items()
        },
    }
