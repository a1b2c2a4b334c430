"""Facts: landed records of all files, without doubles, linked, by UTC day.

Belongs here: which landings count, which rows are doubles, which attempts belong to one call. Does not belong here:
parsing (`land.py`), sums (`pipelines/demand/`).

Doubles, in this order, each counted:
1. A file with the content of another: the older one is read (by its time, then its name), the other is a copy.
2. Rows of one format with one record_key: the one with the most output is kept (then the earliest, then files by time and
   name, then lines), on whatever day where a format may tell records again (`Format.replays`). Of sums
   (`usage_buckets`) with one record_key, of whatever format, the last is kept: a sum grows until it is settled.
3. Rows without a record_key that an overlapping older file of the format has too, equal in all columns.
4. Rows of a gateway's second export (a format of lower priority) whose call and outcome are in the first: dropped.
5. Both ends of a gateway's bridge (a /v1/responses call served by a chat completion): the chat completion is kept.
6. Rows of what an agent printed of a session (`Format.retells_sessions`) whose calls its own files tell one by one.
7. Calls that another hop logged too (a proxy before the gateway, the engine behind it): the gateway's row is kept.

Attempts: rows that share gateway and call_id, by start; each later one gets its number and `retry_of`.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from parsers.readers import quoted
from parsers.records import FILES, RECORD_TABLES, REJECTS, REQUESTS, USAGE_BUCKETS, Table
from parsers.registry import FORMAT_NAMES, load
from pipelines.ingest import linking
from pipelines.ingest.hops import HOPS, seen_elsewhere
from warehouse.store import has_keys, instant_of, replacing, sql_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import duckdb

    from pipelines.ingest.land import Landing
    from warehouse.store import Warehouse

RETRY_SPAN = timedelta(hours=1)
"""Attempts of one call are looked for this far over midnight."""
_DAYS_AT_ONCE = 2
"""Much of a day's work runs on one core. The days share the memory limit of one DuckDB."""
_LINKED = {
    "attempt": "coalesce(a.attempt, CASE WHEN r.call_id IS NOT NULL THEN 1 END)",
    "retry_of": "a.retry_of",
}


@dataclass(frozen=True)
class Chosen:
    """The landings that count: one per content, in the order in which rows are preferred."""

    landings: tuple[Landing, ...]
    copies: dict[str, str]
    """Path of a copy -> path of the file that is read instead."""

    def of(self, table: Table) -> list[Landing]:
        """Those that fill a table."""
        return [landing for landing in self.landings if landing.target == table.name and landing.rows]

    def rows_by_day(self, table: Table) -> dict[date, int]:
        """Rows on each UTC day that has any, doubles included, in order of days."""
        found: dict[date, int] = {}
        for landing in self.of(table):
            for text, rows in landing.days.items():
                day = date.fromisoformat(text)
                found[day] = found.get(day, 0) + rows
        return dict(sorted(found.items()))

    def days(self, table: Table) -> list[date]:
        """The UTC days on which a table has rows."""
        return list(self.rows_by_day(table))

    def any_within(self, window: tuple[datetime, datetime] | None, warehouse: Warehouse) -> bool:
        """Whether any row of any table lies in [start, end)."""
        for table in RECORD_TABLES:
            parts = warehouse.parts_of(item.id for item in self.of(table))
            if not parts:
                continue
            at = pl.col(instant_of(table))
            inside = pl.lit(value=True) if window is None else (at >= window[0]) & (at < window[1])
            if pl.scan_parquet(parts, glob=False).select(inside.any()).collect().item():
                return True
        return False


def choose(landings: Sequence[Landing]) -> Chosen:
    """Keep one landing per content: the oldest file, then the first by name."""
    kept: dict[tuple[str, str | None], Landing] = {}
    copies: dict[str, str] = {}
    for landing in sorted(landings, key=lambda item: (item.modified_at, item.path)):
        if not landing.id:
            continue
        content = (landing.content_sha256, landing.format)
        if content in kept:
            copies[landing.path] = kept[content].path
        else:
            kept[content] = landing
    return Chosen(tuple(kept.values()), copies)


