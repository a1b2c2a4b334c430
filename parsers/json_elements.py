"""Large JSON documents in pieces: the elements of an inner array, one by one.

Belongs here: finding the elements and having DuckDB read some megabytes of them at a time; to read a document
whole, it needs ten times the document's size. Does not belong here: what an element holds (`formats/`).
"""

from __future__ import annotations

import json
import re
import uuid
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.packing import BLOCK
from parsers.readers import LINE, MAX_CHUNK_ROWS, Raw, json_table, selected, spools, stream_frames

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parsers.format import Format
    from parsers.sources import Laid

MAX_ELEMENT_BYTES = 16 << 20
_OPENING_BYTES = 256
"""No opening of an element is longer: one that a block's end parts is found with the next block."""
_NEWLINES = bytes.maketrans(b"\r\n", b"  ")


def read_elements(fmt: Format, laid: Laid, work: Path) -> Iterator[Raw]:
    """Records of the elements that begin as `fmt.elements` says, in the document's order; `fmt.records` makes them.

    An element that can't be found whole is a bad record behind those of its piece.
    """
    spool = work / f"{uuid.uuid4().hex}.spool"
    table = json_table(fmt, spool, "newline_delimited", tolerant=True, max_object_bytes=MAX_ELEMENT_BYTES)
    columns = selected(list(fmt.structure), dict(fmt.embedded))
    sql = f"WITH document AS (SELECT {columns} FROM {table}) {fmt.records}"
    seen = 0
    for written, bad, _ in spools(_elements(laid, str(fmt.elements)), spool):
        for frame in stream_frames(sql, MAX_CHUNK_ROWS) if written else ():
            numbers = np.arange(seen + 1, seen + frame.height + 1, dtype=np.int64)
            seen += frame.height
            yield Raw(frame.with_columns(pl.Series(LINE, numbers)))
        if bad:
            yield Raw(pl.DataFrame(), dict(enumerate(bad.values(), seen + 1)))
            seen += len(bad)


def _elements(laid: Laid, opening: str) -> Iterator[tuple[int, bytes, str | None]]:
    """Number, text and fault of each element."""
    for number, piece in enumerate(_pieces(laid, re.compile(opening.encode())), 1):
        text = piece.rstrip()
        text = text[:-1] if text.endswith(b",") else _before_the_rest(text)
        if len(piece) >= MAX_ELEMENT_BYTES:
            yield number, b"", f"a part of the JSON document is larger than {MAX_ELEMENT_BYTES:,} bytes"
        elif not text:
            yield number, b"", "the JSON document is cut off or damaged here"
        else:
            yield number, text.translate(_NEWLINES), None


def _pieces(laid: Laid, opening: re.Pattern[bytes]) -> Iterator[bytes]:
    """Each element with what stands between it and the next one; of one that is too large, its beginning."""
    kept, left = b"", laid.size_bytes
    with laid.path.open("rb") as stream:
        while left and (block := stream.read(min(BLOCK, left))):
            kept, left = kept + block, left - len(block)
            starts = [found.start() for found in opening.finditer(kept)]
            yield from (kept[start:end] for start, end in pairwise(starts))
            kept = kept[starts[-1] :] if starts else kept[-_OPENING_BYTES:]
            if len(kept) > MAX_ELEMENT_BYTES + _OPENING_BYTES:
                kept = kept[:MAX_ELEMENT_BYTES] + kept[-_OPENING_BYTES:]
    if opening.match(kept):
        yield kept


def _before_the_rest(text: bytes) -> bytes:
    """The element at the beginning of a text that goes on with the rest of its document; nothing if it is cut off."""
    decoded = text.decode("utf-8", errors="replace")
    try:
        _, end = json.JSONDecoder().raw_decode(decoded)
    except (ValueError, RecursionError):
        return b""
    return decoded[:end].encode()
