"""Everything Dagster needs to know, put together explicitly. `dg dev` and `tokenworks audit` use the same assets.

Concept: https://docs.dagster.io/guides/build/projects-and-components
"""

import dagster as dg

from pipelines.checks import CHECKS
from pipelines.costs.assets import ASSETS as COSTS
from pipelines.demand.assets import ASSETS as DEMAND
from pipelines.efficiency.assets import ASSETS as EFFICIENCY
from pipelines.ingest.assets import ingest_assets
from pipelines.reporting.assets import ASSETS as REPORT
from pipelines.resources import SiteFromEnvironment
from pipelines.schedules import FIRST_DAY, daily_schedule, new_files_sensor, weekly_audit
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


def run_in_process(site: Site, days: tuple[date, date] | None, on_step: Callable[[str], None]) -> None:
    """Run the assets once for a site, in this process, without a stored history.

    Args:
        site: what to work on.
        days: first and last UTC day of the facts to build, and everything after them; None = land the files only.
        on_step: told the name of each step as it begins.

    Raises:
        CheckFailedError: a blocking check failed.
        TokenworksError: whatever an asset raised for the user.

    """
    first, last = days or (date(2023, 1, 1), date(2023, 1, 1))
    partitions = dg.DailyPartitionsDefinition(
        start_date=first.isoformat(), end_date=(last + timedelta(days=1)).isoformat(), timezone="UTC"
    )
    landing = dg.AssetSelection.assets("landed_files")
    tags = {RANGE_START: first.isoformat(), RANGE_END: last.isoformat()} if days else {}
    with dg.DagsterInstance.ephemeral() as instance, telling_steps(on_step):
        result = dg.materialize(
            [*build_assets(partitions), *CHECKS],
            selection=dg.AssetSelection.all() - landing if days else landing,
            resources={"site": site},
            instance=instance,
            tags=tags,
            raise_on_error=False,
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        )
    if not result.success:
        raise _failure(result)


def _failure(result: dg.ExecuteInProcessResult) -> Exception:
    for event in result.get_step_failure_events() if hasattr(result, "get_step_failure_events") else result.all_events:
        if event.is_step_failure:
            return event
    failed = [item for item in result.get_asset_check_evaluations() if not item.passed and item.blocking]
    names = ", ".join(sorted(item.check_name for item in failed))
    return CheckFailedError(f"{names} did not hold", remedy="See the checks in the log above.")


defs = build_defs()
