"""A log that is piped into a command, spooled to a file: it is read more than once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from parsers.errors import UnreadableSourceError
from parsers.live import STDIN, shown, spool

if TYPE_CHECKING:
    from pathlib import Path

    from parsers.live import Live


def fetched(live: Live) -> Path:
    """Read standard input to its end.

    Raises:
        UnreadableSourceError: it is closed, a terminal, or larger than a log may be.

    """
    if sys.stdin is None or sys.stdin.isatty():
        raise UnreadableSourceError(
            "standard input is a terminal, or closed",
            where=shown(STDIN),
            remedy="Pipe a log into the command: zcat log.gz | tokenworks audit -",
        )
    path = live.folder / shown(STDIN)
    spool(sys.stdin.buffer, path, shown(STDIN))
    return path
