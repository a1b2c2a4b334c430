"""Facts: landed records of all files, without doubles, linked, by UTC day.

Belongs here: which landings count, which rows are doubles, which attempts belong to one call. Does not belong here:
parsing (`land.py`), sums (`pipelines/demand/`).

Doubles, in this order, each counted:
1. A file with the content of another: the older one is read (by its time, then its name), the other is a copy.
2. Rows of one format with one record_key: the first is kept (files by time and name, then lines).
3. Rows of a gateway's second export (a format of lower priority) whose call and outcome are in the first: dropped.

Attempts: rows that share gateway and call_id, by start; each later one gets its number and `retry_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from parsers.records import FILES, RECORD_TABLES, REJECTS, REQUESTS, Table
from warehouse.store import replacing, sql_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from pipelines.ingest.land import Landing
    from warehouse.store import Warehouse

RETRY_SPAN = timedelta(hours=1)
"""Attempts of one call are looked for this far over midnight."""


@dataclass(frozen=True)
class Chosen:
    """The landings that count: one per content, in the order in which rows are preferred."""

    landings: tuple[Landing, ...]
    copies: dict[str, str]
    """Path of a copy -> path of the file that is read instead."""

    def of(self, table: Table) -> list[Landing]:
        """Those that fill a table."""
        return [landing for landing in self.landings if landing.target == table.name and landing.rows]

    def days(self, table: Table) -> list[date]:
        """The UTC days on which a table has rows."""
        found: set[date] = set()
        for landing in self.of(table):
            assert landing.first_at is not None
            assert landing.last_at is not None
            day = datetime.fromisoformat(landing.first_at).astimezone(UTC).date()
            last = datetime.fromisoformat(landing.last_at).astimezone(UTC).date()
            while day <= last:
                found.add(day)
                day += timedelta(days=1)
        return sorted(found)


def choose(landings: Sequence[Landing]) -> Chosen:
    """Keep one landing per content: the oldest file, then the first by name."""
    kept: dict[str, Landing] = {}
    copies: dict[str, str] = {}
    for landing in sorted(landings, key=lambda item: (item.modified_at, item.path)):
        if not landing.id:
            continue
        if landing.id in kept:
            copies[landing.path] = kept[landing.id].path
        else:
            kept[landing.id] = landing
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
        path = warehouse.landed / landing.id / "rejects.parquet"
        if path.exists():
            frames.append(pl.read_parquet(path).with_columns(source_file=pl.lit(landing.path)))
    return pl.concat(frames).sort("source_file", "source_line")


def build_day(table: Table, day: date, chosen: Chosen, warehouse: Warehouse) -> dict[str, int]:
    """Write the facts of one table and day.

    Returns:
        rows dropped as doubles, by format.

    """
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    end = start + timedelta(days=1)
    parts = _parts(chosen.of(table), start, end)
    if not parts:
        warehouse.drop_day(table, day)
        return {}
    with warehouse.connect() as connection:
        _load_landings(connection, chosen)
        if table is REQUESTS:
            return _build_requests(connection, parts, start, end, warehouse, day)
        window = f'"at" >= {_literal(start)} AND "at" < {_literal(end)}'
        _copy(connection, f"SELECT * FROM ({_records(table, parts, warehouse)}) WHERE {window}", table, day, warehouse, '"at"')
        return {}


def drop_other_days(chosen: Chosen, warehouse: Warehouse) -> None:
    """Remove facts of days that no chosen file has (a file was replaced or is no longer given)."""
    for table in RECORD_TABLES:
        kept = set(chosen.days(table))
        for day in warehouse.days(table):
            if day not in kept:
                warehouse.drop_day(table, day)


def _parts(landings: Sequence[Landing], start: datetime, end: datetime) -> list[Landing]:
    def overlaps(landing: Landing) -> bool:
        first, last = _parsed(landing.first_at), _parsed(landing.last_at)
        return first is not None and last is not None and first < end + RETRY_SPAN and last >= start - RETRY_SPAN

    return [landing for landing in landings if overlaps(landing)]


def _literal(instant: datetime) -> str:
    return f"TIMESTAMPTZ '{instant.isoformat()}'"


def _load_landings(connection: duckdb.DuckDBPyConnection, chosen: Chosen) -> None:
    frame = pl.DataFrame(
        [(item.id, item.path, item.priority, rank) for rank, item in enumerate(chosen.landings)],
        schema={"id": pl.String, "path": pl.String, "priority": pl.Int64, "file_rank": pl.Int64},
        orient="row",
    )
    connection.register("landing_frame", frame.to_arrow())
    connection.execute("CREATE TEMP TABLE landings AS SELECT * FROM landing_frame")


def _records(table: Table, landings: Sequence[Landing], warehouse: Warehouse) -> str:
    """SQL that gives the landed records with the path of the file, and what orders them."""
    listed = ", ".join(sql_text(warehouse.landed / item.id / "part-*.parquet") for item in landings)
    names = ", ".join(f'r."{name}"' for name in table.names if name != "source_file")
    return (
        f"SELECT {names}, l.path AS source_file, l.priority AS priority, l.file_rank AS file_rank "
        f"FROM read_parquet([{listed}]) r JOIN landings l ON r.source_file = l.id"
    )


def _copy(
    connection: duckdb.DuckDBPyConnection, sql: str, table: Table, day: date, warehouse: Warehouse, instant: str
) -> None:
    names = ", ".join(f'CAST("{c.name}" AS {c.duckdb_type}) AS "{c.name}"' for c in table.columns)
    with replacing(warehouse.day_file(table, day)) as path:
        connection.execute(
            f"COPY (SELECT {names} FROM ({sql}) ORDER BY {instant}, file_rank, source_line) "
            f"TO {sql_text(path)} (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1)"
        )


def _build_requests(
    connection: duckdb.DuckDBPyConnection,
    landings: Sequence[Landing],
    start: datetime,
    end: datetime,
    warehouse: Warehouse,
    day: date,
) -> dict[str, int]:
    """Doubles and attempts are found on narrow columns; the wide rows are read once, at the end."""
    records = _records(REQUESTS, landings, warehouse)
    near = f"started_at >= {_literal(start - RETRY_SPAN)} AND started_at < {_literal(end + RETRY_SPAN)}"
    connection.execute(
        "CREATE TEMP TABLE near AS SELECT source_format, source_line, file_rank, priority, gateway, "
        "CASE WHEN record_key IS NOT NULL THEN hash(source_format, record_key) END AS record, "
        "CASE WHEN call_id IS NOT NULL THEN hash(gateway, call_id) END AS call, "
        "CASE WHEN request_id IS NOT NULL THEN hash(gateway, request_id) END AS request, "
        "request_id, status = 'error' AS failed, "
        f"started_at FROM ({records}) WHERE {near}"
    )
    connection.execute(_DOUBLES)
    connection.execute(_ATTEMPTS)
    today = f"started_at >= {_literal(start)} AND started_at < {_literal(end)}"
    plain = ", ".join(f'r."{name}"' for name in REQUESTS.names if name not in ("attempt", "retry_of"))
    _copy(
        connection,
        f"SELECT {plain}, r.file_rank, coalesce(a.attempt, CASE WHEN r.call_id IS NOT NULL THEN 1 END) AS attempt, a.retry_of "
        f"FROM ({records}) r LEFT JOIN attempts a USING (file_rank, source_line) "
        f"ANTI JOIN doubles d USING (file_rank, source_line) WHERE {today}",
        REQUESTS,
        day,
        warehouse,
        "started_at",
    )
    dropped = connection.execute(
        f"SELECT source_format, count(*) FROM doubles WHERE {today} GROUP BY source_format"
    ).fetchall()
    return {str(name): int(count) for name, count in dropped}


_DOUBLES = """
CREATE TEMP TABLE doubles AS
WITH repeated AS (
    SELECT record FROM near WHERE record IS NOT NULL GROUP BY record HAVING count(*) > 1
),
same_record AS (
    SELECT source_format, file_rank, source_line, started_at,
           row_number() OVER (PARTITION BY record ORDER BY file_rank, source_line) AS place
    FROM near WHERE record IN (SELECT record FROM repeated)
),
best AS (
    SELECT gateway, min(priority) AS priority FROM near GROUP BY gateway HAVING min(priority) < max(priority)
),
first_export AS (
    SELECT n.call, n.request, n.failed FROM near n JOIN best b ON n.gateway = b.gateway AND n.priority = b.priority
),
second_export AS (
    SELECT n.source_format, n.file_rank, n.source_line, n.started_at
    FROM near n JOIN best b ON n.gateway = b.gateway AND n.priority > b.priority
    WHERE (n.call, n.failed) IN (SELECT (call, failed) FROM first_export WHERE call IS NOT NULL)
       OR (n.request, n.failed) IN (SELECT (request, failed) FROM first_export WHERE request IS NOT NULL)
)
SELECT source_format, file_rank, source_line, started_at FROM same_record WHERE place > 1
UNION
SELECT source_format, file_rank, source_line, started_at FROM second_export
"""

_ATTEMPTS = """
CREATE TEMP TABLE attempts AS
WITH live AS (
    SELECT n.* FROM near n ANTI JOIN doubles d USING (file_rank, source_line) WHERE call IS NOT NULL
),
several AS (
    SELECT call FROM live GROUP BY call HAVING count(*) > 1
)
SELECT file_rank, source_line,
       row_number() OVER (PARTITION BY call ORDER BY started_at, file_rank, source_line) AS attempt,
       lag(request_id) OVER (PARTITION BY call ORDER BY started_at, file_rank, source_line) AS retry_of
FROM live WHERE call IN (SELECT call FROM several)
"""
