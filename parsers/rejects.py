"""Rejected lines: where they are, why, and as much of them as may be shown.

Belongs here: finding the text of rejected lines again, and masking it. Does not belong here: deciding what is a reject.

A line of a log may hold anything: prompts, keys, addresses. So an excerpt keeps the line's shape only: JSON keys, numbers,
punctuation and literals; every other run of characters is replaced by its length.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers.readers import MAX_LINE_BYTES, bounded_lines, json_problem
from parsers.records import REJECTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXCERPT_BYTES = 2048
_TOKEN = re.compile(
    r'"(?P<key>[A-Za-z_][A-Za-z_.]{0,39})"(?=\s*:)'
    r'|"(?P<string>(?:[^"\\]|\\.)*)"?'
    r"|(?P<literal>\b(?:true|false|null|NaN|INFO|WARNING|ERROR|DEBUG)\b)"
    r"|(?P<number>(?<![\w])[-+]?\d{1,19}(?:\.\d{1,12})?(?:[eE][-+]?\d{1,3})?(?![\w]))"
    r"|(?P<other>[^\s\x00-\x1f,;:|{}\[\]()=+/*<>\"]+)",
    re.DOTALL,
)


def masked(line: str) -> str:
    """A line of at most 2 KB with all that may be text or a secret replaced by `<n chars>`."""

    def mask(match: re.Match[str]) -> str:
        if match["key"] is not None or match["literal"] is not None or match["number"] is not None:
            return match[0]
        if match["string"] is not None:
            return f'"<{len(match["string"])} chars>"'
        return f"<{len(match['other'])} chars>"

    text = re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", " ", line[: EXCERPT_BYTES * 4])
    text = _TOKEN.sub(mask, text)
    return text.encode()[:EXCERPT_BYTES].decode(errors="ignore")


def explain(
    path: Path, reasons: dict[int, str], source_format: str, source_file: str, *, by_line: bool
) -> pl.DataFrame:
    """Turn rejected lines into rows of REJECTS.

    Args:
        path: the plain file the lines are in.
        reasons: line -> reason; an empty reason is found by looking at the line again.
        source_format: name of the format.
        source_file: name of the source.
        by_line: whether the numbers are physical lines (else elements of a document: no excerpt, no offset).

    """
    found = dict(_texts(path, reasons)) if by_line and reasons else {}
    rows = []
    for number in sorted(reasons):
        offset, data = found.get(number, (None, b""))
        reason = reasons[number] or json_problem(data.strip()) or "the object has none of the fields of this format"
        excerpt = masked(data.decode("utf-8", errors="replace").rstrip("\r\n")) if data else None
        rows.append((source_format, source_file, number, offset, reason, excerpt))
    return pl.DataFrame(rows, schema=REJECTS.schema, orient="row")


def _texts(path: Path, wanted: dict[int, str]) -> Iterator[tuple[int, tuple[int, bytes]]]:
    last = max(wanted)
    offset = 0
    with path.open("rb") as stream:
        for number, line in enumerate(bounded_lines(stream, MAX_LINE_BYTES), 1):
            if number in wanted:
                yield number, (offset, line)
            if number == last:
                return
            offset = stream.tell()
