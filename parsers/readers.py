"""From one plain file to raw frames: what all containers share, and the simple ones.

Belongs here: chunks (`Raw`), queries, lines; JSON documents, text and Parquet. Does not belong here: JSON
lines (`json_reader.py`), CSV (`csv_reader.py`), what a record means (`formats/`), the text of bad lines
(`rejects.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl

from parsers.errors import UnreadableSourceError
from parsers.format import is_spread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from parsers.format import Format, Structure
    from parsers.sources import Laid

CHUNK_BYTES = 64 << 20
MAX_CHUNK_ROWS = 32_768
MAX_CHUNK_CELLS = 4 << 20
MAX_LINE_BYTES = 64 << 20
SPOOL_BYTES = 64 << 20
BOM = b"\xef\xbb\xbf"
LINE = "source_line"


@dataclass(frozen=True)
class Raw:
    """A chunk of records, each with its `source_line`, and the lines that are no records.

    `bad_lines` maps a line to what is wrong with it; an empty reason means that the line must be looked at
    again. `other_lines` counts lines that are neither (blank lines, a header).
    """

    frame: pl.DataFrame
    bad_lines: dict[int, str] = field(default_factory=dict)
    other_lines: int = 0


class MiscountError(Exception):
    """DuckDB saw another number of records than the file has; it must be read strictly, from its start."""


class QueryError(Exception):
    """DuckDB can't read a file, or not to its end; the message quotes nothing of it."""


def literal(text: str) -> str:
    """A string literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """An identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def duckdb_structure(structure: Structure) -> str:
    """Write nested types as DuckDB does: {"a": ["VARCHAR"]} -> STRUCT("a" VARCHAR[])."""
    if isinstance(structure, dict):
        fields = ", ".join(f"{quoted(name)} {duckdb_structure(inner)}" for name, inner in structure.items())
        return f"STRUCT({fields})"
    if isinstance(structure, list):
        return f"{duckdb_structure(structure[0])}[]"
    return str(structure)


def selected(names: list[str], embedded: dict[str, Structure]) -> str:
    """A select list: columns as they are; those of `embedded` parsed from JSON text (or that in a string)."""
    parts = []
    for name in names:
        column = quoted(name)
        if name in embedded:
            text = f"CASE WHEN {column} LIKE '\"%' THEN {column}::JSON ->> '$' ELSE {column} END"
            column = f"TRY(from_json({text}, {literal(json.dumps(embedded[name]))})) AS {column}"
        parts.append(column)
    return ", ".join(parts)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One DuckDB in memory for all files: to start one costs more than to read a small log."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'; SET streaming_buffer_size = '64MB'; SET memory_limit = '1400MB'")
    return database


def stream_frames(
    sql: str, rows: int, *, or_empty: bool = False, register: pl.DataFrame | None = None
) -> Iterator[pl.DataFrame]:
    """Run a query and give its result in frames of about `rows` rows, in order.

    Args:
        sql: the query.
        rows: rows per frame.
        or_empty: whether a result without rows is one frame without rows, else it is no frame.
        register: a frame that the query knows as `cells`.

    Raises:
        QueryError: DuckDB gave up on the file, at its start or on the way.

    """
    import pyarrow as pa

    with _database().cursor() as connection:
        if register is not None:
            connection.register("cells", register)
        try:
            reader = connection.sql(sql).to_arrow_reader(rows)
            batches = iter(reader)
            while (batch := next(batches, None)) is not None:
                if batch.num_rows:
                    or_empty = False
                    yield pl.DataFrame(pl.from_arrow(batch))
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            # What DuckDB meets while its result is on the way comes as an error of Arrow.
            raise QueryError(first_sentence(error)) from error
        if or_empty:
            yield pl.DataFrame(pl.from_arrow(reader.schema.empty_table()))


def rows_per_chunk(laid: Laid, fmt: Format) -> int:
    """As many rows as make about CHUNK_BYTES of text, and no more than `max_rows`."""
    mean = laid.size_bytes / max(1, laid.newlines)
    return int(min(max_rows(fmt), max(64, CHUNK_BYTES / max(1.0, mean))))


