"""Records that a program's logger wrote as JSON: the text that the program would have written otherwise.

Belongs here: the fields of the usual formatters (python-json-logger and its likes, structlog, loguru's `serialize`),
also behind a container's prefix, and Python's usual text of a record. Does not belong here: that prefix
(`containers.py`), logs whose records are JSON of a kind of their own (`formats/`).

A record that names its logger becomes `YYYY-MM-DD HH:MM:SS logger LEVEL message`. One that names none, or whose
message begins with the program's own head, becomes its message.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import containers, values
from parsers.json_text import decoded

NO_YEAR = "0000"
"""The year of stamps that have none."""
_MESSAGES = ("record.message", "message", "msg", "event")
_LEVELS = ("record.level.name", "levelname", "level", "severity", "log_level", "level_name")
_LOGGERS = ("record.name", "name", "logger", "logger_name")
_TIMES = ("record.time.repr", "asctime", "timestamp", "time", "ts", "datetime", "date", "created")
_SIGN = r'"(?:record": ?\{|(?:levelname|level|severity|log_level|level_name)": ?")'
_IS_RECORD = rf"^\{{.*{_SIGN}.*\}}\s*$"
_HAS_SIGN = re.compile(_SIGN)
_LOGGER = r"^[A-Za-z_]\w*(?:\.\w+)*$"
_OWN_HEAD = r"^\W?(?:[A-Z]+ )?\d{2,4}[-/]\d\d[-/ ]"
_STAMP = r"^((?:\d{4}-)?\d\d-\d\d)[T ](\d\d:\d\d:\d\d)"
_YEARLESS = r"^\d\d-"


def bare(line: str) -> str:
    """What the program said, of one line; for recognising."""
    line = containers.bare(line)
    if not (line.startswith("{") and line.rstrip().endswith("}") and _HAS_SIGN.search(line)):
        return line
    try:
        record = decoded(line)
    except (ValueError, RecursionError):
        return line
    message, level, logger, time = (_text(record, names) for names in (_MESSAGES, _LEVELS, _LOGGERS, _TIMES))
    if not message or not level:
        return line
    if not re.match(_LOGGER, logger) or re.match(_OWN_HEAD, message):
        return message
    stamp = re.match(_STAMP, time)
    stated = f"{stamp[1]} {stamp[2]}" if stamp else "01-01 00:00:00"
    return (
        f"{f'{NO_YEAR}-' if re.match(_YEARLESS, stated) else ''}{stated} {logger} {level.upper()} {message}"
    )


def _text(record: object, names: tuple[str, ...]) -> str:
    """The first of these fields that is text; dots lead into inner objects."""
    for name in names:
        held = record
        for part in name.split("."):
            held = held.get(part) if isinstance(held, dict) else None
        if isinstance(held, str) and held:
            return held
    return ""


def unwrapped(lines: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """What the program said, of the lines that are wanted: see `containers.unwrapped`."""
    found = containers.unwrapped(lines, where)
    record = found.select(pl.when(pl.col("line").str.contains(_IS_RECORD)).then("line")).to_series()
    if record.null_count() == len(record):
        return found
    parts = found.with_columns(
        message=containers.first_field(record, _MESSAGES),
        level=containers.first_field(record, _LEVELS),
        logger=containers.first_field(record, _LOGGERS),
        time=containers.first_field(record, _TIMES),
        collected=containers.first_field(record, containers.INSTANTS),
        pod=containers.first_field(record, containers.SERVICES),
    )
    time, message = pl.col("time"), pl.col("message")
    zoned = pl.coalesce(
        pl.when(pl.col(name).str.contains(containers.ZONED)).then(name) for name in ("time", "collected")
    )
    stamped = parts.with_columns(
        container_at=pl.coalesce(values.instant(zoned, "time").value, "container_at"),
        service=pl.coalesce("service", "pod"),
        stamp=pl.concat_str(time.str.extract(_STAMP, 1), time.str.extract(_STAMP, 2), separator=" "),
    )
    stamp = pl.coalesce("stamp", pl.lit("01-01 00:00:00"))
    dated = pl.when(stamp.str.contains(_YEARLESS)).then(pl.lit(f"{NO_YEAR}-") + stamp).otherwise(stamp)
    headed = pl.col("logger").str.contains(_LOGGER) & ~message.str.contains(_OWN_HEAD)
    said = (
        pl.when(headed)
        .then(pl.concat_str(dated, "logger", pl.col("level").str.to_uppercase(), message, separator=" "))
        .otherwise(message)
    )
    is_whole = (message != "") & pl.col("level").is_not_null()
    return stamped.with_columns(line=pl.when(is_whole).then(said).otherwise("line")).select(found.columns)
