"""Runs of the real assets over small logs: the scheduled door, the one-off door, and what stops them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import dagster as dg
import duckdb
import polars as pl
import pytest

from parsers.errors import CheckFailedError, SiteConfigError, TokenworksError
from parsers.records import REQUESTS
from pipelines import schedules
from pipelines.audit import run_audit
from pipelines.definitions import build_defs, run_in_process
from pipelines.fleet import Fleet
from pipelines.site import Site, SiteSettings
from warehouse.store import Warehouse
from warehouse.tables import COST_LINES, DATA_QUALITY, MARTS, USAGE_DAILY

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
NOON = datetime.now(tz=UTC).replace(hour=12, minute=0, second=0, microsecond=0)

pytestmark = [
    pytest.mark.usefixtures("cheap_checks"),
    # SQLite of Dagster's ephemeral instance is closed by the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def noon(days_ago: int) -> datetime:
    return NOON - timedelta(days=days_ago)


@pytest.fixture
def scheduled(gateway_log, tmp_path, monkeypatch):
    """Run what the daily schedule asks for today; gives the site's data folder."""
    monkeypatch.setenv("TOKENWORKS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKENWORKS_LOGS", str(gateway_log.folder))
    context = dg.build_schedule_context(scheduled_execution_time=datetime.now(tz=UTC))
    request = schedules.daily_schedule.evaluate_tick(context).run_requests[0]

    def run(job: str = "pipeline", only: tuple[str, ...] | None = None, **tags) -> Warehouse:
        with dg.DagsterInstance.ephemeral() as instance:
            result = (
                build_defs()
                .resolve_job_def(job)
                .execute_in_process(
                    tags={**request.tags, **tags},
                    asset_selection=[dg.AssetKey(name) for name in only] if only else None,
                    run_config=QUIET,
                    instance=instance,
                )
            )
        assert result.success
        return Warehouse(tmp_path / "home")

    return run


SUMS = ("landed_files", "requests", "usage_daily")
"""Enough of the graph to see which facts count."""


def one_off(gateway_log, tmp_path) -> Site:
    return Site(
        Warehouse(tmp_path / "out"),
        (str(gateway_log.folder),),
        Fleet.default(),
        report_folder=tmp_path / "out",
    )


def day(days_ago: int) -> date:
    return noon(days_ago).date()


def facts(warehouse: Warehouse) -> pl.DataFrame:
    return warehouse.scan(REQUESTS).collect()


def test_the_daily_run_publishes_every_mart_over_the_last_seven_days(scheduled, gateway_log):
    """A call of eight days ago is in the log, and outside of the window of the marts."""
    gateway_log.write("week.jsonl", *(noon(ago) for ago in (0, 1, 2, 7, 8)))
    warehouse = scheduled()
    assert warehouse.days(REQUESTS) == [day(7), day(2), day(1)]
    with duckdb.connect(str(warehouse.published), read_only=True) as connection:
        assert {name for (name,) in connection.sql("SHOW TABLES").fetchall()} == {t.name for t in MARTS}
        days = connection.sql("SELECT DISTINCT day FROM usage_daily ORDER BY 1").fetchall()
    assert [found for (found,) in days] == [day(7), day(2), day(1)]


def test_marts_cover_seven_days_even_where_facts_go_further_back(scheduled, gateway_log):
    gateway_log.write("week.jsonl", *(noon(ago) for ago in (1, 8, 9)))
    older = {schedules.RANGE_START: str(day(9)), schedules.RANGE_END: str(day(1))}
    warehouse = scheduled(**older)
    assert warehouse.days(REQUESTS) == [day(9), day(8), day(1)]
    assert warehouse.read(USAGE_DAILY)["day"].to_list() == [day(1)]
    assert warehouse.read(COST_LINES)["charge_day"].unique().to_list() == [day(1)]


def test_lines_that_come_days_late_are_taken_in(scheduled, gateway_log):
    gateway_log.write("on_time.jsonl", noon(5), noon(1))
    scheduled(only=SUMS)
    gateway_log.write("late.jsonl", noon(5) + timedelta(minutes=1))
    usage = scheduled(only=SUMS).read(USAGE_DAILY)
    assert dict(usage.group_by("day").agg(pl.col("requests").sum()).iter_rows()) == {day(5): 2, day(1): 1}


def test_running_twice_gives_the_same_facts(scheduled, gateway_log):
    gateway_log.write("a.jsonl", noon(3), noon(2), noon(1))
    gateway_log.write("copy_of_a.jsonl", noon(1))
    first = facts(scheduled(only=SUMS))
    assert first.equals(facts(scheduled(only=SUMS)))
    assert first.height == 4


def test_facts_outlive_rotated_logs_in_the_scheduled_pipeline(scheduled, gateway_log):
    """A file that is gone takes nothing with it."""
    rotated = gateway_log.write("old.jsonl", noon(4))
    gateway_log.write("new.jsonl", noon(1))
    scheduled(only=SUMS)
    rotated.unlink()
    warehouse = scheduled(only=SUMS)
    assert warehouse.days(REQUESTS) == [day(4), day(1)]
    assert warehouse.read(USAGE_DAILY)["requests"].sum() == 2


