"""Dagster assets of the sizing stage: options, findings, data quality, and the published marts. Thin."""

import dagster as dg

from parsers.records import FILES, REJECTS, REQUESTS
from pipelines.quality import data_quality as quality_of
from pipelines.resources import materialized, table_metadata
from pipelines.sizing.scenarios import options_of_both
from pipelines.site import Site
from pipelines.waste.assets import CALLS, OVERSIZE_APPS
from pipelines.waste.findings import waste_findings
from pipelines.waste.retries import failed_attempts
from warehouse.tables import (
    COST_LINES,
    COVERAGE,
    DATA_QUALITY,
    DEMAND_PEAKS,
    FINDINGS,
    FLEET_OPTIONS,
    MARTS,
    OVERSIZE,
    REPETITION,
)

GROUP = "sizing"
_SIZED_FROM = (DEMAND_PEAKS, COVERAGE, REPETITION, OVERSIZE, COST_LINES)


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, *(table.name for table in _SIZED_FROM)],
    metadata=table_metadata(FLEET_OPTIONS),
)
def fleet_options(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    marts = {table.name: site.warehouse.read(table) for table in _SIZED_FROM}
    frame = options_of_both(site.warehouse.scan(REQUESTS), marts, site.fleet)
    return materialized(site.warehouse.write_mart(FLEET_OPTIONS, frame))


@dg.asset(group_name=GROUP, deps=[REQUESTS.name, REPETITION.name, OVERSIZE.name, COST_LINES.name], metadata=table_metadata(FINDINGS))
def findings(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    warehouse = site.warehouse
    spent = warehouse.read(COST_LINES)["cost_usd"].sum()
    frame = waste_findings(
        warehouse.recall(CALLS),
        failed_attempts(warehouse.scan(REQUESTS)),
        warehouse.recall(OVERSIZE_APPS),
        spent or None,
    )
    return materialized(site.warehouse.write_mart(FINDINGS, frame))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, FILES.name, REJECTS.name, *(table.name for table in MARTS if table is not DATA_QUALITY)],
    metadata=table_metadata(DATA_QUALITY),
)
def data_quality(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    return materialized(site.warehouse.write_mart(DATA_QUALITY, quality_of(site)))


@dg.asset(group_name=GROUP, deps=[data_quality], description="All marts in one DuckDB file, swapped in whole.")
def published_marts(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"file": str(site.warehouse.publish())})


ASSETS = (fleet_options, findings, data_quality, published_marts)
