"""From one plain file to raw frames: one function per container.

Belongs here: reading JSON lines, JSON documents, text and Parquet in chunks, each record with its line number (CSV has
`parsers/csv_reader.py`). Does not belong here: what a record means (`formats/`), why a line is bad (`rejects.py`).

DuckDB reads JSON and Parquet. It is asked to be tolerant: a line that is no JSON object becomes a row of nulls, a value
of the wrong type becomes null. Such lines are named in `Raw.suspect_lines`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl

from parsers.errors import UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from parsers.format import Format, Structure
    from parsers.sources import Laid

CHUNK_BYTES = 96 << 20
MAX_CHUNK_ROWS = 65_536
MAX_LINE_BYTES = 64 << 20
MAX_TEXT_CHARACTERS = 65_536
SPOOL_BYTES = 64 << 20
LINE = "source_line"


@dataclass(frozen=True)
class Raw:
    """A chunk of records, each with its `source_line`, and the lines that are no records.

    `bad_lines` maps a line to what is wrong with it; an empty reason means that the line must be looked at again.
    `other_lines` counts lines that are neither (blank lines, a header).
    """

    frame: pl.DataFrame
    bad_lines: dict[int, str] = field(default_factory=dict)
    other_lines: int = 0


class MiscountError(Exception):
    """DuckDB saw another number of records than the file has lines; the file must be read strictly, from its start."""


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
    """A select list: columns as they are; those of `embedded` parsed from JSON text (or JSON text inside a string)."""
    parts = []
    for name in names:
        column = quoted(name)
        if name in embedded:
            text = f"CASE WHEN {column} LIKE '\"%' THEN {column}::JSON ->> '$' ELSE {column} END"
            column = f"TRY(from_json({text}, {literal(json.dumps(embedded[name]))})) AS {column}"
        parts.append(column)
    return ", ".join(parts)


def connect() -> duckdb.DuckDBPyConnection:
    """A DuckDB in memory that streams results without holding them all."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'; SET streaming_buffer_size = '128MB'; SET memory_limit = '1400MB'")
    return connection


def stream_frames(connection: duckdb.DuckDBPyConnection, sql: str, rows: int) -> Iterator[pl.DataFrame]:
    """Run a query and give its result in frames of about `rows` rows, in order."""
    for batch in connection.sql(sql).to_arrow_reader(rows):
        if batch.num_rows:
            yield pl.DataFrame(pl.from_arrow(batch))


def rows_per_chunk(laid: Laid) -> int:
    """As many rows as make about CHUNK_BYTES of text."""
    mean = laid.size_bytes / max(1, laid.newlines)
    return int(min(MAX_CHUNK_ROWS, max(64, CHUNK_BYTES / max(1.0, mean))))


def _read_json(fmt: Format, path: Path, shape: str, *, tolerant: bool, max_object_bytes: int = 16 << 20) -> str:
    columns = ", ".join(f"{literal(k)}: {literal(duckdb_structure(v))}" for k, v in fmt.structure.items())
    return (
        f"read_json({literal(str(path))}, format = '{shape}', columns = {{{columns}}}, "
        f"ignore_errors = {str(tolerant).lower()}, maximum_object_size = {max_object_bytes})"
    )


def read_json_lines(fmt: Format, laid: Laid, work: Path, *, strictly: bool = False) -> Iterator[Raw]:
    """Read JSON lines, or one JSON array of objects.

    Raises:
        MiscountError: lines can't be told apart by DuckDB; read again with `strictly`.

    """
    if starts_array(laid.path):
        yield from _read_json_array(fmt, laid)
    elif strictly or laid.has_long_lines:
        yield from _read_checked_lines(fmt, laid, work)
    else:
        yield from _read_whole_file(fmt, laid)


def starts_array(path: Path) -> bool:
    """Whether a file is one JSON array of objects."""
    with path.open("rb") as stream:
        start = stream.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    return start[:1] == b"[" and start[1:].lstrip()[:1] in (b"{", b"")


