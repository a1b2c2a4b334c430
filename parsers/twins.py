"""The same records in another container: a table's CSV dump, the pages of its API.

Belongs here: deriving such a format from the one that declares the records. Does not belong here: anything
about one product (`formats/`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from parsers.readers import selected

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parsers.format import Format, Head


def csv_twin(
    fmt: Format, *, needed: frozenset[str] | set[str], written_by: str, title: str | None = None
) -> Format:
    """The records of a JSON format as CSV: columns named like the top-level fields, JSON in cells where nested.

    Args:
        fmt: the format of the records.
        needed: columns that a header must have to be this format.
        written_by: what writes the CSV.
        title: a title of its own.

    """
    return replace(
        fmt,
        name=f"{fmt.name}_csv",
        title=title or f"{fmt.title.removesuffix(', JSON')}, CSV",
        written_by=written_by,
        container="csv",
        recognised_by=f"a CSV header with {', '.join(sorted(needed))}",
        recognise=lambda head: set(head.csv_header) >= needed,
        structure=None,
        priority=fmt.priority + 1,
    )


def pages_twin(
    fmt: Format,
    *,
    name: str,
    title: str,
    written_by: str,
    recognised_by: str,
    recognise: Callable[[Head], bool],
    at: Sequence[str],
) -> Format:
    """The records of a JSON format as an array inside of documents, such as pages of an API.

    Args:
        fmt: the format of the records.
        name: of the new format.
        title: of the new format.
        written_by: what writes the documents.
        recognised_by: the rule in words.
        recognise: the rule.
        at: where the array may be, dotted, all below one field (`data`, `data.items`); the first that is an
            array counts.

    """
    field = at[0].split(".")[0]
    column = f'"{field}"'
    tries = "\n".join(
        f"WHEN json_type({place}) = 'ARRAY' THEN {place}"
        for place in (_json_path(column, path) for path in at)
    )
    records = f"""
SELECT {selected(list(fmt.structure), dict(fmt.embedded))}
FROM (SELECT unnest(entry) FROM (
    SELECT unnest(from_json(CASE {tries} END, '{json.dumps([fmt.structure])}')) AS entry FROM document
))
"""
    return replace(
        fmt,
        name=name,
        title=title,
        written_by=written_by,
        container="json_document",
        recognised_by=recognised_by,
        recognise=recognise,
        structure={field: "JSON"},
        embedded={},
        records=records,
        priority=fmt.priority + 2,
    )


def _json_path(column: str, path: str) -> str:
    inner = path.split(".")[1:]
    return f"({column} -> '$.{'.'.join(inner)}')" if inner else column
