"""Logs inside of what carried them: exports of log stores and clouds, answers of their APIs, tables of rows.

Belongs here: taking one layer off after another, for all formats alike. Does not belong here: what stands before a line
on a console (`containers.py`), when a layer is to be taken off (`detect.py`), what is inside (`formats/`).

One layer is: an object that holds the record in one field (`_source`, `@message`, `jsonPayload`, `result`, `_raw` ...;
JSON or text) or many in an array (`hits.hits`, `logEvents`, `results`, `data`, Loki's streams, Log Analytics' tables); a
row of CSV or Parquet, which is an object of its columns; what stands before the JSON object at the end of a line. A
record that names no time keeps its envelope's, as `@timestamp` or before its line. What has no such layer stays as it is.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any, cast

from parsers.format import Head, is_spread
from parsers.packing import DamagedError, blocks, copied_to_disk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_LAYERS = 5
MAX_RECORD_BYTES = 64 << 20
"""A larger envelope is not looked into; those in an array, or one a line, may be as many as they like."""
_HEAD_BYTES = 256 << 10
_PIECE_BYTES = 64 << 10
_PARQUET = b"PAR1"
_PARQUET_ROWS = 1024
_LOOKED_AT = 200
_OPENS_ARRAY = re.compile(r"\s*\[\s*(?:\{|$)")

_TEXTS = ("@message", "_raw", "message", "Message", "textPayload", "log", "line", "Line", "MESSAGE", "msg")
_CARRIERS = (
    "_source",
    "result",
    "jsonPayload",
    "protoPayload",
    *_TEXTS,
    "attributes",
    "payload",
    "backendResponseBody",
)
_ARRAYS = (
    *("logEvents", "events", "hits.hits", "data.result", "tables", "results", "result", "records", "Records"),
    *(
        "response.inlinedResponses.inlinedResponses",
        "entries",
        "items",
        "rows",
        "logs",
        "messages",
        "value",
        "data",
        "documents",
        "docs",
    ),
)
_LAST_CARRIERS = ("content", "event", "body", "Body", "detail", "record", "properties", "data")
"""Fields that may hold a record, and that other records have beside their message."""
_LAYERS = {*_CARRIERS, *(path.partition(".")[0] for path in _ARRAYS), *_LAST_CARRIERS}
_INSTANTS = ("timestamp", "@timestamp", "_time", "time", "ts", "date", "TimeGenerated", "receiveTimestamp")
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")
_EPOCH = re.compile(r"\d{10}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?")
_EPOCH_DIGITS = 10
_SAYS_WHEN = re.compile(r"(?i)time|date|created|_at$|^ts$")
_COLUMN = re.compile(r"[@_\w][\w .@()\[\]/:-]{0,79}")
_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")
_NOTHING = ("", "-")
"""Empty cells; Kibana writes a dash."""
_TYPED = re.compile(r'\{"\$(?:oid|date|number[A-Z][a-z]+)":("[^"\\]*"|[-\d.]+)\}')
"""MongoDB's typed values (`{"$numberLong":"1"}`); in a string, their quotes would be escaped."""


def peeled(stream: IO[bytes], layers: int) -> IO[bytes]:
    """What a stream holds inside of so many layers, one record a line."""
    return cast("IO[bytes]", io.BufferedReader(_Lines(_joined(_written(stream, layers))), _HEAD_BYTES))


def may_have_layers(head: Head) -> bool:
    """Whether it is worth looking: text, or a table of rows."""
    return head.data.startswith(_PARQUET) or b"\0" not in head.data[:4096]


class _Lines(io.RawIOBase):
    """Pieces of bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (piece := next(self._pieces, None)) is not None:
            self._left = memoryview(piece)
        taken = self._left[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Lines in pieces of some size; a fault comes behind all that was read before it."""
    piece = bytearray()
    try:
        for line in lines:
            piece += line
            if len(piece) >= _PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
    except EOFError:
        yield bytes(piece)
        raise
    yield bytes(piece)


def _written(stream: IO[bytes], layers: int) -> Iterator[bytes]:
    pieces = _pieces(stream)
    first = next(pieces, b"")
    head = Head("", first)
    buffered = io.BufferedReader(_Lines(chain([first], pieces)), _HEAD_BYTES)
    if head.data.startswith(_PARQUET):
        records, layers = _parquet_rows(stream), layers - 1
    elif _is_csv(head):
        records, layers = _csv_rows(buffered, head), layers - 1
    elif is_spread(head.text) or _OPENS_ARRAY.match(head.text) or "\n" not in head.text:
        records = _elements(buffered)
    else:
        records = _lines(buffered)
    items = _inside(records, layers)
    begun = list(islice(items, _LOOKED_AT))
    of_objects = 2 * sum(isinstance(value, dict) for value, _ in begun) > len(begun)
    for value, at in chain(begun, items):
        # Between objects, what a program says is no record: a blank line, as no format knows its text.
        is_talk = of_objects and isinstance(value, str) and not value.startswith("{")
        yield b"\n" if is_talk else _line(value, at).encode("utf-8", "replace") + b"\n"


