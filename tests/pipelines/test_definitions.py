"""What Dagster is told: assets for every table of the contract, checks that block, schedules that run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from parsers.records import FACT_TABLES, RECORD_TABLES
from pipelines.definitions import build_defs, defs
from pipelines.suites import SUITES
from warehouse.tables import MARTS

ROOT = Path(__file__).resolve().parents[2]
GRAPH = Path(__file__).with_name("asset_graph.txt")
TABLES = (*FACT_TABLES, *MARTS)


@pytest.fixture(scope="module")
def graph():
    return defs.resolve_asset_graph()


def test_definitions_load_as_dagster_would_load_them():
    dg.Definitions.validate_loadable(build_defs())


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_is_an_asset_with_the_columns_of_the_contract(table, graph):
    node = graph.get(dg.AssetKey(table.name))
    columns = node.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type) for column in columns] == [
        (column.name, column.duckdb_type) for column in table.columns
    ]
    assert [column.constraints.nullable for column in columns] == [
        column.nullable for column in table.columns
    ]
    assert all(column.description for column in columns)
    assert node.description == table.description


def test_facts_have_a_partition_per_utc_day_and_are_filled_in_one_run(graph):
    for table in RECORD_TABLES:
        node = graph.get(dg.AssetKey(table.name))
        days = node.partitions_def
        assert isinstance(days, dg.DailyPartitionsDefinition), table.name
        assert str(days.timezone) == "UTC"
        assert node.backfill_policy == dg.BackfillPolicy.single_run(), table.name


def test_marts_have_no_partitions(graph):
    assert all(graph.get(dg.AssetKey(table.name)).partitions_def is None for table in MARTS)


def test_every_suite_is_a_blocking_check_of_its_table(graph):
    for suite in SUITES:
        key = dg.AssetCheckKey(dg.AssetKey(suite.table.name), f"{suite.table.name}_keeps_its_rules")
        assert graph.get(key).blocking, suite.table.name


def test_schedules_and_sensor_run_without_being_switched_on():
    states = {item.name: item.default_status.value for item in (*defs.schedules, *defs.sensors)}
    assert states == {
        "daily_schedule": "RUNNING",
        "weekly_audit": "RUNNING",
        "new_files_sensor": "RUNNING",
    }


def test_the_weekly_job_writes_the_report_and_the_daily_one_does_not():
    def assets(job: str) -> set[str]:
        return {key.to_user_string() for key in defs.resolve_job_def(job).asset_layer.selected_asset_keys}

    assert assets("weekly_audit_job") - assets("pipeline") == {"audit_report"}


def test_asset_graph_is_the_one_that_was_reviewed(graph, update_golden):
    """`pytest --update-golden` rewrites the file: read its diff."""
    checks = {suite.table.name for suite in SUITES}
    lines = []
    for key in sorted(graph.get_all_asset_keys()):
        node = graph.get(key)
        name = key.to_user_string()
        marks = [
            mark for mark, holds in (("daily", node.partitions_def), ("checked", name in checks)) if holds
        ]
        parents = ", ".join(sorted(parent.to_user_string() for parent in node.parent_keys))
        lines.append(f"{node.group_name}/{name} [{' '.join(marks)}] <- {parents}".replace(" []", ""))
    drawn = "".join(f"{line}\n" for line in lines)
    if update_golden:
        GRAPH.write_text(drawn, encoding="utf-8")
    assert drawn == GRAPH.read_text(encoding="utf-8")


IMPORT = """
import os, sys, traceback
ours = sys.argv[1]
reads = []
class Watched(type(os.environ)):
    def __getitem__(self, key):
        near = traceback.extract_stack()[-5:-1]
        # `pipelines` sets what Polars' allocator reads, unless it is set: no setting of the pipeline.
        mine = any(frame.filename.startswith(ours) and ".venv" not in frame.filename for frame in near)
        if mine and key != "_RJEM_MALLOC_CONF":
            reads.append(key)
        return super().__getitem__(key)
os.environ.__class__ = Watched
import pipelines.definitions
slow = {"great_expectations", "pandas", "numba", "altair", "genai_prices", "vl_convert", "typer"}
print(sorted(slow & sys.modules.keys()), reads)
"""


def test_importing_the_definitions_is_light_and_reads_no_environment():
    """Each of the slow packages would cost every command and every Dagster process its import."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT, str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "TOKENWORKS_WINDOW_DAYS": "settings that are read fail on this"},
    )
    assert done.stdout.strip() == "[] []"
