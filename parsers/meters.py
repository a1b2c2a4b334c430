"""Meters that write for a screen: tables and blocks of text, often without a date, some without any clock.

Belongs here: the dates that people and wrappers put around such output, tables whose header names the columns,
and the instants of samples that state none. Does not belong here: the words of one tool (`formats/`).

Samples that state their date are rows at once. The others wait for the end of the source (`finish`): a line of
`date` before them, the option `origin`, or the time at which the file was last written says when they were.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import polars as pl

from parsers import clock
from parsers.errors import SiteConfigError
from parsers.metrics import contract_fault
from parsers.records import DEVICE_SAMPLES, INSTANT
from parsers.values import instant, relative_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from parsers.format import Context

MIB = 2.0**20
MEASURED = tuple(column.name for column in DEVICE_SAMPLES.columns if column.dtype == pl.Float64)
"""Columns of `device_samples` that are measured; a sample without any of them is none."""

FROM_MTIME = "time_from_mtime"
"""The source has no clock, or none with a date: the last sample was taken when the file was last written."""
INTERVAL_ASSUMED = "interval_assumed"
"""The instant was counted in steps of a second from another one; the option `interval_s` says otherwise."""
IS_INDEX = "device_is_index"
"""The device is known by its index, which other hosts use too."""
WHOLE_HOST = "power_of_host"
"""Power of the whole host, its accelerators included: not to be added to theirs."""

NO_VALUE = r"^(?:\[.*\]|N/?A|n/?a|nan|NaN|Not Supported|Not Available|Unknown|unknown|None|-+|)$"
_NUMBER = r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$"

_ANSI = r"\x1b\[[0-9;?]*[A-Za-z]"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d)\b)?"
_PREFIX = rf"^\s*\[?({_ISO})\]?(?: std(?:out|err) [FP])?(?:[:|]?\s+|$)"
_LEADING = rf"^\s*[\[#]?\s*({_ISO}|\d{{4}}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?|1\d{{9}}(?:\.\d+)?|1\d{{12}})(?:[^\d.]|$)"
_DATE = (
    r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +"
    r"(?:(?<month>[A-Z][a-z]{2}) +(?<day>\d{1,2})|(?<day_first>\d{1,2}) +(?<month_last>[A-Z][a-z]{2}))"
    r"(?: +(?<year>\d{4}))? +(?<hour>\d{1,2})(?<rest>:\d\d:\d\d)(?: (?<half>[AP])M)?(?: (?<zone>[A-Z]{2,5}))?"
    r"(?: +(?<year_last>\d{4}))?(?: (?<offset>[+-]\d{4}))?"
)
_CHINESE_DATE = r"(\d{4})年 ?(\d{1,2})月 ?(\d{1,2})日\D*?(\d\d:\d\d:\d\d)"
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_KEPT, _HEADER = "meters.kept", "meters.header"
_LONGEST = 4096
_DAY = timedelta(days=1)
_HALF_DAY_S = 43_200


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured column: names of its cells, the best first; value = number x factor / divisor."""

    names: tuple[str, ...]
    factor: float = 1.0
    divisor: float = 1.0


def plain(line: pl.Expr) -> pl.Expr:
    """The line without the colours of a terminal and without the carriage return."""
    return line.str.replace_all(_ANSI, "").str.strip_chars("\r\ufeff")


def without_prefix(line: pl.Expr) -> pl.Expr:
    """The line without the instant that a container runtime or `ts` put before it."""
    return line.str.replace(_PREFIX, "")


def bare(line: str) -> str:
    """The same of one line, without colours, for recognising: its beginning, as hostile lines are long."""
    return re.sub(_PREFIX, "", re.sub(_ANSI, "", line[:_LONGEST]).lstrip("\ufeff"))


