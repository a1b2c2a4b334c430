"""Output of `nvidia-smi dmon`: a table (or CSV) of one line per GPU and tick, with headers that recur.

Belongs here: the names of its columns. Does not belong here: `nvidia-smi --query-gpu` (`nvidia_smi_csv.py`),
`pmon` (processes, not devices), how tables without a date get their instants (`parsers/meters.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.meters import Quantity
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping

_HEADER = (
    r"^\s*#\s*(?:Date[\s,]+)?(?:Time[\s,]+)?(?:Date[\s,]+)?gpu[\s,]+(?:\w+[\s,]+)*?(?:pwr|gtemp|sm|fb)\b"
)
_PROCESSES = r"\bpid\b"
_DATA = r"^\s*\d[\d:/-]*[\s,]+[\d-]"
_UNIT = r"(\d) *(?:W|C|%|MB|MHz|MB/s)\s*(,|$)"
_MEASURED: Mapping[str, Quantity] = {
    "power_w": Quantity(("pwr",)),
    "utilisation_ratio": Quantity(("sm",), divisor=100),
    "memory_utilisation_ratio": Quantity(("mem",), divisor=100),
    "memory_used_bytes": Quantity(("fb",), factor=meters.MIB),
    "temperature_c": Quantity(("gtemp",)),
}


def _recognise(head: Head) -> bool:
    headers = [line for line in head.lines[:200] if "gpu" in line and re.search(_HEADER, meters.bare(line))]
    return bool(headers) and not any(re.search(_PROCESSES, line) for line in headers)


def _cells(line: pl.Expr) -> pl.Expr:
    return line.str.replace("#", "", literal=True).str.replace_all(_UNIT, "$1$2").str.extract_all(r"[^\s,]+")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    names = ("Date", "Time", "gpu", *(name for q in _MEASURED.values() for name in q.names))
    rows = meters.table(frame, context, header=_HEADER, data=_DATA, cells=_cells, names=names)
    day = pl.col("Date").str.replace_all("/", "").str.replace(r"^(\d{4})(\d\d)(\d\d)$", "$1-$2-$3")
    own = pl.concat_str(day, pl.lit(" "), "Time")
    found = rows.select(
        "source_line",
        stamp=pl.coalesce(own, meters.stamp(pl.col("line"))),
        clock=pl.when("is_data").then("Time"),
        device=pl.when("is_data").then(pl.coalesce("gpu", pl.lit("?"))),
        fault=pl.coalesce("fault", meters.unread(_MEASURED)),
        flags=pl.struct(pl.col("is_data").alias(meters.IS_INDEX)),
        **meters.measured(_MEASURED),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="nvidia_smi_dmon",
    title="nvidia-smi dmon table",
    written_by="nvidia-smi dmon [-o DT] [--format csv]",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a header line `# gpu pwr gtemp ...` of nvidia-smi dmon, with or without Date and Time",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        "Only -o DT states the instant, in local time (option timezone); -o T states a time of day.",
        (
            "Without -o the last tick is taken at the file's last change, the others a second apart (flagged): give "
            "the options origin and interval_s."
        ),
        "- is a missing value; the two header lines recur, and may change on the way.",
        "sm is the share of time that any kernel ran, not MFU; GPUs are known by index only.",
        "pwr is rounded to whole watts.",
    ),
)
