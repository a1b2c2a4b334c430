"""JSON lines and JSON arrays to raw frames, each record with its line (or its place in the array).

Belongs here: the fast way (DuckDB reads the file as it is), the strict way (records are found first, and
DuckDB is given them one spool at a time), and what is wrong with a line. Does not belong here: whole
documents (`readers.py`).

DuckDB is asked to be tolerant: a line that is no JSON object becomes a row of nulls, a value of the wrong
type becomes null. A row of nulls is no record but a bad line, and is looked at again for the reason.
"""

from __future__ import annotations

import json
import mmap
import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.errors import UnreadableSourceError
from parsers.readers import (
    BOM,
    LINE,
    MAX_CHUNK_ROWS,
    MAX_LINE_BYTES,
    MiscountError,
    QueryError,
    Raw,
    bounded_lines,
    has_elements,
    json_table,
    lines_with_content,
    rows_per_chunk,
    selected,
    spools,
    stream_frames,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from parsers.format import Format
    from parsers.sources import Laid


def read_json_lines(fmt: Format, laid: Laid, work: Path, *, strictly: bool = False) -> Iterator[Raw]:
    """Read JSON lines; or arrays of objects and objects spread over lines, whose records are counted from 1.

    Raises:
        MiscountError: lines can't be told apart by DuckDB; read again with `strictly`.
        UnreadableSourceError: the file became shorter while it was read.

    """
    if has_elements(laid.path):
        if strictly:
            yield from read_records(fmt, _elements(laid), work)
        else:
            yield from _read_elements(fmt, laid)
    elif strictly or laid.has_long_lines:
        yield from read_records(fmt, _numbered_lines(laid), work)
    else:
        yield from _read_whole_file(fmt, laid)


def _read_whole_file(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """DuckDB skips blank lines, so its n-th row is the n-th line that is not blank."""
    numbers = lines_with_content(laid)
    sql = _select(fmt) + json_table(fmt, laid.path, "newline_delimited", tolerant=True)
    seen = 0
    try:
        for frame in stream_frames(sql, rows_per_chunk(laid, fmt)):
            if seen + frame.height > numbers.stop:
                raise MiscountError
            yield _numbered(frame, numbers.take(seen, frame.height))
            seen += frame.height
    except QueryError as error:
        raise MiscountError from error
    if seen != numbers.stop:
        raise MiscountError
    if numbers.blank:
        yield Raw(pl.DataFrame(), {}, numbers.blank)


def _select(fmt: Format) -> str:
    return f"SELECT {selected(list(fmt.structure), dict(fmt.embedded))} FROM "


def _numbered(frame: pl.DataFrame, lines: NDArray[np.int64]) -> Raw:
    numbered = frame.with_columns(pl.Series(LINE, lines))
    if any(column.null_count() == 0 for column in frame.iter_columns()):
        return Raw(numbered)
    is_empty = numbered.select(pl.all_horizontal(pl.exclude(LINE).is_null())).to_series()
    if not is_empty.any():
        return Raw(numbered)
    return Raw(numbered.filter(~is_empty), dict.fromkeys(numbered.filter(is_empty)[LINE].to_list(), ""))


def _numbered_lines(laid: Laid) -> Iterator[tuple[int, bytes, str | None]]:
    for number, line in enumerate(bounded_lines(laid, MAX_LINE_BYTES), 1):
        yield number, (line.removeprefix(BOM) if number == 1 else line).strip(), _too_long(line)


def _too_long(record: bytes) -> str | None:
    return f"the record is longer than {MAX_LINE_BYTES >> 20} MiB" if len(record) > MAX_LINE_BYTES else None


def read_records(fmt: Format, records: Iterator[tuple[int, bytes, str | None]], work: Path) -> Iterator[Raw]:
    """Read records (number, one line of JSON, what is wrong with it), wherever they are from.

    DuckDB is given one bounded spool at a time, and what it makes of each is counted.

    Raises:
        UnreadableSourceError: DuckDB tells other records apart than were given.

    """
    spool = work / "checked.jsonl"
    for numbers, bad, blank in spools(records, spool):
        frame, kept = _read_spool(fmt, spool, len(numbers)), numbers
        if frame is None:
            # DuckDB takes a record for none or for several: only what Python holds for one object is left to
            # it.
            kept, damaged = _without_damaged(spool, numbers)
            bad.update(damaged)
            frame = _read_spool(fmt, spool, len(kept))
        if frame is None:
            raise UnreadableSourceError(
                f"its records {numbers[0]:,} to {numbers[-1]:,} can't be told apart",
                where=fmt.title,
                remedy="Split the file.",
            )
        raw = _numbered(frame, np.array(kept, dtype=np.int64))
        yield Raw(raw.frame, raw.bad_lines | bad, blank)


def _read_spool(fmt: Format, spool: Path, count: int) -> pl.DataFrame | None:
    """The records of a spool; None if DuckDB counts another number of them."""
    size = MAX_LINE_BYTES + 4096
    sql = _select(fmt) + json_table(fmt, spool, "newline_delimited", tolerant=True, max_object_bytes=size)
    try:
        frames = list(stream_frames(sql, 1024, or_empty=True))
    except QueryError:
        return None
    frame = pl.concat(frames)
    return frame if frame.height == count else None


def _without_damaged(spool: Path, numbers: list[int]) -> tuple[list[int], dict[int, str]]:
    with spool.open("rb") as stream:
        checked = [(number, json_problem(text), text) for number, text in zip(numbers, stream, strict=True)]
    spool.write_bytes(b"".join(text for _, problem, text in checked if not problem))
    return [n for n, problem, _ in checked if not problem], {
        n: problem for n, problem, _ in checked if problem
    }


def json_problem(text: bytes) -> str | None:
    """Why a line is no JSON object; None if it is one."""
    try:
        decoded = text.removeprefix(BOM).decode("utf-8")
        value = json.loads(decoded)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return f"the line is not UTF-8 text (byte {error.start + 1})"
    except UnicodeEncodeError:
        return "the line holds half of a surrogate pair (\\ud800 to \\udfff)"
    except json.JSONDecodeError as error:
        return f"the line is not JSON: {error.msg} (column {error.colno})"
    except (ValueError, RecursionError):
        return "the line is not JSON that can be read: numbers too long or nesting too deep"
    return None if isinstance(value, dict) else f"the line is JSON but no object ({type(value).__name__})"


def _read_elements(fmt: Format, laid: Laid) -> Iterator[Raw]:
    """One whole array, or objects spread over lines: the n-th is record n. DuckDB gives up on damaged ones."""
    with laid.path.open("rb") as stream:
        is_array = stream.read(4096).removeprefix(BOM).lstrip()[:1] == b"["
    sql = _select(fmt) + json_table(fmt, laid.path, "array" if is_array else "unstructured", tolerant=True)
    seen = 0
    try:
        for frame in stream_frames(sql, MAX_CHUNK_ROWS // 8):
            yield _numbered(frame, np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64))
            seen += frame.height
    except QueryError as error:
        raise MiscountError from error


# A string as a whole, or one bracket or comma outside of strings.
_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)


def _elements(laid: Laid) -> Iterator[tuple[int, bytes, str | None]]:
    """Elements of one or more JSON arrays (and objects between them), numbered from 1, each on one line.

    An element ends at a comma or bracket on its array's level, so whatever else is wrong with it costs no
    other. One that is cut off by the end of the file is an element, too; so is all that follows a bracket
    that is never closed.
    """
    number = depth = begin = 0
    in_array = False
    for mark, start in _marks(laid):
        end = None
        match mark:
            case b"[" if depth == 0:
                end, after, depth, in_array = start, start + 1, 1, True
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}" if depth == 1 and in_array:
                end, after, depth, in_array = start, start + 1, 0, False
            case b"]" | b"}":
                depth = max(0, depth - 1)
                end, after = (start + 1, start + 1) if depth == 0 else (None, 0)
            case b"," if depth == in_array:
                end, after = start, start + 1
            case b"":
                end, after = start, start
        if end is not None:
            text = _one_line(laid, begin, end)
            begin = after
            if text:
                number += 1
                is_cut = not mark and json_problem(text)
                yield (
                    number,
                    text,
                    _too_long(text) or ("the file ends inside of this element" if is_cut else None),
                )


def _marks(laid: Laid) -> Iterator[tuple[bytes, int]]:
    """Brackets and commas outside of strings, where they are, and the end (an empty mark)."""
    with laid.path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    end = min(len(data), laid.size_bytes)
    for mark in _MARK.finditer(data, 0, end):
        if mark.end() - mark.start() == 1:
            yield mark[0], mark.start()
    yield b"", end


def _one_line(laid: Laid, begin: int, end: int) -> bytes:
    with laid.path.open("rb") as stream:
        stream.seek(begin)
        text = stream.read(min(end - begin, MAX_LINE_BYTES + 1))
    return text.replace(b"\n", b" ").replace(b"\r", b" ").removeprefix(BOM).strip()
