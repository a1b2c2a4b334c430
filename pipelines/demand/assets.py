"""Dagster assets of the demand stage: usage sums, coverage, the minute series, the peaks. Thin; the work is
beside.

Sweeps are compiled by numba, whose import takes seconds: so the modules that sweep are imported when they
run.
"""

import dagster as dg

from parsers.records import REQUESTS
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
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
    group_name=GROUP,
    deps=[REQUESTS.name, coverage],
    description=DEMAND_MINUTE.description,
    metadata=table_metadata(DEMAND_MINUTE),
)
def demand_minute(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.series import minute_series

    frame = minute_series(site.warehouse.scan(REQUESTS), site.warehouse.read(COVERAGE))
    return materialized(site.warehouse.write_mart(DEMAND_MINUTE, frame))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=DEMAND_PEAKS.description,
    metadata=table_metadata(DEMAND_PEAKS),
)
def demand_peaks(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.demand.peaks import peaks

    return materialized(site.warehouse.write_mart(DEMAND_PEAKS, peaks(site.warehouse.scan(REQUESTS))))


ASSETS = (usage_daily, usage_hourly, coverage, demand_minute, demand_peaks)
