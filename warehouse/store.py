"""The data folder: where landed files, facts and marts lie, and how they are read and replaced.

Belongs here: paths, whole-file replacement, a DuckDB connection over the tables, publishing the marts. Does not belong
here: how a table is computed.

    <home>/key                                 secret of the prompt hashes
    <home>/landed/<id>/part-*.parquet          parsed content of one file, immutable; rejects-*.parquet beside it,
                                               manifest.json is written last
    <home>/landed/together-<id>/               the same, of many small files
    <home>/facts/<table>/day=<day>/<table>.parquet
    <home>/facts/files.parquet, rejects.parquet
    <home>/marts/<mart>.parquet                the marts being built
    <home>/marts.duckdb                        the marts as published, swapped in whole
    <home>/landings.json                       the files that the facts are made of
    <home>/lock                                held by the one process that writes
    <home>/work-*                              scratch of the running process

A run may be killed at any moment. What it leaves never counts: it lies under a scratch name, and `alone` clears it away.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from importlib.resources import files
from typing import TYPE_CHECKING, TextIO

import duckdb
import polars as pl

from parsers.errors import SiteConfigError, TokenworksError
from parsers.records import FACT_TABLES, RECORD_TABLES, Table
from warehouse.tables import MARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

MEMORY_LIMIT = "1400MB"
FLAT_FACTS = tuple(table for table in FACT_TABLES if table not in RECORD_TABLES)
WORK_PREFIX = "work-"
REPORT_FILES = ("audit.html", "audit.json")
_OWN = ("key", "lock", "landed", "facts", "marts", "marts.duckdb", "landings.json")
_SCRATCH = re.compile(r"\..+\.[0-9a-f]{32}")
"""Names that `replacing` and landing write to before they rename."""


@dataclass(frozen=True)
class Warehouse:
    """One data folder. Every file in it is replaced whole: a reader sees the old or the new one, never a half."""

    home: Path
    window: tuple[datetime, datetime] | None = None
    """Only records that begin in [start, end) are seen by readers; None = all."""
    marts: Path | None = None
    """Folder of the marts; None = the home folder itself."""
    on_write: Callable[[str], None] | None = None
    """Told the name of each table as it is written."""

    @property
    def key_file(self) -> Path:
        """Where the secret of the prompt hashes is kept."""
        return self.home / "key"

    @property
    def landed(self) -> Path:
        """Folder of landed files."""
        return self.home / "landed"

    def parts(self, identity: str, what: str = "part") -> list[Path]:
        """Files of a landing: its rows (`part`) or its rejected lines (`rejects`), in the order of the source.

        What landed together lies in one folder: see `Landing.id`.
        """
        return sorted((self.landed / identity.partition("/")[0]).glob(f"{what}-*.parquet"))

    def parts_of(self, identities: Iterable[str]) -> list[Path]:
        """The files that hold the rows of some landings, each once."""
        folders = dict.fromkeys(identity.partition("/")[0] for identity in identities)
        return [part for folder in folders for part in self.parts(folder)]

    @property
    def published(self) -> Path:
        """The DuckDB file with the published marts."""
        return (self.marts or self.home) / "marts.duckdb"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder for one process, and clear away what dead ones left.

        The lock goes with the process, however that ends.

        Raises:
            TokenworksError: another process works on the folder.
            SiteConfigError: it is no folder that can be written.

        """
        with _open_lock(self.home) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise TokenworksError(
                    f"another run (process {holder}) is working on this folder",
                    where=str(self.home),
                    remedy="Wait until it ends, or give another --out.",
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._clear()
            yield

    def _clear(self) -> None:
        """Remove scratch files. Only for the holder of the lock: then nobody is writing them."""
        flat = {self.home, self.landed, self.marts_folder, self.marts_folder.parent}
        hidden = [
            *(self.home / "facts").rglob(".*"),
            *(path for folder in flat for path in folder.glob(".*")),
        ]
        scratch = [path for path in hidden if _SCRATCH.fullmatch(path.name)]
        for path in [*scratch, *self.home.glob(f"{WORK_PREFIX}*")]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def owns(self, path: Path) -> bool:
        """Whether a path is part of the data folder or a report in it, and so no log to be read."""
        try:
            first = path.resolve().relative_to(self.home.resolve()).parts[0]
        except (ValueError, IndexError):
            return False
        return (
            first in (*_OWN, *REPORT_FILES)
            or first.startswith(WORK_PREFIX)
            or bool(_SCRATCH.fullmatch(first))
        )

    def day_file(self, table: Table, day: date) -> Path:
        """Where the facts of one table and UTC day lie."""
        return self.home / "facts" / table.name / f"day={day.isoformat()}" / f"{table.name}.parquet"

    def days(self, table: Table) -> list[date]:
        """The UTC days that have facts in a table."""
        folders = (self.home / "facts" / table.name).glob(f"day=*/{table.name}.parquet")
        return sorted(date.fromisoformat(path.parent.name.removeprefix("day=")) for path in folders)

    def drop_day(self, table: Table, day: date) -> None:
        """Remove the facts of a day that no file holds any more."""
        shutil.rmtree(self.day_file(table, day).parent, ignore_errors=True)

    def write_flat(self, table: Table, frame: pl.DataFrame) -> None:
        """Replace a table of facts that is one file (the manifest, the rejects)."""
        with replacing(self.home / "facts" / f"{table.name}.parquet") as path:
            table.conform(frame).write_parquet(path)

    def write_mart(self, table: Table, frame: pl.DataFrame) -> pl.DataFrame:
        """Replace a mart that is being built.

        Raises:
            TokenworksError: the frame breaks the mart's declaration.

        """
        conformed = table.conform(frame)
        broken = table.problems(conformed)
        if broken:
            listed = "; ".join(f"{text} in {count} rows" for text, count in broken.items())
            raise TokenworksError(f"the mart breaks its contract: {listed}", where=table.name)
        with replacing(self._file(table)) as path:
            conformed.write_parquet(path)
        if self.on_write:
            self.on_write(table.name)
        return conformed

    def clear_marts(self) -> None:
        """Remove the marts of the run before: what this run has not built yet is empty, not old. Published ones stay."""
        shutil.rmtree(self.marts_folder, ignore_errors=True)

    def keep(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a stage's intermediate frame beside the marts, for a later stage of the same run."""
        with replacing(self.marts_folder / f"{name}.frame") as path:
            frame.write_parquet(path)

    def recall(self, name: str) -> pl.DataFrame:
        """The frame that `keep` kept."""
        return pl.read_parquet(self.marts_folder / f"{name}.frame", glob=False)

    @property
    def marts_folder(self) -> Path:
        """Folder of the marts that are being built."""
        return (self.marts or self.home) / "marts"

    def read(self, table: Table) -> pl.DataFrame:
        """A mart or flat fact, as last written; empty if it never was."""
        path = self._file(table)
        return table.conform(pl.read_parquet(path, glob=False)) if path.exists() else table.empty()

    def scan(self, table: Table) -> pl.LazyFrame:
        """The facts of a record table, lazily, in order of day and time."""
        paths = [self.day_file(table, day) for day in self.days(table)]
        if not paths:
            return table.empty().lazy()
        frame = pl.scan_parquet(paths, hive_partitioning=False, glob=False).select(table.names)
        if self.window is None:
            return frame
        start, end = self.window
        return frame.filter(pl.col(instant_of(table)) >= start, pl.col(instant_of(table)) < end)

    def _file(self, table: Table) -> Path:
        if table in FLAT_FACTS:
            return self.home / "facts" / f"{table.name}.parquet"
        return self.marts_folder / f"{table.name}.parquet"

    @contextmanager
    def connect(self, *, views: bool = True) -> Iterator[duckdb.DuckDBPyConnection]:
        """DuckDB in memory, that spills into the home folder; with `views`, facts and marts have their own names."""
        spill = self.home / f"{WORK_PREFIX}{uuid.uuid4().hex}"
        with duckdb.connect() as connection:
            connection.execute(
                f"SET GLOBAL TimeZone = 'UTC'; SET memory_limit = '{MEMORY_LIMIT}'; "
                f"SET temp_directory = {sql_text(spill)}"
            )
            for table in (*FACT_TABLES, *MARTS) if views else ():
                self._view(connection, table)
            yield connection
        shutil.rmtree(spill, ignore_errors=True)

    def _view(self, connection: duckdb.DuckDBPyConnection, table: Table) -> None:
        if table in RECORD_TABLES:
            paths = [self.day_file(table, day) for day in self.days(table)]
        else:
            paths = [path for path in (self._file(table),) if path.exists()]
        if paths:
            names = ", ".join(f'"{name}"' for name in table.names)
            listed = ", ".join(sql_text(path) for path in paths)
            source = f"SELECT {names} FROM read_parquet([{listed}], hive_partitioning = false)"
            if self.window and table in RECORD_TABLES:
                start, end = (f"TIMESTAMPTZ '{instant.isoformat()}'" for instant in self.window)
                column = instant_of(table)
                source += f' WHERE "{column}" >= {start} AND "{column}" < {end}'
            connection.execute(f'CREATE VIEW "{table.name}" AS {source}')
        else:
            connection.execute(table.ddl())

    def run_sql(self, table: Table) -> pl.DataFrame:
        """Run `warehouse/sql/<mart>.sql` over the views and conform its result."""
        text = (files("warehouse") / "sql" / f"{table.name}.sql").read_text(encoding="utf-8")
        with self.connect() as connection:
            return table.conform(pl.DataFrame(connection.sql(text).to_arrow_table()))

    def publish(self) -> Path:
        """Put all marts into one new DuckDB file and swap it in."""
        with replacing(self.published) as path, duckdb.connect(str(path)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            for table in MARTS:
                connection.execute(table.ddl())
                part = self._file(table)
                if part.exists():
                    connection.execute(
                        f'INSERT INTO "{table.name}" BY NAME SELECT * FROM read_parquet({sql_text(part)})'
                    )
        return self.published


def _open_lock(home: Path) -> TextIO:
    try:
        home.mkdir(parents=True, exist_ok=True)
        return (home / "lock").open("a+", encoding="ascii")
    except OSError as error:
        reason = "is no folder" if isinstance(error, FileExistsError | NotADirectoryError) else error.strerror
        raise SiteConfigError(
            f"can't be written ({reason})", where=str(home), remedy="Give a folder that can be written."
        ) from error


def instant_of(table: Table) -> str:
    """The column that says when a record happened."""
    return "at" if "at" in table.names else "started_at"


def has_keys(table: Table) -> bool:
    """Whether records are known by a key of the system that wrote them, and not by their content alone."""
    return "record_key" in table.names


def sql_text(value: object) -> str:
    """A string literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a new file's name to write to; when the block ends well it takes the place of `path` at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield fresh
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
