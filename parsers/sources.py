"""Where log text comes from: files, folders, globs, members of archives, and what `live.py` brings.

Belongs here: finding sources, opening them as a stream of plain bytes, and laying them down as one plain file
that DuckDB can read, with a hash of the content. Does not belong here: unpacking (`archives.py`, `packing.py`), what the
bytes mean (`detect.py`, `readers.py`).
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from parsers.archives import Member, members, open_member
from parsers.envelopes import peeled
from parsers.errors import NothingToAuditError, UnreadableSourceError
from parsers.format import Head
from parsers.live import Live, brought, is_address, shown
from parsers.packing import (
    BLOCK,
    CUT_OFF,
    MAX_UNPACKED_BYTES,
    DamagedError,
    blocks,
    compression,
    first_line,
    plain,
    unpack_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HEAD_BYTES = 256 << 10
MAX_HEAD_BYTES = 4 << 20

_TALLIED_BYTES = 1 << 20
"""At once: what fits into a core's cache is passed over several times at no cost."""
_NEWLINE = ord("\n")
_IS_SPACE = np.array([bytes([code]).isspace() for code in range(256)])


@dataclass(frozen=True, order=True)
class Source:
    """One log: a file, or a member of an archive. `name` is the path as given, the member after '!'.

    `problem` says why there is
    nothing to read, as of an archive that ends too early or a folder that may not be listed. `layers` says how
    many envelopes around its records are taken off (see `envelopes.py`).
    """

    name: str
    path: Path
    member: Member | None = None
    modified_at: datetime | None = None
    problem: str | None = None
    layers: int = 0


@dataclass(frozen=True)
class Laid:
    """A source as one plain file on disk.

    `path` is the source itself where it is plain already, else a spool that the caller's work folder owns;
    only its first `size_bytes` are the source (a log may grow while it is read). `problem` says why the
    source could not be read to its end; what was read before that is in the file.
    """

    path: Path
    size_bytes: int
    sha256: str
    newlines: int
    ends_open: bool
    has_long_lines: bool
    may_have_blank_lines: bool
    has_quotes: bool = True
    problem: str | None = None


def find_sources(paths: Sequence[str | Path], live: Live | None = None) -> list[Source]:
    """List the sources below `paths` (files, folders, globs, archives), in the order of their names.

    An address (see `live.py`) stands for what is behind it, which is brought where `live` says where to put it.

    In folders, hidden files are left out, links to files are followed and links to folders are not. What
    can't be listed is a source with a `problem`.

    Raises:
        UnreadableSourceError: a path that was given does not exist, or a server does not answer.
        NothingToAuditError: nothing was found.

    """
    if live is not None:
        unpack_in(live.folder)
    found: dict[str, Source] = {}
    for given in dict.fromkeys(paths):
        for source in _found(given, live):
            found.setdefault(source.name, source)
    if not found:
        where = ", ".join(map(shown, paths))
        raise NothingToAuditError(
            "no files found", where=where, remedy="Give a log file or a folder that holds some."
        )
    return sorted(found.values(), key=lambda source: source.name)


def _found(given: str | Path, live: Live | None) -> Iterator[Source]:
    if not (isinstance(given, str) and is_address(given)):
        yield from _below(Path(given))
        return
    if live is None:
        raise UnreadableSourceError(
            "a running server is no file",
            where=shown(given),
            remedy="Give it to `tokenworks audit`, with a --window.",
        )
    for name, path in brought(given, live):
        for source in _below(path):
            yield replace(source, name=name + source.name.removeprefix(str(path)))


def _below(given: Path) -> Iterator[Source]:
    try:
        if given.is_dir():
            yield from _in_folder(given)
            return
        there = given.exists()
    except OSError as error:
        raise UnreadableSourceError(
            f"can't be looked at ({error.strerror})", where=str(given), remedy="Check who may read it."
        ) from error
    if there:
        yield from _members(given)
        return
    # Path.glob takes no absolute pattern.
    matches = sorted(glob.glob(str(given), recursive=True)) if glob.has_magic(str(given)) else []  # noqa: PTH207
    if not matches:
        raise UnreadableSourceError("no such file or folder", where=str(given), remedy="Check the path.")
    for match in matches:
        yield from _below(Path(match))


def _in_folder(given: Path) -> Iterator[Source]:
    refused: list[OSError] = []
    for folder, _, names in os.walk(given, onerror=refused.append):
        for name in names:
            path = Path(folder) / name
            if not _is_hidden(path.relative_to(given)) and path.is_file():
                yield from _members(path)
    for error in refused:
        folder = str(error.filename)
        yield Source(folder, Path(folder), problem=f"the folder can't be listed ({error.strerror})")


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _members(path: Path) -> Iterator[Source]:
    """The file itself, or the members of the archive that it is."""
    try:
        status = path.stat()
    except OSError as error:
        # Rotated away since the folder was listed.
        yield Source(str(path), path, problem=f"can't be looked at ({error.strerror})")
        return
    if not stat.S_ISREG(status.st_mode):
        yield Source(str(path), path, problem="it is neither a file nor a folder")
        return
    modified_at = datetime.fromtimestamp(status.st_mtime, tz=UTC)
    found, problems = members(path)
    if found is None:
        yield Source(str(path), path, None, modified_at)
    for name, problem in problems:
        yield Source(f"{path}{name}", path, None, modified_at, problem=problem)
    for member in found or ():
        if not Path(member.name).name.startswith("."):
            yield Source(f"{path}{member.full_name}", path, member, modified_at)


