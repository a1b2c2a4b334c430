"""Dagster assets of the ingest stage: landed files, facts by UTC day, the manifest and the rejects.

Thin: each reads, calls, writes and says how much. The work is in `land.py` and `facts.py`.

A one-off audit knows only the files it was given: facts of other days go. The scheduled pipeline keeps a
day's facts when its files are rotated away, and builds a day again only from files that are there. So the log
folder has to keep its files for longer than the days that each run builds again (`schedules.REBUILT_DAYS`).
"""

from collections.abc import Iterable, Sequence
from datetime import date

import dagster as dg
import polars as pl

from parsers.records import FILES, RECORD_TABLES, REJECTS, Table
from pipelines.ingest.duplicates import DroppedDoubles
from pipelines.ingest.facts import build_days, drop_other_days, manifest, rejects
from pipelines.ingest.land import forget_others, land_all
from pipelines.resources import table_metadata
from pipelines.site import Site

GROUP = "ingest"


@dg.asset(
    group_name=GROUP, description="Every file parsed once into Parquet, under a name made of its content."
)
def landed_files(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    try:
        landings = land_all(site.found(), site.warehouse, site.reading, site.on_file)
    finally:
        site.forget_brought()
    site.remember(landings)
    forget_others(landings, site.warehouse)
    if not site.keeps_history:
        drop_other_days(site.chosen(), site.warehouse)
    return dg.MaterializeResult[None](
        metadata={
            "files": len(landings),
            "rows": sum(item.rows for item in landings),
            "dagster/row_count": len(landings),
        }
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
    def facts(context: dg.AssetExecutionContext, site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
        chosen = site.chosen()
        wanted = {date.fromisoformat(key) for key in context.partition_keys}
        in_files, in_facts = set(chosen.days(table)), set(site.warehouse.days(table))
        dropped = DroppedDoubles(site.warehouse)
        built = wanted & (in_files if site.keeps_history else in_files | in_facts)
        for day, doubles in build_days(table, sorted(built), chosen, site.warehouse):
            dropped.record(table, day, doubles)
        return dg.MaterializeResult[None](
            metadata={
                "days asked for": len(wanted),
                "days built": len(built),
                "rows": _rows(site, table, built),
                "doubles dropped": dropped.total(table),
            }
        )

    return facts


def _rows(site: Site, table: Table, days: Iterable[date]) -> int:
    paths = [path for day in days if (path := site.warehouse.day_file(table, day)).exists()]
    return int(pl.scan_parquet(paths, glob=False).select(pl.len()).collect().item()) if paths else 0


@dg.asset(
    group_name=GROUP, description=FILES.description, deps=[landed_files], metadata=table_metadata(FILES)
)
def files(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    chosen = site.chosen()
    frame = manifest(site.landings(), chosen)
    site.warehouse.write_flat(FILES, frame)
    return dg.MaterializeResult[None](metadata={"dagster/row_count": frame.height})


@dg.asset(
    name="rejects",
    group_name=GROUP,
    description=REJECTS.description,
    deps=[landed_files],
    metadata=table_metadata(REJECTS),
)
def rejected_lines(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    frame = rejects(site.chosen(), site.warehouse)
    site.warehouse.write_flat(REJECTS, frame)
    return dg.MaterializeResult[None](metadata={"dagster/row_count": frame.height})


def ingest_assets(days: dg.DailyPartitionsDefinition) -> Sequence[dg.AssetsDefinition]:
    """All assets of the stage."""
    return [landed_files, *(facts_by_day(table, days) for table in RECORD_TABLES), files, rejected_lines]
