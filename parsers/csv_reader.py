"""CSV to raw frames: all columns as text, each record with the line it begins on.

Belongs here: the fast way for files without a quote (DuckDB reads the file as it is), and the strict way:
finding records (a quoted cell may hold line breaks), putting aside those with a wrong number of cells, and
having DuckDB read the others. Does not belong here: cells of one line (`csv_cells.py`), what a column means
(`formats/`).
"""

from __future__ import annotations

import csv
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.csv_cells import SEPARATOR_LINE, cells, records, sniff_delimiter
from parsers.readers import (
    LINE,
    MAX_CHUNK_ROWS,
    MAX_LINE_BYTES,
    MiscountError,
    QueryError,
    Raw,
    bounded_lines,
    lines_with_content,
    literal,
    rows_per_chunk,
    selected,
    spools,
    stream_frames,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Format
    from parsers.sources import Laid

MAX_OPEN_QUOTE_BYTES = 4 << 20
NULLS = ("", "NULL", "\\N")
"""Cells without a value, as databases and their tools write them, quoted or not."""


@dataclass(frozen=True)
class _Shape:
    """What the header says: the line it is on, how cells are parted, what the columns are called."""

    line: int
    delimiter: str
    names: list[str]

    @property
    def columns(self) -> list[str]:
        """Names for DuckDB, which takes `ID` and `id` for one."""
        return [f"c{place}" for place in range(len(self.names))]

    def select(self, fmt: Format) -> str:
        """All columns, those that hold JSON read by their structure."""
        embedded = {
            column: fmt.embedded[name]
            for column, name in zip(self.columns, self.names, strict=True)
            if name in fmt.embedded
        }
        return f"SELECT {selected(self.columns, embedded)} FROM "

    def named(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Columns under the header's names; one that occurs again gets its place added."""
        taken: dict[str, str] = {}
        for place, name in enumerate(self.names):
            unique = name if name and name not in taken.values() else f"{name}_{place}"
            while unique in taken.values() or unique == LINE:
                unique += "_"
            taken[f"c{place}"] = unique
        return frame.rename(taken)


def read_csv(fmt: Format, laid: Laid, work: Path, *, strictly: bool = False) -> Iterator[Raw]:
    """Read a CSV file with a header line.

    A record with another number of cells than the header, or one that is not UTF-8, is a bad line. Line
    breaks inside a quoted cell belong to it; a quote that is never closed costs the line it stands on, not
    the rest.

    Raises:
        MiscountError: DuckDB can't read the file as it is; read again with `strictly`.
        UnreadableSourceError: the file became shorter while it was read.

    """
    shape = _shape(laid)
    if shape is None:
        yield Raw(pl.DataFrame(), {}, laid.newlines + laid.ends_open)
    elif strictly or laid.has_quotes:
        yield from _read_records(fmt, laid, shape, work)
    else:
        yield from _read_whole_file(fmt, laid, shape)


def _shape(laid: Laid) -> _Shape | None:
    for number, text, _ in _records(laid, cells_wanted=None):
        header = text.decode("utf-8-sig", errors="replace")
        if header.strip() and not SEPARATOR_LINE.fullmatch(header):
            delimiter = sniff_delimiter(header)
            if names := cells(header, delimiter):
                return _Shape(number, delimiter, names)
    return None


def _table(shape: _Shape, path: Path, *, skip: int = 0, line_end: str = "") -> str:
    columns = ", ".join(f"{column}: 'VARCHAR'" for column in shape.columns)
    nulls = ", ".join(map(literal, NULLS))
    return (
        f"read_csv({literal(str(path))}, header = false, skip = {skip}, delim = {literal(shape.delimiter)}, "
        f"quote = '\"', escape = '\"', nullstr = [{nulls}], columns = {{{columns}}}, "
        f"auto_detect = false, strict_mode = true, "
        f"max_line_size = {MAX_LINE_BYTES + 4096}, {line_end} parallel = false)"
    )


def _read_whole_file(fmt: Format, laid: Laid, shape: _Shape) -> Iterator[Raw]:
    """Without quotes a record is a line.

    DuckDB skips empty lines and stops at one with too few or many cells.
    """
    numbers = lines_with_content(laid)
    sql = shape.select(fmt) + _table(shape, laid.path, skip=shape.line)
    yield Raw(pl.DataFrame(), {}, numbers.blank + 1)
    seen = 1
    try:
        for frame in stream_frames(sql, rows_per_chunk(laid, fmt)):
            if seen + frame.height > numbers.stop:
                raise MiscountError
            yield Raw(shape.named(frame).with_columns(pl.Series(LINE, numbers.take(seen, frame.height))))
            seen += frame.height
    except QueryError as error:
        raise MiscountError from error
    if seen != numbers.stop:
        raise MiscountError


def _read_records(fmt: Format, laid: Laid, shape: _Shape, work: Path) -> Iterator[Raw]:
    spool = work / "checked.csv"
    rows = rows_per_chunk(laid, fmt)
    for lines, bad, other in spools(_good(laid, shape), spool):
        yield Raw(pl.DataFrame(), bad, other)
        frame = shape.named(_read_spool(fmt, shape, spool, len(lines), rows))
        numbered = frame.with_columns(pl.Series(LINE, np.array(lines, dtype=np.int64)))
        yield from (Raw(part) for part in numbered.iter_slices(rows) if part.height)


def _read_spool(fmt: Format, shape: _Shape, spool: Path, count: int, rows: int) -> pl.DataFrame:
    """The records of a spool: by DuckDB, or plainly where its idea of quotes is another than RFC 4180's."""
    try:
        sql = shape.select(fmt) + _table(shape, spool, line_end="new_line = '\\n',")
        frame = pl.concat(stream_frames(sql, rows, or_empty=True))
    except QueryError:
        return _read_plainly(fmt, shape, spool)
    return frame if frame.height == count else _read_plainly(fmt, shape, spool)


def _read_plainly(fmt: Format, shape: _Shape, spool: Path) -> pl.DataFrame:
    with spool.open(encoding="utf-8", newline="") as stream:
        rows = records(stream.read(), shape.delimiter)
    plain = pl.DataFrame(rows, schema=dict.fromkeys(shape.columns, pl.String), orient="row")
    plain = plain.with_columns(pl.all().replace(NULLS, None))
    return pl.concat(
        stream_frames(shape.select(fmt) + "cells", MAX_CHUNK_ROWS, or_empty=True, register=plain)
    )


def _good(laid: Laid, shape: _Shape) -> Iterator[tuple[int, bytes, str | None]]:
    for number, text, problem in _records(laid, len(shape.names), shape.delimiter):
        if number <= shape.line or not text.strip():
            yield number, b"", None
        else:
            yield number, text, problem


def _records(
    laid: Laid, cells_wanted: int | None, delimiter: str = ","
) -> Iterator[tuple[int, bytes, str | None]]:
    """Records: the line each begins on, its bytes, and what is wrong with it.

    Lines are joined while a quote is open. If what comes of it is no record, or the quote stays open for too
    long, the quote was a stray one: the first line stands alone and the others are looked at again.
    """
    physical = bounded_lines(laid, MAX_LINE_BYTES)
    again: deque[bytes] = deque()

    def following() -> bytes | None:
        return again.popleft() if again else next(physical, None)

    number = 1
    while (line := following()) is not None:
        joined = [line]
        quotes, size = line.count(b'"'), len(line)
        while quotes % 2 and size <= MAX_OPEN_QUOTE_BYTES and (more := following()) is not None:
            joined.append(more)
            quotes += more.count(b'"')
            size += len(more)
        text = b"".join(joined)
        record, problem = _checked(text, delimiter, cells_wanted)
        if len(joined) > 1 and (problem or quotes % 2):
            again.extendleft(reversed(joined[1:]))
            joined = joined[:1]
            record, problem = _checked(line, delimiter, cells_wanted)
        yield number, record, problem
        number += len(joined)


def _checked(text: bytes, delimiter: str, cells_wanted: int | None) -> tuple[bytes, str | None]:
    """The record without its line end, and why it is not one of so many cells (None: of any number).

    Delimiters too many at its end make no cells: DuckDB passes over them, too.
    """
    text = text.rstrip(b"\r\n")
    if len(text) > MAX_LINE_BYTES:
        return text, f"the record is longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        decoded = text.decode("utf-8")
        found = _cell_count(decoded, delimiter)
    except UnicodeDecodeError as error:
        return text, f"the record is not UTF-8 text (byte {error.start + 1})"
    except csv.Error as error:
        return text, f"the record is no CSV: {error}"
    if cells_wanted is None or found == cells_wanted:
        return text, None
    more = found - cells_wanted
    if more > 0 and decoded.endswith(delimiter * more):
        return text[:-more], None
    return text, f"the record has {found} cells, the header has {cells_wanted}"


def _cell_count(text: str, delimiter: str) -> int:
    if "\0" in text:
        raise csv.Error("it holds NUL bytes")
    if '"' not in text and "\r" not in text:
        return text.count(delimiter) + 1
    read = records(text, delimiter, strict=True)
    if len(read) != 1:
        raise csv.Error("a quote stands inside of a cell")
    return len(read[0])
