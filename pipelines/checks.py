"""Dagster asset checks: the suites of `suites.py`, run after their assets and before what depends on them.

Belongs here: turning outcomes into check results. A critical rule that fails, or any that can't be evaluated,
stops the run: a wrong number must not reach money or a recommendation. Concept:
https://docs.dagster.io/guides/test/asset-checks
"""

import dagster as dg

from pipelines.quality import remember_outcomes
from pipelines.site import Site
from pipelines.suites import SUITES, Suite, validate


def suite_check(suite: Suite) -> dg.AssetChecksDefinition:
    """The check of one table."""

    @dg.asset_check(
        asset=suite.table.name,
        name=f"{suite.table.name}_keeps_its_rules",
        blocking=True,
        description=f"{len(suite.rules)} rules of the contract and of the domain, by Great Expectations.",
    )
    def check(site: dg.ResourceParam[Site]) -> dg.AssetCheckResult:
        outcomes = validate(suite.profile(site.warehouse), suite)
        remember_outcomes(site.warehouse, suite.table.name, outcomes)
        failed = [item for item in outcomes if not item.passed]
        blocks = any(item.blocks for item in failed)
        return dg.AssetCheckResult(
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if blocks else dg.AssetCheckSeverity.WARN,
            description="; ".join(f"{item.check} ({item.detail})" for item in failed) or None,
            metadata={"rules": len(outcomes), **{item.check: item.detail for item in failed}},
        )

    return check


CHECKS = tuple(suite_check(suite) for suite in SUITES)
