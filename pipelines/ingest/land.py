"""Landing: a file is parsed once into Parquet, under a name made of its content.

Belongs here: the landed folder and its manifest. Does not belong here: parsing (`parsers/`), facts (`facts.py`).

A landing is immutable and complete: it is written beside and renamed into place, its manifest last. So the same content
lands once, whatever it is called and however often it is given, and a kill leaves nothing that counts.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl

from parsers.detect import detect, matching, unwrapped
from parsers.errors import TokenworksError, UnknownFormatError, UnreadableSourceError
from parsers.format import Context
from parsers.hashing import PromptHasher, import_kernels_ahead
from parsers.parse import parse
from parsers.prefetch import ahead
from parsers.readers import MiscountError, has_elements
from parsers.registry import load
from parsers.sources import Laid, Source, lay_down, read_head
from parsers.unused import unused_token_fields
from warehouse.store import WORK_PREFIX, has_keys, instant_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from parsers.archives import Member
    from parsers.format import Format, Head
    from parsers.parse import Parsed
    from parsers.records import Table
    from warehouse.store import Warehouse

_Result = TypeVar("_Result")

LANDING_VERSION = "5"
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
    """What came of one file.

    `id` names its folder; of files that landed together (see `together.py`), it is the folder, a slash and the file's own
    name. It is empty if the file could not be read at all.
    """

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
    days: Mapping[str, int] = field(default_factory=dict)
    """Rows on each UTC day (ISO date) that has any."""
    keyless_rows: int = 0
    """Rows without a record_key: only their whole content says whether another file has them too."""
    unused_fields: Sequence[str] = ()
    """Fields of its first records that count tokens and that its format does not read."""
    is_unknown: bool = False
    """Whether the file was not read because its format is not known."""

    def error(self) -> TokenworksError:
        """The problem, as an error of its kind."""
        kind = UnknownFormatError if self.is_unknown else UnreadableSourceError
        return kind(self.problem or "no problem")


def distinct(sources: Sequence[Source]) -> list[Source]:
    """Each file once, however often and by whatever path it was given; the first name counts.

    A name that is no text (a file system allows any bytes) is written with escapes: it is kept in tables and shown.
    """
    found: dict[tuple[Path, Member | None], Source] = {}
    for source in sources:
        name = source.name.encode("utf-8", "backslashreplace").decode("utf-8")
        found.setdefault((source.path.resolve(), source.member), replace(source, name=name))
    return list(found.values())


def land_all(
    sources: Sequence[Source],
    warehouse: Warehouse,
    reading: Reading,
    on_landed: Callable[[Landing], None] = lambda _: None,
) -> list[Landing]:
    """Land every source. One that can't be read is in the result with its problem; the others go on."""
    # It lands what it leaves by `land_each`.
    from pipelines.ingest.together import land_runs

    return list(land_runs(distinct(sources), warehouse, reading, on_landed))


def land_each(
    sources: Sequence[Source],
    warehouse: Warehouse,
    reading: Reading,
    on_landed: Callable[[Landing], None] = lambda _: None,
) -> Iterator[Landing]:
    """Land sources one after the other, as they are asked for."""
    if not sources:
        return
    import_kernels_ahead()
    # While a file is parsed the next one is hashed and unpacked: that takes one core only.
    for opened in ahead(_opened(source, warehouse, reading) for source in distinct(sources)):
        if isinstance(opened, Landing):
            landing = opened
        else:
            with opened.work:
                landing = _or_problem(opened.source, partial(_landed, opened, warehouse, reading))
        on_landed(landing)
        yield landing


def forget_others(landings: Sequence[Landing], warehouse: Warehouse) -> None:
    """Remove what landed from files that were replaced or are no longer given."""
    kept = {landing.id.partition("/")[0] for landing in landings}
    for folder in warehouse.landed.iterdir() if warehouse.landed.is_dir() else ():
        if folder.name not in kept:
            shutil.rmtree(folder)


@dataclass(frozen=True)
class _Opened:
    """A source of a known format, laid down as one plain file in a scratch folder."""

    source: Source
    work: tempfile.TemporaryDirectory[str]
    head: Head
    because: str
    format: Format
    laid: Laid


