"""Everything Dagster needs to know, put together explicitly. `dg dev` and `tokenworks audit` use the same
assets.

Concept: https://docs.dagster.io/guides/build/projects-and-components
"""

from datetime import UTC, date, datetime

import dagster as dg

from parsers.errors import CheckFailedError
from pipelines.checks import CHECKS
from pipelines.costs.assets import ASSETS as COSTS
from pipelines.demand.assets import ASSETS as DEMAND
from pipelines.efficiency.assets import ASSETS as EFFICIENCY
from pipelines.executor import materialize, two_at_a_time
from pipelines.ingest.assets import ingest_assets
from pipelines.quality import blocking_failures, forget_outcomes
from pipelines.reporting.assets import ASSETS as REPORT
from pipelines.resources import SiteFromEnvironment
from pipelines.schedules import (
    FIRST_DAY,
    RANGE_END,
    RANGE_START,
    daily_schedule,
    new_files_sensor,
    weekly_audit,
)
from pipelines.site import Site
from pipelines.sizing.assets import ASSETS as SIZING
from pipelines.waste.assets import ASSETS as WASTE

STAGES = (*DEMAND, *WASTE, *EFFICIENCY, *COSTS, *SIZING, *REPORT)


def build_assets(days: dg.DailyPartitionsDefinition) -> list[dg.AssetsDefinition]:
    """All assets, with the facts partitioned by these days."""
    return [*ingest_assets(days), *STAGES]


def build_defs() -> dg.Definitions:
    """The scheduled pipeline. One process and one step at a time: DuckDB has one writer."""
    days = dg.DailyPartitionsDefinition(start_date=FIRST_DAY, timezone="UTC", end_offset=1)
    return dg.Definitions(
        assets=build_assets(days),
        asset_checks=CHECKS,
        resources={"site": SiteFromEnvironment()},
        schedules=[daily_schedule, weekly_audit],
        sensors=[new_files_sensor],
        executor=dg.in_process_executor,
    )


def run_in_process(site: Site, days: tuple[date, date] | None) -> None:
    """Run the assets once for a site, in this process, without a stored history.

    Args: site: what to work on. days: first and last UTC day of the facts to build, and everything after
    them; None = land the files only.

    Raises:
        CheckFailedError: a blocking check failed.
        TokenworksError: whatever an asset raised for the user.

    """
    first, last = days or (date.fromisoformat(FIRST_DAY), date.fromisoformat(FIRST_DAY))
    # A day is a partition once it is over; logs of today, or of a clock that runs ahead, are audited too.
    ahead = max(0, (last - datetime.now(tz=UTC).date()).days + 1)
    partitions = dg.DailyPartitionsDefinition(start_date=first.isoformat(), timezone="UTC", end_offset=ahead)
    landing = dg.AssetSelection.assets("landed_files")
    # What an earlier run found must not be taken for this one's.
    forget_outcomes(site.warehouse)
    with dg.DagsterInstance.ephemeral() as instance:
        try:
            materialize(
                dg.Definitions(
                    assets=build_assets(partitions),
                    asset_checks=CHECKS,
                    resources={"site": site},
                    jobs=[
                        dg.define_asset_job(
                            "audit",
                            selection=dg.AssetSelection.all() - landing if days else landing,
                            executor_def=two_at_a_time,
                        )
                    ],
                ),
                "audit",
                instance,
                tags={RANGE_START: first.isoformat(), RANGE_END: last.isoformat()} if days else {},
            )
        except dg.DagsterError as error:
            failed = blocking_failures(site.warehouse)
            if not failed:
                raise
            raise CheckFailedError(
                f"a blocking check did not hold: {'; '.join(failed)}",
                remedy="Look at these rows first: a figure made from them would be wrong",
            ) from error


defs = build_defs()
