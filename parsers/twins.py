"""The same records in another container: a table's CSV dump, the pages of its API, lines of a container's log.

Belongs here: deriving such a format from the one that declares the records. Does not belong here: anything
about one product (`formats/`).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from parsers import containers
from parsers.format import Head
from parsers.readers import LINE, literal, selected, stream_frames

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from parsers.format import Context, Format

_HEAD_LINES = 200


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
        records=None,
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
        at: where the array may be, dotted (`data`, `data.items`); the first that is an array counts.

    """
    tries = "\n".join(f"WHEN json_type({place}) = 'ARRAY' THEN {place}" for place in map(_json_path, at))
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
        structure={path.split(".")[0]: "JSON" for path in at},
        embedded={},
        records=records,
        priority=fmt.priority + 2,
    )


def container_log_twin(fmt: Format) -> Format:
    """The records of a JSON format, one a line, behind what docker, kubectl and the like put before a line.

    Lines that are no JSON object are messages of the program: other lines.
    """
    structure = literal(json.dumps(fmt.structure))
    objects = f"""
SELECT {LINE}, {selected(list(fmt.structure), dict(fmt.embedded))}
FROM (SELECT {LINE}, unnest(entry) FROM (SELECT {LINE}, TRY(from_json(line, {structure})) AS entry FROM cells))
"""

    def recognise(head: Head) -> bool:
        lines = head.lines[:_HEAD_LINES]
        # A line that has nothing before it is no container's, whatever stands before the others.
        behind = [bare for line in lines if (bare := containers.bare(line)) != line]
        return bool(behind) and not fmt.recognise(head) and fmt.recognise(_head_of(behind))

    def rows(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
        lines = containers.unwrapped(frame, pl.col("line").str.contains("{", literal=True))
        lines = lines.filter(pl.col("line").str.starts_with("{"))
        is_whole = pl.col("line").str.json_path_match("$").is_not_null()
        whole, damaged = lines.filter(is_whole), lines.filter(~is_whole)
        parts = [damaged.select(LINE, _reject=pl.lit("the line is not JSON"), _other=pl.lit(value=False))]
        if whole.height:
            read = pl.concat(stream_frames(objects, whole.height, register=whole))
            parts.append(fmt.map(read, context))
        records = pl.concat(parts, how="diagonal")
        named = frame.select(LINE).join(records, on=LINE, how="left")
        return named.with_columns(pl.col("_other").fill_null(value=True))

    return replace(
        fmt,
        name=f"{fmt.name}_container_log",
        title=f"{fmt.title.removesuffix(', JSON')}, container log",
        written_by=f"{fmt.written_by}; kept by docker, containerd, kubectl, compose or journald",
        container="text",
        recognised_by=f"lines of a container's log that hold {fmt.recognised_by}",
        recognise=recognise,
        map=rows,
        structure=None,
        embedded={},
        priority=fmt.priority + 1,
    )


def _head_of(lines: Sequence[str]) -> Head:
    return Head("", "\n".join(line for line in lines if line.startswith("{")).encode())


def _json_path(path: str) -> str:
    field, *inner = path.split(".")
    return f"(\"{field}\" -> '$.{'.'.join(inner)}')" if inner else f'"{field}"'