def _opened(source: Source, warehouse: Warehouse, reading: Reading) -> _Opened | Landing:
    warehouse.landed.mkdir(parents=True, exist_ok=True)
    work = tempfile.TemporaryDirectory(dir=warehouse.home, prefix=WORK_PREFIX)

    def opened() -> _Opened:
        inner, head = _inside(source, read_head(source), reading)
        because, fmt = format_of(head, reading)
        laid = _plainly_named(lay_down(inner, Path(work.name)), Path(work.name))
        return _Opened(inner, work, head, because, fmt, laid)

    result = _or_problem(source, opened)
    if isinstance(result, Landing):
        work.cleanup()
    return result


def _or_problem(source: Source, action: Callable[[], _Result]) -> _Result | Landing:
    """What the action gives, or a landing that tells why the source can't be read."""
    try:
        return action()
    except (UnknownFormatError, UnreadableSourceError) as error:
        return _unreadable(source, error)
    except OSError:
        if source.path.is_file():
            raise
        gone = UnreadableSourceError("it vanished while it was read", remedy="Give it again if it was moved.")
        return _unreadable(source, gone)


def _landed(opened: _Opened, warehouse: Warehouse, reading: Reading) -> Landing:
    """Land what was opened, or find that its content has landed before."""
    source, fmt, laid = opened.source, opened.format, opened.laid
    identity = identity_of(laid.sha256, fmt, source, reading)
    known = warehouse.landed / identity / "manifest.json"
    if known.exists():
        return renamed(Landing(**json.loads(known.read_text(encoding="utf-8"))), source)
    hasher = PromptHasher.from_file(warehouse.key_file)
    context = Context(source.name, hasher, source.modified_at, reading.options, opened.head.text)
    try:
        return _write(opened, identity, context, warehouse)
    except pl.exceptions.PolarsError as error:
        if reading.format_name is None or fmt.recognise(opened.head):
            raise
        remedy = "Leave --format out, or name another."
        raise UnknownFormatError(f"it is not in the format {fmt.name}", remedy=remedy) from error


def _plainly_named(laid: Laid, work: Path) -> Laid:
    """The same file under a name that says nothing: DuckDB reads globs, a home folder and compression into names."""
    link = work / "source"
    link.symlink_to(laid.path.resolve())
    return replace(laid, path=link)


def _inside(source: Source, head: Head, reading: Reading) -> tuple[Source, Head]:
    """What is to be read: the source as it is, or, where nothing knows it so, what its envelopes hold."""
    mapped = reading.mapping is not None and reading.mapping.recognise(head)
    named = reading.format_name
    is_known = mapped or (load(named).recognise(head) if named else bool(matching(head)))
    return (source, head) if is_known else unwrapped(source, head, named)


def format_of(head: Head, reading: Reading) -> tuple[str, Format]:
    """Why a head is taken for a format, and which.

    Raises:
        UnknownFormatError: none or several recognise it.

    """
    mapped = "described by the mapping file"
    if reading.mapping is not None and reading.mapping.recognise(head):
        return mapped, reading.mapping
    try:
        found = detect(head, reading.format_name)
    except UnknownFormatError:
        if reading.mapping is None:
            raise
        # The mapping says which of its columns the file lacks.
        return mapped, reading.mapping
    return found.because, found.format


def identity_of(sha256: str, fmt: Format, source: Source, reading: Reading) -> str:
    """A name for content + how it is read.

    The file's time counts only where the log takes its year from it, its name only where instances may be named after it.
    """
    dated = str(source.modified_at) if fmt.semantics.clock == "local" else ""
    named = "" if has_keys(fmt.target) else re.split(r"[/!]", source.name)[-1]
    text = f"{LANDING_VERSION}|{sha256}|{fmt.name}|{reading.fingerprint}|{dated}|{named}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def renamed(landing: Landing, source: Source) -> Landing:
    """What landed before, as that of a file with the same content."""
    problem = landing.problem and landing.problem.replace(landing.path, source.name, 1)
    return replace(landing, path=source.name, modified_at=str(source.modified_at), problem=problem)


