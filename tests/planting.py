"""Planting marks in every text of a log, wherever it stands: what the proof of privacy is made with.

Belongs here: walking a log's texts (JSON at any depth, JSON in strings, cells of CSV, text between quotes, XML, SSE,
Parquet), and searching everything that a run leaves. Does not belong here: what may be found (`test_privacy_of_cases.py`).

A place is a path of names: `messages[].content`, `metadata$.key` (JSON inside a string), `prompt` (a column of a CSV),
`text=` (what is quoted behind a word of a line). Texts of one place are marked alike.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from pipelines.ingest.land import Reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Plant = Callable[[str, str], str]
    """Place and text -> the text to stand there."""

HERE = Path(__file__).parent
KEPT = HERE / "kept_places.json"
MARK = re.compile(r"zq(\d{4})x", re.IGNORECASE)
NO_WORD = re.compile(r"[\d\s.,:+%/TZ-]*")
"""Numbers and instants: nothing is said there."""
QUOTED = re.compile(r"(\"[\w.]+\"\s*:\s*|[\w.-]*[=:]?\s*)([\"'])((?:\\.|(?!\2)[^\\\n])*)\2")
"""What is quoted, behind a word or behind the name of a field in JSON that is broken."""
TAGGED = re.compile(r"<(\w+)>([^<>]+)</\1>")
DECODER = json.JSONDecoder()
SCANNED = (".parquet", ".frame")
NO_CELLS = (
    "grafana_csv/joined_raw",
    "litellm_spend_logs_csv/broken_records",
    "grafana_csv/labels_with_commas",
    "grafana_csv_devices/excel",
)
"""CSV that has lines before its header, or records that are broken: planted as lines of text."""

CREDENTIALS = (
    "sk-proj-PLANTED0123456789abcdef",
    "Bearer PLANTED.token",
    "AKIAPLANTED012345678",
    "AIzaSyPLANTED0123456789abcdefghijklmnop",
    "hf_PLANTED0123456789abcdef",
    "ghp_PLANTED0123456789abcdefghijkl",
    "eyJhbGciPLANTED.eyJzdWIiPLANTED.c2lnPLANTED",
    "https://me:PLANTEDpw@host.example/v1?api-key=PLANTEDq&x=PLANTEDr",
    "password=PLANTEDpw",
    "data:image/png;base64,PLANTED0KGgo=",
    "Set-Cookie: PLANTEDsession",
    "PLANTED words of a prompt " * 25,
)


def planted(content: bytes, suffix: str, plant: Plant) -> bytes:
    """A log with every text replaced by what `plant` gives for it; `suffix` is that of its file."""
    if suffix == ".parquet":
        frame = pl.read_parquet(io.BytesIO(content))
        out = io.BytesIO()
        rows = [_walked(row, "", plant) for row in frame.to_dicts()]
        pl.DataFrame(rows, schema=frame.schema).write_parquet(out)
        return out.getvalue()
    encoding = "utf-16" if content.startswith(codecs.BOM_UTF16_LE) else "utf-8"
    text = content.decode(encoding, "surrogateescape")
    changed = _csv(text, plant) if suffix == ".csv" else _text(text, "", plant)
    return changed.encode(encoding, "surrogateescape")


def places(content: bytes, suffix: str) -> list[str]:
    """All places of a log in which a text stands."""
    found: dict[str, None] = {}

    def note(place: str, text: str) -> str:
        found.setdefault(place)
        return text

    planted(content, suffix, note)
    return list(found)


def _walked(value: Any, place: str, plant: Plant) -> Any:
    match value:
        case dict():
            return {
                key: _walked(inner, f"{place}.{key}" if place else key, plant) for key, inner in value.items()
            }
        case list():
            return [_walked(inner, f"{place}[]", plant) for inner in value]
        case str() if value.strip():
            return _string(value, place, plant)
        case _:
            return value


def _string(value: str, place: str, plant: Plant) -> str:
    if NO_WORD.fullmatch(value):
        return value
    if value.lstrip()[:1] in ("{", "["):
        try:
            inner = json.loads(value)
        except ValueError:
            pass
        else:
            return json.dumps(_walked(inner, f"{place}$", plant))
    if "{" in value or "\n" in value.strip() or '"' in value:
        changed = _text(value, f"{place}|", plant)
        if changed != value:
            return changed
    return plant(place, value)


def _text(text: str, place: str, plant: Plant) -> str:
    """JSON documents one after another, and lines: JSON behind a prefix, or what is quoted."""
    out: list[str] = []
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        start = at + len(text[at:end]) - len(text[at:end].lstrip())
        document = _document(text, start, place, plant) if text[start : start + 1] in ("{", "[") else None
        if document is None:
            out.append(_line(text[at:end], place, plant))
        else:
            changed, end = document
            out += [text[at:start], changed]
        if end < len(text) and text[end] == "\n":
            out.append("\n")
            end += 1
        at = end
    return "".join(out)


def _document(text: str, at: int, place: str, plant: Plant) -> tuple[str, int] | None:
    try:
        value, end = DECODER.raw_decode(text, at)
    except ValueError:
        return None
    is_alone = not text[end : (text.find("\n", end) + 1 or len(text) + 1) - 1].strip(" ,\r")
    if not is_alone or not isinstance(value, dict | list):
        return None
    indent = 1 if "\n" in text[at:end] else None
    return json.dumps(_walked(value, place, plant), indent=indent, ensure_ascii=False), end


def _line(line: str, place: str, plant: Plant) -> str:
    for found in re.finditer(r"\{", line):
        document = _document(line, found.start(), f"{place}{{", plant)
        if document is not None:
            changed, end = document
            return _line(line[: found.start()], place, plant) + changed + line[end:]
    line = TAGGED.sub(lambda m: f"<{m[1]}>{_inside(m[2], place + m[1], plant)}</{m[1]}>", line)
    return QUOTED.sub(lambda m: f"{m[1]}{m[2]}{_inside(m[3], place + _behind(m[1]), plant)}{m[2]}", line)


def _behind(word: str) -> str:
    return re.sub(r"[\d.\"\s]+", "", word) + "quoted"


def _inside(text: str, place: str, plant: Plant) -> str:
    return text if NO_WORD.fullmatch(text) else plant(place, text)


def _csv(text: str, plant: Plant) -> str:
    first = text.lstrip("\ufeff\n").partition("\n")[0]
    delimiter = max(",;\t|", key=first.count)
    records = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    header = [name.strip().lstrip("\ufeff") for name in records[0]]
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    writer.writerow(records[0])
    for record in records[1:]:
        names = [*header, *["beyond"] * len(record)]
        writer.writerow(
            _string(cell, name, plant) if cell else cell for name, cell in zip(names, record, strict=False)
        )
    return out.getvalue()


def with_fields(content: bytes, fields: dict[str, Any]) -> bytes:
    """A JSON log whose records, one a line, have further fields."""
    begun = json.dumps(fields)[:-1].encode()
    return re.sub(rb"(?m)^\{(?=\s*\")", lambda _: begun + b", ", content)


def everything_in(folder: Path) -> dict[str, str]:
    """Every file as bytes, and decoded where it is Parquet, DuckDB or SQLite."""
    texts: dict[str, str] = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        texts[f"{path} (bytes)"] = path.read_bytes().decode("latin-1")
        if path.suffix in SCANNED:
            texts[str(path)] = _texts_of(pl.read_parquet(path, glob=False))
        if path.suffix == ".duckdb":
            with duckdb.connect(str(path), read_only=True) as connection:
                for (name,) in connection.sql("SELECT table_name FROM duckdb_tables()").fetchall():
                    table = pl.DataFrame(connection.sql(f'SELECT * FROM "{name}"').to_arrow_table())
                    texts[f"{path}:{name}"] = _texts_of(table)
    return texts


def _texts_of(frame: pl.DataFrame) -> str:
    """Every different text of a frame: the only columns that hold any are strings and lists of them."""
    texts = frame.select(pl.selectors.string() | pl.selectors.by_dtype(pl.List(pl.String)))
    return "\n".join(str(column.unique().to_list()) for column in texts)


@dataclass(frozen=True)
class Case:
    """One input of `parsers/cases/`."""

    folder: Path

    def __str__(self) -> str:
        return f"{self.format}/{self.name}"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def format(self) -> str:
        return self.folder.parent.name

    @cached_property
    def input(self) -> Path:
        return next(path for path in self.folder.iterdir() if path.name.startswith("input."))

    @cached_property
    def content(self) -> bytes:
        return self.input.read_bytes()

    @property
    def suffix(self) -> str:
        return "" if str(self) in NO_CELLS else self.input.suffix

    @cached_property
    def places(self) -> list[str]:
        return places(self.content, self.suffix)

    @cached_property
    def rows(self) -> int:
        """How many rows the input gives, by the case."""
        lines = (self.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
        return sum(bool(line) for line in lines)

    def free(self, entry: dict[str, Any]) -> list[str]:
        """The places that can be changed, by the entry of the format in `kept_places.json`."""
        return [place for place in self.places if place not in entry["fixed"].get(self.name, ())]

    def planted(self, what: dict[str, str]) -> bytes:
        """The input with a text added at each of these places."""
        return planted(
            self.content, self.suffix, lambda place, text: f"{text} {what[place]}" if place in what else text
        )

    def marked(self, at: Sequence[str]) -> bytes:
        """The input with the number of each of these places at it."""
        return self.planted({place: self.mark(place) for place in at})

    def mark(self, place: str) -> str:
        """The text that tells a place."""
        return f"zq{self.places.index(place):04}x said"

    def reading(self) -> Reading:
        options = self.folder / "options.toml"
        given = tomllib.loads(options.read_text(encoding="utf-8")) if options.exists() else {}
        return Reading(self.format, options=given)


CASES = [Case(path) for path in sorted((HERE / "parsers" / "cases").glob("*/*")) if path.is_dir()]