def stamp(line: pl.Expr) -> pl.Expr:
    """The date and time that a line states, as ISO 8601 or unix time: at its beginning, or as `date` prints it."""
    told = line.str.extract_groups(_DATE)
    part = told.struct.field
    month = pl.coalesce(part("month"), part("month_last")).replace_strict(
        {name: f"{n:02}" for n, name in enumerate(_MONTHS, 1)}, default=None, return_dtype=pl.String
    )
    hour = part("hour").cast(pl.Int64, strict=False)
    of_day = pl.when(part("half").is_null()).then(hour).otherwise(hour % 12 + 12 * (part("half") == "P"))
    zone = pl.when(part("zone").is_in(["UTC", "GMT"])).then(pl.lit("+0000"))
    english = pl.concat_str(
        pl.coalesce(part("year"), part("year_last")), pl.lit("-"), month, pl.lit("-"),
        pl.coalesce(part("day"), part("day_first")).str.zfill(2), pl.lit(" "),
        of_day.cast(pl.String).str.zfill(2), part("rest"), pl.coalesce(part("offset"), zone, pl.lit("")),
    )  # fmt: skip
    year, number, day, time = (line.str.extract(_CHINESE_DATE, n) for n in range(1, 5))
    chinese = pl.concat_str(
        year, pl.lit("-"), number.str.zfill(2), pl.lit("-"), day.str.zfill(2), pl.lit(" "), time
    )
    return pl.coalesce(line.str.extract(_LEADING), english, chinese)


def value(cell: pl.Expr, factor: float = 1.0, divisor: float = 1.0) -> pl.Expr:
    """The number in a cell, times and over what makes it the contract's unit; null if it is none."""
    number = cell.cast(pl.Float64, strict=False) * factor
    # 47 % is to be 0.47; Polars divides a long column by multiplying.
    return number if divisor == 1 else (number / divisor).round(8)


def valued(cell: pl.Expr) -> pl.Expr:
    """The cell, or null where it only says that there is no value."""
    return pl.when(~cell.str.contains(NO_VALUE)).then(cell)


def table(
    frame: pl.DataFrame,
    context: Context,
    *,
    header: str,
    data: str,
    cells: Callable[[pl.Expr], pl.Expr],
    names: Iterable[str],
) -> pl.DataFrame:
    """Cells by the names in the header above them, of lines of a table that may change its columns on the way.

    Args:
        frame: lines.
        context: keeps the header in force from chunk to chunk.
        header: what a header line looks like.
        data: what a line of the table looks like.
        cells: how a line is cut.
        names: cells to take, as the header writes them.

    Returns:
        one row per line: source_line, `line`, `is_data`, `fault` (a line that the header does not fit), and a
        column of text per name, null where the line has no such cell or no value in it.

    """
    line = plain(pl.col("line"))
    rest = without_prefix(line)
    headed = frame.select(
        "source_line",
        line=line,
        rest=rest,
        header=pl.when(rest.str.contains(header)).then(rest).forward_fill(),
    ).with_columns(pl.col("header").fill_null(pl.lit(context.carried.get(_HEADER), pl.String)))
    if headed.height:
        context.carried[_HEADER] = headed["header"][-1]
    is_data = pl.col("rest").str.contains(data) & ~pl.col("rest").str.contains(header)
    headed = headed.with_columns(
        is_data=(is_data & pl.col("header").is_not_null()), cells=cells(pl.col("rest"))
    )
    places = pl.DataFrame(
        [{"header": text, **_places(text, cells)} for text in headed["header"].drop_nulls().unique()],
        schema={"header": pl.String, "expected": pl.UInt32} | {f"at {name}": pl.UInt32 for name in names},
    )
    placed = headed.join(places, on="header", how="left", maintain_order="left")
    found = {
        name: pl.col("cells").list.get(pl.col(f"at {name}"), null_on_oob=True).str.strip_chars()
        for name in names
    }
    counts = (pl.col("cells").list.len(), pl.col("expected"))
    return placed.select(
        "source_line",
        "line",
        "is_data",
        **{name: valued(cell) for name, cell in found.items()},
        fault=pl.when("is_data", counts[0] != counts[1]).then(
            pl.format("number of cells: {}, of the header: {}; the line is cut", *counts)
        ),
    )


def _places(header: str, cells: Callable[[pl.Expr], pl.Expr]) -> dict[str, int]:
    names = pl.select(cells(pl.lit(header))).to_series()[0].str.strip_chars().to_list()
    return {"expected": len(names)} | {f"at {name}": at for at, name in reversed(list(enumerate(names)))}


def measured(quantities: Mapping[str, Quantity]) -> dict[str, pl.Expr]:
    """Columns of DEVICE_SAMPLES from cells of a `table`."""
    return {
        column: pl.coalesce(value(pl.col(name), q.factor, q.divisor) for name in q.names)
        for column, q in quantities.items()
    }


def unread(quantities: Mapping[str, Quantity]) -> pl.Expr:
    """Why a cell of a `table` that should hold a number holds none, or null."""
    names = [name for q in quantities.values() for name in q.names]
    return pl.coalesce(
        pl.when(pl.col(name).is_not_null() & ~pl.col(name).str.contains(_NUMBER)).then(
            pl.lit(f"{name} is not a number")
        )
        for name in names
    )


