"""Which format a file is in: by its content, never by its name.

Belongs here: asking every format whether it recognises a head, and saying so when none or several do. Does
not belong
here: the rules themselves (each format's `recognise`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from parsers.errors import UnknownFormatError
from parsers.registry import FORMAT_NAMES, all_formats, load

if TYPE_CHECKING:
    from parsers.format import Format, Head


@dataclass(frozen=True)
class Detected:
    """A format and why it was chosen."""

    format: Format
    because: str


def matching(head: Head) -> list[Format]:
    """All formats that recognise the head."""
    return [fmt for fmt in all_formats() if fmt.recognise(head)]


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
