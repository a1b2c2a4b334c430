"""Output of `nvidia-smi --query-gpu=... --format=csv`, looped: one line per GPU and tick.

Belongs here: its columns, units, ways to say "no value", clock and device names; hl-smi (Gaudi) writes the same
with a few names of its own. Does not belong here: `nvidia-smi dmon` (`nvidia_smi_dmon.py`), dcgm-exporter
(`prometheus_query_range.py`), the instants of queries without timestamp (`parsers/meters.py`).

It is read as text, not as CSV: logs of runs that were appended repeat or change their header, carry
comments and chatter of the driver, and end in a cut line when the logger was killed. Columns are found by
name, units in the header, in the cells or (both left out) as nvidia-smi has them; without a header see
`parsers/smi_columns.py`.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import clock, meters, smi_columns
from parsers.format import Context, Format, Head
from parsers.metrics import contract_fault
from parsers.records import DEVICE_SAMPLES

_POWER = {"W": 1.0, "mW": 1e-3, "kW": 1e3}
_SHARE = {"%": 1e-2}
_MEMORY = {"MiB": 2.0**20, "B": 1.0, "KiB": 2.0**10, "GiB": 2.0**30, "KB": 1e3, "MB": 1e6, "GB": 1e9}
_ENERGY = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}
_TEMPERATURE = {"C": 1.0}

_MEASURED: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {
    "power_w": (("power.draw.average", "power.draw", "power.draw.instant"), _POWER),
    "energy_j": (("total_energy_consumption",), _ENERGY),
    "power_limit_w": (("enforced.power.limit", "power.limit"), _POWER),
    "utilisation_ratio": (("utilization.gpu", "utilization.aip"), _SHARE),
    "memory_utilisation_ratio": (("utilization.memory",), _SHARE),
    "memory_used_bytes": (("memory.used",), _MEMORY),
    "memory_total_bytes": (("memory.total",), _MEMORY),
    "temperature_c": (("temperature.gpu", "temperature.aip"), _TEMPERATURE),
}
"""Column -> fields of nvidia-smi, the best first; units, the usual first.