def _unreadable(source: Source, error: TokenworksError) -> Landing:
    """A landing without rows. The problem names the file as it was given, not a scratch copy of it."""
    size = source.path.stat().st_size if source.path.is_file() else 0
    return Landing(
        id="",
        path=source.name,
        modified_at=str(source.modified_at),
        size_bytes=size,
        content_sha256="",
        format=None,
        target=None,
        priority=0,
        detected_by=None,
        lines=0,
        rows=0,
        rejects=0,
        other_lines=0,
        first_at=None,
        last_at=None,
        ingested_at=now(),
        problem=str(TokenworksError(error.what, where=source.name, remedy=error.remedy)),
        is_unknown=isinstance(error, UnknownFormatError),
    )


def now() -> str:
    """The instant of a landing."""
    return datetime.now(tz=UTC).isoformat()


def _write(opened: _Opened, identity: str, context: Context, warehouse: Warehouse) -> Landing:
    source, fmt, laid, work = opened.source, opened.format, opened.laid, Path(opened.work.name)
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
            detected_by=opened.because,
            unused_fields=unused_token_fields(opened.head, fmt),
            ingested_at=now(),
            problem=f"{source.name}: {laid.problem}" if laid.problem else None,
            **totals,
        )
        (fresh / "manifest.json").write_text(json.dumps(asdict(landing)), encoding="utf-8")
        try:
            fresh.rename(warehouse.landed / identity)
        except OSError:
            if not (warehouse.landed / identity / "manifest.json").exists():
                raise
        return landing
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _write_parts(
    source: Source,
    fmt: Format,
    laid: Laid,
    identity: str,
    context: Context,
    folder: Path,
    work: Path,
    *,
    strictly: bool,
) -> dict[str, Any]:
    """Write chunks as they come. Rows carry the landing's id as source_file; facts put the path in."""
    folder.mkdir(parents=True)
    named = replace(source, name=identity)
    tally = _Tally()
    for number, chunk in enumerate(ahead(parse(named, fmt, laid, context, work, strictly=strictly))):
        tally.add(chunk, fmt.target)
        if not chunk.rows.is_empty():
            # Parts are read once or twice: what zstd saves in room it takes in time.
            chunk.rows.write_parquet(folder / f"part-{number:05d}.parquet", compression="lz4")
        if not chunk.rejects.is_empty():
            chunk.rejects.write_parquet(folder / f"rejects-{number:05d}.parquet")
    physical = laid.newlines + laid.ends_open
    if fmt.container in ("json_lines", "text") and not has_elements(laid.path) and tally.lines != physical:
        raise TokenworksError(
            f"{physical:,} lines were read and {tally.lines:,} accounted for", where=source.name
        )
    return tally.totals()


@dataclass
class _Tally:
    """What the chunks of a file add up to."""

    lines: int = 0
    rows: int = 0
    rejects: int = 0
    other_lines: int = 0
    keyless_rows: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    days: Counter[str] = field(default_factory=Counter)

    def add(self, chunk: Parsed, table: Table) -> None:
        """Count one chunk."""
        rows = chunk.rows
        self.lines += chunk.lines
        self.rows += rows.height
        self.rejects += chunk.rejects.height
        self.other_lines += chunk.other_lines
        if rows.is_empty():
            return
        at = rows[instant_of(table)]
        first, last = cast("datetime", at.min()), cast("datetime", at.max())
        self.keyless_rows += rows["record_key"].null_count() if has_keys(table) else rows.height
        self.first_at = min(first, self.first_at or first)
        self.last_at = max(last, self.last_at or last)
        self.days.update(dict(at.dt.strftime("%Y-%m-%d").value_counts().iter_rows()))

    def totals(self) -> dict[str, Any]:
        """The fields of `Landing` that are counted."""
        return {
            "lines": self.lines,
            "rows": self.rows,
            "rejects": self.rejects,
            "other_lines": self.other_lines,
            "keyless_rows": self.keyless_rows,
            "first_at": self.first_at.isoformat() if self.first_at else None,
            "last_at": self.last_at.isoformat() if self.last_at else None,
            "days": dict(sorted(self.days.items())),
        }
