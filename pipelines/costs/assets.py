"""Dagster assets of the costs stage: the prices of what occurs, the cost lines. Thin; the work is in `lines.py`,
`pools.py` and `pipelines/pricing.py`.
"""

import dagster as dg

from parsers.records import REQUESTS
from pipelines.costs.lines import cost_lines as lines_of
from pipelines.costs.pools import own_days
from pipelines.pricing import UNIT_PRICES, prices_of
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from warehouse.tables import COST_LINES, EFFICIENCY_HOURLY

GROUP = "costs"


@dg.asset(
    name=UNIT_PRICES,
    group_name=GROUP,
    deps=[REQUESTS.name],
    description="List prices of every provider, model, day and processing that occurs, the site's own first.",
)
def unit_prices(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    prices = prices_of(site.warehouse.scan(REQUESTS), site.fleet.price_overrides)
    site.warehouse.keep(UNIT_PRICES, prices)
    return dg.MaterializeResult[None](metadata={"dagster/row_count": prices.height})


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, EFFICIENCY_HOURLY.name, unit_prices],
    description=COST_LINES.description,
    metadata=table_metadata(COST_LINES),
)
def cost_lines(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    requests = site.warehouse.scan(REQUESTS)
    own = own_days(site.fleet, site.warehouse.read(EFFICIENCY_HOURLY))
    prices = site.warehouse.recall(UNIT_PRICES)
    return materialized(site.warehouse.write_mart(COST_LINES, lines_of(requests, prices, own)))


ASSETS = (unit_prices, cost_lines)
