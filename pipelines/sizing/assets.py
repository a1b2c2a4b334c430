"""Dagster assets of the sizing stage: options, findings, data quality, and the published marts. Thin.

Sizing sweeps with numba, whose import takes seconds: so it is imported when it runs.
"""

import dagster as dg
import polars as pl

from parsers.records import FILES, REJECTS, REQUESTS
from pipelines.pricing import UNIT_PRICES
from pipelines.quality import data_quality as quality_of
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from pipelines.waste.assets import OVERSIZE_APPS, REPETITION_LEAVES
from pipelines.waste.retries import failed_attempts
from pipelines.waste.scopes import known_sum
from warehouse.tables import (
    COST_LINES,
    COVERAGE,
    DATA_QUALITY,
    EFFICIENCY_HOURLY,
    FLEET_OPTIONS,
    MARTS,
)
from warehouse.waste_tables import FINDINGS, OVERSIZE, REPETITION

GROUP = "sizing"
_SIZED_FROM = (COVERAGE, REPETITION, OVERSIZE, EFFICIENCY_HOURLY, COST_LINES)


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, *(table.name for table in _SIZED_FROM)],
    description=FLEET_OPTIONS.description,
    metadata=table_metadata(FLEET_OPTIONS),
)
def fleet_options(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.sizing.scenarios import options_of_both

    marts = {table.name: site.warehouse.read(table) for table in _SIZED_FROM}
    frame = options_of_both(site.warehouse.scan(REQUESTS), marts, site.fleet)
    return materialized(site.warehouse.write_mart(FLEET_OPTIONS, frame))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, REPETITION.name, OVERSIZE.name, COST_LINES.name],
    description=FINDINGS.description,
    metadata=table_metadata(FINDINGS),
)
def findings(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.findings import waste_findings

    warehouse = site.warehouse
    frame = waste_findings(
        warehouse.recall(REPETITION_LEAVES),
        failed_attempts(warehouse.scan(REQUESTS)),
        warehouse.recall(OVERSIZE_APPS),
        warehouse.read(COST_LINES).select(known_sum(pl.col("cost_usd"))).item(),
    )
    return materialized(site.warehouse.write_mart(FINDINGS, frame))


@dg.asset(
    group_name=GROUP,
    deps=[
        REQUESTS.name,
        FILES.name,
        REJECTS.name,
        UNIT_PRICES,
        *(table.name for table in MARTS if table is not DATA_QUALITY),
    ],
    description=DATA_QUALITY.description,
    metadata=table_metadata(DATA_QUALITY),
)
def data_quality(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    return materialized(site.warehouse.write_mart(DATA_QUALITY, quality_of(site)))


@dg.asset(
    group_name=GROUP, deps=[data_quality], description="All marts in one DuckDB file, swapped in whole."
)
def published_marts(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    return dg.MaterializeResult[None](metadata={"file": str(site.warehouse.publish())})


ASSETS = (fleet_options, findings, data_quality, published_marts)
