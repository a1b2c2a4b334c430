"""Logs that are no files here: standard input, objects of a store or a web server, a Prometheus, a Postgres.

Belongs here: telling an address from a path, how an address is shown, who brings its bytes. Does not belong here: the
bringing (`stdin.py`, `remote.py`, `live_prometheus.py`, `live_postgres.py`), reading what was brought.

Each source of this kind is a function `fetched(address, live)` that writes files below `live.folder`. They are read
like any file, and the folder goes when they have been: what was brought may hold prompts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from parsers.errors import UnreadableSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

STDIN = "-"
MAX_BYTES = 64 << 30
"""Of one object, web page or standard input; more is no log of a week."""
_BLOCK = 8 << 20
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d{0,5})?")
"""A host, of IPv6 in brackets, with or without a port."""
_SCHEME = re.compile(r"(prometheus\+https?|postgres(?:ql)?|https?|s3|gs|az)://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Live:
    """Where the answers of servers are written, and the window that they are asked for.

    None: the last seven days of a Prometheus, the whole table of a database.
    """

    folder: Path
    window: tuple[datetime, datetime] | None = None


def is_address(given: object) -> bool:
    """Whether something given as a path is standard input or the address of a server."""
    return isinstance(given, str) and (given == STDIN or _SCHEME.match(given) is not None)


def shown(given: object) -> str:
    """A path as it is, an address without what may be secret: user, password and query."""
    if not isinstance(given, str) or not is_address(given):
        return str(given)
    if given == STDIN:
        return "stdin"
    scheme, _, rest = given.partition("://")
    return (
        f"{scheme.lower()}://"
        + re.split(r"[?#]", without_credentials(rest, of_database=scheme.lower().startswith("postgres")))[0]
    )


def without_credentials(rest: str, *, of_database: bool = False) -> str:
    """What follows the scheme of an address, without user and password, which may hold `/`, `?`, `#`, `:` and `@`.

    The path of a web server or a store may hold an @, too. So there an @ beyond the host's place ends credentials only if
    no host could stand before it: a colon with something other than a port behind it.
    """
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    has_credentials = of_database or "@" in host or not _HOST.fullmatch(host)
    return rest.rpartition("@")[2] if has_credentials else rest


def brought(address: str, live: Live) -> Iterator[tuple[str, Path]]:
    """Bring the bytes behind an address: files or folders, each with the name it is shown by.

    Raises:
        SiteConfigError: the address is wrong.
        UnreadableSourceError: the server can't be reached or refuses.
        NothingToAuditError: it has nothing.

    """
    live.folder.mkdir(parents=True, exist_ok=True)
    # Each brings modules of the network along.
    match address.partition("://")[0].lower():
        case "-":
            from parsers import stdin

            yield shown(address), stdin.fetched(live)
        case "prometheus+http" | "prometheus+https":
            from parsers import live_prometheus

            yield shown(address).rstrip("/"), live_prometheus.fetched(address, live)
        case "postgres" | "postgresql":
            from parsers import live_postgres

            yield shown(address).rstrip("/"), live_postgres.fetched(address, live)
        case _:
            from parsers import remote

            yield from remote.fetched(address, live)


def broken_off(name: str, reason: str) -> UnreadableSourceError:
    """What is told of a server that gave no answer, or a part of it."""
    return UnreadableSourceError(
        f"the server can't be reached or broke off ({reason})",
        where=name,
        remedy="Check the address, and that it answers from this machine.",
    )


class Readable(Protocol):
    """What gives its bytes block by block, none at its end."""

    def read(self, size: int, /) -> bytes:
        """At most so many bytes."""


def spool(stream: Readable, path: Path, name: str) -> None:
    """Write a stream into a file, block by block.

    Raises:
        UnreadableSourceError: it is larger than MAX_BYTES.

    """
    size = 0
    with path.open("wb") as out:
        while block := stream.read(_BLOCK):
            size += len(block)
            if size > MAX_BYTES:
                raise UnreadableSourceError(
                    f"it is larger than {MAX_BYTES:,} bytes", where=name, remedy="Give a part of it."
                )
            out.write(block)