def _inside(records: Iterable[Any], layers: int) -> Iterator[tuple[Any, str | None]]:
    """What records hold inside of so many layers, each with the time that its layers name."""
    for record in records:
        items: list[tuple[Any, str | None]] = [(record, None)]
        for _ in range(layers):
            items = [inner for value, at in items for inner in _inner(value, at)]
        yield from items


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a stream; its fault comes behind what was read before, as an end that comes too early."""
    try:
        yield from blocks(stream, _HEAD_BYTES)
    except DamagedError as error:
        raise EOFError(str(error)) from error


def _is_csv(head: Head) -> bool:
    """Whether a head begins with names of columns; an array's bracket or an object's brace does not."""
    names = head.csv_header
    is_unique = len(set(names)) == len(names) > 1
    return is_unique and not head.text.lstrip().startswith(("{", "[")) and all(map(_COLUMN.fullmatch, names))


def _csv_rows(stream: IO[bytes], head: Head) -> Iterator[Any]:
    from parsers.csv_cells import SEPARATOR_LINE, sniff_delimiter

    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
    first = next(line for line in head.lines if not SEPARATOR_LINE.fullmatch(line))
    rows = csv.reader(text, delimiter=sniff_delimiter(first), skipinitialspace=True)
    names: list[str] | None = None
    try:
        for row in rows:
            cells = [cell.strip() for cell in row]
            if tuple(cells) == head.csv_header:
                names = cells
            elif names and row:
                yield _nested(dict(zip(names, row, strict=False)))
    except csv.Error as error:
        raise EOFError("the CSV is damaged") from error


def _parquet_rows(stream: IO[bytes]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    stream = stream if stream.seekable() else copied_to_disk(stream)
    stream.seek(0)
    try:
        for batch in pq.ParquetFile(stream).iter_batches(_PARQUET_ROWS):
            for row in batch.to_pylist():
                yield _nested(row)
    except pa.ArrowException as error:
        raise EOFError("the Parquet file is damaged") from error


def _lines(stream: IO[bytes]) -> Iterator[Any]:
    """Objects of a line, which may hold several; what is no JSON, as text."""
    while line := stream.readline(MAX_RECORD_BYTES + 1):
        text, at = line.decode("utf-8", "replace").strip(), 0
        while at < len(text):
            value, end = _decoded_at(text, at)
            yield from value if isinstance(value, list) else [value]
            at = _after(text, end)


def _decoded_at(text: str, at: int) -> tuple[Any, int]:
    """The object, or the array of objects, that begins there; else the rest of the text."""
    if text[at] in "{[":
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return text[at:], len(text)
        if isinstance(value, dict) or (value and all(isinstance(item, dict) for item in value)):
            return value, end
    return text[at:], len(text)


def _elements(stream: IO[bytes]) -> Iterator[Any]:
    """Objects that are spread over lines, stand in one array or behind one another without a line's end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text, at, ended = "", 0, False
    while not ended or at < len(text):
        at = _after(text, at)
        found = _whole_object(text, at) if text[at : at + 1] == "{" else None
        if found is not None:
            yield found[0]
            at = found[1]
            continue
        is_object = text[at : at + 1] in ("{", "")
        if is_object and not ended and len(text) - at < MAX_RECORD_BYTES:
            # Twice as much each time: to decode an object again for every block would take their square.
            block = stream.read(max(_HEAD_BYTES, len(text) - at))
            ended = not block
            text, at = text[at:] + decoder.decode(block, final=ended), 0
        elif at < len(text):
            end = len(text) if is_object else text.find("\n", at) + 1 or len(text)
            yield text[at:end].replace("\n", " ").strip()
            at = end


def _whole_object(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def _after(text: str, at: int) -> int:
    between = _BETWEEN.match(text, at)
    return between.end() if between else at


def _inner(value: Any, at: str | None) -> Iterable[tuple[Any, str | None]]:
    """What is inside of one layer, each with the time that the layers around it name."""
    if isinstance(value, str):
        return [_behind_prefix(value, at)]
    if _LAYERS.isdisjoint(value):
        return [(_nested(value), _instant(value) or at)]
    at = _instant(value) or at
    held = next((inner for name in _CARRIERS if (inner := _object(value.get(name)))), None)
    if held is not None:
        return [(held, at)]
    for path in _ARRAYS:
        if elements := _array(value, path):
            return [(element, at) for element in _rows(elements)]
    said = next((text for name in _TEXTS if isinstance(text := value.get(name), str)), None)
    last = next((inner for name in _LAST_CARRIERS if (inner := _object(value.get(name)))), None)
    return [(said if said is not None else last or _nested(value), at)]


def _behind_prefix(line: str, at: str | None) -> tuple[Any, str | None]:
    prefix, brace, _ = line.partition("{")
    held = _object(line[len(prefix) :]) if brace else None
    if held is None:
        return line, at
    stamp = _ISO.search(prefix)
    return held, _iso(stamp[0]) if stamp else at


def _object(value: Any) -> dict[str, Any] | None:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = _DECODER.decode(value.strip())
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) and value else None


