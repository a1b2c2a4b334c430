"""Output of `dcgmi dmon`: a table of one line per GPU and tick, with headers that recur.

Belongs here: DCGM's short names of its fields. Does not belong here: dcgm-exporter (`prometheus_text.py`),
`nvidia-smi dmon` (`nvidia_smi_dmon.py`), how tables without a date get their instants (`parsers/meters.py`).
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

_HEADER = r"^\s*#\s*Entity\s+[A-Z][A-Z0-9_]+\b"
_DATA = r"^\s*GPU \d+\s"
_MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(("POWER",)),
    "energy_j": Quantity(("TOTEC",), divisor=1000),
    "power_limit_w": Quantity(("EPLMT",)),
    "utilisation_ratio": Quantity(("GPUTL",), divisor=100),
    "memory_utilisation_ratio": Quantity(("MCUTL",), divisor=100),
    "memory_used_bytes": Quantity(("FBUSD",), factor=MIB),
    "memory_total_bytes": Quantity(("FBTTL",), factor=MIB),
    "tensor_active_ratio": Quantity(("TENSO",)),
    "dram_active_ratio": Quantity(("DRAMA",)),
    "temperature_c": Quantity(("TMPTR",)),
}


def _recognise(head: Head) -> bool:
    return any("Entity" in line and re.search(_HEADER, meters.bare(line)) for line in head.lines[:200])


def _cells(line: pl.Expr) -> pl.Expr:
    """Words; the entity is a word for its kind and its number."""
    one_word = line.str.replace(r"^\s*#\s*", "").str.replace(r"^\s*([A-Za-z-]+) (\d+)\s", "$2 ")
    return one_word.str.extract_all(r"\S+")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    names = ("Entity", *(name for q in _MEASURED.values() for name in q.names))
    rows = meters.table(frame, context, header=_HEADER, data=_DATA, cells=_cells, names=names)
    found = rows.select(
        "source_line",
        stamp=meters.stamp(pl.col("line")),
        device=pl.when("is_data").then("Entity"),
        fault=pl.coalesce("fault", meters.unread(_MEASURED)),
        flags=pl.struct(pl.col("is_data").alias(meters.IS_INDEX)),
        **meters.measured(_MEASURED),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="dcgmi_dmon",
    title="dcgmi dmon table",
    written_by="dcgmi dmon -e 155,203,1004,1005 ...",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a header line `#Entity` and DCGM's short names of fields",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "There is no clock: an instant before the lines (ts), a line of date, or the options origin and "
            "interval_s (the delay, -d) tell; else the last tick is taken at the file's last change (flagged)."
        ),
        "GPUTL is the share of time that any kernel ran, not MFU; TENSO and DRAMA are 0 to 1.",
        "N/A is a missing value. TOTEC counts mJ since the driver was loaded.",
        "GPU instances (MIG) share their GPU's power: their lines are no samples. GPUs are known by index.",
    ),
)
