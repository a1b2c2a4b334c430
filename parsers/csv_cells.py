"""Cells and delimiters of CSV lines.

Belongs here: what detection and reading both need, without the weight of a reader. Does not belong here:
files (`parsers/csv_reader.py`).
"""

from __future__ import annotations

import csv
import io
import re

DELIMITERS = ",;\t|"
SEPARATOR_LINE = re.compile(r'\ufeff?"?sep=.?"?\s*')
"""The line by which Excel is told the delimiter, before the header (exports of Grafana and others)."""
MAX_CELL_CHARACTERS = 64 << 20

# Python's own limit of 131,072 characters is less than one long prompt. It can only be set for all readers.
csv.field_size_limit(MAX_CELL_CHARACTERS)


def records(text: str, delimiter: str, *, strict: bool = False) -> list[list[str]]:
    """All records of a text, cell by cell. A quote may stand behind spaces, as DuckDB allows.

    Raises:
        csv.Error: the text is no CSV; with `strict` also where a quoted cell goes on behind its quote.

    """
    lines = io.StringIO(text, newline="")
    return list(csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=strict))


def sniff_delimiter(header: str) -> str:
    """The delimiter that splits a header line into the most cells; a comma where none does.

    One that tears no quoted cell apart comes first: the labels of a quoted series hold commas.
    """

    def splits(delimiter: str) -> tuple[int, int, bool]:
        found = cells(header, delimiter, strict=True)
        is_torn = any(cell.count('"') % 2 for cell in found)
        return 0 if is_torn else len(found), len(cells(header, delimiter)), delimiter == ","

    return max(DELIMITERS, key=splits)


def cells(line: str, delimiter: str, *, strict: bool = False) -> list[str]:
    """The cells of one line, stripped; none if it is no CSV (`strict`: see `records`)."""
    try:
        read = records(line, delimiter, strict=strict)
    except csv.Error:
        return []
    return [cell.strip() for cell in read[0]] if read else []
