"""What `npu-smi info` prints of Ascend chips: the table of `info watch`, or the framed table of `info` in a loop.

Belongs here: both layouts. Does not belong here: npu-exporter (`parsers/metrics.py`), the instants of tables
without a clock (`parsers/meters.py`).
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

_WATCH_HEADER = r"^\s*Npu ?I[Dd]\s*\(Idx\)\s+Chip ?I[Dd]\s*\(Idx\)\s+"
_WATCH_DATA = r"^\s*\d+\s+\d+\s+[\d.NA-]+(?:\s|$)"
_FRAME_HEADER = r"^\s*\|\s*NPU\s+Name\s*\|\s*Health\s*\|\s*Power\(W\)"
# | NPU Name | Health | Power Temp Hugepages |, and below | Chip [Device] | Bus-Id | AICore Memory [HBM] |
_ABOVE = r"^\s*\|\s*(?<npu>\d+)\s+(?<name>\S+)\s*\|\s*[A-Za-z]\w*\s*\|\s*(?<power>\S+)\s+(?<temp>\S+)\s+\d+\s*/\s*\d+\s*\|"
_BELOW = (
    r"^\s*\|\s*(?<chip>\d+)(?:\s+(?:\d+|NA))?\s*\|\s*(?:NA|[\dA-Fa-f:.]{4,})\s*\|\s*(?<core>\S+)"
    r"\s+(?<used>\d+)\s*/\s*(?<total>\d+)(?:\s+(?<hbm_used>\d+)\s*/\s*(?<hbm_total>\d+))?\s*\|"
)
_MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(("Pwr(W)",)),
    "utilisation_ratio": Quantity(("AI Core(%)",), divisor=100),
    "memory_utilisation_ratio": Quantity(("Memory BW(%)",), divisor=100),
    "temperature_c": Quantity(("Temp(C)",)),
}
_FRAMED: Mapping[str, Quantity] = {
    "power_w": Quantity(("power",)),
    "utilisation_ratio": Quantity(("core",), divisor=100),
    "memory_used_bytes": Quantity(("memory_used",), factor=MIB),
    "memory_total_bytes": Quantity(("memory_total",), factor=MIB),
    "temperature_c": Quantity(("temp",)),
}


def _recognise(head: Head) -> bool:
    lines = (meters.bare(line) for line in head.lines[:300] if "Name" in line or "(Idx)" in line)
    return any(re.search(_FRAME_HEADER, line) or re.search(_WATCH_HEADER, line) for line in lines)


def _watch_cells(line: pl.Expr) -> pl.Expr:
    """Names of the header hold single spaces and end in brackets; the cells of a row hold none."""
    is_header = line.str.contains("(", literal=True)
    names = line.str.extract_all(r"\S[^()]*\([^)]*\)")
    return pl.when(is_header).then(names).otherwise(line.str.extract_all(r"\S+"))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    ids = ("NpuID(Idx)", "ChipId(Idx)")
    names = (*ids, *(name for q in _MEASURED.values() for name in q.names))
    rows = meters.table(
        frame, context, header=_WATCH_HEADER, data=_WATCH_DATA, cells=_watch_cells, names=names
    )
    line = meters.without_prefix(pl.col("line"))
    above, below = line.str.extract_groups(_ABOVE), line.str.extract_groups(_BELOW)
    found = rows.select(
        "source_line",
        stamp=meters.stamp(pl.col("line")),
        device=pl.when("is_data").then(pl.concat_str(*ids, separator="-")),
        fault=pl.when("is_data").then(pl.coalesce("fault", meters.unread(_MEASURED))),
        **meters.measured(_MEASURED),
        **{part: above.struct.field(part) for part in ("npu", "name", "power", "temp")},
        **{
            part: below.struct.field(part)
            for part in ("chip", "core", "used", "total", "hbm_used", "hbm_total")
        },
    )
    says_something = pl.any_horizontal(
        pl.col(name).is_not_null() for name in ("stamp", "device", "npu", "chip")
    )
    return meters.keep(found.filter(says_something), frame, context)


def _finish(context: Context) -> pl.DataFrame:
    found = meters.kept(context)
    if found.is_empty():
        return found
    # The line above names the NPU; both make one sample, which is the lower line's.
    upper = {part: pl.col(part).shift(1) for part in ("npu", "name", "power", "temp")}
    with_hbm = pl.col("hbm_total").cast(pl.Int64, strict=False) > 0
    paired = found.with_columns(
        **upper,
        memory_used=pl.when(with_hbm).then("hbm_used").otherwise("used"),
        memory_total=pl.when(with_hbm).then("hbm_total").otherwise("total"),
    ).with_columns(meters.valued(pl.col(name)) for name in ("power", "temp", "core"))
    is_chip = pl.col("chip").is_not_null() & pl.col("npu").is_not_null()
    framed = meters.measured(_FRAMED)
    samples = paired.select(
        "source_line",
        "stamp",
        device=pl.coalesce("device", pl.when(is_chip).then(pl.concat_str("npu", "chip", separator="-"))),
        device_name=pl.when(is_chip).then("name"),
        fault=pl.coalesce("fault", pl.when(is_chip).then(meters.unread(_FRAMED))),
        flags=pl.struct(pl.lit(value=True).alias(meters.IS_INDEX)),
        **{
            name: pl.coalesce(
                pl.col(name) if name in _MEASURED else None, pl.when(is_chip).then(framed[name])
            )
            if name in framed
            else pl.col(name)
            for name in dict.fromkeys((*_MEASURED, *_FRAMED))
        },
    )
    return meters.mixed(samples.filter(pl.any_horizontal(pl.col("device", "stamp").is_not_null())), context)


FORMAT = Format(
    name="npu_smi_info",
    title="npu-smi info (Ascend)",
    written_by="npu-smi info watch; npu-smi info, in a loop",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a header with NpuID(Idx) and ChipId(Idx), or the framed one with NPU, Name, Health, Power(W)",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    traps=(
        (
            "There is no clock: a line of date before the table, or the options origin and interval_s tell; else the "
            "last table is taken at the file's last change, the others a second apart (flagged)."
        ),
        "NA is a missing value: the second chip of an NPU, and cards that measure per board, state no power.",
        "On boards with two chips power may be that of the board, repeated for each chip: do not add them.",
        "AI Core is the share of time that cores were busy; Memory is the share in use, not the bandwidth.",
        "Devices are known by NPU and chip number, 2-0.",
    ),
)
