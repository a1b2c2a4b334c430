"""Dagster assets of the ingest stage: landed files, facts by UTC day, the manifest and the rejects.

Thin: each reads, calls, writes and says how much. The work is in `land.py` and `facts.py`.
"""

from collections.abc import Sequence
from datetime import date

import dagster as dg

from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, FILES, RECORD_TABLES, REJECTS, REQUESTS, Table
from parsers.sources import find_sources
from pipelines.ingest.duplicates import DroppedDoubles
from pipelines.ingest.facts import build_day, drop_other_days, manifest, rejects
from pipelines.ingest.land import land_all
from pipelines.resources import table_metadata
from pipelines.site import Site

GROUP = "ingest"


@dg.asset(group_name=GROUP, description="Every file parsed once into Parquet, under a name made of its content.")
def landed_files(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    landings = land_all(find_sources(site.sources), site.warehouse, site.reading, site.on_file)
    site.remember(landings)
    return dg.MaterializeResult(
        metadata={"files": len(landings), "rows": sum(item.rows for item in landings), "dagster/row_count": len(landings)}
    )


def facts_by_day(table: Table, days: dg.DailyPartitionsDefinition) -> dg.AssetsDefinition:
    """The asset of one record table."""

    @dg.asset(
        name=table.name,
        group_name=GROUP,
        description=table.description,
        deps=[landed_files],
        partitions_def=days,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata=table_metadata(table),
    )
    def facts(context: dg.AssetExecutionContext, site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
        chosen = site.chosen()
        wanted = [date.fromisoformat(key) for key in context.partition_keys]
        present = set(chosen.days(table))
        dropped = DroppedDoubles(site.warehouse)
        for day in wanted:
            if day in present or day in site.warehouse.days(table):
                dropped.record(table, day, build_day(table, day, chosen, site.warehouse))
        return dg.MaterializeResult(metadata={"days": len(wanted), "doubles dropped": dropped.total(table)})

    return facts


@dg.asset(
    group_name=GROUP, description=FILES.description, deps=[landed_files], metadata=table_metadata(FILES)
)
def files(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    chosen = site.chosen()
    frame = manifest(site.landings(), chosen)
    drop_other_days(chosen, site.warehouse)
    site.warehouse.write_flat(FILES, frame)
    return dg.MaterializeResult(metadata={"dagster/row_count": frame.height})


@dg.asset(
    name="rejects", group_name=GROUP, description=REJECTS.description, deps=[landed_files], metadata=table_metadata(REJECTS)
)
def rejected_lines(site: dg.ResourceParam[Site]) -> dg.MaterializeResult:
    frame = rejects(site.chosen(), site.warehouse)
    site.warehouse.write_flat(REJECTS, frame)
    return dg.MaterializeResult(metadata={"dagster/row_count": frame.height})


def ingest_assets(days: dg.DailyPartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """All assets of the stage."""
    return [landed_files, *(facts_by_day(table, days) for table in RECORD_TABLES), files, rejected_lines]


REQUESTS_KEY, ENGINE_KEY, DEVICE_KEY = (dg.AssetKey(table.name) for table in (REQUESTS, ENGINE_SAMPLES, DEVICE_SAMPLES))
