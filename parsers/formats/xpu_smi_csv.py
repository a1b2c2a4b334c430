"""CSV of `xpu-smi dump` (Intel data centre GPUs): one line per GPU and tick, with a time of day.

Belongs here: its names of columns. Does not belong here: which day it was (`parsers/meters.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.meters import MIB, Quantity
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = r"^\s*Timestamp\s*,\s*DeviceId\s*,.*GPU "
_DATA = r"^\s*\d[\d:. /TZ-]*,\s*\d"
_TIME_OF_DAY = r"^\d\d:\d\d:\d\d(?:\.\d+)?$"
_MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(("GPU Power (W)",)),
    "energy_j": Quantity(("GPU Energy Consumed (J)",)),
    "utilisation_ratio": Quantity(("GPU Utilization (%)",), divisor=100),
    "memory_utilisation_ratio": Quantity(("GPU Memory Bandwidth Utilization (%)",), divisor=100),
    "memory_used_bytes": Quantity(("GPU Memory Used (MiB)",), factor=MIB),
    "temperature_c": Quantity(("GPU Core Temperature (C)", "GPU Core Temperature (Celsius Degree)")),
}


def _recognise(head: Head) -> bool:
    return any("DeviceId" in line and re.search(_HEADER, meters.bare(line)) for line in head.lines[:100])


def _cells(line: pl.Expr) -> pl.Expr:
    return line.str.split(",")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    names = ("Timestamp", "DeviceId", *(name for q in _MEASURED.values() for name in q.names))
    rows = meters.table(frame, context, header=_HEADER, data=_DATA, cells=_cells, names=names)
    clock = pl.col("Timestamp")
    found = rows.select(
        "source_line",
        stamp=pl.coalesce(meters.stamp(clock), meters.stamp(pl.col("line"))),
        clock=pl.when(clock.str.contains(_TIME_OF_DAY)).then(clock),
        device=pl.when("is_data").then(pl.coalesce("DeviceId", pl.lit("?"))),
        fault=pl.coalesce("fault", meters.unread(_MEASURED)),
        flags=pl.struct(pl.col("is_data").alias(meters.IS_INDEX)),
        **meters.measured(_MEASURED),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="xpu_smi_csv",
    title="xpu-smi dump CSV",
    written_by="xpu-smi dump -d ... -m ...; xpumcli dump",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a CSV header that begins with Timestamp, DeviceId and has a GPU column",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "Timestamp is a time of day: the day is that of the file's last change, counted back over midnights "
            "(flagged); the option origin states that of the first line."
        ),
        "GPU Memory Utilization is the share of memory in use, not of bandwidth: not taken.",
        "N/A is a missing value; the first tick has no utilisation.",
        "Columns for single tiles are not taken.",
    ),
)
