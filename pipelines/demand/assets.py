"""Dagster assets of the demand stage: usage sums, coverage, the time over which each call was worked on, the minute
series, the peaks. Thin; the work is beside.

Sweeps are compiled by numba, whose import takes seconds: so the modules that sweep are imported when they
run.
"""

import json

import dagster as dg
import polars as pl

from parsers.records import ENGINE_SAMPLES, REQUESTS
from pipelines.demand.spread import WORK_INTERVALS
from pipelines.resources import LARGE, materialized, table_metadata
from pipelines.site import Site
from reports.demand_profile import DEMAND_PROFILE
from warehouse.tables import COVERAGE, DEMAND_MINUTE, DEMAND_PEAKS, USAGE_DAILY, USAGE_HOURLY

GROUP = "demand"


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=USAGE_DAILY.description,
    metadata=table_metadata(USAGE_DAILY),
)
def usage_daily(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    return materialized(site.warehouse.write_mart(USAGE_DAILY, site.warehouse.run_sql(USAGE_DAILY)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=USAGE_HOURLY.description,
    metadata=table_metadata(USAGE_HOURLY),
)
def usage_hourly(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    return materialized(site.warehouse.write_mart(USAGE_HOURLY, site.warehouse.run_sql(USAGE_HOURLY)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=COVERAGE.description,
    metadata=table_metadata(COVERAGE),
)
def coverage(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.coverage import coverage as coverage_of

    frame = coverage_of(site.warehouse.scan(REQUESTS), site.warehouse.window)
    return materialized(site.warehouse.write_mart(COVERAGE, frame))


@dg.asset(
    name=WORK_INTERVALS,
    group_name=GROUP,
    deps=[REQUESTS.name],
    description="When each call was worked on, and on how many tokens; what is assumed is marked.",
)
def work_intervals(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.spread import work_intervals as intervals_of

    work = intervals_of(site.warehouse.scan(REQUESTS))
    site.warehouse.keep(WORK_INTERVALS, work)
    return dg.MaterializeResult[None](metadata={"dagster/row_count": work.height})


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[coverage, work_intervals],
    description=DEMAND_MINUTE.description,
    metadata=table_metadata(DEMAND_MINUTE),
)
def demand_minute(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.series import minute_series

    frame = minute_series(site.warehouse.recall(WORK_INTERVALS), site.warehouse.read(COVERAGE))
    return materialized(site.warehouse.write_mart(DEMAND_MINUTE, frame))


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[REQUESTS.name, work_intervals],
    description=DEMAND_PEAKS.description,
    metadata=table_metadata(DEMAND_PEAKS),
)
def demand_peaks(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.peaks import data_span, peaks

    frame = peaks(site.warehouse.recall(WORK_INTERVALS), data_span(site.warehouse.scan(REQUESTS)))
    return materialized(site.warehouse.write_mart(DEMAND_PEAKS, frame))


@dg.asset(
    name=DEMAND_PROFILE,
    group_name=GROUP,
    deps=[REQUESTS.name, ENGINE_SAMPLES.name, work_intervals, coverage, demand_minute],
    description="What the peaks do not tell: burstiness, lengths together, rhythm, tail and growth, unmet calls.",
)
def profile(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.profile import demand_profile

    warehouse = site.warehouse
    document = demand_profile(
        warehouse.scan(REQUESTS),
        warehouse.recall(WORK_INTERVALS),
        warehouse.read(COVERAGE),
        warehouse.read(DEMAND_MINUTE),
        warehouse.scan(ENGINE_SAMPLES),
        site.fleet.site.timezone,
    )
    warehouse.keep(DEMAND_PROFILE, pl.DataFrame({"json": [json.dumps(document, allow_nan=False)]}))
    return dg.MaterializeResult[None]()


ASSETS = (usage_daily, usage_hourly, coverage, work_intervals, demand_minute, demand_peaks, profile)
