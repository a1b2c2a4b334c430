"""Text of macOS `powermetrics`: a block per sample, with the power of the chip's parts.

Belongs here: its lines. Does not belong here: its plist output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.format import Format, Head
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_BEGIN = r"\*\*\* Sampled system activity \("
_POWER = r"^(?:Combined Power \(CPU \+ GPU \+ ANE\)|Package Power): +(\d+(?:\.\d+)?) ?mW"
_INTEL = r"^Intel energy model derived package power \([^)]*\): +(\d+(?:\.\d+)?) ?W"
_PARTS = r"^(?:CPU|GPU|ANE) Power: +(\d+(?:\.\d+)?) ?mW"
_LOAD = r"^GPU (?:HW )?active residency: +(\d+(?:\.\d+)?)%"
_MACHINE = r"^Machine model: (\S+)"
SUM_OF_PARTS = "power_is_sum_of_parts"
"""No power of the whole chip is stated: that of its CPU, GPU and neural engine was added."""


def _recognise(head: Head) -> bool:
    return "*** Sampled system activity (" in head.text


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line")).str.strip_chars()
    begins = line.str.contains(_BEGIN)
    found = frame.select(
        "source_line",
        begins=begins,
        stamp=pl.when(begins).then(meters.stamp(line)),
        whole_w=pl.coalesce(
            meters.value(line.str.extract(_POWER), divisor=1000), meters.value(line.str.extract(_INTEL))
        ),
        part=line.str.extract(r"^(CPU|GPU|ANE) Power:"),
        part_w=meters.value(line.str.extract(_PARTS), divisor=1000),
        load=meters.value(line.str.extract(_LOAD), divisor=100),
        machine=line.str.extract(_MACHINE),
    )
    columns = ("whole_w", "part_w", "load", "machine")
    return meters.keep(
        found.filter(pl.col("begins") | pl.any_horizontal(pl.col(c).is_not_null() for c in columns)),
        frame,
        context,
    )


def _finish(context: Context) -> pl.DataFrame:
    found = meters.kept(context)
    if found.is_empty():
        return found
    # The section of the GPU repeats its power: the summary's, which comes first, counts.
    part = pl.col("part_w").filter(pl.col("part").is_not_null() & pl.col("part").is_first_distinct())
    blocks = (
        found.with_columns(block=pl.col("begins").cum_sum(), machine=pl.col("machine").forward_fill())
        .filter(pl.col("block") > 0)
        .group_by("block", maintain_order=True)
        .agg(
            pl.col("source_line").first(),
            pl.col("stamp").first(),
            pl.col("machine").first(),
            whole_w=pl.col("whole_w").drop_nulls().first(),
            parts_w=pl.when(part.len() > 0).then(part.sum()),
            load=pl.col("load").drop_nulls().first(),
        )
    )
    samples = blocks.select(
        "source_line",
        "stamp",
        device=pl.lit("soc"),
        device_name=pl.col("machine"),
        power_w=pl.coalesce("whole_w", "parts_w"),
        utilisation_ratio=pl.col("load"),
        fault=pl.when(pl.col("stamp").is_null()).then(pl.lit("the sample has no date")),
        flags=pl.struct((pl.col("whole_w").is_null() & pl.col("parts_w").is_not_null()).alias(SUM_OF_PARTS)),
    )
    return meters.dated(samples, context)


FORMAT = Format(
    name="powermetrics",
    title="powermetrics (macOS)",
    written_by="powermetrics --samplers cpu_power,gpu_power",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="a line *** Sampled system activity (",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    traps=(
        "Power is the chip's own estimate, of CPU, GPU and neural engine, not that of the machine.",
        "Combined Power is the sum of CPU, GPU and ANE Power; the GPU's section repeats GPU Power.",
        "Each block states its end, with the zone; a block that is cut off may lack its power.",
        "GPU active residency is the share of time that the GPU ran, not MFU.",
    ),
)
