"""Many small files of one format, parsed as if they were one.

Belongs here: joining the records of small JSON files, and giving back which rows are of which file. Does not belong
here: what a file with a broken record gives (`parse.py`), keeping the result (`pipelines/ingest/together.py`).

To query, map and check has a price per file that is far above that of a record; a folder of one payload per file would
pay it thousands of times. A file that is not read here without a doubt is left to be parsed alone: one with a reject, or
of a format whose mapping asks which file its records are from.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import polars as pl

from parsers.json_reader import read_records
from parsers.parse import canonical, of_source
from parsers.readers import BOM, LINE, begins_with_elements, max_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from parsers.format import Context, Format
    from parsers.hashing import PromptHasher

_BETWEEN = {True: re.compile(r"[\s,]*"), False: re.compile(r"\s*")}
"""What stands between elements: of an array, and of objects one after another."""


class FileWantedError(Exception):
    """A mapping asked for something of the file that its records are from."""


class _OfNoFile:
    """A context that knows only what all files have in common."""

    def __init__(self, hasher: PromptHasher, options: Mapping[str, str]) -> None:
        self.hasher, self.options = hasher, options

    def __getattr__(self, name: str) -> Any:
        raise FileWantedError(name)


def may_join(fmt: Format) -> bool:
    """Whether files of a format can be parsed together, as far as its declaration tells."""
    return fmt.container == "json_lines" and fmt.finish is None


def parse_together(
    contents: Mapping[str, bytes], fmt: Format, hasher: PromptHasher, options: Mapping[str, str], work: Path
) -> tuple[pl.DataFrame, dict[str, int]]:
    """Parse whole files, each under a name.

    Returns:
        canonical rows with the name as `source_file`; how many lines each file has. Files that are not among these
        have no row, and are to be parsed alone.

    Raises:
        FileWantedError: so are all of them: the mapping asks which file its records are from.

    """
    lines: dict[str, int] = {}
    records: list[bytes] = []
    places: list[tuple[str, int]] = []
    for name, content in contents.items():
        found = _records(content)
        if found is not None:
            lines[name], texts = found
            records += texts.values()
            places += [(name, number) for number in texts]
    context = cast("Context", _OfNoFile(hasher, options))
    frames = [fmt.target.empty()]
    doubtful: set[str] = set()
    for raw in read_records(fmt, ((n, text, None) for n, text in enumerate(records)), work):
        doubtful.update(places[number][0] for number in raw.bad_lines)
        for frame in raw.frame.iter_slices(max_rows(fmt)):
            rows, refused, _ = canonical(frame, fmt, context)
            doubtful.update(places[number][0] for number in refused)
            frames.append(of_source(_placed(rows, places), fmt))
    rows = pl.concat(frames)
    return (
        rows.filter(~pl.col("source_file").is_in(list(doubtful))),
        {name: count for name, count in lines.items() if name not in doubtful},
    )


def _placed(rows: pl.DataFrame, places: Sequence[tuple[str, int]]) -> pl.DataFrame:
    """Rows with the name of their file, and their line in it in the place of their number among all records."""
    of_rows = [places[number] for number in rows[LINE].to_list()]
    at = pl.DataFrame(of_rows, schema={"source_file": pl.String, LINE: pl.Int64}, orient="row")
    return rows.with_columns(at["source_file"], at[LINE])


def _records(content: bytes) -> tuple[int, dict[int, bytes]] | None:
    """How many lines a file has (of arrays, and of objects spread over lines: records), and the non-blank ones by number.

    None where its records can't be told apart at sight.
    """
    text = content.removeprefix(BOM)
    if begins_with_elements(text):
        elements = _elements(text)
        return None if elements is None else (len(elements), dict(enumerate(elements, 1)))
    lines = text.removesuffix(b"\n").split(b"\n")
    return len(lines), {number: line for number, raw in enumerate(lines, 1) if (line := raw.strip())}


def _elements(content: bytes) -> list[bytes] | None:
    """Objects of one array, or one after another, each on one line; None: something else is there, too."""
    found: list[bytes] = []
    decoder = json.JSONDecoder()
    try:
        text = content.decode().strip()
        is_array = text.startswith("[")
        if is_array:
            if not text.endswith("]"):
                return None
            text = text[1:-1]
        between = _BETWEEN[is_array]
        at = 0
        while (at := _past(between, text, at)) < len(text):
            value, end = decoder.raw_decode(text, at)
            if not isinstance(value, dict):
                return None
            found.append(text[at:end].replace("\n", " ").replace("\r", " ").encode())
            at = end
    except (ValueError, RecursionError):
        return None
    return found


def _past(between: re.Pattern[str], text: str, at: int) -> int:
    found = between.match(text, at)
    return found.end() if found else at
