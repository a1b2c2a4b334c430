"""From a source to canonical records: read, map, normalise, and account for every line.

Belongs here: the one path that all formats take. Does not belong here: reading a container (`readers.py`), the meaning of
counts (`normalise.py`), keeping the result (`pipelines/ingest/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers.csv_reader import read_csv
from parsers.prefetch import ahead
from parsers.normalise import OUTSIDE, TOTAL, normalise
from parsers.readers import (
    CHUNK_BYTES,
    LINE,
    MAX_CHUNK_ROWS,
    Raw,
    read_json_document,
    read_json_lines,
    read_parquet,
    read_text,
)
from parsers.records import REJECTS, REQUESTS
from parsers.rejects import explain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Context, Format
    from parsers.sources import Laid, Source

_LINE_CONTAINERS = ("json_lines", "text", "csv")


@dataclass(frozen=True)
class Parsed:
    """A chunk of a source: canonical rows, rejects, and how many records were something else."""

    rows: pl.DataFrame
    rejects: pl.DataFrame
    other_lines: int

    @property
    def lines(self) -> int:
        """Records of the chunk, all told."""
        return self.rows.height + self.rejects.height + self.other_lines


def parse(
    source: Source, fmt: Format, laid: Laid, context: Context, work: Path, *, strictly: bool = False
) -> Iterator[Parsed]:
    """Parse a source that was laid down as one plain file.

    Every record of the file is in exactly one chunk, as a row, as a reject or counted as other.

    Raises:
        MiscountError: the file needs `strictly`; start again.
        UnreadableSourceError: the content is not of the format's container.

    """
    reasons: dict[int, str] = {}
    for raw in ahead(_gathered(_read(fmt, laid, work, strictly=strictly))):
        reasons.update(raw.bad_lines)
        if raw.frame.is_empty():
            if raw.other_lines:
                yield Parsed(fmt.target.empty(), REJECTS.empty(), raw.other_lines)
            continue
        rows, refused, other = _mapped(raw.frame, fmt, context)
        reasons.update(refused)
        named = rows.with_columns(
            source_format=pl.lit(fmt.name), source_file=pl.lit(source.name), source_line=pl.col(LINE)
        )
        canonical = fmt.target.conform(named)
        yield Parsed(canonical, REJECTS.empty(), other + raw.other_lines)
    if reasons:
        by_line = fmt.container in _LINE_CONTAINERS
        yield Parsed(
            fmt.target.empty(), explain(laid.path, reasons, fmt.name, source.name, by_line=by_line), 0
        )


def _gathered(raws: Iterator[Raw]) -> Iterator[Raw]:
    """Join small chunks: a mapping has a price per chunk, whatever its size."""
    frames: list[pl.DataFrame] = []
    bad: dict[int, str] = {}
    other = size = 0
    for raw in raws:
        bad.update(raw.bad_lines)
        other += raw.other_lines
        if not raw.frame.is_empty():
            frames.append(raw.frame)
            size += raw.frame.estimated_size()
        if size >= CHUNK_BYTES or sum(frame.height for frame in frames) >= MAX_CHUNK_ROWS:
            yield Raw(pl.concat(frames), bad, other)
            frames, bad, other, size = [], {}, 0, 0
    yield Raw(pl.concat(frames) if frames else pl.DataFrame(), bad, other)


def _read(fmt: Format, laid: Laid, work: Path, *, strictly: bool) -> Iterator[Raw]:
    match fmt.container:
        case "json_lines":
            return read_json_lines(fmt, laid, work, strictly=strictly)
        case "json_document":
            return read_json_document(fmt, laid)
        case "csv":
            return read_csv(fmt, laid, work)
        case "text":
            return read_text(laid)
        case "parquet":
            return read_parquet(fmt, laid)


def _mapped(frame: pl.DataFrame, fmt: Format, context: Context) -> tuple[pl.DataFrame, dict[int, str], int]:
    """Map a raw frame: (rows with the target's columns, line -> reason of refusal, records that are something else)."""
    mapped = fmt.map(frame, context)
    if LINE not in mapped.columns:
        mapped = mapped.with_columns(frame[LINE])
    refused = mapped.filter(pl.col("_reject").is_not_null() & ~pl.col("_other"))
    rows = mapped.filter(pl.col("_reject").is_null() & ~pl.col("_other"))
    missing = [
        pl.lit(None, dtype=column.dtype).alias(column.name)
        for column in fmt.target.columns
        if column.name not in rows.columns
    ]
    rows = rows.with_columns(missing)
    if fmt.target is REQUESTS:
        line = rows[LINE]
        keep = [*REQUESTS.names, *(name for name in (TOTAL, OUTSIDE) if name in rows.columns)]
        typed = rows.select(keep).cast({name: REQUESTS.schema[name] for name in REQUESTS.names})
        rows = normalise(typed, fmt.semantics).with_columns(line)
    reasons = dict(zip(refused[LINE].to_list(), refused["_reject"].to_list(), strict=True))
    return rows, reasons, int(mapped["_other"].sum())
