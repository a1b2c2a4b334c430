"""The log table of a gateway's Postgres, LiteLLM's SpendLogs or the `logs` of one-api and new-api, as JSON lines.

Belongs here: the address, which table and columns are read, the query, the errors of the server. Does not belong here:
what a row means (`formats/litellm_spend_logs.py`, `formats/new_api_logs.py`).

An address is libpq's, `postgresql://user@host:5432/db?sslmode=require`, and may add `table=schema.name`. The password
comes from PGPASSWORD or the address. It is part of no name, and of no message: what the server or its library says is
told in our words, as it may repeat what was sent.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode

import pyarrow as pa

from parsers.errors import DISK_TROUBLE, NothingToAuditError, SiteConfigError, UnreadableSourceError
from parsers.format import Head
from parsers.live import shown, without_credentials
from parsers.registry import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from parsers.format import Format
    from parsers.live import Live

_CONNECT_S = "10"
_LONGEST_CALL = timedelta(days=1)
_STAMP = "%Y-%m-%d %H:%M:%S.%f"


@dataclass(frozen=True, slots=True)
class _Known:
    """A table that a gateway writes: its name, who reads its rows, and when they happened."""

    table: str
    format_name: str
    instant: str
    is_epoch_of_end: bool = False
    """Whether `instant` is the end of the call, in unix seconds; else it is the start, as a timestamp."""

    @property
    def format(self) -> Format:
        return load(self.format_name)

    def window(self, start: datetime, end: datetime) -> str:
        """SQL that holds of all rows whose call began in the window, and of few others."""
        column = _quoted(self.instant)
        if self.is_epoch_of_end:
            last = end + _LONGEST_CALL
            return f"{column} >= {int(start.timestamp())} AND {column} < {int(last.timestamp()) + 1}"
        return f"{column} >= '{start:{_STAMP}}' AND {column} < '{end:{_STAMP}}'"


_TABLES = (
    _Known("LiteLLM_SpendLogs", "litellm_spend_logs", "startTime"),
    _Known("logs", "new_api_logs", "created_at", is_epoch_of_end=True),
)


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of the server, and as which one it is read."""

    schema: str
    name: str
    columns: Mapping[str, str]
    """Types by name."""
    known: _Known


def fetched(address: str, live: Live) -> Path:
    """Read the rows of the window, ordered by time, in one read-only transaction; the folder of the files.

    Only the columns that the format reads leave the server; those of prompts and answers are not among them.

    Raises:
        SiteConfigError: the address is wrong, or the driver is not installed.
        UnreadableSourceError: the server can't be reached or refuses, or has no such table.
        NothingToAuditError: the table has no row in the window.

    """
    uri, wanted = _read_address(address)
    folder = live.folder / re.sub(r"[^\w.-]+", "_", shown(address))
    folder.mkdir(parents=True, exist_ok=True)
    rows = 0
    with _transaction(uri, address) as cursor:
        for table in _tables(cursor, wanted, address):
            path = folder / (re.sub(r"[^\w.-]+", "_", f"{table.schema}.{table.name}") + ".jsonl")
            written = _write(cursor, _query(table, live), path)
            if not written:
                path.unlink()
            rows += written
    if not rows:
        raise NothingToAuditError(
            "the table has no row in the window" if live.window else "the table is empty",
            where=shown(address),
            remedy="Check the --window START..END, or name another table (?table=schema.name).",
        )
    return folder


def _read_address(address: str) -> tuple[str, str | None]:
    """The address for libpq, and the table that it asks for. What ends a password there is escaped in it."""
    scheme, _, rest = address.partition("://")
    behind = without_credentials(rest, of_database=True)
    credentials = rest.removesuffix(behind).removesuffix("@")
    place, _, query = behind.partition("?")
    base = f"{scheme}://{_escaped(credentials)}{'@' * bool(credentials)}{place}"
    options = {"connect_timeout": _CONNECT_S, "application_name": "tokenworks"}
    options |= dict(parse_qsl(query, keep_blank_values=True))
    table = options.pop("table", None)
    # libpq takes a plus for a plus.
    return f"{base}?{urlencode(options, quote_via=quote)}", table