@pytest.mark.slow
def test_a_one_off_audit_holds_the_given_files_and_no_other(gateway_log, tmp_path):
    gone = gateway_log.write("old.jsonl", noon(4))
    gateway_log.write("new.jsonl", noon(1))
    site = one_off(gateway_log, tmp_path)
    run_in_process(site, None)
    run_in_process(site, (day(4), day(1)))
    assert site.warehouse.days(REQUESTS) == [day(4), day(1)]
    gone.unlink()
    run_in_process(site, None)
    assert site.warehouse.days(REQUESTS) == [day(1)]


@pytest.mark.slow
def test_the_weekly_job_writes_the_report(scheduled, gateway_log):
    gateway_log.write("a.jsonl", noon(2), noon(1))
    home = scheduled("weekly_audit_job").home
    assert {path.name for path in (home / "reports").iterdir()} == {"audit.html", "audit.json"}


def test_a_scheduled_run_holds_the_folder_and_lets_go_of_it(scheduled, gateway_log, tmp_path):
    """Two writers at once would mix their facts."""
    gateway_log.write("a.jsonl", noon(1))
    with (
        Warehouse(tmp_path / "home").alone(),
        pytest.raises(dg.DagsterResourceFunctionError) as stopped,
    ):
        scheduled(only=SUMS)
    assert "is working on this folder" in str(stopped.value.user_exception)
    warehouse = scheduled(only=SUMS)
    with warehouse.alone():
        assert warehouse.days(REQUESTS) == [day(1)]


def test_a_one_off_audit_leaves_a_scheduled_home_alone(gateway_log, tmp_path):
    """It would drop the facts of every file that it was not given."""
    gateway_log.write("a.jsonl", noon(1))
    site = one_off(gateway_log, tmp_path)
    site.warehouse.home.mkdir()
    site.mark_history()
    with pytest.raises(SiteConfigError, match="keeps its history"):
        run_audit(site)


def test_a_log_folder_without_files_is_said_in_one_line(scheduled, gateway_log):
    gateway_log.folder.mkdir()
    with pytest.raises(TokenworksError, match="no files found"):
        scheduled()


def spoil(monkeypatch, change: pl.Expr) -> None:
    """Let every day of facts be written wrongly."""
    from pipelines.ingest import assets

    build = assets.build_days

    def build_wrongly(table, days, chosen, warehouse):
        for day, dropped in build(table, days, chosen, warehouse):
            if table is REQUESTS:
                path = warehouse.day_file(table, day)
                pl.read_parquet(path).with_columns(change).write_parquet(path)
            yield day, dropped

    monkeypatch.setattr(assets, "build_days", build_wrongly)


def test_a_wrong_number_stops_before_the_marts_and_says_what_was_found(gateway_log, tmp_path, monkeypatch):
    gateway_log.write("a.jsonl", noon(2), noon(1))
    spoil(monkeypatch, pl.lit(1000, pl.Int64).alias("reasoning_tokens"))
    site = one_off(gateway_log, tmp_path)
    with pytest.raises(CheckFailedError) as stopped:
        run_audit(site)
    assert "requests: rows with more reasoning than output (found 2, allowed 0)" in str(stopped.value)
    assert "\n" not in str(stopped.value)
    assert not site.warehouse.published.exists()
    assert not (site.report_folder / "audit.json").exists()
    assert site.warehouse.read(USAGE_DAILY).is_empty()


@pytest.mark.slow
def test_a_failed_check_of_an_earlier_run_is_not_taken_for_this_ones(gateway_log, tmp_path, monkeypatch):
    gateway_log.write("a.jsonl", noon(1))
    site = one_off(gateway_log, tmp_path)
    with monkeypatch.context() as patch:
        spoil(patch, pl.lit(1000, pl.Int64).alias("reasoning_tokens"))
        with pytest.raises(CheckFailedError):
            run_audit(site)
    assert run_audit(site).html.exists()


@pytest.mark.slow
def test_a_warning_does_not_stop_and_is_told_in_data_quality(gateway_log, tmp_path):
    """Served calls without counts: every figure stands, and the reader must know."""
    gateway_log.write(
        "a.jsonl",
        noon(1),
        noon(2),
        prompt_tokens=None,
        completion_tokens=None,
        total_tokens=None,
        metadata={},
        response_cost=None,
    )
    site = one_off(gateway_log, tmp_path)
    run_audit(site)
    told = {row["check"]: row for row in site.warehouse.read(DATA_QUALITY).iter_rows(named=True)}
    row = told["requests: share of served rows without token counts"]
    assert (row["passed"], row["severity"]) == (False, "warning")


def test_settings_are_read_when_a_run_starts(monkeypatch, tmp_path):
    monkeypatch.setenv("TOKENWORKS_HOME", str(tmp_path))
    monkeypatch.setenv("TOKENWORKS_WINDOW_DAYS", "14")
    settings = SiteSettings()
    assert (settings.home, settings.window_days) == (tmp_path, 14)
    assert settings.site().keeps_history
