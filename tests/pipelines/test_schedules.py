"""When runs are asked for, and over which days."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime

import dagster as dg
import pytest

from pipelines.schedules import (
    QUIET_S,
    RANGE_END,
    RANGE_START,
    REBUILT_DAYS,
    daily_schedule,
    new_files_sensor,
    weekly_audit,
)


def request_of(schedule, at: datetime) -> dg.RunRequest:
    context = dg.build_schedule_context(scheduled_execution_time=at)
    return schedule.evaluate_tick(context).run_requests[0]


def test_the_daily_run_builds_the_last_seven_days_again():
    """Lines that come up to a week late are still taken in."""
    request = request_of(daily_schedule, datetime(2026, 11, 24, 3, tzinfo=UTC))
    assert REBUILT_DAYS == 7
    assert request.tags[RANGE_START] == "2026-11-17"
    assert request.tags[RANGE_END] == "2026-11-23"


def test_the_weekly_report_is_on_monday_to_sunday():
    request = request_of(weekly_audit, datetime(2026, 11, 23, 4, tzinfo=UTC))
    assert (request.tags[RANGE_START], request.tags[RANGE_END]) == ("2026-11-16", "2026-11-22")


@pytest.fixture
def look(gateway_log, monkeypatch):
    """Evaluate the sensor as the daemon would, with the cursor of the last tick that gave one."""
    monkeypatch.setenv("TOKENWORKS_LOGS", str(gateway_log.folder))
    cursor: list[str | None] = [None]

    def tick():
        with dg.DagsterInstance.ephemeral() as instance:
            context = dg.build_sensor_context(instance=instance, cursor=cursor[0])
            result = new_files_sensor(context)
        if isinstance(result, dg.SensorResult):
            cursor[0] = result.cursor
        return result

    return tick


def rest(path) -> None:
    """Let a file look as if nobody had written to it for a while."""
    then = time.time() - QUIET_S - 5
    os.utime(path, (then, then))


def test_the_sensor_says_what_to_set_where_there_is_no_folder(look):
    assert "TOKENWORKS_LOGS" in look().skip_message


def test_the_sensor_waits_while_a_file_is_written(look, gateway_log):
    path = gateway_log.write("a.jsonl", datetime.now(tz=UTC))
    assert isinstance(look(), dg.SkipReason)
    rest(path)
    assert isinstance(look(), dg.SensorResult)


def test_the_sensor_asks_once_per_change(look, gateway_log):
    rest(gateway_log.write("a.jsonl", datetime.now(tz=UTC)))
    first = look()
    assert isinstance(look(), dg.SkipReason)
    rest(gateway_log.write("a.jsonl", datetime.now(tz=UTC)))
    second = look()
    assert isinstance(look(), dg.SkipReason)
    assert first.run_requests[0].run_key != second.run_requests[0].run_key


def test_the_sensor_builds_up_to_today(look, gateway_log):
    rest(gateway_log.write("a.jsonl", datetime.now(tz=UTC)))
    assert look().run_requests[0].tags[RANGE_END] == datetime.now(tz=UTC).date().isoformat()
