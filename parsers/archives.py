"""Compressed files and archives as streams of plain bytes.

Belongs here: gzip, bzip2, xz and zstd streams, text in UTF-16, members of zip and tar. Does not belong here: which files are
read (`sources.py`).

Nothing is extracted under a name from an archive: a member is a stream, so no path can escape.

What packed data may become is bounded: beyond FREE_BYTES, at most MOST_EXPANSION times the bytes that it was unpacked
from, and MAX_UNPACKED_BYTES in all. A file that is plain on disk has no such limit.
"""

from __future__ import annotations

import bz2
import codecs
import errno
import gzip
import io
import lzma
import os
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, cast

from parsers.errors import DISK_TROUBLE, UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BLOCK = 8 << 20
_PIECE = 64 << 10
MAX_MEMBERS = 100_000
FREE_BYTES = 1 << 30
MOST_EXPANSION = 500
"""Logs pack 5 to 100 times; zeros, or one line over and over, a thousand times and more."""
MAX_UNPACKED_BYTES = 64 << 30

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    # Excel's text, and what PowerShell redirects.
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# RuntimeError is how `zipfile` refuses members that are encrypted or packed in a way it does not know.
CUT_OFF = (EOFError, zlib.error, lzma.LZMAError, OSError, tarfile.TarError, zipfile.BadZipFile, RuntimeError)
"""What a stream raises where its data ends too early, is damaged or can't be unpacked."""
_UNPACK_IT = "if it is meant to be that large, unpack it and give the folder"


class DamagedError(Exception):
    """The data of a stream ends too early or is damaged."""


@dataclass(frozen=True)
class Member:
    """A file in an archive; of a tar, also where its bytes lie in the unpacked archive."""

    name: str
    offset: int | None = None
    size: int | None = None


def members(path: Path) -> tuple[list[Member] | None, str | None]:
    """The members of an archive (None: the file is no archive) and what kept the list from being complete."""
    found: list[Member] = []
    problem = None
    try:
        if zipfile.is_zipfile(path):
            found = [Member(item.filename) for item in _unzipped(path).infolist() if not item.is_dir()]
        elif _is_tar(path):
            found, problem = _tar_members(path)
        else:
            return None, None
    except UnreadableSourceError as error:
        return [], f"{error.what}: {_UNPACK_IT}"
    except CUT_OFF as error:
        _raise_if_full(error)
        return [], f"it can't be opened ({first_line(error)})"
    if len(found) > MAX_MEMBERS:
        return [], f"it has more than {MAX_MEMBERS:,} members: unpack it and give the folder"
    return found, problem


def open_member(path: Path, member: Member) -> IO[bytes]:
    """One member as a stream, still compressed if it is compressed itself.

    Raises:
        one of CUT_OFF, KeyError: the archive is damaged, encrypted or has changed.
        UnreadableSourceError: the member would become larger than packed data may.

    """
    if zipfile.is_zipfile(path):
        archive = _unzipped(path)
        info = archive.getinfo(member.name)
        # No more comes out, nor goes in, than is stated there.
        _check_expansion(info.file_size, info.compress_size)
        return archive.open(info)
    whole = _unpacked(path)
    if member.offset is not None and member.size is not None:
        return cast("IO[bytes]", io.BufferedReader(_Part(whole, member.offset, member.size), BLOCK))
    return cast("IO[bytes]", tarfile.open(fileobj=whole).extractfile(member.name))


def blocks(stream: IO[bytes], size: int = BLOCK) -> Iterator[bytes]:
    """The bytes of a stream, `size` at a time; what comes before a fault is given before the fault is raised.

    Raises:
        DamagedError: the data ends too early or is damaged.
        UnreadableSourceError: it becomes larger than packed data may.

    """
    fault: BaseException | None = None
    at_end = False
    while not at_end and fault is None:
        parts: list[bytes] = []
        left = size
        while left > 0:
            try:
                # `read` would collect many small pieces and lose them all at a fault.
                part = stream.read1(min(left, _PIECE))  # type: ignore[attr-defined]
            except CUT_OFF as error:
                fault = error
                break
            if not part:
                at_end = True
                break
            parts.append(part)
            left -= len(part)
        if parts:
            yield b"".join(parts)
    if fault is not None:
        raise DamagedError(first_line(fault)) from fault


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _tar_members(path: Path) -> tuple[list[Member], str | None]:
    """Members of a tar, the last one of each name, and what ended the list before its end."""
    found: dict[str, Member] = {}
    try:
        with tarfile.open(fileobj=_unpacked(path)) as tar:
            for item in tar:
                if item.isfile():
                    # A sparse member lies there in pieces, which only tarfile can join.
                    offset = None if item.issparse() else item.offset_data
                    found[item.name] = Member(item.name, offset, item.size)
    except CUT_OFF as error:
        _raise_if_full(error)
        problem = f"the archive is cut off or damaged ({first_line(error)}); some members are missing"
        return list(found.values()), problem
    return list(found.values()), None


