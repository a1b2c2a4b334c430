"""Small files landed together: one folder, one query and one manifest for many.

Belongs here: which files are gathered, their common folder and what each of them is in it. Does not belong here: landing
one file (`land.py`), joining and parsing them (`parsers/together.py`).

What a file gives does not depend on the way it landed. One that can't be read this way (large, damaged, of no known
format, with a rejected line) lands alone.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.errors import TokenworksError
from parsers.format import Head
from parsers.hashing import PromptHasher
from parsers.prefetch import ahead
from parsers.sources import small_content
from parsers.together import FileWantedError, may_join, parse_together
from parsers.unused import unused_token_fields
from pipelines.ingest.land import Landing, format_of, identity_of, land_each, now, renamed
from warehouse.store import WORK_PREFIX, has_keys, instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parsers.format import Format
    from parsers.records import Table
    from parsers.sources import Source
    from pipelines.ingest.land import Reading
    from warehouse.store import Warehouse

LEAST_FILES = 16
"""Fewer sources land one by one."""
MOST_FILES = 1024
MOST_BYTES = 16 << 20
"""Of one run of files that are gathered, before they are parsed."""
_PREFIX = "together-"


@dataclass(frozen=True)
class _Small:
    """A file that was read whole, and how it was recognised."""

    source: Source
    content: bytes
    sha256: str
    identity: str
    format: Format
    because: str
    unused_fields: tuple[str, ...]


def land_runs(
    sources: Sequence[Source], warehouse: Warehouse, reading: Reading, on_landed: Callable[[Landing], None]
) -> Iterator[Landing]:
    """Land sources in their order; small ones that follow one another together, where there are many."""
    if len(sources) < LEAST_FILES:
        yield from land_each(sources, warehouse, reading, on_landed)
        return
    known = _known(warehouse)
    unfit: set[str] = set()
    for run in ahead(_runs(sources, reading, unfit)):
        for fmt, files in _by_format(run):
            fresh = {
                file.identity: file
                for file in files
                if file.identity not in known and not (warehouse.landed / file.identity).exists()
            }
            if len(fresh) >= LEAST_FILES:
                try:
                    known |= _landed(fresh, fmt, warehouse, reading)
                except FileWantedError:
                    unfit.add(fmt.name)
        alone: list[Source] = []
        for item in run:
            source = item.source if isinstance(item, _Small) else item
            before = known.get(item.identity) if isinstance(item, _Small) else None
            if before is None:
                alone.append(source)
                continue
            yield from land_each(alone, warehouse, reading, on_landed)
            alone = []
            landing = renamed(before, source)
            on_landed(landing)
            yield landing
        yield from land_each(alone, warehouse, reading, on_landed)


def _runs(sources: Sequence[Source], reading: Reading, unfit: set[str]) -> Iterator[list[Source | _Small]]:
    """The sources in their order, those that are small and of a known format read already."""
    run: list[Source | _Small] = []
    size = 0
    for source in sources:
        item = _read(source, reading, unfit) or source
        run.append(item)
        size += len(item.content) if isinstance(item, _Small) else 0
        if size >= MOST_BYTES or len(run) >= MOST_FILES:
            yield run
            run, size = [], 0
    yield run


def _read(source: Source, reading: Reading, unfit: set[str]) -> _Small | None:
    """A file that may land together with others; what keeps it from being read is told where it lands alone."""
    try:
        content = small_content(source)
        if content is None:
            return None
        head = Head(source.name, content)
        because, fmt = format_of(head, reading)
    except (OSError, TokenworksError):
        return None
    if fmt.name in unfit or not may_join(fmt) or not fmt.recognise(head):
        return None
    sha256 = hashlib.sha256(content).hexdigest()
    unused = unused_token_fields(head, fmt)
    return _Small(source, content, sha256, identity_of(sha256, fmt, source, reading), fmt, because, unused)


def _by_format(run: Sequence[Source | _Small]) -> list[tuple[Format, list[_Small]]]:
    found: dict[str, tuple[Format, list[_Small]]] = {}
    for item in run:
        if isinstance(item, _Small):
            found.setdefault(item.format.name, (item.format, []))[1].append(item)
    return list(found.values())


def _known(warehouse: Warehouse) -> dict[str, Landing]:
    """What landed together before, by the names of the files."""
    manifests = warehouse.landed.glob(f"{_PREFIX}*/manifest.json")
    landings = [Landing(**item) for path in manifests for item in json.loads(path.read_text("utf-8"))]
    return {landing.id.partition("/")[2]: landing for landing in landings}


def _landed(
    files: Mapping[str, _Small], fmt: Format, warehouse: Warehouse, reading: Reading
) -> dict[str, Landing]:
    """Land files of one format in one folder; those that have to land alone are not in the result."""
    warehouse.landed.mkdir(parents=True, exist_ok=True)
    folder = _PREFIX + hashlib.sha256("".join(files).encode()).hexdigest()[:32]
    ids = {f"{folder}/{identity}": file for identity, file in files.items()}
    hasher = PromptHasher.from_file(warehouse.key_file)
    with tempfile.TemporaryDirectory(dir=warehouse.home, prefix=WORK_PREFIX) as work:
        contents = {name: file.content for name, file in ids.items()}
        rows, lines = parse_together(contents, fmt, hasher, reading.options, Path(work))
    if not lines:
        return {}
    sums = _sums(rows, fmt.target)
    landings = [_landing(name, ids[name], fmt, lines[name], sums.get(name, {})) for name in lines]
    fresh = warehouse.landed / f".{folder}.{uuid.uuid4().hex}"
    try:
        fresh.mkdir()
        rows.write_parquet(fresh / "part-00000.parquet", compression="lz4")
        (fresh / "manifest.json").write_text(json.dumps([asdict(item) for item in landings]), "utf-8")
        fresh.rename(warehouse.landed / folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return {landing.id.partition("/")[2]: landing for landing in landings}


def _sums(rows: pl.DataFrame, table: Table) -> dict[str, dict[str, Any]]:
    """By file, the fields of `Landing` that are counted over its rows."""
    at = pl.col(instant_of(table))
    keyless = pl.col("record_key").null_count() if has_keys(table) else pl.len()
    by_file = rows.group_by("source_file").agg(
        rows=pl.len(), keyless_rows=keyless, first_at=at.min(), last_at=at.max()
    )
    sums = {
        name: {
            "rows": count,
            "keyless_rows": without_key,
            "first_at": first.isoformat(),
            "last_at": last.isoformat(),
            "days": {},
        }
        for name, count, without_key, first, last in by_file.iter_rows()
    }
    by_day = rows.group_by("source_file", day=at.dt.strftime("%Y-%m-%d")).len().sort("source_file", "day")
    for name, day, count in by_day.iter_rows():
        sums[name]["days"][day] = count
    return sums


def _landing(name: str, file: _Small, fmt: Format, lines: int, sums: Mapping[str, Any]) -> Landing:
    counted = {"rows": 0, "first_at": None, "last_at": None, **sums}
    return Landing(
        id=name,
        path=file.source.name,
        modified_at=str(file.source.modified_at),
        size_bytes=len(file.content),
        content_sha256=file.sha256,
        format=fmt.name,
        target=fmt.target.name,
        priority=fmt.priority,
        detected_by=file.because,
        lines=lines,
        rejects=0,
        other_lines=lines - counted["rows"],
        unused_fields=file.unused_fields,
        ingested_at=now(),
        problem=None,
        **counted,
    )