@contextmanager
def open_raw(source: Source) -> Iterator[IO[bytes]]:
    """Open the file that holds a source, as it lies on disk.

    Raises:
        UnreadableSourceError: the file vanished or may not be read.

    """
    try:
        raw = source.path.open("rb")
    except OSError as error:
        raise UnreadableSourceError(
            f"can't be read ({error.strerror or first_line(error)})",
            where=source.name,
            remedy="It may have been moved or rotated away; give it again.",
        ) from error
    with raw:
        yield raw


@contextmanager
def open_source(source: Source) -> Iterator[IO[bytes]]:
    """Open a source as a stream of plain bytes, whatever it is packed in.

    Raises:
        UnreadableSourceError: the file vanished, may not be read, or is a damaged archive.

    """
    if source.problem:
        raise UnreadableSourceError(
            source.problem, where=source.name, remedy="Check that it is complete and readable."
        )
    if source.member is None:
        with open_raw(source) as raw, _unpacking(raw, source) as stream:
            yield peeled(stream, source.layers) if source.layers else stream
        return
    try:
        packed = open_member(source.path, source.member)
    except (*CUT_OFF, KeyError) as error:
        raise UnreadableSourceError(
            f"the archive's member can't be read ({first_line(error)})",
            where=source.name,
            remedy="Unpack the archive and give the folder.",
        ) from error
    with packed, plain(packed) as stream:
        yield peeled(stream, source.layers) if source.layers else stream


def _unpacking(raw: IO[bytes], source: Source) -> IO[bytes]:
    try:
        return plain(raw)
    except OSError as error:
        raise UnreadableSourceError(
            f"can't be read ({error.strerror})", where=source.name, remedy="Check the disk that it lies on."
        ) from error


def read_head(source: Source) -> Head:
    """The first 256 KB of a source, uncompressed, or its first line where that is longer (at most 4 MiB).

    Shorter where the data is cut off: `lay_down` meets the same fault and reports it.

    Raises:
        UnreadableSourceError: the source can't be opened, or is damaged from its first byte.

    """
    with open_source(source) as stream:
        data = bytearray()
        try:
            for block in blocks(stream, HEAD_BYTES):
                data += block
                if len(data) >= MAX_HEAD_BYTES or b"\n" in data:
                    break
        except DamagedError as error:
            if not data:
                raise UnreadableSourceError(
                    f"the data is cut off or damaged from its start ({error})",
                    where=source.name,
                    remedy="Check that it is complete.",
                ) from error
        return Head(source.name, bytes(data))


def small_content(source: Source) -> bytes | None:
    """The whole of a source, uncompressed, if it is sound and smaller than a head, which is the same then; else None.

    Raises:
        UnreadableSourceError: the source can't be opened.

    """
    if source.problem or (source.member is None and source.path.stat().st_size >= HEAD_BYTES):
        return None
    with open_source(source) as stream:
        try:
            # A fault comes after the block that it cuts off.
            content = b"".join(islice(blocks(stream, HEAD_BYTES), 2))
        except DamagedError:
            return None
    return content if len(content) < HEAD_BYTES else None


def lay_down(source: Source, work: Path) -> Laid:
    """Read a source once: hash it, count its lines, and make it one plain file.

    Raises:
        UnreadableSourceError: the source can't be opened.

    """
    spool = None if _is_plain(source) else work / f"{uuid.uuid4().hex}.spool"
    tally, problem = _Tally(), None
    with open_source(source) as stream, (spool or Path(os.devnull)).open("wb") as out:
        try:
            for block in blocks(stream, _TALLIED_BYTES):
                tally.add(block)
                if spool:
                    out.write(block)
                if tally.size > MAX_UNPACKED_BYTES and spool is not None:
                    problem = f"it is larger than {MAX_UNPACKED_BYTES:,} bytes; the rest is not read"
                    break
        except DamagedError as error:
            problem = f"the data is cut off or damaged after {tally.size:,} bytes ({error})"
    return Laid(
        path=spool or source.path,
        size_bytes=tally.size,
        sha256=tally.digest.hexdigest(),
        newlines=tally.newlines,
        ends_open=tally.last != b"\n",
        has_long_lines=tally.has_long_lines,
        may_have_blank_lines=tally.may_have_blank_lines,
        has_quotes=tally.has_quotes,
        problem=problem,
    )


class _Tally:
    """What is found out about the bytes of a source while they pass."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.size = self.newlines = self._since_newline = 0
        self.last = b"\n"
        self.has_long_lines = self.may_have_blank_lines = self.has_quotes = False

    def add(self, block: bytes) -> None:
        self.digest.update(block)
        self.size += len(block)
        data = np.frombuffer(block, dtype=np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        self.newlines += len(ends)
        # DuckDB refuses objects over 16 MiB; a line that long always spans a block without a newline.
        self._since_newline = 0 if len(ends) else self._since_newline + len(block)
        self.has_long_lines = self.has_long_lines or self._since_newline >= BLOCK
        # Only a line that begins with white space can be blank.
        begins = data[ends[ends < len(block) - 1] + 1]
        begins_blank = bool(_IS_SPACE[begins].any()) or (self.last == b"\n" and block[:1].isspace())
        self.may_have_blank_lines = self.may_have_blank_lines or begins_blank
        self.has_quotes = self.has_quotes or b'"' in block
        self.last = block[-1:]


def _is_plain(source: Source) -> bool:
    if source.member is not None or source.layers or not source.path.is_file():
        return False
    with open_raw(source) as raw:
        return compression(raw.read(6)) is None
