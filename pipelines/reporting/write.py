"""Write the report of a site from its marts.

Belongs here: gathering what `reports/` needs, and writing its two files whole. Does not belong here: their
content.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from parsers.records import ENGINE_SAMPLES, FILES, REQUESTS, USAGE_BUCKETS
from pipelines.demand.shapes import lengths, session_growth
from pipelines.demand.sums import counted_sums
from pipelines.efficiency.engines import engine_totals
from pipelines.ingest.duplicates import DroppedDoubles
from reports.audit_json import AuditInputs, audit_document
from reports.decision import Decision, decision
from reports.demand_profile import DEMAND_PROFILE
from reports.page import render
from warehouse.store import replacing
from warehouse.tables import REPORTED

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.site import Site


@dataclass(frozen=True)
class Report:
    """Where the report lies, and what it decides."""

    html: Path
    json: Path
    decision: Decision


def report_of(site: Site) -> Report:
    """The report that was written last."""
    machine = site.report_folder / "audit.json"
    document = json.loads(machine.read_text(encoding="utf-8"))
    return Report(site.report_folder / "audit.html", machine, decision(document))


def write_report(site: Site) -> Report:
    """Write `audit.json` and `audit.html` into the site's report folder."""
    warehouse = site.warehouse
    inputs = AuditInputs(
        title=site.title or (site.fleet.site.name if site.fleet.site.stated("name") else site.shown),
        files=warehouse.read(FILES),
        duplicates=DroppedDoubles(warehouse).by_format(),
        fleet={**site.fleet.model_dump(mode="json"), "basis": list(site.fleet.basis)}
        if site.fleet_path
        else None,
        window=warehouse.window,
        engines=engine_totals(warehouse.scan(ENGINE_SAMPLES)),
        sums=counted_sums(warehouse.scan(USAGE_BUCKETS)),
        demand=json.loads(warehouse.recall(DEMAND_PROFILE)["json"].item()),
        lengths=lengths(warehouse.scan(REQUESTS)),
        session_growth=session_growth(warehouse.scan(REQUESTS)),
        **{table.name: warehouse.read(table) for table in REPORTED},
    )
    document = audit_document(inputs)
    decided = decision(document)
    html, machine = site.report_folder / "audit.html", site.report_folder / "audit.json"
    with replacing(machine) as path:
        path.write_text(json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False), encoding="utf-8")
    with replacing(html) as path:
        path.write_text(render(document, inputs, decided), encoding="utf-8")
    return Report(html, machine, decided)