def max_rows(fmt: Format) -> int:
    """The most rows of a chunk: a field takes its place in memory also where a record does not have it."""
    fields = _field_count({**(fmt.structure or {}), **fmt.embedded})
    return min(MAX_CHUNK_ROWS, MAX_CHUNK_CELLS // max(1, fields))


def _field_count(structure: Structure) -> int:
    if isinstance(structure, dict):
        return sum(map(_field_count, structure.values()))
    return _field_count(structure[0]) if isinstance(structure, list) else 1


def json_table(
    fmt: Format, path: Path, shape: str, *, tolerant: bool, max_object_bytes: int = 16 << 20
) -> str:
    """A table function of SQL: the objects of a JSON file by the structure of a format.

    Args:
        fmt: the format.
        path: a plain file.
        shape: `newline_delimited`, `array` or `unstructured`.
        tolerant: whether what can't be read becomes null.
        max_object_bytes: limit of one object.

    """
    columns = ", ".join(f"{literal(k)}: {literal(duckdb_structure(v))}" for k, v in fmt.structure.items())
    return (
        f"read_json({literal(str(path))}, format = '{shape}', columns = {{{columns}}}, "
        f"ignore_errors = {str(tolerant).lower()}, maximum_object_size = {max_object_bytes})"
    )


def has_elements(path: Path) -> bool:
    """Whether the records of a JSON file are no lines: elements of an array, or objects spread over lines."""
    with path.open("rb") as stream:
        return begins_with_elements(stream.read(65_536).removeprefix(BOM))


def begins_with_elements(content: bytes) -> bool:
    """The same, of the bytes that a file begins with."""
    start = content[:65_536].lstrip()
    if start[:1] == b"[":
        return start[1:].lstrip()[:1] in (b"{", b"")
    return is_spread(start.decode("utf-8", errors="replace"))


@dataclass(frozen=True)
class Lines:
    """Numbers of the lines that hold more than white space: all of them, or those in `kept`."""

    stop: int
    blank: int = 0
    kept: NDArray[np.int64] | None = None

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        """The numbers of `count` such lines, from the `start`-th on."""
        if self.kept is None:
            return np.arange(start + 1, start + count + 1, dtype=np.int64)
        return self.kept[start : start + count]


def lines_with_content(laid: Laid) -> Lines:
    """Which lines of a file are not blank."""
    total = laid.newlines + laid.ends_open
    if not laid.may_have_blank_lines:
        return Lines(total)
    lines = bounded_lines(laid, MAX_LINE_BYTES)
    kept = np.fromiter((n for n, line in enumerate(lines, 1) if not line.isspace()), dtype=np.int64)
    return Lines(len(kept), total - len(kept), kept)


def bounded_lines(laid: Laid, limit: int) -> Iterator[bytes]:
    """Lines of a file; one longer than `limit` comes as its first limit + 1 bytes. See `located_lines`."""
    return (line for _, line in located_lines(laid, limit))


def located_lines(laid: Laid, limit: int, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Lines of a file from the byte `start` on, each with the byte it begins at.

    A line longer than `limit` comes as its first limit + 1 bytes. What was written to the file after it was
    laid down is not read.

    Raises:
        UnreadableSourceError: the file became shorter.

    """
    at, end = start, laid.size_bytes
    with laid.path.open("rb") as stream:
        stream.seek(start)
        readline = stream.readline
        while at < end:
            line = readline(min(limit + 1, end - at))
            if not line:
                raise _became_shorter(laid)
            yield at, line
            at += len(line)
            if len(line) > limit:
                rest = line
                while rest and at < end and not rest.endswith(b"\n"):
                    rest = readline(min(1 << 20, end - at))
                    at += len(rest)


def _became_shorter(laid: Laid) -> UnreadableSourceError:
    return UnreadableSourceError(
        "it became shorter while it was read",
        where=str(laid.path),
        remedy="Give it again when it is at rest.",
    )


def spools(
    records: Iterator[tuple[int, bytes, str | None]], spool: Path
) -> Iterator[tuple[list[int], dict[int, str], int]]:
    """Write records to a file, one a line, at most SPOOL_BYTES at a time.

    Args:
        records: number, bytes (none: the record is of no interest) and what is wrong with it.
        spool: the file, written anew each time.

    Yields:
        the numbers of the records written, of those that are wrong with the reason, and how many are of no
        interest.

    """
    while True:
        numbers: list[int] = []
        bad: dict[int, str] = {}
        other = size = 0
        with spool.open("wb") as out:
            for number, text, problem in records:
                if problem:
                    bad[number] = problem
                elif text:
                    numbers.append(number)
                    size += out.write(text + b"\n")
                else:
                    other += 1
                if size >= SPOOL_BYTES or len(bad) >= MAX_CHUNK_ROWS:
                    break
        if not (numbers or bad or other):
            spool.unlink()
            return
        yield numbers, bad, other


def first_sentence(error: BaseException) -> str:
    """The first line of an error, without quoted input (it may hold text of the log)."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.split('"')[0].split("'")[0].strip(" :,.") or type(error).__name__


def read_json_document(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """One or more JSON documents, also in an array: `fmt.records` says in SQL over the table `document` what a record is."""
    columns = selected(list(fmt.structure), dict(fmt.embedded))
    with laid.path.open("rb") as stream:
        in_array = stream.read(65_536).removeprefix(BOM).lstrip().startswith(b"[")
    source = json_table(
        fmt,
        laid.path,
        "array" if in_array else "unstructured",
        tolerant=False,
        max_object_bytes=max(16 << 20, laid.size_bytes + 4096),
    )
    sql = f"WITH document AS (SELECT {columns} FROM {source}) {fmt.records}"
    seen = 0
    try:
        for frame in stream_frames(sql, MAX_CHUNK_ROWS):
            numbers = np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64)
            seen += frame.height
            yield Raw(frame if LINE in frame.columns else frame.with_columns(pl.Series(LINE, numbers)))
    except QueryError as error:
        yield Raw(pl.DataFrame(), {seen + 1: f"the JSON document can't be read past record {seen}: {error}"})


def read_text(laid: Laid, longest: int) -> Iterator[Raw]:
    """Lines of text; bytes that are not UTF-8 are replaced, a line is cut after `longest` bytes."""
    first, begun, left = 0, b"", laid.size_bytes
    with laid.path.open("rb") as stream:
        while left:
            block = stream.read(min(SPOOL_BYTES // 4, left))
            if not block:
                raise _became_shorter(laid)
            left -= len(block)
            whole, newline, begun = (begun + block).rpartition(b"\n")
            # Of a line that is longer than blocks, no more is kept than will be shown.
            begun = begun[: longest + 1]
            if newline:
                raw = _text_chunk(whole, first, longest)
                yield raw
                first += raw.frame.height
    if begun:
        yield _text_chunk(begun, first, longest)


def _text_chunk(block: bytes, first: int, longest: int) -> Raw:
    lines = block.decode("utf-8", errors="replace").split("\n")
    if len(max(lines, key=len)) > longest // 4:
        cut = (line[:longest] for line in block.split(b"\n"))
        lines = [line.decode("utf-8", errors="replace") for line in cut]
    numbers = pl.int_range(first + 1, first + len(lines) + 1, dtype=pl.Int64, eager=True)
    return Raw(
        pl.DataFrame({LINE: numbers, "line": pl.Series(lines, dtype=pl.String).str.strip_chars_end("\r")})
    )


def read_parquet(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """Rows of a Parquet file, typed as they are.

    Raises:
        UnreadableSourceError: the file is no Parquet file, or is damaged.

    """
    seen = 0
    try:
        sql = f"SELECT * FROM read_parquet({literal(str(laid.path))})"
        for frame in stream_frames(sql, MAX_CHUNK_ROWS):
            numbers = np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64)
            seen += frame.height
            yield Raw(frame.with_columns(pl.Series(LINE, numbers)))
    except QueryError as error:
        raise UnreadableSourceError(
            f"the Parquet file can't be read past row {seen:,} ({error})",
            where=fmt.title,
            remedy="Check that the file is complete.",
        ) from error
