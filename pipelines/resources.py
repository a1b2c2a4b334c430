"""Dagster resources: they read the environment when a run starts, and hand out plain objects.

Belongs here: wrapping what stands elsewhere: a site (`pipelines/site.py`), a table (`parsers/records.py`).
Concept: https://docs.dagster.io/guides/build/external-resources
"""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import dagster as dg
import polars as pl

from parsers.records import Table
from pipelines.site import Site, SiteSettings

LARGE = {"tokenworks/memory": "large"}
"""`op_tags` of a step that holds much of the calls in memory: no two of them run beside each other (`executor.py`)."""


class SiteFromEnvironment(dg.ConfigurableResource[Site]):
    """The site as TOKENWORKS_* variables describe it, seen through the days that ended yesterday."""

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Site]:  # noqa: ARG002 - Dagster's signature
        """Read the settings, and hold the data folder until the run ends.

        One process runs all steps, so the lock is taken once per run.

        Raises:
            SiteConfigError: the fleet file is wrong, or the folder can't be written.
            TokenworksError: another run is working on the data folder.

        """
        settings = SiteSettings()
        today = datetime.now(tz=UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        site = settings.site().within((today - timedelta(days=settings.window_days), today))
        with site.warehouse.alone():
            site.mark_history()
            yield site


def table_metadata(table: Table) -> dict[str, object]:
    """Dagster's view of a table: its name and columns, from the contract."""
    columns = [
        dg.TableColumn(
            column.name,
            column.duckdb_type,
            column.description,
            constraints=dg.TableColumnConstraints(nullable=column.nullable),
        )
        for column in table.columns
    ]
    return {"dagster/table_name": table.name, "dagster/column_schema": dg.TableSchema(columns=columns)}


def materialized(frame: pl.DataFrame) -> dg.MaterializeResult[None]:
    """The result of an asset that wrote one frame."""
    return dg.MaterializeResult[None](metadata={"dagster/row_count": frame.height})