def _array(value: dict[str, Any], path: str) -> list[Any] | None:
    found: Any = value
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    is_array = isinstance(found, list) and found and all(isinstance(each, (dict, list)) for each in found)
    return found if is_array else None


def _rows(elements: list[Any]) -> list[Any]:
    """Elements of an array: records, Logs Insights' pairs, Log Analytics' tables, or Loki's streams by their time."""
    rows: list[Any] = []
    streamed = False
    for element in elements:
        if isinstance(element, list):
            pairs = [each for each in element if isinstance(each, dict) and "field" in each]
            rows.append({str(each["field"]): each.get("value") for each in pairs})
        elif isinstance(element.get("columns"), list) and isinstance(element.get("rows"), list):
            columns = element["columns"]
            names = [str(each.get("name") if isinstance(each, dict) else each) for each in columns]
            cells = [row for row in element["rows"] if isinstance(row, list)]
            rows += [_nested(dict(zip(names, row, strict=False))) for row in cells]
        elif isinstance(element.get("values"), list) and "stream" in element:
            streamed = True
            entries = [each for each in element["values"] if isinstance(each, list) and len(each) > 1]
            rows += [{"timestamp": str(each[0]), "line": each[1]} for each in entries]
        else:
            rows.append(element)
    # Loki answers stream by stream, the latest line first; programs' logs are read in their order.
    return sorted(rows, key=_stream_order) if streamed else rows


def _stream_order(row: dict[str, Any]) -> tuple[int, str]:
    """By nanoseconds since 1970, which are text."""
    at = str(row.get("timestamp", ""))
    return len(at), at


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """The object that a row stands for: columns `a.b` are fields of `a`, a cell of JSON is what it says.

    What is behind `attributes.` is one name: those of spans hold dots.
    """
    found: dict[str, Any] = {}
    for name, cell in row.items():
        if cell is None or (isinstance(cell, str) and cell.strip() in _NOTHING):
            continue
        is_attribute = name.startswith("attributes.")
        *path, last = name.split(".", 1 if is_attribute else -1)
        holder: Any = found
        for part in path:
            holder = holder.setdefault(part, {}) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            # A column `a` is beside `a.b`.
            holder, last = found, name
        held = _object(cell)
        holder[last] = cell if held is None else held
    return found


def _instant(value: dict[str, Any]) -> str | None:
    stated = (value[name] for name in _INSTANTS if name in value)
    return next(
        (at for each in stated if isinstance(each, (str, int, float)) and (at := _iso(str(each)))), None
    )


def _iso(text: str) -> str | None:
    """An instant in ISO 8601 with its zone: UTC where a store names none."""
    if _ISO.fullmatch(text):
        zoned = re.sub(r" ?(?:Z|UTC)$", "+00:00", text.replace(",", ".")).replace(" ", "T", 1)
        return zoned if re.search(r"[+-]\d\d:?\d\d$", zoned) else f"{zoned}+00:00"
    if not _EPOCH.fullmatch(text):
        return None
    whole = text.partition(".")[0]
    seconds = Decimal(text) / 10 ** (len(whole) - _EPOCH_DIGITS)
    return datetime.fromtimestamp(float(seconds), tz=UTC).isoformat()


def _line(value: Any, at: str | None) -> str:
    """A record as one line, or the lines of a text, with the envelope's time where it names none of its own."""
    if isinstance(value, dict):
        if at and not any(map(_SAYS_WHEN.search, value)):
            value = {"@timestamp": at, **value}
        text = json.dumps(value, separators=(",", ":"), default=str)
        # A date may hold a number, typed itself.
        return _TYPED.sub(r"\1", _TYPED.sub(r"\1", text)) if '{"$' in text else text
    lines = [value.replace("\n", " ")] if value.startswith("{") else value.rstrip("\n").split("\n")
    return "\n".join(f"{at} {line}" if at and line and not _ISO.match(line) else line for line in lines)


def _exact(literal: str) -> float | str:
    """A number, or its text where a float would change it: readers take both for the same."""
    number = float(literal)
    return number if Decimal(repr(number)) == Decimal(literal) else literal


_DECODER = json.JSONDecoder(parse_float=_exact)
