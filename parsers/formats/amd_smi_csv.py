"""CSV of `rocm-smi` and of its successor `amd-smi`: one line per GPU and call, often called in a loop.

Belongs here: how their CSV looks. Does not belong here: what the columns mean (`parsers/amd_smi.py`), JSON
(`amd_smi_json.py`), how calls without a date get their instants (`parsers/meters.py`).
"""

from __future__ import annotations

import re

import polars as pl

from parsers import amd_smi, meters
from parsers.format import Context, Format, Head
from parsers.records import DEVICE_SAMPLES

_ROCM = r"(?:Graphics Package Power|GPU use|Socket Graphics|VRAM Total|GPU Memory)"
_AMD = r"(?:power_usage|socket_power|gfx_activity|average_socket_power|current_socket_power)"
_HEADER = rf"^\s*(?:[\w ]+,)*(?:device,(?:.*,)?[^,]*{_ROCM}|gpu,(?:.*,)?{_AMD}\b)"
_DATA = r"""^\s*"?(?:card\d|\d)"""
_CLOCKS = ("timestamp", "Timestamp", "time", "Time")


def _recognise(head: Head) -> bool:
    return any(
        ("device," in line or "gpu," in line) and re.search(_HEADER, meters.bare(line))
        for line in head.lines[:100]
    )


def _cells(line: pl.Expr) -> pl.Expr:
    return line.str.replace_all('"', "", literal=True).str.split(",")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    rows = meters.table(
        frame, context, header=_HEADER, data=_DATA, cells=_cells, names=(*_CLOCKS, *amd_smi.NAMES)
    )
    columns = amd_smi.sample(pl.col("is_data"))
    found = rows.select(
        "source_line",
        stamp=pl.coalesce(*(meters.stamp(pl.col(name)) for name in _CLOCKS), meters.stamp(pl.col("line"))),
        **{**columns, "fault": pl.coalesce("fault", columns["fault"])},
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="amd_smi_csv",
    title="rocm-smi and amd-smi CSV",
    written_by="rocm-smi --showpower --showuse ... --csv; amd-smi monitor --csv, amd-smi metric --csv",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a CSV header with device and a power or use column of rocm-smi, or gpu and one of amd-smi",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "Neither tool states when it was called, but for amd-smi monitor: a column that the loop put first, a "
            "line of date, or the options origin and interval_s tell; else the file's last change (flagged)."
        ),
        "Columns vary by version: they are found by name, and a header may recur or change on the way.",
        "Power is that of the package or socket: an average in older cards, momentary in newer ones.",
        "Partitions other than the first report 0 W or N/A for the socket they share.",
        "`mem` is a temperature in amd-smi metric and a load in amd-smi monitor: not taken.",
    ),
)
