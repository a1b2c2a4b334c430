"""Text of `turbostat`: a table per tick whose first line sums up the host's processors.

Belongs here: that line's power. Does not belong here: single cores, how tables without a date get their instants
(`parsers/meters.py`).
"""

from __future__ import annotations

import re
from itertools import pairwise

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.records import DEVICE_SAMPLES

_HEADER = r"^\s*(?:[A-Za-z%_][\w%+./-]*\s+)*PkgWatt(?:\s+[A-Za-z%_][\w%+./-]*)*\s*$"
_DATA = r"^\s*(?:-|\d[\d.]*)\s"
_NAMES = ("Time_Of_Day_Seconds", "CPU", "Core", "PkgWatt", "RAMWatt", "PkgTmp")


def _recognise(head: Head) -> bool:
    lines = [meters.bare(line) for line in head.lines[:200]]
    return any(
        "PkgWatt" in line and re.search(_HEADER, line) and re.search(_DATA, below)
        for line, below in pairwise(lines)
    )


def _cells(line: pl.Expr) -> pl.Expr:
    return line.str.extract_all(r"\S+")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    rows = meters.table(frame, context, header=_HEADER, data=_DATA, cells=_cells, names=_NAMES)
    # The sum has no number of a CPU: it is `-` there, or the table (--Summary) has no such column.
    is_sum = pl.col("is_data") & pl.col("CPU").is_null() & pl.col("Core").is_null()
    watts = {name: meters.value(pl.col(name)) for name in ("PkgWatt", "RAMWatt")}
    found = rows.select(
        "source_line",
        stamp=pl.coalesce(pl.when(is_sum).then("Time_Of_Day_Seconds"), meters.stamp(pl.col("line"))),
        device=pl.when(is_sum).then(pl.lit("cpu")),
        device_name=pl.when(is_sum).then(pl.lit("cpu package")),
        power_w=(watts["PkgWatt"] + watts["RAMWatt"].fill_null(0)).round(6),
        temperature_c=meters.value(pl.col("PkgTmp")),
        fault=pl.coalesce(
            "fault",
            pl.when(pl.col("PkgWatt").is_not_null() & watts["PkgWatt"].is_null()).then(
                pl.lit("PkgWatt is not a number")
            ),
        ),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="turbostat",
    title="turbostat table",
    written_by="turbostat [--Summary] [--show PkgWatt,RAMWatt,...] [--enable Time_Of_Day_Seconds]",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a header line with PkgWatt, and a line of the table below it",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        "Power is that of the processors' packages and, where it is shown, their memory (RAPL): no accelerators.",
        (
            "There is no clock but for Time_Of_Day_Seconds: an instant before the lines, a line of date, or the options "
            "origin and interval_s (5 s unless -i says otherwise) tell; else the file's last change (flagged)."
        ),
        "Lines of single packages, cores and CPUs are parts of the sum: no samples.",
    ),
)