_opened: dict[tuple[Path, int, int], Any] = {}


def _kept_open(path: Path, opened: Callable[[Path], Any]) -> Any:
    """One archive stays open: to unpack it again for each of n members would take n times n."""
    stat = path.stat()
    key = (path, stat.st_mtime_ns, stat.st_size)
    if key not in _opened:
        while _opened:
            _opened.popitem()[1].close()
        _opened[key] = opened(path)
    return _opened[key]


def _unzipped(path: Path) -> zipfile.ZipFile:
    return cast("zipfile.ZipFile", _kept_open(path, zipfile.ZipFile))


def _unpacked(path: Path) -> IO[bytes]:
    """A tar as plain bytes: the file itself, or a temporary file without a name."""
    stream = cast("IO[bytes]", _kept_open(path, _decompressed))
    stream.seek(0)
    return stream


def _decompressed(path: Path) -> IO[bytes]:
    raw = path.open("rb")
    if compression(raw.read(6)) is None:
        return raw
    raw.seek(0)
    # A cut is met again when the members are listed: they end too early.
    with raw, plain(raw) as stream:
        return copied_to_disk(stream)


def copied_to_disk(stream: IO[bytes]) -> IO[bytes]:
    """What a stream holds up to its end or its first fault, as a temporary file without a name."""
    if _unpacked_in:
        _unpacked_in[0].mkdir(parents=True, exist_ok=True)
    unpacked = tempfile.TemporaryFile(dir=next(iter(_unpacked_in), None))  # noqa: SIM115 - the caller closes it
    try:
        _copy(stream, unpacked)
    except BaseException:
        unpacked.close()
        raise
    return unpacked


def _copy(stream: IO[bytes], unpacked: IO[bytes]) -> None:
    size = 0
    with suppress(DamagedError):
        for block in blocks(stream):
            size += len(block)
            if size > MAX_UNPACKED_BYTES:
                raise UnreadableSourceError(f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
            unpacked.write(block)


_unpacked_in: list[Path] = []


def unpack_in(folder: Path) -> None:
    """Have archives unpacked in this folder, not in the system's own for temporary files, which may be small."""
    _unpacked_in[:] = [folder]


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


def _is_tar(path: Path) -> bool:
    try:
        with path.open("rb") as raw, plain(raw) as stream:
            return stream.read(512)[257:262] == b"ustar"
    except CUT_OFF:
        return False


class _Bounded(io.RawIOBase):
    """What comes out of a decompressor, as long as it is in proportion to what goes in."""

    def __init__(self, stream: IO[bytes], packed: IO[bytes]) -> None:
        self._stream, self._packed, self._size = stream, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read1(len(buffer))  # type: ignore[attr-defined]
        buffer[: len(data)] = data
        self._size += len(data)
        _check_expansion(self._size, self._packed.tell())
        return len(data)


def _check_expansion(size: int, packed: int) -> None:
    if size > max(FREE_BYTES, MOST_EXPANSION * packed):
        raise UnreadableSourceError(
            f"it unpacks to more than {MOST_EXPANSION} times its size",
            remedy=f"{_UNPACK_IT[0].upper()}{_UNPACK_IT[1:]}.",
        )


def _raise_if_full(error: BaseException) -> None:
    """A full disk is no fault of the archive."""
    if isinstance(error, OSError) and error.errno in DISK_TROUBLE and error.errno != errno.EIO:
        raise error


class _Recoded(io.RawIOBase):
    """Text in UTF-16 as text in UTF-8; damaged characters are replaced."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._text = raw, b""
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        ended = False
        while not self._text and not ended:
            piece = self._raw.read(_PIECE)
            ended = not piece
            self._text = self._decoder.decode(piece, final=ended).encode(errors="replace")
        taken = self._text[: len(buffer)]
        buffer[: len(taken)] = taken
        self._text = self._text[len(taken) :]
        return len(taken)


def compression(magic: bytes) -> str | None:
    """The compression (or encoding) that the first bytes of a file show; None for plain data."""
    return next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)


def plain(raw: IO[bytes]) -> IO[bytes]:
    """Wrap a stream in the decompressor (or decoder) that its first bytes call for."""
    magic = raw.read(6)
    raw.seek(0)
    kind = compression(magic)
    if kind is None:
        return raw
    wrapped = _Recoded(raw) if kind == "utf-16" else _Bounded(_decompressor(kind, raw), raw)
    return cast("IO[bytes]", io.BufferedReader(wrapped, BLOCK))


def _decompressor(kind: str, raw: IO[bytes]) -> IO[bytes]:
    match kind:
        case "gzip":
            return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
        case "bzip2":
            return cast("IO[bytes]", bz2.BZ2File(raw))
        case "xz":
            return cast("IO[bytes]", lzma.LZMAFile(raw))
        case _:
            import pyarrow as pa

            return cast(
                "IO[bytes]", pa.CompressedInputStream(pa.PythonFile(cast("io.IOBase", raw), mode="r"), "zstd")
            )
