"""Which format a file is in: by its content, never by its name.

Belongs here: asking every format whether it recognises a head, and saying so when none or several do. Does
not belong
here: the rules themselves (each format's `recognise`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from parsers.envelopes import MAX_LAYERS, may_have_layers
from parsers.errors import UnknownFormatError
from parsers.registry import FORMAT_NAMES, all_formats, load
from parsers.sources import read_head

if TYPE_CHECKING:
    from parsers.format import Format, Head
    from parsers.sources import Source


@dataclass(frozen=True)
class Detected:
    """A format and why it was chosen."""

    format: Format
    because: str


@lru_cache(maxsize=1)
def matching(head: Head) -> tuple[Format, ...]:
    """All formats that recognise the head. Whether it needs unwrapping and what it is are asked one after the other."""
    return tuple(fmt for fmt in all_formats() if fmt.recognise(head))


def unwrapped(source: Source, head: Head, name: str | None = None) -> tuple[Source, Head]:
    """The source without the envelopes that stand around a known format, or as it is where there is none.

    Args:
        source: a source whose head no format recognises.
        head: its head.
        name: the only format to look for, if it was named.

    """
    before = head
    for layers in range(1, MAX_LAYERS + 1) if may_have_layers(head) else ():
        inner = replace(source, layers=layers)
        inside = read_head(inner)
        if inside.data in (b"", before.data):
            break
        if load(name).recognise(inside) if name else matching(inside):
            return inner, inside
        before = inside
    return source, head


def detect(head: Head, name: str | None = None) -> Detected:
    """Choose the format of a source.

    Raises:
        UnknownFormatError: none or several recognise it, and none was named.

    """
    if name:
        return Detected(load(name), "named with --format")
    if not head.data.strip():
        raise UnknownFormatError("the file is empty", where=head.name, remedy="Leave it out.")
    found = matching(head)
    if len(found) == 1:
        return Detected(found[0], found[0].recognised_by)
    if found:
        names = ", ".join(fmt.name for fmt in found)
        raise UnknownFormatError(
            f"it may be any of {names}", where=head.name, remedy=f"Say which: --format {found[0].name}."
        )
    looks = (
        "it looks like binary data"
        if b"\0" in head.data[:4096]
        else f"{len(FORMAT_NAMES)} formats were tried"
    )
    raise UnknownFormatError(
        f"no format recognises it ({looks})",
        where=head.name,
        remedy="Name one with --format, or describe the columns in a mapping file (--mapping).",
    )
