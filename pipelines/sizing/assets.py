"""Dagster assets of the sizing stage: savings, options, findings, data quality, and the published marts. Thin.

Sizing sweeps with numba, whose import takes seconds: so it is imported when it runs.
"""

import dagster as dg
import polars as pl

from parsers.records import FILES, REJECTS, REQUESTS
from pipelines.pricing import UNIT_PRICES, base_prices
from pipelines.quality import data_quality as quality_of
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from pipelines.waste.assets import REPETITION_LEAVES, recall_found
from pipelines.waste.scopes import known_sum
from warehouse.application_tables import APPLICATION_WASTE, KV_HELD
from warehouse.tables import (
    COST_LINES,
    COVERAGE,
    DATA_QUALITY,
    EFFICIENCY_HOURLY,
    FLEET_OPTIONS,
    MARTS,
)
from warehouse.waste_tables import FINDING_CALLS, FINDINGS, OVERSIZE, REPETITION, RETRIES

GROUP = "sizing"
SAVINGS, FREED = "savings", "freed_capacity"
"""Frames kept for what follows: what findings save net of each other, and what they free on one's own hardware."""
_SIZED_FROM = (COVERAGE, EFFICIENCY_HOURLY, COST_LINES)


@dg.asset(
    group_name=GROUP,
    deps=[
        REQUESTS.name,
        UNIT_PRICES,
        *(table.name for table in (REPETITION, OVERSIZE, RETRIES, APPLICATION_WASTE, KV_HELD, COST_LINES)),
    ],
    description=FINDING_CALLS.description,
    metadata=table_metadata(FINDING_CALLS),
)
def finding_calls(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.net_savings import net_savings, spent_by_leaf

    warehouse = site.warehouse
    savings, calls = net_savings(
        recall_found(site),
        warehouse.scan(REQUESTS),
        base_prices(warehouse.recall(UNIT_PRICES)),
        spent_by_leaf(warehouse.read(COST_LINES)),
    )
    warehouse.keep(SAVINGS, savings)
    return materialized(warehouse.write_mart(FINDING_CALLS, calls))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, FINDING_CALLS.name, *(table.name for table in _SIZED_FROM)],
    description=FLEET_OPTIONS.description,
    metadata=table_metadata(FLEET_OPTIONS),
)
def fleet_options(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.sizing.freed_capacity import freed_capacity
    from pipelines.sizing.load import demand_summary
    from pipelines.sizing.scenarios import options_of_both

    marts = {table.name: site.warehouse.read(table) for table in _SIZED_FROM}
    requests, savings = site.warehouse.scan(REQUESTS), site.warehouse.recall(SAVINGS)
    loads = demand_summary(requests, marts[COVERAGE.name], site.fleet)
    site.warehouse.keep(FREED, freed_capacity(savings, loads, site.fleet))
    frame = options_of_both(loads, requests, savings, marts, site.fleet)
    return materialized(site.warehouse.write_mart(FLEET_OPTIONS, frame))


@dg.asset(
    group_name=GROUP,
    deps=[FINDING_CALLS.name, FLEET_OPTIONS.name, REPETITION.name, COST_LINES.name],
    description=FINDINGS.description,
    metadata=table_metadata(FINDINGS),
)
def findings(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.findings import waste_findings

    warehouse = site.warehouse
    frame = waste_findings(
        warehouse.recall(SAVINGS),
        warehouse.recall(FREED),
        warehouse.read(COST_LINES).select(known_sum(pl.col("cost_usd"))).item(),
        int(warehouse.recall(REPETITION_LEAVES)["input_tokens"].sum()),
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


ASSETS = (finding_calls, fleet_options, findings, data_quality, published_marts)