def samples(found: pl.DataFrame, frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """What `Format.map` gives: samples that state their date; the others are kept for `finish`.

    Args:
        found: `source_line`, `stamp` (see `stamp`), `clock` (HH:MM:SS, where there is a time without a date),
            `device` (null in lines that only state a date), measured columns, `fault`; optional `host`,
            `device_name`, `flags` (columns of Boolean in a struct).
        frame: the chunk.
        context: of the source.

    """
    has_device, has_date = pl.col("device").is_not_null(), pl.col("stamp").is_not_null()
    context.carried.setdefault(_KEPT, []).append(found.filter(has_device != has_date))
    rows = dated(found.filter(has_device & has_date), context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def keep(found: pl.DataFrame, frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """What `Format.map` gives where a sample is spread over lines: nothing yet; see `kept`."""
    context.carried.setdefault(_KEPT, []).append(found)
    return frame.select("source_line", _reject=pl.lit(None, pl.String), _other=pl.lit(value=True))


def kept(context: Context) -> pl.DataFrame:
    """What `samples` or `keep` kept, of all chunks."""
    frames = context.carried.get(_KEPT, [])
    return pl.concat(frames, how="diagonal_relaxed") if frames else pl.DataFrame()


def mixed(found: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of kept samples, of which some state their date and others do not."""
    is_dated = pl.col("device").is_not_null() & pl.col("stamp").is_not_null()
    rows = [dated(found.filter(is_dated), context), finished(found.filter(~is_dated), context)]
    filled = [frame for frame in rows if frame.height]
    return pl.concat(filled) if filled else pl.DataFrame()


def dated(found: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of samples that state their date."""
    at = _stamped(pl.col("stamp"), context)
    return _judged(found.with_columns(at=at.value, **_flags(at, {})), context)


def finish(context: Context) -> pl.DataFrame:
    """`Format.finish` of formats whose samples are lines."""
    return finished(kept(context), context)


def finished(found: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of samples that state no date themselves (see `samples` for the columns), in the order of the file."""
    if found.is_empty() or found["device"].null_count() == found.height:
        return pl.DataFrame()
    is_date = pl.col("device").is_null()
    blocks = found.sort("source_line").with_columns(
        stamp=pl.col("stamp").forward_fill(), block=is_date.cum_sum()
    )
    rows = blocks.filter(~is_date).with_columns(
        nth=pl.int_range(pl.len(), dtype=pl.Int64).over("block", "device")
    )
    timed = pl.col("clock").is_not_null() if "clock" in rows.columns else pl.lit(value=False)
    has_date = pl.col("stamp").is_not_null()
    parts = [
        _by_time_of_day(rows.filter(timed), context),
        _after_a_date(rows.filter(~timed & has_date), context),
        _by_count(rows.filter(~timed & ~has_date), context),
    ]
    return _judged(pl.concat([part for part in parts if part.height], how="diagonal_relaxed"), context)


def _stamped(text: pl.Expr, context: Context) -> _At:
    local = clock.LocalClock.of(context)
    read = instant(text, "timestamp", zone=local.zone, zone_assumed=local.assumed)
    return _At(read.value, pl.lit(None, pl.String) if read.flag is None else read.flag(read.value))


@dataclass(frozen=True, slots=True)
class _At:
    value: pl.Expr
    flag: pl.Expr


def _flags(at: _At | None, extra: Mapping[str, pl.Expr]) -> dict[str, pl.Expr]:
    """What was assumed for the instant, for `_judged`: names with commas between, as lists are slow to make."""
    names = [pl.when(where).then(pl.lit(name)) for name, where in extra.items()]
    told = [pl.lit(None, pl.String) if at is None else at.flag, *names]
    return {"time_flags": pl.concat_str(told, separator=",", ignore_nulls=True)}


def _after_a_date(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The n-th sample of a device after a line of `date` is n intervals later, unless it has a time of day."""
    at = _stamped(pl.col("stamp"), context)
    step, assumed = interval(context)
    return rows.with_columns(
        at=at.value + pl.col("nth") * step, **_flags(at, {INTERVAL_ASSUMED: assumed & (pl.col("nth") > 0)})
    )


def _by_count(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Ticks from the option `origin` on, or back from the end of the file."""
    step, assumed = interval(context)
    if "origin" in context.options:
        return rows.with_columns(
            at=pl.lit(relative_origin(context), INSTANT) + pl.col("nth") * step,
            **_flags(None, {INTERVAL_ASSUMED: assumed & (pl.col("nth") > 0)}),
        )
    to_last = pl.col("nth").max() - pl.col("nth")
    return rows.with_columns(
        at=pl.lit(context.modified_at, INSTANT) - to_last * step,
        **_flags(None, {FROM_MTIME: pl.lit(value=True), INTERVAL_ASSUMED: assumed & (to_last > 0)}),
    )


def _by_time_of_day(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Times of day. The first one's date is that of a line of `date` before it, or the option `origin`'s; else the
    last one's date is that of the file's last change.
    """
    if rows.is_empty():
        return rows
    local = clock.LocalClock.of(context)
    time = pl.col("clock").str.to_time("%H:%M:%S%.f", strict=False)
    seconds = time.cast(pl.Int64) / 1e9
    days = (seconds.diff() < -_HALF_DAY_S).fill_null(value=False).cum_sum()
    before = rows.select(_stamped(pl.col("stamp"), context).value.first()).item()
    given = before is not None or "origin" in context.options
    edge = before or (relative_origin(context) if given else context.modified_at)
    if edge is None:
        return rows.with_columns(at=pl.lit(None, INSTANT), **_flags(None, {}))
    edge = edge.astimezone(ZoneInfo(local.zone)).replace(tzinfo=None)
    ordered = rows.with_columns(days=days, seconds=seconds)
    last_s = ordered["seconds"][-1] or 0.0
    midnight = datetime(edge.year, edge.month, edge.day)  # noqa: DTZ001 - a wall clock; `local` has its zone
    if given:
        first = midnight
    else:
        # The file may be written a little before its last line's clock says; half a day before is the day after.
        into_day_s = (edge - midnight).total_seconds()
        first = (
            midnight - ordered.select(pl.col("days").max()).item() * _DAY - (last_s > into_day_s + 60) * _DAY
        )
    naive = (
        pl.lit(first, pl.Datetime("us"))
        + pl.col("days") * _DAY
        + pl.duration(microseconds=(pl.col("seconds") * 1e6).round().cast(pl.Int64))
    )
    return ordered.with_columns(
        at=local.at(naive),
        **_flags(None, {**local.flags(naive), FROM_MTIME: pl.lit(not given)}),
    ).drop("days", "seconds")


def interval(context: Context) -> tuple[timedelta, pl.Expr]:
    """The option `interval_s`, else a second; and whether that is assumed.

    Raises:
        SiteConfigError: the option is not a positive number.

    """
    given = context.options.get("interval_s")
    if given is None:
        return timedelta(seconds=1), pl.lit(value=True)
    try:
        step = timedelta(seconds=float(given))
    except (ValueError, OverflowError):
        step = timedelta()
    if step <= timedelta():
        raise SiteConfigError(
            f"{given!r} is not a number of seconds",
            where="option interval_s",
            remedy="Write it like 5 or 0.1.",
        )
    return step, pl.lit(value=False)


def _judged(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of DEVICE_SAMPLES with their fault; repeated and empty ones are no samples."""
    have = [name for name in MEASURED if name in rows.columns]
    host = pl.lit(context.options.get("instance"), pl.String)
    said = rows.schema.get("flags")
    flags = [
        pl.when(pl.col("flags").struct.field(flag.name)).then(pl.lit(flag.name))
        for flag in (said.fields if isinstance(said, pl.Struct) else ())
    ]
    joined = pl.concat_str([pl.col("time_flags").replace("", None), *flags], separator=",", ignore_nulls=True)
    no_time = pl.when(pl.col("at").is_null()).then(
        pl.lit("timestamp can't be read, or did not exist in the zone")
    )
    judged = rows.with_columns(
        host=pl.coalesce(host, "host") if "host" in rows.columns else host,
        flags=pl.when(joined == "").then(pl.lit([], pl.List(pl.String))).otherwise(joined.str.split(",")),
        _reject=pl.coalesce("fault", no_time, contract_fault(DEVICE_SAMPLES, have)),
    )
    sound = pl.col("_reject").is_null()
    empty = pl.all_horizontal(pl.col(name).is_null() for name in have)
    repeated = ~pl.struct(sound, "host", "device", "at").is_first_distinct()
    names = [name for name in DEVICE_SAMPLES.names if name in judged.columns]
    return judged.with_columns(_other=(sound & (empty | repeated)).fill_null(value=False)).select(
        *names, "_reject", "_other"
    )
