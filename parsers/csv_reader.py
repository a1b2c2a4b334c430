"""CSV to raw frames: all columns as text, each record with the line it begins on.

Belongs here: finding records (a quoted cell may hold line breaks), putting aside those with a wrong number of cells, and
having DuckDB read the others. Does not belong here: what a column means (`formats/`).
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl

from parsers.readers import (
    LINE,
    MAX_CHUNK_ROWS,
    MAX_LINE_BYTES,
    SPOOL_BYTES,
    Raw,
    connect,
    literal,
    quoted,
    rows_per_chunk,
    selected,
    stream_frames,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Format
    from parsers.sources import Laid

if TYPE_CHECKING:
    from typing import TypeAlias

    Lines: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]

DELIMITERS = ",;\t|"


def sniff_delimiter(header: str) -> str:
    """The delimiter that splits a header line into the most cells."""
    return max(DELIMITERS, key=lambda delimiter: (len(next(csv.reader([header], delimiter=delimiter), [])), delimiter == ","))


MAX_OPEN_QUOTE_BYTES = 4 << 20


@dataclass(frozen=True)
class _Record:
    """One record: the line it begins on (from 1), its bytes, and the physical lines it spans."""

    line: int
    data: bytes


def _records(path: Path) -> Iterator[_Record]:
    """Join physical lines while a quote is open; give up on a quote that stays open for too long."""
    with path.open("rb") as stream:
        waiting: list[bytes] = []
        number = 1
        while True:
            line = waiting.pop(0) if waiting else stream.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            joined = [line]
            quotes, size = line.count(b'"'), len(line)
            while quotes % 2 and size <= MAX_OPEN_QUOTE_BYTES:
                more = waiting.pop(0) if waiting else stream.readline(MAX_LINE_BYTES + 1)
                if not more:
                    break
                joined.append(more)
                quotes += more.count(b'"')
                size += len(more)
            if quotes % 2:
                waiting[:0] = joined[1:]
                joined = joined[:1]
            yield _Record(number, b"".join(joined))
            number += len(joined)


def read_csv(fmt: Format, laid: Laid, work: Path) -> Iterator[Raw]:
    """Read a CSV file with a header line.

    A record with another number of cells than the header, or one that is not UTF-8, is a bad line. Line breaks inside a
    quoted cell belong to it; a quote that is never closed costs the line it stands on, not the rest of the file.
    """
    records = _records(laid.path)
    header = next((record for record in records if record.data.strip()), None)
    if header is None:
        return
    names_line = header.data.decode("utf-8-sig", errors="replace")
    delimiter = sniff_delimiter(names_line)
    names = [cell.strip() for cell in next(csv.reader(io.StringIO(names_line), delimiter=delimiter))]
    yield Raw(pl.DataFrame(), {}, 1)
    connection = connect()
    spool = work / "checked.csv"
    for lines, bad, blank in _spools(records, spool, delimiter, len(names)):
        yield Raw(pl.DataFrame(), bad, blank)
        if lines:
            yield from _read_spool(connection, fmt, spool, names, delimiter, np.array(lines, dtype=np.int64), laid)
    spool.unlink(missing_ok=True)


def _read_spool(
    connection: duckdb.DuckDBPyConnection,
    fmt: Format,
    spool: Path,
    names: list[str],
    delimiter: str,
    lines: Lines,
    laid: Laid,
) -> Iterator[Raw]:
    unique = [name if names.index(name) == i else f"{name}_{i}" for i, name in enumerate(names)]
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in unique)
    embedded = {name: inner for name, inner in fmt.embedded.items() if name in unique}
    sql = (
        f"SELECT {selected(unique, embedded)} FROM read_csv({literal(str(spool))}, header = false, "
        f"delim = {literal(delimiter)}, quote = '\"', escape = '\"', columns = {{{columns}}}, auto_detect = false, "
        f"max_line_size = {MAX_LINE_BYTES + 4096}, new_line = '\\n', parallel = false)"
    )
    seen = 0
    try:
        for frame in stream_frames(connection, sql, rows_per_chunk(laid)):
            numbered = frame.with_columns(pl.Series(LINE, lines[seen : seen + frame.height]))
            seen += frame.height
            yield Raw(numbered)
    except duckdb.Error:
        # DuckDB is stricter on stray quotes than RFC 4180 readers; the records were checked, so read them plainly.
        yield from _read_plainly(connection, fmt, spool, unique, delimiter, lines, seen)


def _read_plainly(
    connection: duckdb.DuckDBPyConnection,
    fmt: Format,
    spool: Path,
    names: list[str],
    delimiter: str,
    lines: Lines,
    seen: int,
) -> Iterator[Raw]:
    with spool.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream, delimiter=delimiter))[seen:]
    cells = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
    connection.register("cells", cells.with_columns(pl.all().replace("", None)))
    embedded = {name: inner for name, inner in fmt.embedded.items() if name in names}
    sql = f"SELECT {selected(names, embedded)} FROM cells"
    for frame in stream_frames(connection, sql, MAX_CHUNK_ROWS):
        yield Raw(frame.with_columns(pl.Series(LINE, lines[seen : seen + frame.height])))
        seen += frame.height


def _spools(
    records: Iterator[_Record], spool: Path, delimiter: str, cells: int
) -> Iterator[tuple[list[int], dict[int, str], int]]:
    lines: list[int] = []
    bad: dict[int, str] = {}
    blank = size = 0
    out = spool.open("wb")
    for record in records:
        text = record.data.strip(b"\r\n")
        problem = _problem(text, delimiter, cells)
        if not text.strip():
            blank += 1
        elif problem:
            bad[record.line] = problem
        else:
            lines.append(record.line)
            size += out.write(text + b"\n")
        if size >= SPOOL_BYTES or len(bad) >= MAX_CHUNK_ROWS:
            out.close()
            yield lines, bad, blank
            out, lines, bad, blank, size = spool.open("wb"), [], {}, 0, 0
    out.close()
    yield lines, bad, blank


def _problem(text: bytes, delimiter: str, cells: int) -> str | None:
    if len(text) > MAX_LINE_BYTES:
        return f"the record is longer than {MAX_LINE_BYTES >> 20} MiB"
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"the record is not UTF-8 text (byte {error.start + 1})"
    if '"' not in decoded:
        found = decoded.count(delimiter) + 1
    else:
        try:
            found = len(next(csv.reader(io.StringIO(decoded), delimiter=delimiter, strict=True)))
        except csv.Error as error:
            return f"the record is no CSV: {error}"
    if "\0" in decoded:
        return "the record holds NUL bytes"
    return None if found == cells else f"the record has {found} cells, the header has {cells}"
