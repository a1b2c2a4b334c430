"""Rejected lines: where they are, why, and as much of them as may be shown.

Belongs here: finding the text of rejected lines again, and masking it. Does not belong here: deciding what is
a reject.

A line of a log may hold anything: prompts, keys, addresses. So an excerpt keeps the line's shape only:
punctuation, the literals of JSON and of log levels, names of fields that the format itself declares and the
plain numbers that follow them. Any other digit becomes 9, any other run of characters its length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.json_reader import json_problem
from parsers.readers import MAX_LINE_BYTES, located_lines
from parsers.records import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from parsers.format import Format
    from parsers.sources import Laid

EXCERPT_BYTES = 2048
CHECKPOINT_LINES = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]|[^\S ]")
_TOKEN = re.compile(
    r'"(?P<key>[A-Za-z_][\w.]{0,39})"\s*:(?P<number>\s*[-+]?\d{1,19}(?:\.\d{1,12})?(?=\s*(?:[,}\]]|$)))?'
    r'|"(?P<string>[^"\\]*+(?:\\.[^"\\]*+)*+)"?'
    r"|(?P<literal>\b(?:true|false|null|NaN|INFO|WARNING|ERROR|DEBUG)\b)"
    r"|(?P<digits>(?<![\w])[\d.+-]*\d[\d.+-]*(?![\w]))"
    r"|(?P<other>[^\s,;:|{}\[\]()=+/*<>\"]+)",
    re.DOTALL,
)
_UNKNOWN = "the record has none of the fields of this format"


def masked(line: str, fields: frozenset[str] = frozenset()) -> str:
    """A line of at most 2 KB with all that may be text or a secret replaced by `<n chars>`.

    Args:
        line: text of a log.
        fields: names that may be shown, as keys of JSON objects.

    """

    def mask(match: re.Match[str]) -> str:
        if match["key"] in fields or match["literal"] is not None:
            return match[0]
        if match["key"] is not None:
            return f'"<{len(match["key"])} chars>":{_nines(match["number"] or "")}'
        if match["string"] is not None:
            return f'"<{len(match["string"])} chars>"'
        return _nines(match[0]) if match["digits"] is not None else f"<{len(match[0])} chars>"

    text = _TOKEN.sub(mask, _CONTROL.sub(" ", line[: EXCERPT_BYTES * 4]))
    return text.encode()[:EXCERPT_BYTES].decode(errors="ignore")


def _nines(text: str) -> str:
    return re.sub(r"\d", "9", text)


class Explainer:
    """Turns rejected lines of one source into rows of REJECTS, some at a time, in any order."""

    def __init__(self, laid: Laid, fmt: Format, source_file: str, *, by_line: bool) -> None:
        """Take the plain file. Without `by_line` records are no lines: they get no excerpt and no offset."""
        self._laid, self._by_line = laid, by_line
        self._origin = (fmt.name, source_file)
        self._fields = frozenset(_names(fmt.structure)) | frozenset(_names(fmt.embedded))
        # (line, byte) where reading may begin; reading on from there adds more.
        self._checkpoints = [(1, 0)]

    def rejects(self, reasons: Mapping[int, str]) -> pl.DataFrame:
        """Rows for line -> reason; an empty reason is found by looking at the line again."""
        found = dict(self._texts(reasons)) if self._by_line and reasons else {}
        rows = []
        for number in sorted(reasons):
            offset, data = found.get(number, (None, b""))
            reason = reasons[number] or (json_problem(data.strip()) if data else None) or _UNKNOWN
            text = data.decode("utf-8", errors="replace").rstrip("\r\n")
            excerpt = masked(text, self._fields) if data else None
            rows.append((*self._origin, number, offset, reason, excerpt))
        return pl.DataFrame(rows, schema=REJECTS.schema, orient="row")

    def _texts(self, wanted: Mapping[int, str]) -> Iterator[tuple[int, tuple[int, bytes]]]:
        first, last = min(wanted), max(wanted)
        number, start = max(point for point in self._checkpoints if point[0] <= first)
        for offset, line in located_lines(self._laid, MAX_LINE_BYTES, start):
            if number - self._checkpoints[-1][0] >= CHECKPOINT_LINES:
                self._checkpoints.append((number, offset))
            if number in wanted:
                yield number, (offset, line)
            if number == last:
                return
            number += 1


def _names(structure: Any) -> Iterator[str]:
    if isinstance(structure, list):
        yield from _names(structure[0])
    elif hasattr(structure, "items"):
        for name, inner in structure.items():
            yield name
            yield from _names(inner)
