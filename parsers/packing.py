"""Packed bytes as streams of plain bytes.

Belongs here: gzip, bzip2, xz and zstd streams, one in another, and text in UTF-16. Does not belong here: archives
(`archives.py`).

What packed data may become is bounded: beyond FREE_BYTES, at most MOST_EXPANSION times the bytes that it was unpacked
from, and MAX_UNPACKED_BYTES in all. A file that is plain on disk has no such limit.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, cast

from parsers.errors import UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BLOCK = 8 << 20
_PIECE = 64 << 10
_MAX_PACKINGS = 3
"""Packings around one stream: what was rotated and packed is packed again by whoever collects it."""
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
UNPACK_IT = "if it is meant to be that large, unpack it and give the folder"


class DamagedError(Exception):
    """The data of a stream ends too early or is damaged."""


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


def compression(magic: bytes) -> str | None:
    """The compression (or encoding) that the first bytes of a file show; None for plain data."""
    return next((name for start, name in _MAGIC.items() if magic.startswith(start)), None)


def plain(raw: IO[bytes]) -> IO[bytes]:
    """Wrap a stream in the decompressors (or the decoder) that its first bytes call for, one after the other."""
    magic = raw.read(6)
    raw.seek(0)
    stream = raw
    for _ in range(_MAX_PACKINGS):
        kind = compression(magic)
        if kind is None:
            break
        if kind == "utf-16":
            return cast("IO[bytes]", io.BufferedReader(_Recoded(stream), BLOCK))
        unpacked = _Bounded(_decompressor(kind, stream), stream)
        magic = unpacked.begin()
        stream = cast("IO[bytes]", io.BufferedReader(unpacked, BLOCK))
    return stream


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


class _Bounded(io.RawIOBase):
    """What comes out of a decompressor, as long as it is in proportion to what goes in."""

    def __init__(self, stream: IO[bytes], packed: IO[bytes]) -> None:
        self._stream, self._packed, self._size = stream, packed, 0
        self._begun = b""

    def readable(self) -> bool:
        return True

    def begin(self) -> bytes:
        """Its first bytes, which remain to be read; none if it is damaged from its start."""
        with suppress(*CUT_OFF):
            self._begun = self._stream.read1(_PIECE)  # type: ignore[attr-defined]
        return self._begun

    def readinto(self, buffer: Any) -> int:
        size = len(buffer)
        data = self._begun[:size] or self._stream.read1(size)  # type: ignore[attr-defined]
        self._begun = self._begun[size:]
        buffer[: len(data)] = data
        self._size += len(data)
        check_expansion(self._size, self._packed.tell())
        return len(data)

    def tell(self) -> int:
        """How many bytes came out, for what is unpacked from them."""
        return self._size


def check_expansion(size: int, packed: int) -> None:
    """Refuse what came of packed bytes where it is out of proportion to them.

    Raises:
        UnreadableSourceError: it is.

    """
    if size > max(FREE_BYTES, MOST_EXPANSION * packed):
        raise UnreadableSourceError(
            f"it unpacks to more than {MOST_EXPANSION} times its size",
            remedy=f"{UNPACK_IT[0].upper()}{UNPACK_IT[1:]}.",
        )


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
