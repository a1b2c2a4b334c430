"""Dagster asset of the report. Thin; the work is in `write.py`."""

import dagster as dg

from parsers.records import ENGINE_SAMPLES, REQUESTS, USAGE_BUCKETS
from pipelines.reporting.write import write_report
from pipelines.site import Site
from reports.demand_profile import DEMAND_PROFILE


@dg.asset(
    group_name="report",
    deps=["published_marts", DEMAND_PROFILE, REQUESTS.name, ENGINE_SAMPLES.name, USAGE_BUCKETS.name],
    description="audit.html and audit.json.",
)
def audit_report(site: dg.ResourceParam[Site]) -> dg.MaterializeResult[None]:
    report = write_report(site)
    return dg.MaterializeResult[None](
        metadata={"page": dg.MetadataValue.path(str(report.html)), "decision": report.decision.headline}
    )


ASSETS = (audit_report,)