`module.power.*` holds the CPU too and is not taken.
`power.draw` is a mean over a second on Ampere and later, an instant before; `power.draw.instant` is taken
last.
"""
_DEVICE = (("uuid", "gpu_uuid"), ("index",), ("pci.bus_id", "gpu_bus_id"))
_NAME = ("name", "gpu_name")
_FIELDS = (
    "timestamp",
    *(field for fields, _ in _MEASURED.values() for field in fields),
    *(field for fields in _DEVICE for field in fields),
    *_NAME,
)

_HEADER = (
    r"""^\s*(?:"?[A-Za-z_][\w.]*(?: \[[^\],"]*\])?"?\s*,\s*)*"?[A-Za-z_][\w.]*(?: \[[^\],"]*\])?"?,?\s*$"""
)
_OWN_FIELD = r"(?:^|[\s,\"])(?:power\.draw|utilization\.gpu|temperature\.gpu|total_energy_consumption \[)"
_CELL = r"^(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z%]*)$"
_NO_VALUE = r"^(?:\[.*\]|N/A|n/a|nan|NaN|Not Supported|-|)$"
_SECONDS_APART = 0.05
"""Lines of one tick are milliseconds apart; ticks are at least this long in all but the tightest loops."""

BY_ORDER = "device_by_order"
"""The query names no device: it is known by its place among the lines of a tick, nvidia-smi's order."""
IS_INDEX = meters.IS_INDEX
INSTANT_POWER = "power_instant"
"""Power is a momentary value, not a mean."""
BY_SHAPE = "columns_by_shape"
"""There is no header: the columns were told by what is in them."""


def _recognise(head: Head) -> bool:
    lines = head.lines[:100]
    has_header = any(re.search(_OWN_FIELD, line) and re.match(_HEADER, line) for line in lines)
    return has_header or smi_columns.is_headless(lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    lines = _with_header(frame, context)
    data = _with_fields(lines.filter("is_data"))
    local = clock.LocalClock.of(context)
    named = pl.coalesce(_valued(field) for fields in _DEVICE for field in fields)
    waits = pl.col("header").is_not_null() & pl.col("place timestamp").is_null() & named.is_not_null()
    meters.keep(_dateless(lines, data.filter(waits), named), frame, context)
    timed = data.filter(~waits).with_columns(_naive(pl.col("timestamp")).alias("naive"))
    timed = timed.with_columns(
        pl.coalesce(local.at(pl.col("naive")), clock.iso_instant(pl.col("timestamp"))).alias("at")
    )
    rows = _judged(_with_device(timed), local, context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _dateless(lines: pl.DataFrame, data: pl.DataFrame, device: pl.Expr) -> pl.DataFrame:
    """Samples of queries without timestamp, and the lines of date between them, for `meters.finish`."""
    index = pl.coalesce(_valued("uuid"), _valued("gpu_uuid")).is_null()
    samples = _with_values(data).select(
        "source_line",
        *_MEASURED,
        stamp=pl.lit(None, pl.String),
        device=device,
        device_name=pl.coalesce(_valued(field) for field in _NAME),
        fault=pl.coalesce(_cut(), "fault"),
        flags=pl.struct(
            index.alias(IS_INDEX),
            pl.col("is_momentary").alias(INSTANT_POWER),
            pl.col("by_shape").alias(BY_SHAPE),
        ),
    )
    dates = lines.filter(~pl.col("is_data")).select("source_line", stamp=meters.stamp(pl.col("line")))
    return pl.concat([samples, dates.filter(pl.col("stamp").is_not_null())], how="diagonal")


def _is_header(line: pl.Expr) -> pl.Expr:
    return line.str.contains(_HEADER) & line.str.contains(_OWN_FIELD)


def _with_header(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Add `header` (the one in force at the line, null before the first) and `is_data`."""
    line = pl.col("line").str.strip_chars_start("\ufeff")
    head = context.head.split("\n")
    opening = pl.Series("line", head, dtype=pl.String).to_frame().filter(_is_header(line))
    begins_later = not frame.is_empty() and frame["source_line"][0] > 1
    told = smi_columns.given(context) or (None if opening.height else smi_columns.by_shape(head))
    before = opening["line"].to_list()[-1] if begins_later and opening.height else told
    chatter = line.str.contains(r"^\s*(?:#|$)") | ~line.str.contains(r"^\s*\"?\d|,")
    if not opening.height:
        chatter |= line.str.contains(smi_columns.NAMES)
    return frame.select(
        "source_line",
        pl.lit(not opening.height and "columns" not in context.options).alias("by_shape"),
        line.str.strip_chars().alias("line"),
        pl.when(_is_header(line))
        .then(line)
        .forward_fill()
        .fill_null(pl.lit(before, pl.String))
        .alias("header"),
        (~_is_header(line) & ~chatter).alias("is_data"),
    )


def _with_fields(data: pl.DataFrame) -> pl.DataFrame:
    """Add the text of every field, `unit FIELD` from the header, and `cells` against `expected`."""
    headers = pl.DataFrame(
        [_header_places(header) for header in data["header"].drop_nulls().unique().to_list()],
        schema={"header": pl.String, "expected": pl.Int64}
        | {f"place {field}": pl.Int64 for field in _FIELDS}
        | {f"unit {field}": pl.String for field in _FIELDS},
        orient="row",
    )
    text = pl.col("line").str.replace_all('"', "", literal=True).str.strip_suffix(",")
    placed = data.join(headers, on="header", how="left", maintain_order="left").with_columns(
        text.str.split(",").alias("list")
    )
    queried = {field for field in _FIELDS if headers[f"place {field}"].count()}
    return placed.with_columns(
        pl.col("list").list.len().cast(pl.Int64).alias("cells"),
        *(_cell(field) if field in queried else pl.lit(None, pl.String).alias(field) for field in _FIELDS),
    )


def _cell(field: str) -> pl.Expr:
    return pl.col("list").list.get(pl.col(f"place {field}"), null_on_oob=True).str.strip_chars().alias(field)


def _header_places(header: str) -> dict[str, object]:
    cells = [cell.strip().strip('"') for cell in header.strip().rstrip(",").split(",")]
    named = {cell.partition(" [")[0]: (place, cell) for place, cell in reversed(list(enumerate(cells)))}
    units = {field: re.search(r"\[(.*)\]", cell) for field, (_, cell) in named.items()}
    found = {field: units[field] for field in _FIELDS if field in named}
    return {
        "header": header,
        "expected": len(cells),
        **{f"place {field}": named[field][0] for field in found},
        **{f"unit {field}": unit[1] for field, unit in found.items() if unit},
    }


def _naive(text: pl.Expr) -> pl.Expr:
    plain = text.str.replace_all("/", "-", literal=True).str.replace("T", " ", literal=True)
    return plain.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)


def _with_device(timed: pl.DataFrame) -> pl.DataFrame:
    """Add `device`, and what it was told by: `by_order` or `is_index`."""
    uuid, index, bus = (pl.coalesce(_valued(field) for field in fields) for fields in _DEVICE)
    named = timed.with_columns(
        pl.coalesce(uuid, index, bus).alias("device"),
        (uuid.is_null() & index.is_not_null()).alias("is_index"),
    )
    gap_s = pl.col("at").diff().dt.total_microseconds() / 1e6
    gaps = (
        named.filter(pl.col("device").is_null())
        .select(gap_s.alias("gap"))
        .filter(pl.col("gap") > _SECONDS_APART)
    )
    tick_s = gaps["gap"].median()
    apart_s = tick_s / 2 if isinstance(tick_s, float) else _SECONDS_APART
    nameless = pl.col("device").is_null() & pl.col("at").is_not_null()
    tick = (gap_s.fill_null(apart_s) >= apart_s).cum_sum()
    return named.with_columns(tick.over(nameless).alias("tick")).with_columns(
        pl.when(nameless)
        .then((pl.int_range(pl.len()).over("tick", nameless)).cast(pl.String))
        .otherwise(pl.col("device"))
        .alias("device"),
        nameless.alias("by_order"),
    )


def _valued(field: str) -> pl.Expr:
    text = pl.col(field)
    return pl.when(~text.str.contains(_NO_VALUE)).then(text)


def _with_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the measured columns, `fault` (why a value could not be read) and `is_momentary` (of power)."""
    fields = {field: units for queried, units in _MEASURED.values() for field in queried}
    cells = rows.with_columns(
        pl.col(field).str.extract_groups(_CELL).alias(f"cell {field}") for field in fields
    )
    read = cells.with_columns(_value(field, units).alias(f"value {field}") for field, units in fields.items())
    unread = {field: _valued(field).is_not_null() & pl.col(f"value {field}").is_null() for field in fields}
    faults = (
        pl.when(unread[field]).then(pl.lit(f"{field} is no number in {', '.join(units)}"))
        for field, units in fields.items()
    )
    *steady, momentary = (pl.col(f"value {field}") for field in _MEASURED["power_w"][0])
    return read.with_columns(
        *(
            pl.coalesce(f"value {field}" for field in queried).alias(column)
            for column, (queried, _) in _MEASURED.items()
        ),
        pl.coalesce(faults).alias("fault"),
        (pl.coalesce(steady).is_null() & momentary.is_not_null()).alias("is_momentary"),
    )


def _value(field: str, units: dict[str, float]) -> pl.Expr:
    """Value of a field in the contract's unit; null if it has none or can't be read."""
    number, stated = (pl.col(f"cell {field}").struct.field(group) for group in ("1", "2"))
    unit = pl.coalesce(pl.when(stated != "").then(stated), f"unit {field}", pl.lit(next(iter(units))))
    factor = unit.replace_strict(units, default=None, return_dtype=pl.Float64)
    value = number.cast(pl.Float64, strict=False) * factor
    # 47 % is to be 0.47, which 47 x 0.01 is not.
    return value.round(8) if units is _SHARE else value


def _judged(rows: pl.DataFrame, local: clock.LocalClock, context: Context) -> pl.DataFrame:
    valued = _with_values(rows).with_columns(
        pl.coalesce(_valued(field) for field in _NAME).alias("device_name"),
        pl.lit(context.options.get("instance"), pl.String).alias("host"),
        clock.flag_list(
            {
                clock.ZONE_ASSUMED: pl.col("naive").is_not_null() & pl.lit(local.assumed),
                clock.AMBIGUOUS: local.ambiguous(pl.col("naive")),
                BY_ORDER: pl.col("by_order"),
                IS_INDEX: pl.col("is_index"),
                INSTANT_POWER: pl.col("is_momentary"),
                BY_SHAPE: pl.col("by_shape"),
            }
        ).alias("flags"),
    )
    empty = pl.all_horizontal(pl.col(column).is_null() for column in _MEASURED)
    judged = valued.with_columns(
        _reject=pl.coalesce(_line_fault(), "fault", contract_fault(DEVICE_SAMPLES, _MEASURED))
    )
    sound = pl.col("_reject").is_null()
    repeated = ~pl.struct(sound, "device", "at").is_first_distinct()
    partition = pl.col("device").str.starts_with("MIG-")
    return judged.with_columns(_other=(sound & (empty | repeated | partition)).fill_null(value=False)).select(
        "source_line", "host", "device", "device_name", "at", *_MEASURED, "flags", "_reject", "_other"
    )


def _cut() -> pl.Expr:
    counts = (pl.col("cells"), pl.col("expected"))
    return pl.when(counts[0] != counts[1]).then(
        pl.format("number of cells: {}, of the header: {}; the line is cut, or of another query", *counts)
    )


def _line_fault() -> pl.Expr:
    return (
        pl.when(pl.col("header").is_null())
        .then(pl.lit("no header names the columns: give the option columns, what --query-gpu was given"))
        .when(pl.col("place timestamp").is_null())
        .then(pl.lit("neither timestamp nor device is there: add timestamp and uuid to --query-gpu"))
        .when(_cut().is_not_null())
        .then(_cut())
        .when(pl.col("at").is_null())
        .then(pl.lit("timestamp is no local time YYYY/MM/DD HH:MM:SS.mmm that existed in the time zone"))
    )


FORMAT = Format(
    name="nvidia_smi_csv",
    title="nvidia-smi --query-gpu CSV",
    written_by="nvidia-smi --query-gpu=... --format=csv --loop",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by=(
        "a header of nvidia-smi's field names with power.draw, utilization.gpu or temperature.gpu; or lines of cells "
        "as nvidia-smi writes them, with its stamp, a UUID or a power in W"
    ),
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    traps=(
        (
            "A query without timestamp is dated by lines of date between its calls, by the options origin and "
            "interval_s, or by the file's last change (flagged); it needs uuid or index then."
        ),
        (
            "With noheader, only what can't be mistaken is read (flagged): timestamp, device, power, and one load and "
            "one memory with unit. The option columns, what --query-gpu was given, names all."
        ),
        "timestamp is local time: give the option timezone; at the end of summer time an hour repeats.",
        "Without uuid or index in the query GPUs are told apart by their order within a tick (flagged).",
        "power.draw is within 5 W; A100 and H100 sample a quarter of the time: distrust short windows.",
        "utilization.gpu is the share of time that any kernel ran, not MFU; MIG leaves it at [N/A].",
        "A line that repeats a device's instant, or holds no value, is no sample.",
    ),
)
