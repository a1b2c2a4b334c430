"""Dagster assets of the waste stage: repetition, the cache curve, oversize prompts, retries, applications, tasks.

Thin; the work is beside. Each keeps its findings (`keep_found`); they are weighed against each other once money is known
(`pipelines/sizing/assets.py`).
"""

import dagster as dg
import polars as pl

from parsers.records import REQUESTS, Table
from pipelines.pricing import UNIT_PRICES, base_prices, context_lengths, price_cliffs
from pipelines.resources import LARGE, materialized, table_metadata
from pipelines.site import Site
from pipelines.waste.applications import judged_calls
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.call_findings import failure_findings, oversize_findings
from pipelines.waste.findings import Found
from pipelines.waste.kv_held import held_by_application, kv_held_findings
from pipelines.waste.limits import application_lengths
from pipelines.waste.limits import output_limits as limits_of
from pipelines.waste.oversize import oversize_calls, summed
from pipelines.waste.retries import failed_attempts
from pipelines.waste.retries import retries as retries_of
from pipelines.waste.task_demand import task_demand as demand_of_tasks
from pipelines.waste.ttft_by_input import ttft_by_input as ttft_lines
from warehouse.application_tables import APPLICATION_WASTE, KV_HELD, OUTPUT_LIMITS, TASK_DEMAND, TTFT_BY_INPUT
from warehouse.reuse_tables import MISSED_CAUSES, REUSE_GAPS, SESSION_HISTORY
from warehouse.waste_tables import CACHE_CURVE, OVERSIZE, REPETITION, RETRIES

GROUP = "waste"
REPETITION_LEAVES = "repetition_leaves"
"""Frame kept for what follows: repetition by model and team."""

FOUND_BY = ("repetition", "missed_causes", "oversize", "retries", "application_waste", "kv_held")
"""Assets that keep findings."""

APPLICATION_LENGTHS = "application_lengths"
"""Frame kept for the rules on applications: how long their inputs and outputs are."""

CHAINED = ("chained_calls", "chained_blocks")
"""Frames that the cache curve is made from: their blocks are numbered once, for the repetition."""


REUSED = tuple(f"made_{table.name}" for table in (MISSED_CAUSES, REUSE_GAPS, SESSION_HISTORY))
"""Frames of marts that are made with the repetition, while the blocks of all calls are in memory."""


def keep_found(site: Site, name: str, found: Found) -> None:
    """Keep the findings of an asset, which `FOUND_BY` names."""
    _keep(site, (f"{name}_findings", f"{name}_behind"), (found.rows, found.calls))


def recall_found(site: Site) -> Found:
    """All findings that were kept."""
    parts = (
        (site.warehouse.recall(f"{name}_{part}") for part in ("findings", "behind")) for name in FOUND_BY
    )
    return Found.together([Found(*frames) for frames in parts])