def manifest(landings: Sequence[Landing], chosen: Chosen) -> pl.DataFrame:
    """The FILES table."""
    rows = [
        {
            "path": item.path,
            "size_bytes": item.size_bytes,
            "content_sha256": item.content_sha256,
            "format": item.format,
            "target": item.target,
            "detected_by": item.detected_by,
            "copy_of": chosen.copies.get(item.path),
            "lines": item.lines,
            "rows": item.rows,
            "rejects": item.rejects,
            "other_lines": item.other_lines,
            "first_at": _parsed(item.first_at),
            "last_at": _parsed(item.last_at),
            "ingested_at": _parsed(item.ingested_at),
            "problem": item.problem,
        }
        for item in sorted(landings, key=lambda item: item.path)
    ]
    return pl.DataFrame(rows, schema=FILES.schema)


def _parsed(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).astimezone(UTC) if text else None


def rejects(chosen: Chosen, warehouse: Warehouse) -> pl.DataFrame:
    """The REJECTS table: those of every landing that counts."""
    frames = [REJECTS.empty()]
    for landing in chosen.landings:
        frames += [
            pl.read_parquet(part, glob=False).with_columns(source_file=pl.lit(landing.path))
            for part in warehouse.parts(landing.id, "rejects")
        ]
    return pl.concat(frames).sort("source_file", "source_line")


def build_days(
    table: Table, days: Iterable[date], chosen: Chosen, warehouse: Warehouse
) -> Iterator[tuple[date, dict[str, int]]]:
    """Write the facts of one table, day by day.

    Yields:
        each day, and the rows dropped as doubles, by format.

    """
    listed = list(days)
    with warehouse.connect(views=False) as database, ThreadPoolExecutor(_DAYS_AT_ONCE) as pool:

        def built(day: date) -> dict[str, int]:
            with database.cursor() as connection:
                return _build_day(table, day, chosen, warehouse, connection)

        yield from zip(listed, pool.map(built, listed), strict=True)


def _build_day(
    table: Table, day: date, chosen: Chosen, warehouse: Warehouse, connection: duckdb.DuckDBPyConnection
) -> dict[str, int]:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    parts = _parts(chosen.of(table), day)
    if not parts:
        warehouse.drop_day(table, day)
        return {}
    build = _Build(connection, table, chosen, parts, start, warehouse)
    build.find_doubles()
    build.write(day)
    return build.dropped()


def drop_other_days(chosen: Chosen, warehouse: Warehouse) -> None:
    """Remove facts of days that no chosen file has (a file was replaced or is no longer given)."""
    for table in RECORD_TABLES:
        kept = set(chosen.days(table))
        for day in warehouse.days(table):
            if day not in kept:
                warehouse.drop_day(table, day)


def drop_days_outside(first: date, last: date, warehouse: Warehouse) -> None:
    """Remove facts of days before the first or after the last."""
    for table in RECORD_TABLES:
        for day in warehouse.days(table):
            if not first <= day <= last:
                warehouse.drop_day(table, day)


def _parts(landings: Sequence[Landing], day: date) -> list[Landing]:
    """Landings with rows on a day or its neighbours, whose attempts may belong together, and all that may be replayed."""
    near = {(day + timedelta(days=step)).isoformat() for step in (-1, 0, 1)}
    of_day = [landing for landing in landings if not near.isdisjoint(landing.days)]
    if not any(_replays(landing) or _retells(landing) for landing in of_day):
        return of_day
    return [landing for landing in landings if _replays(landing) or not near.isdisjoint(landing.days)]


def _replays(landing: Landing) -> bool:
    return landing.format in FORMAT_NAMES and load(landing.format).replays


