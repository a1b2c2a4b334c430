"""The data folder: whole files, views through a window, published marts."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from parsers.errors import TokenworksError
from parsers.records import FILES, RECORD_TABLES, REJECTS, REQUESTS
from warehouse.store import Warehouse, replacing, sql_text
from warehouse.tables import COST_LINES, DATA_QUALITY, MARTS, USAGE_DAILY

START = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


@pytest.fixture
def warehouse(tmp_path) -> Warehouse:
    return Warehouse(tmp_path / "it's [1]")


def requests(*hours: int) -> pl.DataFrame:
    """Rows of REQUESTS, one per hour after START, with every kind of type filled."""
    rows = [
        {
            "request_id": f"r{hour}",
            "source_format": "f",
            "source_file": "log's \n.jsonl",
            "source_line": hour + 1,
            "started_at": START + dt.timedelta(hours=hour, microseconds=1),
            "status": "ok",
            "usage_origin": "reported",
            "input_tokens": hour,
            "tags": ["a", "it's"],
            "prefix_hashes": [2**64 - 1, 0],
            "cost_reported": Decimal("0.000000000001"),
        }
        for hour in hours
    ]
    return REQUESTS.conform(pl.DataFrame(rows, schema_overrides={"prefix_hashes": pl.List(pl.UInt64)}))


def put(warehouse: Warehouse, frame: pl.DataFrame) -> None:
    for (day,), part in frame.group_by(pl.col("started_at").dt.date(), maintain_order=True):
        with replacing(warehouse.day_file(REQUESTS, day)) as path:
            part.write_parquet(path)


def test_facts_come_back_as_they_were_written(warehouse):
    """Polars and DuckDB give the same values, 64-bit hashes and tiny sums of money included."""
    frame = requests(0, 5, 13, 30)
    put(warehouse, frame)
    assert [str(day) for day in warehouse.days(REQUESTS)] == ["2026-11-16", "2026-11-17"]
    assert_frame_equal(warehouse.scan(REQUESTS).collect(), frame)
    with warehouse.connect() as connection:
        found = pl.DataFrame(connection.sql("SELECT * FROM requests ORDER BY started_at").to_arrow_table())
    assert_frame_equal(REQUESTS.conform(found), frame)


def test_a_window_hides_what_lies_outside_it(warehouse):
    put(warehouse, requests(0, 5, 13, 30))
    seen = Warehouse(warehouse.home, window=(START + dt.timedelta(hours=5), START + dt.timedelta(hours=30)))
    assert seen.scan(REQUESTS).collect()["request_id"].to_list() == ["r5", "r13"]
    with seen.connect() as connection:
        assert connection.sql("SELECT request_id FROM requests ORDER BY 1").fetchall() == [("r13",), ("r5",)]


def test_what_is_not_there_is_empty_and_typed(warehouse):
    for table in RECORD_TABLES:
        assert_frame_equal(warehouse.scan(table).collect(), table.empty())
    for table in (FILES, REJECTS, *MARTS):
        assert_frame_equal(warehouse.read(table), table.empty())
    with warehouse.connect() as connection:
        for table in (*RECORD_TABLES, *MARTS):
            found = pl.DataFrame(connection.sql(f'SELECT * FROM "{table.name}"').to_arrow_table())
            assert_frame_equal(table.conform(found), table.empty())


def test_a_write_that_fails_leaves_the_old_file(warehouse):
    file = warehouse.home / "x"
    with replacing(file) as path:
        path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(file) as path:
        path.write_text("half")
        _ = 1 / 0
    assert file.read_text() == "old"
    assert [entry.name for entry in warehouse.home.iterdir()] == ["x"]


def test_a_mart_that_breaks_its_contract_is_refused(warehouse):
    row = {"check": "c", "severity": "awful", "passed": True, "detail": "d"}
    with pytest.raises(
        TokenworksError, match=r"data_quality: the mart breaks its contract: severity is none of"
    ):
        warehouse.write_mart(DATA_QUALITY, pl.DataFrame([row]))
    assert warehouse.read(DATA_QUALITY).is_empty()


def test_marts_are_published_whole_beside_the_old_ones(warehouse):
    row = {"check": "c", "severity": "info", "passed": True, "detail": "d'"}
    heard: list[str] = []
    told = Warehouse(warehouse.home, on_write=heard.append)
    told.write_mart(DATA_QUALITY, pl.DataFrame([row]))
    first = told.publish()
    assert heard == ["data_quality"]
    reader = duckdb.connect(str(first), read_only=True)
    told.write_mart(DATA_QUALITY, pl.DataFrame([row | {"check": "d"}, row]))
    told.publish()
    assert reader.sql("SELECT count(*) FROM data_quality").fetchall() == [(1,)]
    reader.close()
    with duckdb.connect(str(first), read_only=True) as after:
        assert after.sql("SELECT count(*) FROM data_quality").fetchall() == [(2,)]
        names = {name for (name,) in after.sql("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert names == {table.name for table in MARTS}
        types = dict(
            after.sql(f"SELECT column_name, column_type FROM (DESCRIBE {COST_LINES.name})").fetchall()
        )
    assert types["cost_usd"] == "DECIMAL(38,12)"


def test_marts_of_the_run_before_are_cleared_and_published_ones_stay(warehouse):
    warehouse.write_mart(
        DATA_QUALITY, pl.DataFrame([{"check": "c", "severity": "info", "passed": True, "detail": "d"}])
    )
    warehouse.publish()
    (warehouse.marts_folder / "usage_daily.parquet").write_bytes(b"of an older version")
    warehouse.clear_marts()
    assert warehouse.read(DATA_QUALITY).is_empty()
    assert warehouse.read(USAGE_DAILY).is_empty()
    assert warehouse.published.exists()


def test_one_holder_and_a_clean_folder(warehouse):
    (warehouse.home / "work-1").mkdir(parents=True)
    with warehouse.alone():
        assert not (warehouse.home / "work-1").exists()
        with pytest.raises(TokenworksError, match="is working on this folder"), warehouse.alone():
            pass
    with warehouse.alone():
        pass


@pytest.mark.parametrize(
    ("name", "owned"),
    [
        ("facts/requests/day=2026-11-16/requests.parquet", True),
        ("landed/x/part-00000.parquet", True),
        ("audit.html", True),
        ("work-1/a.spool", True),
        (".audit.json." + "a" * 32, True),
        ("gateway/facts/log.jsonl", False),
        ("log.jsonl", False),
        ("../log.jsonl", False),
    ],
)
def test_what_belongs_to_the_folder(warehouse, name, owned):
    assert warehouse.owns(warehouse.home / name) is owned


def test_text_in_sql_is_text():
    hostile = "'; DROP TABLE x; -- \\ \n \u202e"
    assert duckdb.sql(f"SELECT {sql_text(hostile)}").fetchall() == [(hostile,)]
