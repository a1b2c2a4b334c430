"""Where log text comes from: files, folders, globs, archives, compression.

Belongs here: finding sources, opening them as a stream of plain bytes, and laying them down as one plain file that
DuckDB can read, with a hash of the content. Does not belong here: what the bytes mean (`detect.py`, `readers.py`).

Nothing is extracted under a name from an archive: a member is a stream, so no path can escape.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import hashlib
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from parsers.errors import NothingToAuditError, UnreadableSourceError
from parsers.format import Head

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BLOCK = 8 << 20
HEAD_BYTES = 256 << 10
MAX_MEMBERS = 100_000
MAX_MEMBER_BYTES = 64 << 30

_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
_WHITE_SPACE = b" \t\r\n\f\v"
_CUT_OFF = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, OSError, tarfile.ReadError, zipfile.BadZipFile)


@dataclass(frozen=True, order=True)
class Source:
    """One log: a file, or a member of an archive. `name` is the path as given, the member after '!'."""

    name: str
    path: Path
    member: str | None = None
    modified_at: datetime | None = None


@dataclass(frozen=True)
class Laid:
    """A source as one plain file on disk.

    `path` is the source itself where it is plain already, else a spool that the caller's work folder owns.
    `problem` says why the source could not be read to its end; what was read before that is in the file.
    """

    path: Path
    size_bytes: int
    sha256: str
    newlines: int
    ends_open: bool
    has_long_lines: bool
    may_have_blank_lines: bool
    problem: str | None = None


def find_sources(paths: Sequence[str | Path]) -> list[Source]:
    """List the sources below `paths` (files, folders, globs, archives), in the order of their names.

    Raises:
        UnreadableSourceError: a path does not exist or an archive can't be listed.
        NothingToAuditError: nothing was found.

    """
    found: dict[str, Source] = {}
    for given in paths:
        for path in _files(Path(given)):
            for source in _members(path):
                found.setdefault(source.name, source)
    if not found:
        where = ", ".join(str(path) for path in paths)
        raise NothingToAuditError("no files found", where=where, remedy="Give a log file or a folder that holds some.")
    return sorted(found.values())


def _files(given: Path) -> list[Path]:
    if given.is_dir():
        walked = (Path(folder) / name for folder, _, names in os.walk(given) for name in names)
        return sorted(p for p in walked if not _is_hidden(p.relative_to(given)) and p.is_file())
    if given.exists():
        return [given]
    matches = sorted(Path(match) for match in glob.glob(str(given), recursive=True)) if glob.has_magic(str(given)) else []
    if not matches:
        raise UnreadableSourceError("no such file or folder", where=str(given), remedy="Check the path.")
    return [path for match in matches for path in _files(match)]


def _is_hidden(relative: Path) -> bool:
    return any(part.startswith(".") for part in relative.parts)


def _members(path: Path) -> Iterator[Source]:
    try:
        modified_at = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                names = [item.filename for item in archive.infolist() if not item.is_dir()]
        elif _is_tar(path):
            with tarfile.open(path) as tar:
                names = [item.name for item in tar if item.isfile()]
        else:
            yield Source(str(path), path, None, modified_at)
            return
    except _CUT_OFF as error:
        raise UnreadableSourceError(
            f"the archive or file can't be opened ({_first_line(error)})",
            where=str(path),
            remedy="Check that it is complete and readable.",
        ) from error
    if len(names) > MAX_MEMBERS:
        raise UnreadableSourceError(
            f"the archive has {len(names):,} members, more than {MAX_MEMBERS:,}",
            where=str(path),
            remedy="Unpack it and give the folder.",
        )
    for name in sorted(set(names)):
        if not Path(name).name.startswith("."):
            yield Source(f"{path}!{name}", path, name, modified_at)


def _is_tar(path: Path) -> bool:
    try:
        with _plain(path.open("rb")) as stream:
            return stream.read(512)[257:262] == b"ustar"
    except _CUT_OFF:
        return False


def _compression(magic: bytes) -> str | None:
    return next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)


def _plain(raw: IO[bytes]) -> IO[bytes]:
    """Wrap a stream in the decompressor that its first bytes call for."""
    magic = raw.read(6)
    raw.seek(0)
    match _compression(magic):
        case "gzip":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
        case "bzip2":
            return cast("IO[bytes]", bz2.BZ2File(raw))
        case "xz":
            return cast("IO[bytes]", lzma.LZMAFile(raw))
        case "zstd":
            import pyarrow as pa

            return cast("IO[bytes]", pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
        case _:
            return raw


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
            f"can't be read ({error.strerror or _first_line(error)})",
            where=source.name,
            remedy="It may have been moved or rotated away; give it again.",
        ) from error
    with raw:
        yield raw


@contextmanager
def open_source(source: Source) -> Iterator[IO[bytes]]:
    """Open a source as a stream of plain bytes, whatever it is packed in.

    Raises:
        UnreadableSourceError: the file vanished or may not be read.

    """
    with open_raw(source) as raw:
        if source.member is None:
            with _plain(raw) as stream:
                yield stream
        elif zipfile.is_zipfile(raw):
            with zipfile.ZipFile(raw) as archive, archive.open(source.member) as member:
                with _plain(cast("IO[bytes]", member)) as stream:
                    yield stream
        else:
            raw.seek(0)
            with tarfile.open(fileobj=raw) as tar:
                member_file: Any = tar.extractfile(source.member)
                with _plain(member_file) as stream:
                    yield stream


def read_head(source: Source) -> Head:
    """The first 256 KB of a source, uncompressed; shorter where the data is cut off."""
    with open_source(source) as stream:
        data = b""
        try:
            while len(data) < HEAD_BYTES and (block := stream.read(HEAD_BYTES - len(data))):
                data += block
        except _CUT_OFF:
            pass  # lay_down meets the same fault and reports it
        return Head(source.name, data)


def lay_down(source: Source, work: Path) -> Laid:
    """Read a source once: hash it, count its lines, and make it one plain file.

    Raises:
        UnreadableSourceError: the source can't be opened.

    """
    spool = None if _is_plain(source) else Path(tempfile.mkstemp(dir=work, suffix=".spool")[1])
    digest, size, newlines, since_newline, last, problem = hashlib.sha256(), 0, 0, 0, b"\n", None
    has_long = may_have_blank = False
    with open_source(source) as stream, (spool or Path(os.devnull)).open("wb") as out:
        while True:
            try:
                block = stream.read(BLOCK)
            except _CUT_OFF as error:
                problem = f"the data is cut off or damaged after {size:,} bytes ({_first_line(error)})"
                break
            if not block:
                break
            digest.update(block)
            size += len(block)
            found = block.count(b"\n")
            newlines += found
            # DuckDB refuses objects over 16 MiB; a line that long always spans a block without a newline.
            since_newline = 0 if found else since_newline + len(block)
            has_long = has_long or since_newline >= BLOCK
            may_have_blank = may_have_blank or _may_have_blank_line(last, block)
            last = block[-1:]
            if spool:
                out.write(block)
            if size > MAX_MEMBER_BYTES and source.member is not None:
                problem = f"the archive member is larger than {MAX_MEMBER_BYTES:,} bytes; the rest is not read"
                break
    return Laid(
        spool or source.path,
        size,
        digest.hexdigest(),
        newlines,
        last != b"\n",
        has_long,
        may_have_blank,
        problem,
    )


def _may_have_blank_line(last: bytes, block: bytes) -> bool:
    """Whether some line begins with white space; only then can it be blank."""
    # Newlines are far apart in these logs: to jump from one to the next is faster than to search for pairs.
    at, find = (-1 if last == b"\n" else block.find(b"\n")), block.find
    end = len(block) - 1
    while -1 <= at < end:
        if block[at + 1] in _WHITE_SPACE:
            return True
        at = find(b"\n", at + 1)
        if at < 0:
            return False
    return False


def _is_plain(source: Source) -> bool:
    if source.member is not None or not source.path.is_file():
        return False
    with open_raw(source) as raw:
        return _compression(raw.read(6)) is None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
