"""The concise table that `rocm-smi` prints without arguments, in a loop: one line per GPU.

Belongs here: its layout, which moves its columns between versions. Does not belong here: CSV (`amd_smi_csv.py`),
JSON (`amd_smi_json.py`).
"""

from __future__ import annotations

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.records import DEVICE_SAMPLES

_TITLE = "ROCm System Management Interface"
# device, then names and ids, temperature, power, clocks, fan, power cap, VRAM% and GPU% at the end
_ROW = (
    r"^\s*(?<device>\d+)\s.*?(?<temp>\d+(?:\.\d+)?|N/A)\s*°?[cC]?\s+(?<power>\d+(?:\.\d+)?)W\s"
    r"(?:.*?\s(?<limit>\d+(?:\.\d+)?)W\s)?.*?\s(?<load>\d+|N/A)%\s*$"
)


def _recognise(head: Head) -> bool:
    return any(line.lstrip("= ").startswith(_TITLE) for line in map(meters.bare, head.lines[:500]))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line"))
    part = meters.without_prefix(line).str.extract_groups(_ROW).struct.field
    found = frame.select(
        "source_line",
        stamp=meters.stamp(line),
        device=part("device"),
        fault=pl.lit(None, pl.String),
        flags=pl.struct(part("device").is_not_null().alias(meters.IS_INDEX)),
        power_w=meters.value(part("power")),
        power_limit_w=meters.value(part("limit")),
        utilisation_ratio=meters.value(part("load"), divisor=100),
        temperature_c=meters.value(part("temp")),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="rocm_smi_table",
    title="rocm-smi table",
    written_by="rocm-smi, in a loop",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a title line ROCm System Management Interface",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "The table states no time: a line of date before it, or the options origin and interval_s tell; else the "
            "file's last change (flagged)."
        ),
        (
            "Columns move between versions: the first temperature, the first power, the last power (the cap) and the "
            "last percentage (GPU%) of a line are taken. VRAM% is a share without a size: not taken."
        ),
        "A line without a power, as of partitions and of cards that sleep, is no sample.",
    ),
)
