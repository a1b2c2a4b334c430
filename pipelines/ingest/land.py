"""Landing: a file is parsed once into Parquet, under a name made of its content.

Belongs here: the landed folder and its manifest. Does not belong here: parsing (`parsers/`), facts (`facts.py`).

A landing is immutable and complete: it is written beside and renamed into place, its manifest last. So the same content
lands once, whatever it is called and however often it is given, and a kill leaves nothing that counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import uuid
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.detect import detect
from parsers.errors import TokenworksError, UnknownFormatError, UnreadableSourceError
from parsers.format import Context
from parsers.hashing import PromptHasher
from parsers.parse import parse
from parsers.prefetch import ahead
from parsers.readers import MiscountError
from parsers.records import REQUESTS
from parsers.sources import Laid, Source, lay_down, read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parsers.format import Format
    from warehouse.store import Warehouse

LANDING_VERSION = "1"
"""Raised when a parser's meaning changes, so that files are parsed again."""


@dataclass(frozen=True)
class Reading:
    """How the user wants files read: a format by name or by a mapping file, and options for clocks."""

    format_name: str | None = None
    mapping: Format | None = None
    mapping_digest: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """What of this changes the rows of a file."""
        return json.dumps([self.mapping_digest, sorted(self.options.items())])


@dataclass(frozen=True)
class Landing:
    """What came of one file; `id` names its folder, and is empty if the file could not be read at all."""

    id: str
    path: str
    modified_at: str
    size_bytes: int
    content_sha256: str
    format: str | None
    target: str | None
    priority: int
    detected_by: str | None
    lines: int
    rows: int
    rejects: int
    other_lines: int
    first_at: str | None
    last_at: str | None
    ingested_at: str
    problem: str | None


def land_all(
    sources: Sequence[Source],
    warehouse: Warehouse,
    reading: Reading,
    on_landed: Callable[[Landing], None] = lambda _: None,
) -> list[Landing]:
    """Land every source. One that can't be read is in the result with its problem; the others go on."""
    landings = []
    for source in sources:
        landings.append(land(source, warehouse, reading))
        on_landed(landings[-1])
    return landings


def land(source: Source, warehouse: Warehouse, reading: Reading) -> Landing:
    """Land one source, or find that its content has landed before."""
    warehouse.landed.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=warehouse.home, prefix="work-") as folder:
        work = Path(folder)
        try:
            head = read_head(source)
            because, fmt = _format(head, reading)
            laid = lay_down(source, work)
            identity = _identity(laid, fmt, source, reading)
            known = warehouse.landed / identity / "manifest.json"
            if known.exists():
                return _renamed(Landing(**json.loads(known.read_text(encoding="utf-8"))), source)
            context = Context(
                source.name,
                PromptHasher.from_file(warehouse.key_file),
                source.modified_at,
                reading.options,
                head.text,
            )
            return _write(source, fmt, because, laid, identity, context, warehouse, work)
        except (UnknownFormatError, UnreadableSourceError) as error:
            return _unreadable(source, error)


def _format(head: Any, reading: Reading) -> tuple[str, Format]:
    if reading.mapping is not None:
        return "described by the mapping file", reading.mapping
    found = detect(head, reading.format_name)
    return found.because, found.format


def _identity(laid: Laid, fmt: Format, source: Source, reading: Reading) -> str:
    """A name for content + how it is read. The file's time counts only where the log takes its year from it."""
    dated = str(source.modified_at) if fmt.semantics.clock == "local" else ""
    text = "|".join([LANDING_VERSION, laid.sha256, fmt.name, reading.fingerprint, dated])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _renamed(landing: Landing, source: Source) -> Landing:
    return Landing(**{**asdict(landing), "path": source.name, "modified_at": str(source.modified_at)})


def _unreadable(source: Source, error: TokenworksError) -> Landing:
    size = source.path.stat().st_size if source.path.is_file() else 0
    return Landing(
        "", source.name, str(source.modified_at), size, "", None, None, 0, None, 0, 0, 0, 0, None, None, _now(), str(error)
    )


def _now() -> str:
    return datetime.now(tz=UTC).isoformat()


def _write(
    source: Source,
    fmt: Format,
    because: str,
    laid: Laid,
    identity: str,
    context: Context,
    warehouse: Warehouse,
    work: Path,
) -> Landing:
    fresh = warehouse.landed / f".{identity}.{uuid.uuid4().hex}"
    try:
        try:
            totals = _write_parts(source, fmt, laid, identity, context, fresh, work, strictly=False)
        except MiscountError:
            shutil.rmtree(fresh)
            totals = _write_parts(source, fmt, laid, identity, context, fresh, work, strictly=True)
        landing = Landing(
            id=identity,
            path=source.name,
            modified_at=str(source.modified_at),
            size_bytes=laid.size_bytes,
            content_sha256=laid.sha256,
            format=fmt.name,
            target=fmt.target.name,
            priority=fmt.priority,
            detected_by=because,
            ingested_at=_now(),
            problem=laid.problem,
            **totals,
        )
        (fresh / "manifest.json").write_text(json.dumps(asdict(landing)), encoding="utf-8")
        try:
            os.rename(fresh, warehouse.landed / identity)
        except OSError:
            if not (warehouse.landed / identity / "manifest.json").exists():
                raise
        return landing
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_parts(
    source: Source, fmt: Format, laid: Laid, identity: str, context: Context, folder: Path, work: Path, *, strictly: bool
) -> dict[str, Any]:
    """Write chunks as they come. Rows carry the landing's id as source_file; facts put the path in."""
    folder.mkdir(parents=True)
    named = Source(identity, source.path, source.member, source.modified_at)
    instant = "started_at" if fmt.target is REQUESTS else "at"
    lines = rows = other = part = 0
    rejects: list[pl.DataFrame] = []
    first: datetime | None = None
    last: datetime | None = None
    for chunk in ahead(parse(named, fmt, laid, context, work, strictly=strictly)):
        lines, rows, other = lines + chunk.lines, rows + chunk.rows.height, other + chunk.other_lines
        rejects.append(chunk.rejects)
        if chunk.rows.is_empty():
            continue
        chunk.rows.write_parquet(folder / f"part-{part:05d}.parquet", compression="zstd", compression_level=1)
        part += 1
        earliest, latest = chunk.rows.select(pl.col(instant).min().alias("a"), pl.col(instant).max().alias("b")).row(0)
        first, last = min(first or earliest, earliest), max(last or latest, latest)
    rejected = pl.concat(rejects) if rejects else pl.DataFrame()
    if not rejected.is_empty():
        rejected.write_parquet(folder / "rejects.parquet")
    physical = laid.newlines + laid.ends_open
    if fmt.container in ("json_lines", "text") and not _is_array(laid) and lines != physical:
        raise TokenworksError(f"{physical:,} lines were read and {lines:,} accounted for", where=source.name)
    return {
        "lines": lines,
        "rows": rows,
        "rejects": rejected.height,
        "other_lines": other,
        "first_at": first.isoformat() if first else None,
        "last_at": last.isoformat() if last else None,
    }


def _is_array(laid: Laid) -> bool:
    from parsers.readers import starts_array

    return starts_array(laid.path)
