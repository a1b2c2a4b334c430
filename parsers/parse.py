"""From a source to canonical records: read, map, normalise, and account for every line.

Belongs here: the one path that all formats take. Does not belong here: reading a container (`readers.py`),
the meaning of counts (`normalise.py`), keeping the result (`pipelines/ingest/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers.csv_reader import read_csv
from parsers.csv_wide import read_csv_cells
from parsers.json_elements import read_elements
from parsers.json_reader import read_json_lines
from parsers.normalise import OUTSIDE, TOTAL, normalise, normalise_buckets
from parsers.prefetch import ahead
from parsers.readers import (
    CHUNK_BYTES,
    LINE,
    MAX_CHUNK_ROWS,
    Raw,
    has_elements,
    max_rows,
    read_json_document,
    read_parquet,
    read_text,
)
from parsers.records import REQUESTS, USAGE_BUCKETS
from parsers.rejects import Explainer
from parsers.withheld import without_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Context, Format
    from parsers.records import Table
    from parsers.sources import Laid, Source

_LINE_CONTAINERS = ("json_lines", "text", "csv")
_NORMALISED = {REQUESTS.name: normalise, USAGE_BUCKETS.name: normalise_buckets}
# Put in by `parse` itself.
_ORIGIN = ("source_format", "source_file", "source_line")


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
    explainer = Explainer(laid, fmt, source.name, by_line=by_line(fmt, laid))

    def named(rows: pl.DataFrame) -> pl.DataFrame:
        return of_source(rows.with_columns(source_file=pl.lit(source.name)), fmt)

    for raw in ahead(_gathered(_read(fmt, laid, work, strictly=strictly), max_rows(fmt))):
        if raw.frame.is_empty():
            yield Parsed(fmt.target.empty(), explainer.rejects(raw.bad_lines), raw.other_lines)
            continue
        rows, refused, other = canonical(raw.frame, fmt, context)
        yield Parsed(named(rows), explainer.rejects(raw.bad_lines | refused), other + raw.other_lines)
    for last in _completed(fmt, context):
        rows, refused, other = _checked(last, fmt, context)
        yield Parsed(named(rows), explainer.rejects(refused), other - last.height)


def _completed(fmt: Format, context: Context) -> Iterator[pl.DataFrame]:
    """What only the end of the source completes, a chunk at a time."""
    last = fmt.finish(context) if fmt.finish else pl.DataFrame()
    for frame in [last] if isinstance(last, pl.DataFrame) else last:
        if not frame.is_empty():
            yield from frame.iter_slices(MAX_CHUNK_ROWS)


def by_line(fmt: Format, laid: Laid) -> bool:
    """Whether the number of a record is the number of the line it begins on."""
    in_elements = fmt.container == "json_lines" and has_elements(laid.path)
    return fmt.container in _LINE_CONTAINERS and not in_elements


def _gathered(raws: Iterator[Raw], enough_rows: int) -> Iterator[Raw]:
    """Join small chunks: a mapping has a price per chunk, whatever its size."""
    frames: list[pl.DataFrame] = []
    bad: dict[int, str] = {}
    other = size = 0
    for raw in raws:
        bad.update(raw.bad_lines)
        other += raw.other_lines
        if not raw.frame.is_empty():
            frames.append(raw.frame)
            size += int(raw.frame.estimated_size())
        if size >= CHUNK_BYTES or sum(frame.height for frame in frames) >= enough_rows:
            yield Raw(pl.concat(frames), bad, other)
            frames, bad, other, size = [], {}, 0, 0
    yield Raw(pl.concat(frames) if frames else pl.DataFrame(), bad, other)


def _read(fmt: Format, laid: Laid, work: Path, *, strictly: bool) -> Iterator[Raw]:
    match fmt.container:
        case "json_lines":
            return read_json_lines(fmt, laid, work, strictly=strictly)
        case "json_document":
            return read_elements(fmt, laid, work) if fmt.elements else read_json_document(fmt, laid)
        case "csv":
            return read_csv(fmt, laid, work, strictly=strictly)
        case "csv_cells":
            return read_csv_cells(fmt, laid, work, strictly=strictly)
        case "text":
            return read_text(laid, fmt.longest_line_bytes)
        case "parquet":
            return read_parquet(fmt, laid)


def canonical(frame: pl.DataFrame, fmt: Format, context: Context) -> tuple[pl.DataFrame, dict[int, str], int]:
    """Map, normalise and check raw records: rows, line -> reason of refusal, records that are something else."""
    return _checked(_mapped(frame, fmt, context), fmt, context)


def of_source(rows: pl.DataFrame, fmt: Format) -> pl.DataFrame:
    """Rows that know their file, as the table has them."""
    return fmt.target.conform(
        rows.with_columns(source_format=pl.lit(fmt.name), flags=pl.col("flags").fill_null([]))
    )


def _mapped(frame: pl.DataFrame, fmt: Format, context: Context) -> pl.DataFrame:
    mapped = fmt.map(frame, context)
    if mapped.height != frame.height:
        msg = f"format {fmt.name} made {mapped.height} rows of {frame.height} records"
        raise ValueError(msg)
    return mapped if LINE in mapped.columns else mapped.with_columns(frame[LINE])


def _checked(mapped: pl.DataFrame, fmt: Format, context: Context) -> tuple[pl.DataFrame, dict[int, str], int]:
    """Split what was mapped: rows of the target, line -> reason of refusal, records that are something else."""
    is_other = pl.col("_other").fill_null(value=False)
    refused = mapped.filter(pl.col("_reject").is_not_null() & ~is_other)
    rows, unfit = _typed(mapped.filter(pl.col("_reject").is_null() & ~is_other), fmt.target)
    # Before names are written alike: a key in small letters is no longer told by its beginning.
    rows = without_secrets(rows, fmt.target, context.hasher.digest)
    if fmt.target.name in _NORMALISED:
        rows = _NORMALISED[fmt.target.name](rows, fmt.semantics)
    rows, broken = _by_the_rules(rows, fmt.target)
    reasons = dict(zip(refused[LINE].to_list(), refused["_reject"].to_list(), strict=True))
    return rows, reasons | unfit | broken, int(mapped.select(is_other.sum()).item())


def _typed(rows: pl.DataFrame, target: Table) -> tuple[pl.DataFrame, dict[int, str]]:
    """All columns of the table, in its types; a value that does not fit refuses its row.

    What `normalise` needs beside them stays.
    """
    have = rows.schema
    extra = [name for name in (TOTAL, OUTSIDE) if target.name in _NORMALISED and name in have]
    casts = [
        pl.col(column.name).cast(column.dtype, strict=False)
        if column.name in have
        else pl.lit(None, dtype=column.dtype).alias(column.name)
        for column in target.columns
        if column.name != LINE
    ]
    typed = rows.select(LINE, *casts, *extra)
    changed = [
        column.name for column in target.columns if column.name in have and have[column.name] != column.dtype
    ]
    lost = [name for name in changed if typed[name].null_count() > rows[name].null_count()]
    if not lost:
        return typed, {}
    faults = pl.coalesce(
        pl.when(rows[name].is_not_null() & typed[name].is_null()).then(pl.lit(f"{name} is out of range"))
        for name in lost
    )
    return _split(typed, faults)


def _by_the_rules(rows: pl.DataFrame, target: Table) -> tuple[pl.DataFrame, dict[int, str]]:
    """Rows that keep every rule of the table; the others are refused with the rule that they break."""
    rules = {
        text: rule
        for column, broken in target.rules.items()
        if column not in _ORIGIN
        for text, rule in broken.items()
    }
    if rows.is_empty():
        return rows, {}
    broken = rows.select(rule.any().alias(text) for text, rule in rules.items()).row(0, named=True)
    faults = [pl.when(rules[text]).then(pl.lit(text)) for text, is_broken in broken.items() if is_broken]
    return _split(rows, pl.coalesce(faults)) if faults else (rows, {})


def _split(rows: pl.DataFrame, fault: pl.Expr) -> tuple[pl.DataFrame, dict[int, str]]:
    marked = rows.with_columns(fault.alias("_fault"))
    bad = marked.filter(pl.col("_fault").is_not_null())
    good = marked.filter(pl.col("_fault").is_null()).drop("_fault")
    return good, dict(zip(bad[LINE].to_list(), bad["_fault"].to_list(), strict=True))
