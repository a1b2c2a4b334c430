"""The framed table that `nvidia-smi` prints without arguments, in a loop (`-l`, watch): two lines per GPU.

Belongs here: its layout. Does not belong here: queries (`nvidia_smi_csv.py`), `dmon` (`nvidia_smi_dmon.py`), the
list of processes below the table.
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

# | index name persistence | bus display | ECC |, and below | fan temp perf power / limit | used / total | load mode |
_ABOVE = r"^\|\s+(?<index>\d+)\s+(?<name>\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)\s*\|\s*[\dA-Fa-f]{4,8}:[\dA-Fa-f:.]+\s"
_BELOW = (
    r"^\|\s*(?:\S+)\s+(?<temp>\d+|N/A|ERR!)C?\s+\S+\s+(?<power>\d+|N/A|ERR!)W?\s*/\s*(?<limit>\d+|N/A|ERR!)W?\s*\|"
    r"\s*(?<used>\d+)MiB\s*/\s*(?<total>\d+)MiB\s*\|\s*(?<load>\d+|N/A|ERR!)%?\s"
)
_UPPER, _LOWER = ("index", "name"), ("temp", "power", "limit", "used", "total", "load")
_MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(("power",)),
    "power_limit_w": Quantity(("limit",)),
    "utilisation_ratio": Quantity(("load",), divisor=100),
    "memory_used_bytes": Quantity(("used",), factor=MIB),
    "memory_total_bytes": Quantity(("total",), factor=MIB),
    "temperature_c": Quantity(("temp",)),
}


def _recognise(head: Head) -> bool:
    lines = (meters.bare(line) for line in head.lines[:500] if "NVIDIA-SMI" in line)
    return any(re.match(r"\|\s*NVIDIA-SMI\s+\d", line) for line in lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line"))
    rest = meters.without_prefix(line)
    above, below = rest.str.extract_groups(_ABOVE), rest.str.extract_groups(_BELOW)
    found = frame.select(
        "source_line",
        stamp=meters.stamp(line),
        **{part: above.struct.field(part) for part in _UPPER},
        **{part: below.struct.field(part) for part in _LOWER},
    )
    return meters.keep(
        found.filter(pl.any_horizontal(pl.col(c).is_not_null() for c in ("stamp", "index", "total"))),
        frame,
        context,
    )


def _finish(context: Context) -> pl.DataFrame:
    found = meters.kept(context)
    if found.is_empty():
        return found
    # The line above names the GPU; a sample is the lower line's. Lines of a container state an instant each.
    is_lower = pl.col("total").is_not_null() & pl.col("index").shift(1).is_not_null()
    samples = found.select(
        "source_line",
        "stamp",
        device=pl.when(is_lower).then(pl.col("index").shift(1)),
        device_name=pl.when(is_lower).then(pl.col("name").shift(1)),
        fault=pl.lit(None, pl.String),
        flags=pl.struct(is_lower.alias(meters.IS_INDEX)),
        **meters.measured(_MEASURED),
    )
    return meters.mixed(
        samples.filter(pl.col("device").is_not_null() | pl.col("stamp").is_not_null()), context
    )


FORMAT = Format(
    name="nvidia_smi_table",
    title="nvidia-smi table",
    written_by="nvidia-smi, nvidia-smi -l, watch nvidia-smi",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a framed line | NVIDIA-SMI and a version",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    traps=(
        "The line above the table is local time without a zone (option timezone), to the second.",
        "Power is rounded to whole watts; N/A and ERR! are missing values; long names of GPUs are cut.",
        "The load is the share of time that any kernel ran, not MFU; MIG leaves it at N/A.",
        "GPUs are known by index; MIG devices and processes below are not read.",
    ),
)
