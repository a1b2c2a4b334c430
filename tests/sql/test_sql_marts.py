"""Each SQL mart against recorded cases: CSV in, CSV out.

A case is a folder `tests/sql/<mart>/<case>/` with one CSV per input (`requests.csv` and so on, named after
a table of the contract; columns it lacks are null, an empty cell is null) and `expect.csv`, the whole mart in
any order.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, FILES, REJECTS, REQUESTS, Table
from warehouse.tables import MARTS

HERE = Path(__file__).parent
SQL = HERE.parents[1] / "warehouse" / "sql"
TABLES = {table.name: table for table in (REQUESTS, ENGINE_SAMPLES, DEVICE_SAMPLES, REJECTS, FILES, *MARTS)}
CASES = sorted(path.parent for path in HERE.glob("*/*/expect.csv"))
FILES_OF_SQL = sorted(SQL.glob("*.sql"))

pytestmark = pytest.mark.filterwarnings("error")


def connect(zone: str = "UTC") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = '{zone}'")
    return connection


def load(connection: duckdb.DuckDBPyConnection, table: Table, path: Path) -> None:
    """Create the table as declared and copy the CSV into the columns it names."""
    header = pl.read_csv(path, n_rows=0).columns
    unknown = sorted(set(header) - set(table.names))
    assert not unknown, f"{path}: columns that {table.name} does not have: {unknown}"
    connection.execute(table.ddl())
    names = ", ".join(f'"{name}"' for name in header)
    connection.execute(f"COPY {table.name} ({names}) FROM '{path}' (HEADER, DELIMITER ',', NULL '')")


def run(case: Path, connection: duckdb.DuckDBPyConnection) -> pl.DataFrame:
    for path in case.glob("*.csv"):
        if path.stem != "expect":
            load(connection, TABLES[path.stem], path)
    return connection.sql((SQL / f"{case.parent.name}.sql").read_text()).pl()


def expected(case: Path) -> pl.DataFrame:
    """`expect.csv` in the types of the mart, read by DuckDB as the inputs are."""
    table = TABLES[case.parent.name]
    with connect() as connection:
        load(connection, table, case / "expect.csv")
        return table.conform(connection.sql(f"SELECT * FROM {table.name}").pl())


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
def test_mart_is_as_expected_whatever_the_session_zone(case, zone):
    table = TABLES[case.parent.name]
    with connect(zone) as connection:
        result = run(case, connection)
    assert result.columns == table.names
    mart = table.conform(result)
    assert table.problems(mart) == {}
    assert_frame_equal(mart, expected(case), check_row_order=False, check_exact=True)


@pytest.mark.parametrize("path", FILES_OF_SQL, ids=lambda path: path.stem)
def test_every_sql_mart_is_declared_documented_and_has_a_case(path):
    assert path.stem in TABLES
    assert any(case.parent.name == path.stem for case in CASES), f"no case in tests/sql/{path.stem}/"
    head = path.read_text().split("\nSELECT")[0]
    assert all(line.startswith("--") for line in head.splitlines() if line)
    assert head.startswith(f"-- {path.stem}: ")
    assert "-- Grain:" in head
    assert "-- Inputs:" in head


@pytest.mark.parametrize("path", FILES_OF_SQL, ids=lambda path: path.stem)
def test_an_empty_input_gives_an_empty_mart_with_the_declared_types(path):
    with connect() as connection:
        for table in TABLES.values():
            connection.execute(table.ddl())
        described = connection.sql(path.read_text())
        types = dict(zip(described.columns, map(str, described.types), strict=True))
    table = TABLES[path.stem]
    assert types == {
        column.name: column.duckdb_type.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE")
        for column in table.columns
    }
