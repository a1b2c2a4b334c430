"""InfluxDB line protocol of Telegraf's nvidia_smi input: one line per GPU and tick, as outputs to files write it.

Belongs here: the measurement's tags and fields. Does not belong here: other measurements (other lines).
"""

from __future__ import annotations

import re

import polars as pl

from parsers import meters
from parsers.format import Context, Format, Head
from parsers.meters import MIB, Quantity
from parsers.records import DEVICE_SAMPLES

_LINE = r"^(?:> )?nvidia_smi,((?:[^ \\]|\\.)+) ((?:[^ \"]|\"(?:[^\"\\]|\\.)*\")+)(?: (-?\d{10,19}))?$"
_OWN = re.compile(r"(?:> )?nvidia_smi,\S*\b(?:uuid|index)=")
_MEASURED = {
    "power_w": Quantity(("power_draw",)),
    "power_limit_w": Quantity(("power_limit",)),
    "utilisation_ratio": Quantity(("utilization_gpu",), divisor=100),
    "memory_utilisation_ratio": Quantity(("utilization_memory",), divisor=100),
    "memory_used_bytes": Quantity(("memory_used",), factor=MIB),
    "memory_total_bytes": Quantity(("memory_total",), factor=MIB),
    "temperature_c": Quantity(("temperature_gpu",)),
}


def _recognise(head: Head) -> bool:
    return any(_OWN.match(line) for line in head.lines[:500])


def _tag(name: str) -> pl.Expr:
    text = pl.col("tags").str.extract(rf"(?:^|,){name}=((?:[^,\\]|\\.)+)", 1)
    return text.str.replace_all(r"\\([ ,=])", "$1")


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = pl.col("line").str.strip_chars_end("\r")
    parts = frame.select("source_line", parts=line.str.extract_groups(_LINE), line=line)
    lines = parts.select(
        "source_line",
        is_own=pl.col("line").str.contains(r"^(?:> )?nvidia_smi,"),
        tags=pl.col("parts").struct.field("1"),
        values=pl.col("parts").struct.field("2"),
        stamp=pl.col("parts").struct.field("3"),
    ).filter("is_own")
    cells = {
        name: pl.col("values").str.extract(rf"(?:^|,){name}=(-?[\d.eE+-]+)[iu]?(?:,|$)", 1)
        for quantity in _MEASURED.values()
        for name in quantity.names
    }
    found = lines.with_columns(**cells).select(
        "source_line",
        "stamp",
        host=_tag("host"),
        device=pl.coalesce(_tag("uuid"), _tag("index"), pl.lit("?")),
        device_name=_tag("name"),
        fault=pl.when(pl.col("tags").is_null()).then(pl.lit("the line is cut: it needs tags and fields")),
        flags=pl.struct((_tag("uuid").is_null() & pl.col("tags").is_not_null()).alias(meters.IS_INDEX)),
        **meters.measured(_MEASURED),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="telegraf_nvidia_smi",
    title="Telegraf nvidia_smi, line protocol",
    written_by="Telegraf with [[inputs.nvidia_smi]] and an output that writes InfluxDB line protocol",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="lines of the measurement nvidia_smi with a tag uuid or index",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        "The instant is unix time in nanoseconds unless the output was told another precision.",
        "power_draw is missing where the driver states none; memory is in MiB.",
        "utilization_gpu is the share of time that any kernel ran, not MFU.",
        "Lines of other measurements (cpu, mem, nvidia_smi_process) are other lines.",
    ),
)
