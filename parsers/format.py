"""What a log format is: the declaration that every file of `parsers/formats/` makes once.

Belongs here: `Format`, `Head` (what detection looks at) and `TokenSemantics` (what a format's counts include).
Does not belong here: reading (`parsers/readers.py`), the arithmetic on counts (`parsers/normalise.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import polars as pl

    from parsers.hashing import PromptHasher
    from parsers.records import Table

MAX_OBJECTS = 20
Container = Literal["json_lines", "json_document", "csv", "csv_cells", "text", "parquet"]
MAX_HEADER_CHARACTERS = 65_536
Structure = Any
"""Nested DuckDB types of the fields that are read: {"id": "VARCHAR", "usage": {"n": "VARCHAR"}, "tags": ["VARCHAR"]}."""


@dataclass(frozen=True, slots=True)
class TokenSemantics:
    """What the counts of a format include. The normalising is done once, from this, in `parsers/normalise.py`."""

    cache_read: Literal["inside", "outside", "absent"] = "inside"
    cache_write: Literal["inside", "outside", "absent"] = "inside"
    reasoning: Literal["inside", "outside", "absent"] = "inside"
    zero_means: Literal["zero", "unknown"] = "zero"
    """`unknown`: a record whose input and output are both 0 has no usage."""
    clock: Literal["utc", "local", "relative"] = "utc"
    retries: Literal["rows", "hidden"] = "rows"
    """Whether each attempt of a call is a record, or only the last one is."""
    money: str | None = None
    """Currency of the stated cost; None: no cost is stated."""


@dataclass(frozen=True)
class Head:
    """The first bytes of a source (uncompressed), as detection sees them: 256 KB, or the first line where it is longer."""

    name: str
    data: bytes

    @cached_property
    def text(self) -> str:
        """The head as text; undecodable bytes are replaced."""
        return self.data.decode("utf-8", errors="replace").removeprefix("\ufeff")

    @cached_property
    def lines(self) -> list[str]:
        """Non-blank lines; the last one may be cut. Only a line feed ends a line: JSON strings may hold U+2028."""
        return [line.rstrip("\r") for line in self.text.split("\n") if line.strip()]

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """At most 20 JSON objects: of lines, of one leading array, or spread over lines one after another."""
        text = self.text.lstrip()
        if text.startswith("[") and text[1:].lstrip()[:1] in ("{", ""):
            return _leading_objects(text[1:])
        if is_spread(text):
            return _leading_objects(text)
        found: list[dict[str, Any]] = []
        for line in self.lines[:50]:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                found.append(value)
            if len(found) == MAX_OBJECTS:
                break
        return found

    @cached_property
    def document(self) -> Any:
        """The head as one whole JSON document, or None if it is cut or is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @cached_property
    def csv_header(self) -> tuple[str, ...]:
        """Cells of the first non-blank line read as CSV (comma, semicolon, tab or bar), stripped."""
        from parsers.csv_cells import SEPARATOR_LINE, cells, sniff_delimiter

        first = next((line for line in self.lines if not SEPARATOR_LINE.fullmatch(line)), "")
        return tuple(cells(first, sniff_delimiter(first))) if len(first) <= MAX_HEADER_CHARACTERS else ()


def is_spread(text: str) -> bool:
    """Whether a text begins with a JSON object that goes on over several lines, as pretty-printers write it."""
    opening, _, rest = text.lstrip().partition("\n")
    if not opening.startswith("{") or rest[:1] not in (" ", "\t", '"', "}"):
        return False
    try:
        json.loads(opening)
    except RecursionError:
        return False
    except ValueError:
        return True
    return False


def _leading_objects(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    decoder = json.JSONDecoder()
    at = 0
    while len(found) < MAX_OBJECTS:
        while at < len(text) and text[at] in ", \r\n\t":
            at += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(value)
    return found


@dataclass(frozen=True)
class Context:
    """What a mapping may need beyond the rows: who is read, when it was written, and how prompts are hashed."""

    source: str
    hasher: PromptHasher
    modified_at: Any = None
    """Modification time (aware datetime, UTC) of the file; gives the year to logs without one."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options from the user; `options.py` names them."""
    head: str = ""
    """Beginning of the source's text (see `Head`): start-up lines that name the model, for example."""
    carried: dict[str, Any] = field(default_factory=dict)
    """What a mapping keeps from one chunk of the source for the next one; chunks come in the file's order."""


@dataclass(frozen=True)
class Format:
    """A log format.

    `map` takes a frame of raw records and gives one row per record: canonical columns (those of `target` that the
    format knows, others are filled with null), plus two control columns: `_reject` (String: reason, or null) and
    `_other` (Boolean: the record is recognised and is not a row). Raw frames hold `source_line` (Int64) and
      json_lines, json_document: the fields of `structure` (structs as structs),
      csv, parquet: the columns as text / as typed in the file,
      csv_cells: each cell behind the first column of a CSV: `first`, `header`, `value` (text),
      text: `line` (String).
    Counts come out of `map` as the source states them; `semantics` says what they include.

    `finish` gives the rows that only the end of the source completes (an answer that was cut off, a task in
    flight), from what `map` kept in `Context.carried`: the same columns, each with the `source_line` of a record
    that `map` called other; it is other no longer. Where they may be many, it gives them frame by frame.
    """

    name: str
    title: str
    written_by: str
    target: Table
    container: Container
    recognised_by: str
    recognise: Callable[[Head], bool]
    map: Callable[[pl.DataFrame, Context], pl.DataFrame]
    longest_line_bytes: int = 65_536
    """text only: a line is cut after so many bytes."""
    structure: Structure = None
    """Fields that are read; of a CSV, the columns that are, where they are known."""
    finish: Callable[[Context], pl.DataFrame | Iterator[pl.DataFrame]] | None = None
    records: str | None = None
    """json_document only: SQL over the table `document` (the fields of `structure`), one row per record."""
    elements: str | None = None
    """json_document only: how the elements of an inner array begin (pattern over bytes). Then a row of `document` is an
    element and `structure` is its own, so that documents of any size are read in pieces."""
    embedded: Mapping[str, Structure] = field(default_factory=dict)
    """Columns that hold JSON text inside a string, with the structure to read them by."""
    semantics: TokenSemantics = TokenSemantics()
    traps: tuple[str, ...] = ()
    hop: Literal["gateway", "client", "engine", "proxy"] = "gateway"
    """Where the calls were seen. A call that several hops logged counts once: see `pipelines/ingest/hops.py`."""
    replays: bool = False
    """Whether a later file may tell records again, days later and under new times (forks of an agent's session)."""
    retells_sessions: bool = False
    """Whether it states what a session used that a format of the session's own files states call by call."""
    priority: int = 0
    """Among records with one record_key in several formats, the lowest priority is kept."""