def _read_whole_file(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """DuckDB skips blank lines, so its n-th row is the n-th line that is not blank."""
    numbers = _lines_with_content(laid)
    sql = f"SELECT {selected(list(fmt.structure), dict(fmt.embedded))} FROM {_read_json(fmt, laid.path, 'newline_delimited', tolerant=True)}"
    seen = 0
    try:
        for frame in stream_frames(connect(), sql, rows_per_chunk(laid)):
            if seen + frame.height > numbers.stop:
                raise MiscountError
            yield _numbered(frame, numbers.take(seen, frame.height))
            seen += frame.height
    except duckdb.Error as error:
        raise MiscountError from error
    if seen != numbers.stop:
        raise MiscountError
    if numbers.blank:
        yield Raw(pl.DataFrame(), {}, numbers.blank)


def _numbered(frame: pl.DataFrame, lines: NDArray[np.int64]) -> Raw:
    numbered = frame.with_columns(pl.Series(LINE, lines))
    empty = numbered.filter(pl.all_horizontal(pl.exclude(LINE).is_null()))[LINE].to_list()
    if empty:
        numbered = numbered.filter(~pl.col(LINE).is_in(empty))
    return Raw(numbered, dict.fromkeys(empty, ""))


@dataclass(frozen=True)
class _Lines:
    """Numbers of the lines that hold more than white space: all of them, or those in `kept`."""

    stop: int
    blank: int = 0
    kept: NDArray[np.int64] | None = None

    def take(self, start: int, count: int) -> NDArray[np.int64]:
        if self.kept is None:
            return np.arange(start + 1, start + count + 1, dtype=np.int64)
        return self.kept[start : start + count]


def _lines_with_content(laid: Laid) -> _Lines:
    total = laid.newlines + laid.ends_open
    if not laid.may_have_blank_lines:
        return _Lines(total)
    with laid.path.open("rb") as stream:
        kept = np.fromiter((n for n, line in enumerate(stream, 1) if line.strip(b" \t\r\n\f\v")), dtype=np.int64)
    return _Lines(len(kept), total - len(kept), kept)


def _read_checked_lines(fmt: Format, laid: Laid, work: Path) -> Iterator[Raw]:
    """Check every line first, and let DuckDB read only those that are JSON objects."""
    spool = work / "checked.jsonl"
    sql = f"SELECT {selected(list(fmt.structure), dict(fmt.embedded))} FROM "
    sql += _read_json(fmt, spool, "newline_delimited", tolerant=True, max_object_bytes=MAX_LINE_BYTES + 4096)
    connection = connect()
    for lines, bad, blank in _spools(laid.path, spool):
        kept = np.array(lines, dtype=np.int64)
        seen = 0
        for frame in stream_frames(connection, sql, 1024) if lines else ():
            raw = _numbered(frame, kept[seen : seen + frame.height])
            seen += frame.height
            yield raw
        yield Raw(pl.DataFrame(), bad, blank)
    spool.unlink(missing_ok=True)


def _spools(path: Path, spool: Path) -> Iterator[tuple[list[int], dict[int, str], int]]:
    """Write good lines to `spool`, at most SPOOL_BYTES at a time: (their numbers, bad lines, blank lines)."""
    lines, bad, blank, size = [], {}, 0, 0
    with path.open("rb") as stream:
        out = spool.open("wb")
        for number, line in enumerate(bounded_lines(stream, MAX_LINE_BYTES), 1):
            text = line.strip()
            problem = json_problem(text) if len(line) <= MAX_LINE_BYTES else _too_long(MAX_LINE_BYTES)
            if not text:
                blank += 1
            elif problem:
                bad[number] = problem
            else:
                lines.append(number)
                size += out.write(text + b"\n")
            if size >= SPOOL_BYTES or len(bad) >= MAX_CHUNK_ROWS:
                out.close()
                yield lines, bad, blank
                out, lines, bad, blank, size = spool.open("wb"), [], {}, 0, 0
        out.close()
        yield lines, bad, blank


def bounded_lines(stream: object, limit: int) -> Iterator[bytes]:
    """Lines of a binary stream; one longer than `limit` comes as its first limit + 1 bytes."""
    readline = stream.readline  # type: ignore[attr-defined]
    while line := readline(limit + 1):
        if len(line) > limit:
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = readline(1 << 20)
        yield line


def _too_long(limit: int) -> str:
    return f"the line is longer than {limit >> 20} MiB"


def json_problem(text: bytes) -> str | None:
    """Why a line is no JSON object; None if it is one."""
    try:
        value = json.loads(text.removeprefix(b"\xef\xbb\xbf").decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"the line is not UTF-8 text (byte {error.start + 1})"
    except json.JSONDecodeError as error:
        return f"the line is not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError):
        return "the line is not JSON that can be read: numbers too long or nesting too deep"
    return None if isinstance(value, dict) else f"the line is JSON but no object ({type(value).__name__})"


def _read_json_array(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """One array of objects: the n-th element is record n."""
    sql = f"SELECT {selected(list(fmt.structure), dict(fmt.embedded))} FROM "
    sql += _read_json(fmt, laid.path, "array", tolerant=False, max_object_bytes=MAX_LINE_BYTES)
    seen = 0
    try:
        for frame in stream_frames(connect(), sql, MAX_CHUNK_ROWS // 8):
            yield _numbered(frame, np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64))
            seen += frame.height
    except duckdb.Error as error:
        reason = f"the JSON array can't be read past element {seen}: {first_sentence(error)}"
        yield Raw(pl.DataFrame(), {seen + 1: reason})


def first_sentence(error: BaseException) -> str:
    """The first line of an error, without quoted input (it may hold text of the log)."""
    line = (str(error).splitlines() or [type(error).__name__])[0]
    return line.split('"')[0].split("'")[0].strip(" :,.") or type(error).__name__


def read_json_document(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """One or more JSON documents: `fmt.records` says in SQL over the table `document` what a record is."""
    columns = selected(list(fmt.structure), dict(fmt.embedded))
    source = _read_json(
        fmt, laid.path, "unstructured", tolerant=False, max_object_bytes=max(16 << 20, laid.size_bytes + 4096)
    )
    sql = f"WITH document AS (SELECT {columns} FROM {source}) {fmt.records}"
    seen = 0
    try:
        for frame in stream_frames(connect(), sql, MAX_CHUNK_ROWS):
            numbers = np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64)
            seen += frame.height
            yield Raw(frame if LINE in frame.columns else frame.with_columns(pl.Series(LINE, numbers)))
    except duckdb.Error as error:
        yield Raw(pl.DataFrame(), {seen + 1: f"the JSON document can't be read: {first_sentence(error)}"})


def read_text(laid: Laid) -> Iterator[Raw]:
    """Lines of text; bytes that are not UTF-8 are replaced, a line is cut after 65,536 characters."""
    lines: list[str] = []
    size = first = 0
    with laid.path.open("rb") as stream:
        for number, line in enumerate(bounded_lines(stream, MAX_TEXT_CHARACTERS)):
            lines.append(line.rstrip(b"\r\n").decode("utf-8", errors="replace"))
            size += len(line)
            if size >= SPOOL_BYTES // 4:
                yield _text_chunk(lines, first)
                lines, size, first = [], 0, number + 1
    if lines:
        yield _text_chunk(lines, first)


def _text_chunk(lines: list[str], first: int) -> Raw:
    numbers = pl.int_range(first + 1, first + len(lines) + 1, dtype=pl.Int64, eager=True)
    return Raw(pl.DataFrame({LINE: numbers, "line": pl.Series(lines, dtype=pl.String)}))


def read_parquet(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """Rows of a Parquet file, typed as they are.

    Raises:
        UnreadableSourceError: the file is no Parquet file, or is damaged.

    """
    seen = 0
    try:
        sql = f"SELECT * FROM read_parquet({literal(str(laid.path))})"
        for frame in stream_frames(connect(), sql, MAX_CHUNK_ROWS):
            numbers = np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64)
            seen += frame.height
            yield Raw(frame.with_columns(pl.Series(LINE, numbers)))
    except duckdb.Error as error:
        raise UnreadableSourceError(
            f"the Parquet file can't be read past row {seen:,} ({first_sentence(error)})",
            where=fmt.title,
            remedy="Check that the file is complete.",
        ) from error
