"""Dagster assets of the waste stage: repetition, the cache curve, oversize prompts, retries.

Thin; the work is beside.
"""

import dagster as dg

from parsers.records import REQUESTS
from pipelines.pricing import UNIT_PRICES, base_prices, context_lengths, price_cliffs
from pipelines.resources import materialized, table_metadata
from pipelines.site import Site
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.oversize import oversize as oversize_of
from pipelines.waste.retries import failed_attempts
from pipelines.waste.retries import retries as retries_of
from warehouse.waste_tables import CACHE_CURVE, OVERSIZE, REPETITION, RETRIES

GROUP = "waste"
REPETITION_LEAVES, OVERSIZE_APPS = "repetition_leaves", "oversize_apps"
"""Frames that the findings are made from: repetition by model and team, oversize prompts by application."""


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, UNIT_PRICES],
    description=REPETITION.description,
    metadata=table_metadata(REPETITION),
)
def repetition(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.findings import repetition_by_leaf
    from pipelines.waste.repetition import repeated_prefixes
    from pipelines.waste.repetition import repetition as repetition_of

    requests = site.warehouse.scan(REQUESTS)
    prices = base_prices(site.warehouse.recall(UNIT_PRICES))
    calls = repeated_prefixes(requests, prices, default_rules())
    site.warehouse.keep(REPETITION_LEAVES, repetition_by_leaf(calls))
    return materialized(site.warehouse.write_mart(REPETITION, repetition_of(calls)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=CACHE_CURVE.description,
    metadata=table_metadata(CACHE_CURVE),
)
def cache_curve(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.cache_curve import cache_curve as curve_of

    frame = curve_of(site.warehouse.scan(REQUESTS), default_rules())
    return materialized(site.warehouse.write_mart(CACHE_CURVE, frame))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, UNIT_PRICES],
    description=OVERSIZE.description,
    metadata=table_metadata(OVERSIZE),
)
def oversize(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    requests = site.warehouse.scan(REQUESTS)
    prices = site.warehouse.recall(UNIT_PRICES)
    frame = oversize_of(requests, base_prices(prices), context_lengths(requests), price_cliffs(prices))
    site.warehouse.keep(OVERSIZE_APPS, frame)
    return materialized(site.warehouse.write_mart(OVERSIZE, frame))


@dg.asset(
    group_name=GROUP, deps=[REQUESTS.name], description=RETRIES.description, metadata=table_metadata(RETRIES)
)
def retries(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    attempts = failed_attempts(site.warehouse.scan(REQUESTS))
    return materialized(site.warehouse.write_mart(RETRIES, retries_of(attempts)))


ASSETS = (repetition, cache_curve, oversize, retries)
