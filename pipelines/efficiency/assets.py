"""Dagster asset of the efficiency stage. Thin; the work is in `hourly.py`."""

import dagster as dg

from parsers.records import DEVICE_SAMPLES, REQUESTS
from pipelines.efficiency.hourly import efficiency_hourly as hourly
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from warehouse.tables import COVERAGE, EFFICIENCY_HOURLY

GROUP = "efficiency"


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, DEVICE_SAMPLES.name, COVERAGE.name],
    description=EFFICIENCY_HOURLY.description,
    metadata=table_metadata(EFFICIENCY_HOURLY),
)
def efficiency_hourly(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    warehouse = site.warehouse
    frame = hourly(
        warehouse.scan(REQUESTS), warehouse.scan(DEVICE_SAMPLES), site.fleet, warehouse.read(COVERAGE)
    )
    return materialized(warehouse.write_mart(EFFICIENCY_HOURLY, frame))


ASSETS = (efficiency_hourly,)
