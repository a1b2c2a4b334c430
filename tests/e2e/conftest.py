"""The example week, written and audited once a session: what was planted, and what the audit says of it."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.audit import run_audit
from pipelines.fleet import load_fleet
from pipelines.site import Site
from pipelines.synth.week import write_week
from reports.decision import Decision
from warehouse.store import Warehouse

FLEET = Path(__file__).resolve().parents[2] / "examples" / "fleet.toml"
SMALL = 4_000


@dataclass(frozen=True)
class Audited:
    """A week that was written and audited."""

    truth: dict[str, Any]
    document: dict[str, Any]
    warehouse: Warehouse
    decision: Decision

    def planted(self, kind: str) -> list[dict[str, Any]]:
        """What was planted of a kind."""
        return [entry for entry in self.truth["planted"] if entry["kind"] == kind]

    def the(self, kind: str) -> dict[str, Any]:
        """The one thing that was planted of a kind."""
        (entry,) = self.planted(kind)
        return entry

    def mart(self, name: str) -> pl.DataFrame:
        """A mart as it was published."""
        from warehouse.tables import MARTS

        return self.warehouse.read(next(table for table in MARTS if table.name == name))

    def requests(self) -> pl.DataFrame:
        """The facts."""
        from parsers.records import REQUESTS

        return self.warehouse.scan(REQUESTS).collect()

    def findings(self, kind: str) -> list[dict[str, Any]]:
        """Findings of a kind."""
        return [found for found in self.document["findings"] if found["kind"] == kind]


def written_and_audited(folder: Path, **week: Any) -> Audited:
    """Write a week below a folder and audit it with the example's fleet."""
    logs = folder / "week"
    truth = write_week(logs, **week)
    site = Site(
        warehouse=Warehouse(folder / "out"),
        sources=(str(logs / "gateway"), str(logs / "telemetry")),
        fleet=load_fleet(FLEET),
        report_folder=folder / "out",
        fleet_path=str(FLEET),
        title="example week",
    )
    with warnings.catch_warnings():
        # Packages below Dagster and Great Expectations warn of each other; the command hides that too.
        warnings.simplefilter("ignore")
        report = run_audit(site)
    document = json.loads(report.json.read_text(encoding="utf-8"))
    return Audited(json.loads(truth.to_json()), document, site.warehouse, report.decision)


@pytest.fixture(scope="session")
def week(tmp_path_factory):
    """The example week as `tokenworks synth` writes it."""
    return written_and_audited(tmp_path_factory.mktemp("week"))


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A week of a fifth of the usual volume."""
    return written_and_audited(tmp_path_factory.mktemp("small"), requests=SMALL)


@pytest.fixture(scope="session")
def small_again(tmp_path_factory):
    """The small week a second time, in another folder."""
    return written_and_audited(tmp_path_factory.mktemp("again"), requests=SMALL)


@pytest.fixture(scope="session")
def clean(tmp_path_factory):
    """A small week without planted waste."""
    return written_and_audited(tmp_path_factory.mktemp("clean"), requests=SMALL, waste=frozenset())


@pytest.fixture(params=["week", "small"])
def audited(request):
    """Each week with planted waste."""
    return request.getfixturevalue(request.param)
