"""Dagster asset of the costs stage. Thin; the work is in `lines.py` and `pools.py`."""

import dagster as dg

from parsers.records import REQUESTS
from pipelines.costs.lines import cost_lines as lines_of
from pipelines.costs.pools import own_days
from pipelines.pricing import prices_of
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from warehouse.tables import COST_LINES, EFFICIENCY_HOURLY

GROUP = "costs"


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, EFFICIENCY_HOURLY.name],
    description=COST_LINES.description,
    metadata=table_metadata(COST_LINES),
)
def cost_lines(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    requests = site.warehouse.scan(REQUESTS)
    own = own_days(site.fleet, site.warehouse.read(EFFICIENCY_HOURLY))
    prices = prices_of(requests, site.fleet.price_overrides)
    return materialized(site.warehouse.write_mart(COST_LINES, lines_of(requests, prices, own)))


ASSETS = (cost_lines,)
