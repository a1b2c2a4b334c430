"""Lines of NVIDIA Jetson's `tegrastats`: one per tick, fields in an order that changes between boards.

Belongs here: its fields, and which rail is the board's. Does not belong here: the instants of lines without one
(`parsers/meters.py`).
"""

from __future__ import annotations

import re

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.meters import MIB
from parsers.records import DEVICE_SAMPLES

_LINE = r"\bRAM \d+/\d+MB\b.*\b(?:EMC_FREQ|GR3D|GR3D_FREQ|CPU \[)"
_DAY_LAST = r"^\s*(\d\d)-(\d\d)-(\d{4}) (\d\d:\d\d:\d\d)"
_BOARD_RAILS = r"\b(?:VDD_IN|POM_5V_IN|VIN) (\d+)(?:mW)?/"
_GPU_RAILS = r"\b(?:VDD_GPU_SOC|VDD_GPU|POM_5V_GPU|VDD_SYS_GPU) (\d+)(?:mW)?/"
GPU_RAIL = "power_of_gpu_rail"
"""Only the rail of the GPU is measured, not the board's input."""


def _recognise(head: Head) -> bool:
    return any(re.search(_LINE, meters.bare(line)) for line in head.lines[:50] if "RAM " in line)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line"))
    is_tick = line.str.contains(_LINE)
    board, gpu = (meters.value(line.str.extract(rails), divisor=1000) for rails in (_BOARD_RAILS, _GPU_RAILS))
    month, day, year, time = (line.str.extract(_DAY_LAST, n) for n in range(1, 5))
    percent = {name: line.str.extract(rf"\b{field} (\d+)%") for name, field in _SHARES.items()}
    found = frame.select(
        "source_line",
        stamp=pl.coalesce(
            pl.concat_str(year, pl.lit("-"), month, pl.lit("-"), day, pl.lit(" "), time), meters.stamp(line)
        ),
        device=pl.when(is_tick).then(pl.lit("jetson")),
        fault=pl.lit(None, pl.String),
        flags=pl.struct((is_tick & board.is_null() & gpu.is_not_null()).alias(GPU_RAIL)),
        power_w=pl.coalesce(board, gpu),
        memory_used_bytes=meters.value(line.str.extract(r"\bRAM (\d+)/"), MIB),
        memory_total_bytes=meters.value(line.str.extract(r"\bRAM \d+/(\d+)MB"), MIB),
        temperature_c=meters.value(line.str.extract(r"(?i)\bgpu@(\d+(?:\.\d+)?)C")),
        **{name: meters.value(share, divisor=100) for name, share in percent.items()},
    )
    return meters.samples(found, frame, context)


_SHARES = {"utilisation_ratio": "GR3D(?:_FREQ)?", "memory_utilisation_ratio": "EMC(?:_FREQ)?"}

FORMAT = Format(
    name="tegrastats",
    title="tegrastats (NVIDIA Jetson)",
    written_by="tegrastats --interval ... --logfile ...",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="lines with RAM used/total in MB and EMC_FREQ, GR3D_FREQ or CPU [",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "Newer versions begin with MM-DD-YYYY and local time (option timezone); older lines have no clock: see "
            "the options origin and interval_s."
        ),
        "Rails overlap: VDD_IN (VIN, POM_5V_IN) is the board's input and is taken; VIN_SYS_5V0 is a part of it.",
        "Boards without an input rail give the GPU's alone, flagged power_of_gpu_rail.",
        "Power is in mW, now/mean[/highest]: the first is taken.",
        "GR3D_FREQ without % (Thor) has no utilisation: unknown, not 0. RAM is shared with the CPU.",
        "-256C is a sensor that is off.",
    ),
)