def _escaped(credentials: str) -> str:
    """User and password as libpq takes them; what is escaped already stays."""
    parts = (quote(part, safe="%") for part in credentials.partition(":")[::2])
    return ":".join(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", part) for part in parts).removesuffix(":")


@contextmanager
def _transaction(uri: str, address: str) -> Iterator[Any]:
    """A cursor in a read-only transaction that sees one state of the database."""
    try:
        from adbc_driver_manager import Error
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise SiteConfigError(
            "the driver of Postgres is not installed",
            where=shown(address),
            remedy="Install the extra `postgres`: pip install 'tokenworks[postgres]'.",
        ) from error
    try:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute("SET LOCAL TIME ZONE 'UTC'")
            yield cursor
    except Error as error:
        raise _refusal(str(error), error.sqlstate, address) from None
    except (pa.ArrowException, OSError) as error:
        # In the middle of an answer the driver's errors are Arrow's.
        if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
            raise
        raise _refusal(str(error), None, address) from None


def _tables(cursor: Any, wanted: str | None, address: str) -> list[_Table]:
    """The tables to read: the one that is asked for, else those that a gateway is known to write."""
    cursor.execute(
        "SELECT table_schema::text, table_name::text, array_agg(column_name::text ORDER BY ordinal_position), "
        "array_agg(data_type::text ORDER BY ordinal_position) FROM information_schema.columns "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') GROUP BY 1, 2 ORDER BY 1, 2"
    )
    names = {wanted} if wanted else {known.table for known in _TABLES}
    found = [
        _Table(schema, name, dict(zip(columns, types, strict=True)), known)
        for schema, name, columns, types in cursor.fetchall()
        if names & {name, f"{schema}.{name}"}
        for known in _TABLES
        if _has_rows_of(known.format, columns)
    ]
    if not found:
        raise UnreadableSourceError(
            f"there is no table {wanted} with the columns of a known log that this user may read"
            if wanted
            else f"none of the tables {', '.join(known.table for known in _TABLES)} is there for this user to read",
            where=shown(address),
            remedy="Check the database, GRANT SELECT on the table, or name it (?table=schema.name).",
        )
    return found


def _has_rows_of(fmt: Format, columns: Iterable[str]) -> bool:
    return fmt.recognise(Head("", json.dumps(dict.fromkeys(columns)).encode()))


def _query(table: _Table, live: Live) -> str:
    """Rows as JSON, made by the server, which states numbers and instants as its dumps do."""
    known = table.known
    columns = ", ".join(
        # What is stored as json keeps its line feeds, and a row has to be one line.
        f"{_quoted(name)}::jsonb" if table.columns[name] == "json" else _quoted(name)
        for name in known.format.structure
        if name in table.columns
    )
    where = f"WHERE {known.window(*live.window)}" if live.window else ""
    source = f"{_quoted(table.schema)}.{_quoted(table.name)}"
    return (
        f"SELECT row_to_json(kept)::text FROM (SELECT {columns} FROM {source} {where} "
        f"ORDER BY {_quoted(known.instant)}) AS kept"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _write(cursor: Any, query: str, path: Path) -> int:
    """Write down an answer, batch by batch (the driver's are 16 MiB); how many lines."""
    lines = 0
    cursor.execute(query)
    with path.open("w", encoding="utf-8") as out:
        for batch in cursor.fetch_record_batch():
            out.writelines(f"{line}\n" for line in batch.column(0).to_pylist())
            lines += batch.num_rows
    return lines


_REFUSALS = (
    (r"authentication failed|no password supplied", "the password is wrong or missing", "Set PGPASSWORD."),
    (
        r"no pg_hba.conf entry",
        "the server admits no such connection",
        "Check pg_hba.conf and ?sslmode=require.",
    ),
    (r"(?:database|role) .* does not exist", "there is no such database or user", "Check the address."),
    (r"Connection refused", "the server can't be reached (Connection refused)", "Check host and port."),
    (r"could not translate host name", "there is no such host", "Check the address."),
    (r"timeout expired|timed out", "the server does not answer", "Check host, port and the firewall."),
    (r"SSL", "the connection can't be secured", "Check ?sslmode= and ?sslrootcert=."),
    (r"read-only transaction", "reading it would write (read-only transaction)", "Name another table."),
    (r"permission denied", "the user may not read the table", "GRANT SELECT on it to the user."),
)
"""What libpq or the server says, what is told of it, and the remedy."""


def _refusal(message: str, code: str | None, address: str) -> UnreadableSourceError:
    for pattern, what, remedy in _REFUSALS:
        if re.search(pattern, message):
            return UnreadableSourceError(what, where=shown(address), remedy=remedy)
    return UnreadableSourceError(
        f"the server broke off or refuses ({f'SQLSTATE {code}' if code else 'without a code'})",
        where=shown(address),
        remedy="Check the address (postgresql://user@host:5432/database) and the server's log.",
    )