def _retells(landing: Landing) -> bool:
    return landing.format in FORMAT_NAMES and load(landing.format).retells_sessions


def _hop(format_name: str | None) -> int:
    """Where a format's calls were seen, as a place in HOPS; what a mapping file describes counts as a gateway's."""
    return HOPS.index(load(format_name).hop) if format_name in FORMAT_NAMES else 0


def _literal(instant: datetime) -> str:
    return f"TIMESTAMPTZ '{instant.isoformat()}'"


def _records(table: Table, landings: Sequence[Landing], warehouse: Warehouse) -> str:
    """SQL that gives the landed records with the path of the file, and what orders them."""
    parts = warehouse.parts_of(item.id for item in landings)
    listed = ", ".join(sql_text(part) for part in parts)
    names = ", ".join(f'r."{name}"' for name in table.names if name != "source_file")
    return (
        f"SELECT {names}, l.path AS source_file, l.priority AS priority, l.file_rank AS file_rank "
        f"FROM read_parquet([{listed}]) r JOIN landings l ON r.source_file = l.id"
    )


@dataclass(frozen=True)
class _Build:
    """One day of one table being built. Doubles and attempts are found on narrow columns, the wide rows read once."""

    connection: duckdb.DuckDBPyConnection
    table: Table
    chosen: Chosen
    parts: list[Landing]
    start: datetime
    warehouse: Warehouse

    @property
    def _at(self) -> str:
        return quoted(instant_of(self.table))

    @property
    def _ranked(self) -> dict[int, Landing]:
        """The parts by their place among all landings, as `file_rank` has it."""
        ids = {item.id for item in self.parts}
        return {rank: item for rank, item in enumerate(self.chosen.landings) if item.id in ids}

    def _within(self, column: str, margin: timedelta = timedelta(0)) -> str:
        first, last = self.start - margin, self.start + timedelta(days=1) + margin
        return f"{column} >= {_literal(first)} AND {column} < {_literal(last)}"

    def find_doubles(self) -> None:
        """Make the temporary tables `near`, `doubles` and `attempts`."""
        ranks = pl.DataFrame(
            [(item.id, item.path, item.priority, rank) for rank, item in enumerate(self.chosen.landings)],
            schema={"id": pl.String, "path": pl.String, "priority": pl.Int64, "file_rank": pl.Int64},
            orient="row",
        )
        self.connection.register("landing_frame", ranks.to_arrow())
        self.connection.execute("CREATE TEMP TABLE landings AS SELECT * FROM landing_frame")
        finds = [self._overlaps()]
        if self.table is REQUESTS:
            self._narrow(
                "hash(source_format, record_key)",
                "priority, gateway, request_id, call_id, operation, status = 'error' AS failed, "
                "status = 'ok' AS served, input_tokens, output_tokens, "
                "epoch_us(started_at) AS start_us, epoch_us(ended_at) AS end_us, "
                "CASE WHEN call_id IS NOT NULL THEN hash(gateway, call_id) END AS call, "
                "CASE WHEN request_id IS NOT NULL THEN hash(gateway, request_id) END AS request, ",
            )
            finds += [linking.SAME_RECORD, linking.SECOND_EXPORT, linking.BRIDGED, self._retold()]
        elif self.table is USAGE_BUCKETS:
            self._narrow("hash(record_key)")
            finds.append(linking.SAME_BUCKET)
        listed = " UNION ".join(f"SELECT * FROM ({sql})" for sql in finds)
        self.connection.execute(f"CREATE TEMP TABLE doubles AS {listed}")
        if self.table is REQUESTS:
            self._find_other_hops()
            self.connection.execute(linking.ATTEMPTS)

    def _find_other_hops(self) -> None:
        if len({item.format for item in self.parts}) < 2:  # noqa: PLR2004 - a pair
            return
        hop_of = {rank: _hop(item.format) for rank, item in self._ranked.items()}
        live = pl.DataFrame(self.connection.sql(linking.LIVE_CALLS).to_arrow_table())
        calls = live.with_columns(hop=pl.col("file_rank").replace_strict(hop_of, return_dtype=pl.Int64))
        self.connection.register("elsewhere", seen_elsewhere(calls).to_arrow())
        self.connection.execute(linking.OTHER_HOPS)

    def _narrow(self, identity: str, further: str = "") -> None:
        """Make `near`: what tells records with a key apart, and `further` columns."""
        at = self._at
        ranks = [str(rank) for rank, item in self._ranked.items() if _replays(item)]
        of_any_day = f" OR file_rank IN ({', '.join(ranks)})" if ranks else ""
        self.connection.execute(
            f"CREATE TEMP TABLE near AS SELECT source_format, source_line, file_rank, {further}"
            f'CASE WHEN record_key IS NOT NULL THEN {identity} END AS record, {at} AS "at" '
            f"FROM ({_records(self.table, self.parts, self.warehouse)}) "
            f"WHERE {self._within(at, RETRY_SPAN)}{of_any_day}"
        )

    def _retold(self) -> str:
        """The query that finds sums over calls of sessions that are there call by call."""
        sums = [item for item in self.parts if _retells(item)]
        calls = [item for item in self.parts if not _retells(item)]
        if not sums or not calls:
            return linking.NOTHING
        told, calls_of = (_records(self.table, items, self.warehouse) for items in (sums, calls))
        return (
            f'SELECT source_format, file_rank, source_line, {self._at} AS "at" FROM ({told}) '
            f"WHERE {self._within(self._at)} AND session_id IN (SELECT session_id FROM ({calls_of}))"
        )

    def _overlaps(self) -> str:
        """Fill `keyless` from files that may overlap; the query that finds doubles in it."""
        formats = Counter(item.format for item in self.parts if item.keyless_rows)
        may_overlap = [item for item in self.parts if item.keyless_rows and formats[item.format] > 1]
        if not may_overlap:
            return linking.NOTHING
        place = ("source_file", "source_line", "record_key")
        content = ", ".join(quoted(name) for name in self.table.names if name not in place)
        keyless = "record_key IS NULL AND " if has_keys(self.table) else ""
        self.connection.execute(
            f'CREATE TEMP TABLE keyless AS SELECT source_format, file_rank, source_line, {self._at} AS "at", '
            f"hash({content}) AS content FROM ({_records(self.table, may_overlap, self.warehouse)}) "
            f"WHERE {keyless}{self._within(self._at, RETRY_SPAN)}"
        )
        return linking.OVERLAP

    def write(self, day: date) -> None:
        """Write the rows of the day that are no doubles, as one file."""
        linked = _LINKED if self.table is REQUESTS else {}
        names = ", ".join(
            f"CAST({linked.get(c.name, f'r.{quoted(c.name)}')} AS {c.duckdb_type}) AS {quoted(c.name)}"
            for c in self.table.columns
        )
        join = "LEFT JOIN attempts a USING (file_rank, source_line) " if linked else ""
        records = _records(self.table, self.parts, self.warehouse)
        with replacing(self.warehouse.day_file(self.table, day)) as path:
            self.connection.execute(
                f"COPY (SELECT {names} FROM ({records}) r {join}"
                f"ANTI JOIN doubles d USING (file_rank, source_line) WHERE {self._within(f'r.{self._at}')} "
                f"ORDER BY r.{self._at}, r.file_rank, r.source_line) "
                f"TO {sql_text(path)} (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
                # Ids are all different: a dictionary of them is made and thrown away.
                f"DICTIONARY_SIZE_LIMIT 4096)"
            )

    def dropped(self) -> dict[str, int]:
        """Rows of the day that were dropped as doubles, by format."""
        found = self.connection.execute(
            f"SELECT source_format, count(*) FROM doubles d WHERE {self._within('d.at')} GROUP BY source_format"
        ).fetchall()
        return {str(name): int(count) for name, count in found}