def _keep(site: Site, names: tuple[str, ...], frames: tuple[pl.DataFrame, ...]) -> None:
    for name, frame in zip(names, frames, strict=True):
        site.warehouse.keep(name, frame)


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[REQUESTS.name, UNIT_PRICES],
    description=REPETITION.description,
    metadata=table_metadata(REPETITION),
)
def repetition(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.blocks import chained_frames, exact_blocks
    from pipelines.waste.repetition import repeated_prefixes
    from pipelines.waste.repetition import repetition as repetition_of
    from pipelines.waste.repetition_findings import repetition_by_leaf, repetition_findings
    from pipelines.waste.reused_prefixes import reused_prefixes

    requests = site.warehouse.scan(REQUESTS)
    prices = base_prices(site.warehouse.recall(UNIT_PRICES))
    blocks = exact_blocks(requests, default_rules())
    _keep(site, CHAINED, chained_frames(blocks))
    calls = repeated_prefixes(requests, prices, default_rules(), blocks)
    reused = reused_prefixes(calls, blocks, repetition_by_leaf(calls))
    site.warehouse.keep(REPETITION_LEAVES, reused.leaves)
    keep_found(site, REPETITION.name, repetition_findings(calls, reused.leaves, requests, prices))
    keep_found(site, MISSED_CAUSES.name, reused.found)
    _keep(site, REUSED, reused.marts)
    return materialized(site.warehouse.write_mart(REPETITION, repetition_of(calls)))


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[REPETITION.name],
    description=CACHE_CURVE.description,
    metadata=table_metadata(CACHE_CURVE),
)
def cache_curve(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.cache_curve import cache_curve as curve_of

    calls, blocks = (site.warehouse.recall(name) for name in CHAINED)
    return materialized(site.warehouse.write_mart(CACHE_CURVE, curve_of(calls, blocks, site.fleet)))


def _made_with_repetition(name: str, table: Table) -> dg.AssetsDefinition:
    """An asset that writes a mart whose frame was kept with the repetition."""

    @dg.asset(
        name=table.name,
        group_name=GROUP,
        deps=[REPETITION.name],
        description=table.description,
        metadata=table_metadata(table),
    )
    def write(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
        return materialized(site.warehouse.write_mart(table, site.warehouse.recall(name)))

    return write


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[REQUESTS.name, UNIT_PRICES, TTFT_BY_INPUT.name],
    description=OVERSIZE.description,
    metadata=table_metadata(OVERSIZE),
)
def oversize(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    requests = site.warehouse.scan(REQUESTS)
    prices = site.warehouse.recall(UNIT_PRICES)
    calls = oversize_calls(
        requests,
        base_prices(prices),
        context_lengths(requests),
        price_cliffs(prices),
        site.warehouse.read(TTFT_BY_INPUT),
    )
    keep_found(site, OVERSIZE.name, oversize_findings(calls, requests, base_prices(prices)))
    return materialized(site.warehouse.write_mart(OVERSIZE, summed(calls)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name, REPETITION.name],
    description=RETRIES.description,
    metadata=table_metadata(RETRIES),
)
def retries(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    attempts = failed_attempts(site.warehouse.scan(REQUESTS))
    served = site.warehouse.recall(REPETITION_LEAVES)
    keep_found(site, RETRIES.name, failure_findings(attempts, served))
    return materialized(site.warehouse.write_mart(RETRIES, retries_of(attempts)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=OUTPUT_LIMITS.description,
    metadata=table_metadata(OUTPUT_LIMITS),
)
def output_limits(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    requests = site.warehouse.scan(REQUESTS)
    lengths = application_lengths(judged_calls(requests), context_lengths(requests))
    site.warehouse.keep(APPLICATION_LENGTHS, lengths)
    return materialized(site.warehouse.write_mart(OUTPUT_LIMITS, limits_of(lengths)))


@dg.asset(
    group_name=GROUP,
    op_tags=LARGE,
    deps=[REQUESTS.name, UNIT_PRICES, OUTPUT_LIMITS.name],
    description=APPLICATION_WASTE.description,
    metadata=table_metadata(APPLICATION_WASTE),
)
def application_waste(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    from pipelines.waste.application_waste import application_waste as waste_of
    from pipelines.waste.application_waste import price_lists

    requests, unit_prices = site.warehouse.scan(REQUESTS), site.warehouse.recall(UNIT_PRICES)
    prices = price_lists(requests, unit_prices, site.fleet.price_overrides)
    mart, found = waste_of(requests, prices, site.warehouse.recall(APPLICATION_LENGTHS))
    keep_found(site, APPLICATION_WASTE.name, found)
    return materialized(site.warehouse.write_mart(APPLICATION_WASTE, mart))


@dg.asset(
    group_name=GROUP, deps=[REQUESTS.name], description=KV_HELD.description, metadata=table_metadata(KV_HELD)
)
def kv_held(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    held = held_by_application(judged_calls(site.warehouse.scan(REQUESTS)))
    keep_found(site, KV_HELD.name, kv_held_findings(held))
    return materialized(site.warehouse.write_mart(KV_HELD, KV_HELD.conform(held)))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=TTFT_BY_INPUT.description,
    metadata=table_metadata(TTFT_BY_INPUT),
)
def ttft_by_input(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    lines = ttft_lines(judged_calls(site.warehouse.scan(REQUESTS)))
    return materialized(site.warehouse.write_mart(TTFT_BY_INPUT, lines))


@dg.asset(
    group_name=GROUP,
    deps=[REQUESTS.name],
    description=TASK_DEMAND.description,
    metadata=table_metadata(TASK_DEMAND),
)
def task_demand(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    frame = demand_of_tasks(site.warehouse.scan(REQUESTS))
    return materialized(site.warehouse.write_mart(TASK_DEMAND, frame))


ASSETS = (
    repetition,
    cache_curve,
    *(
        _made_with_repetition(name, table)
        for name, table in zip(REUSED, (MISSED_CAUSES, REUSE_GAPS, SESSION_HISTORY), strict=True)
    ),
    oversize,
    retries,
    output_limits,
    application_waste,
    kv_held,
    ttft_by_input,
    task_demand,
)
