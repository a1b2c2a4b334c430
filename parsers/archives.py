"""Archives as members, each a stream of bytes.

Belongs here: members of zip and tar, also of archives in archives. Does not belong here: what a stream is packed in
(`packing.py`), which files are read (`sources.py`).

Nothing is extracted under a name from an archive: a member is a stream, so no path can escape. An archive in an archive
is unpacked into a file without a name, and its members are as good as the others.
"""

from __future__ import annotations

import errno
import io
import os
import tarfile
import zipfile
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from parsers.errors import DISK_TROUBLE, UnreadableSourceError
from parsers.packing import (
    BLOCK,
    CUT_OFF,
    UNPACK_IT,
    check_expansion,
    compression,
    copied_to_disk,
    first_line,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_MEMBERS = 100_000
MAX_NESTING = 4
"""Archives around a log: a support bundle holds one archive per host, with rotated logs packed once more."""
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_OFFICE = "[Content_Types].xml"


@dataclass(frozen=True)
class Member:
    """A file in an archive; of a tar, also where its bytes lie in the unpacked archive.

    `within` is the member that is the archive, where that lies in an archive itself.
    """

    name: str
    offset: int | None = None
    size: int | None = None
    within: Member | None = None

    @property
    def full_name(self) -> str:
        """The way to it: the archives around it and its name, each after a '!'."""
        return f"{self.within.full_name if self.within else ''}!{self.name}"


def members(path: Path) -> tuple[list[Member] | None, list[tuple[str, str]]]:
    """The members of an archive (None: the file is no archive), with those of the archives that it holds.

    Returns:
        the members, and what kept the list from being complete: the `full_name` of an archive (empty: the file
        itself) and why.

    """
    found, problem = _listed(path, None)
    if found is None:
        return None, []
    problems = [("", problem)] if problem else []
    whole: list[Member] = []
    waiting = found[::-1]
    while waiting:
        member = waiting.pop()
        inner, problem = _listed(path, member)
        if problem:
            problems.append((member.full_name, problem))
        if inner is None:
            whole.append(member)
        waiting += (inner or [])[::-1]
        if len(whole) + len(waiting) > MAX_MEMBERS:
            return [], [("", _too_many())]
    return whole, problems


def _listed(path: Path, within: Member | None) -> tuple[list[Member] | None, str | None]:
    """Members of one archive, a file or a member (None: it is none), and what kept the list from being complete."""
    kind = _kind(path, within)
    if kind is None:
        return None, None
    if within is not None and within.full_name.count("!") >= MAX_NESTING:
        return [], f"more than {MAX_NESTING} archives lie in one another: unpack it and give the folder"
    problem = None
    try:
        if kind == "zip":
            items = cast("_Zip", _opened(path, within)).infolist()
            found = [Member(item.filename, within=within) for item in items if not item.is_dir()]
        else:
            found, problem = _tar_members(path, within)
    except UnreadableSourceError as error:
        return [], f"{error.what}: {UNPACK_IT}"
    except CUT_OFF as error:
        _raise_if_full(error)
        return [], f"it can't be opened ({first_line(error)})"
    if len(found) > MAX_MEMBERS:
        return [], _too_many()
    if any(member.name == _OFFICE for member in found):
        found, problem = [], "it is a file of Excel or Word, not a log: save the sheet as CSV"
    return found, problem


def _too_many() -> str:
    return f"it has more than {MAX_MEMBERS:,} members: unpack it and give the folder"


def open_member(path: Path, member: Member) -> IO[bytes]:
    """One member as a stream, still compressed if it is compressed itself.

    Raises:
        one of CUT_OFF, KeyError: the archive is damaged, encrypted or has changed.
        UnreadableSourceError: the member would become larger than packed data may.

    """
    archive = _opened(path, member.within)
    if isinstance(archive, _Zip):
        info = archive.getinfo(member.name)
        # No more comes out, nor goes in, than is stated there.
        check_expansion(info.file_size, info.compress_size)
        return archive.open(info)
    if member.offset is not None and member.size is not None:
        return cast("IO[bytes]", io.BufferedReader(_Part(archive, member.offset, member.size), BLOCK))
    archive.seek(0)
    return cast("IO[bytes]", tarfile.open(fileobj=archive).extractfile(member.name))


def _tar_members(path: Path, within: Member | None) -> tuple[list[Member], str | None]:
    """Members of a tar, the last one of each name, and what ended the list before its end."""
    found: dict[str, Member] = {}
    try:
        archive = cast("IO[bytes]", _opened(path, within))
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            for item in tar:
                if item.isfile():
                    # A sparse member lies there in pieces, which only tarfile can join.
                    offset = None if item.issparse() else item.offset_data
                    found[item.name] = Member(item.name, offset, item.size, within)
    except CUT_OFF as error:
        _raise_if_full(error)
        problem = f"the archive is cut off or damaged ({first_line(error)}); some members are missing"
        return list(found.values()), problem
    return list(found.values()), None


class _Zip(zipfile.ZipFile):
    """A zip that closes the stream that it was given."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        super().__init__(stream)

    def close(self) -> None:
        super().close()
        self._stream.close()


_Archive = _Zip | IO[bytes]
_kept_open: dict[tuple[Path, int, int, Member | None], _Archive] = {}


def _opened(path: Path, within: Member | None) -> _Archive:
    """An archive, a file or a member of one: of a zip its reader, of a tar its plain bytes.

    It stays open with those around it: to unpack it again for each of n members would take n times n.
    """
    stat = path.stat()
    state = (path, stat.st_mtime_ns, stat.st_size)
    around = {(*state, outer) for outer in _with_outer(within)}
    for other in _kept_open.keys() - around:
        _kept_open.pop(other).close()
    key = (*state, within)
    if key not in _kept_open:
        _kept_open[key] = _decompressed(path, within)
    return _kept_open[key]


def _with_outer(member: Member | None) -> Iterator[Member | None]:
    """A member, the archives around it, and the file that holds them all (None)."""
    while member is not None:
        yield member
        member = member.within
    yield None


def _packed(path: Path, within: Member | None) -> IO[bytes]:
    return path.open("rb") if within is None else open_member(path, within)


def _decompressed(path: Path, within: Member | None) -> _Archive:
    """The file itself, or a temporary file without a name."""
    raw = _packed(path, within)
    if within is not None or compression(raw.read(6)):
        raw.seek(0)
        # A cut is met again when the members are listed: they end too early.
        with raw, plain(raw) as stream:
            raw = copied_to_disk(stream)
    raw.seek(0)
    try:
        return _Zip(raw) if raw.read(4) in _ZIP else raw
    except CUT_OFF:
        raw.close()
        raise


class _Part(io.RawIOBase):
    """A part of an open file, as a file."""

    def __init__(self, whole: IO[bytes], offset: int, size: int) -> None:
        self._whole, self._offset, self._size, self._at = whole, offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        self._whole.seek(self._offset + self._at)
        data = self._whole.read(wanted)
        if not data:
            raise EOFError("the archive ends inside this member")
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def _kind(path: Path, within: Member | None) -> str | None:
    """Whether a file or a member is a zip or a tar, packed or not; None for anything else."""
    try:
        with _packed(path, within) as raw, plain(raw) as stream:
            start = stream.read(512)
    except (*CUT_OFF, KeyError, UnreadableSourceError):
        # What it is can't be told; whoever reads it is told why.
        return None
    if start[:4] in _ZIP:
        return "zip"
    return "tar" if start[257:262] == b"ustar" else None


def _raise_if_full(error: BaseException) -> None:
    """A full disk is no fault of the archive."""
    if isinstance(error, OSError) and error.errno in DISK_TROUBLE and error.errno != errno.EIO:
        raise error
