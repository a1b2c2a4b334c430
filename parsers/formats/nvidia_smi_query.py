"""Output of `nvidia-smi -q`, as text or with -x as XML, of one call or looped: a block of lines per GPU.

Belongs here: its sections and names. Does not belong here: `--query-gpu` (`nvidia_smi_csv.py`), the table without
arguments (`nvidia_smi_table.py`).

Both are read line by line: a line opens a GPU, opens a section, or holds one value. Names are the same in both
once the text's are in small letters with underscores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.format import Format
from parsers.meters import MIB
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context, Head

_BANNER, _ROOT = "==============NVSMI LOG==============", "<nvidia_smi_log>"
_GPU = r'^(?:GPU |\s*<gpu id=")([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)'
_SECTION = r"^(?: {4}|\s*<)(\w[\w /]*\w)>?$"
_TEXT_VALUE = r"^\s*(\w[\w /.()-]*?) +: (.*)$"
_XML_VALUE = r"^\s*<(\w+)>(.*)</\w+>$"
_POWER = ("gpu_power_readings", "power_readings")
_MEASURED: dict[str, tuple[tuple[str, ...], tuple[str, ...], float]] = {
    "power_w": (
        _POWER,
        ("average_power_draw", "power_draw", "instantaneous_power_draw", "instant_power_draw"),
        1.0,
    ),
    "power_limit_w": (_POWER, ("enforced_power_limit", "current_power_limit", "power_limit"), 1.0),
    "utilisation_ratio": (("utilization",), ("gpu", "gpu_util"), 0.01),
    "memory_utilisation_ratio": (("utilization",), ("memory", "memory_util"), 0.01),
    "memory_used_bytes": (("fb_memory_usage",), ("used",), MIB),
    "memory_total_bytes": (("fb_memory_usage",), ("total",), MIB),
    "temperature_c": (("temperature",), ("gpu_current_temp", "gpu_temp", "gpu"), 1.0),
}
"""Column -> sections that it stands in (those of a whole module hold the CPU, too), names, the best first, factor."""
_NAMES = {"gpu_uuid", "uuid", "product_name"}
_KEYS = [*{key for _, keys, _ in _MEASURED.values() for key in keys}, *_NAMES]


def _recognise(head: Head) -> bool:
    return _BANNER in head.text or _ROOT in head.text


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line"))
    name = pl.coalesce(line.str.extract(_XML_VALUE, 1), line.str.extract(_TEXT_VALUE, 1))
    found = frame.select(
        "source_line",
        stamp=pl.when(line.str.contains("(?i)timestamp")).then(meters.stamp(line)),
        bus=line.str.extract(_GPU, 1),
        section=_spelt(line.str.extract(_SECTION, 1)),
        key=_spelt(name),
        value=pl.coalesce(
            line.str.extract(_XML_VALUE, 2), line.str.extract(_TEXT_VALUE, 2)
        ).str.strip_chars(),
    )
    tells = pl.col("key").is_in(_KEYS) | pl.any_horizontal(
        pl.col(column).is_not_null() for column in ("stamp", "bus", "section")
    )
    return meters.keep(found.filter(tells), frame, context)


def _spelt(name: pl.Expr) -> pl.Expr:
    return name.str.to_lowercase().str.replace_all(" ", "_", literal=True)


def _finish(context: Context) -> pl.DataFrame:
    found = meters.kept(context)
    if found.is_empty():
        return found
    lines = found.sort("source_line").with_columns(
        stamp=pl.col("stamp").forward_fill(),
        section=pl.col("section").forward_fill(),
        block=pl.col("bus").is_not_null().cum_sum(),
    )

    def first(keys: tuple[str, ...], where: pl.Expr) -> pl.Expr:
        """The value of the best of these keys that has one."""
        told = meters.valued(pl.col("value"))
        return pl.coalesce(
            told.filter(where & (pl.col("key") == key) & told.is_not_null()).first() for key in keys
        )

    blocks = (
        lines.filter(pl.col("block") > 0)
        .group_by("block", maintain_order=True)
        .agg(
            pl.col("source_line").first(),
            pl.col("stamp").first(),
            pl.col("bus").first(),
            uuid=first(("gpu_uuid", "uuid"), pl.lit(value=True)),
            device_name=first(("product_name",), pl.lit(value=True)),
            **{
                column: first(keys, pl.col("section").is_in(sections))
                for column, (sections, keys, _) in _MEASURED.items()
            },
        )
    )
    numbers = {
        column: pl.col(column).str.extract(r"^(-?\d+(?:\.\d+)?) ?(?:W|%|C|MiB)?$", 1) for column in _MEASURED
    }
    unread = (
        pl.when(pl.col(column).str.contains(r"\d") & number.is_null()).then(
            pl.lit(f"{column} is not a number")
        )
        for column, number in numbers.items()
    )
    samples = blocks.select(
        "source_line",
        "stamp",
        "device_name",
        device=pl.coalesce("uuid", "bus"),
        fault=pl.coalesce(
            *unread, pl.when(pl.col("stamp").is_null()).then(pl.lit("no Timestamp stands before the GPU"))
        ),
        **{
            column: (meters.value(number) * _MEASURED[column][2]).round(8)
            for column, number in numbers.items()
        },
    )
    return meters.dated(samples, context)


FORMAT = Format(
    name="nvidia_smi_query",
    title="nvidia-smi -q",
    written_by="nvidia-smi -q [-x] [-d POWER,UTILIZATION,...] [-l ...]",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="the line ==============NVSMI LOG============== or the element <nvidia_smi_log>",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    traps=(
        "Timestamp is local time without a zone (option timezone), to the second, one for all GPUs of a call.",
        "Power of the whole module (Grace) holds the CPU's: not taken. N/A and other words are missing values.",
        "Utilization is the share of time that any kernel ran, not MFU.",
        "A call with -d that shows neither power, load, memory nor temperature gives no samples.",
    ),
)
