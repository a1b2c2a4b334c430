"""When the pipeline runs by itself: every day, every Monday with a report, and when new files lie there.

Belongs here: schedules and the sensor. All are RUNNING by default.
Concepts: https://docs.dagster.io/guides/automate/schedules and /sensors
"""

import hashlib
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from stat import S_ISREG

import dagster as dg

from pipelines.site import SiteSettings

FIRST_DAY = "2023-01-01"
REBUILT_DAYS = 7
"""Days that each run builds again, so that lines which came late are in.

The log folder keeps its files for longer.
"""
QUIET_S = 60
"""Seconds without a write after which a file counts as written."""
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

pipeline_job = dg.define_asset_job(
    "pipeline", selection=dg.AssetSelection.all() - dg.AssetSelection.assets("audit_report")
)
audit_job = dg.define_asset_job("weekly_audit_job", selection=dg.AssetSelection.all())


def _days_before(day: datetime) -> dict[str, str]:
    """Tags of a run over the last days that ended before a day."""
    last = day.date() - timedelta(days=1)
    first = last - timedelta(days=REBUILT_DAYS - 1)
    return {RANGE_START: first.isoformat(), RANGE_END: last.isoformat()}


@dg.schedule(job=pipeline_job, cron_schedule="0 3 * * *", default_status=dg.DefaultScheduleStatus.RUNNING)
def daily_schedule(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Land what is new, build the last days again, and all marts."""
    day = context.scheduled_execution_time.astimezone(UTC)
    return dg.RunRequest(run_key=day.date().isoformat(), tags=_days_before(day))


@dg.schedule(job=audit_job, cron_schedule="0 4 * * 1", default_status=dg.DefaultScheduleStatus.RUNNING)
def weekly_audit(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """The same, and the report on the week that ended on Sunday."""
    day = context.scheduled_execution_time.astimezone(UTC)
    return dg.RunRequest(run_key=day.date().isoformat(), tags=_days_before(day))


@dg.sensor(job=pipeline_job, minimum_interval_seconds=600, default_status=dg.DefaultSensorStatus.RUNNING)
def new_files_sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """Run when the files below the log folder differ from the last look and have been quiet for a minute.

    A log that is written to all the time never is: the daily schedule takes it. Days are built up to today,
    whose facts are there at once; marts cover whole days.
    """
    folder = SiteSettings().logs
    if not folder.is_dir():
        return dg.SkipReason(f"no folder {folder}; set TOKENWORKS_LOGS")
    seen = _fingerprint(folder)
    if seen is None or seen == context.cursor:
        return dg.SkipReason("nothing new, or a file is being written")
    request = dg.RunRequest(run_key=seen, tags=_days_before(datetime.now(tz=UTC) + timedelta(days=1)))
    return dg.SensorResult(run_requests=[request], cursor=seen)


def _fingerprint(folder: Path) -> str | None:
    """Names, sizes and times of all files, hashed; None while one is being written."""
    found: list[tuple[str, int, int]] = []
    for path in folder.rglob("*"):
        try:
            stat = path.stat()
        except FileNotFoundError:  # rotated away between the listing and the look
            return None
        if S_ISREG(stat.st_mode):
            found.append((str(path), stat.st_size, stat.st_mtime_ns))
    if not found or max(modified for _, _, modified in found) > (time.time() - QUIET_S) * 1e9:
        return None
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
