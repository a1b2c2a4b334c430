"""Logs to ingest, and ingest without Dagster around it."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from parsers.records import FILES, RECORD_TABLES, REJECTS, REQUESTS
from pipelines.fleet import Fleet
from pipelines.ingest.duplicates import DroppedDoubles
from pipelines.ingest.facts import build_days, drop_days_outside, drop_other_days, manifest, rejects
from pipelines.ingest.land import Reading, forget_others, land_all
from pipelines.ingest.span import audited_span
from pipelines.site import Site
from warehouse.store import Warehouse

NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


def payload(n: int, at: dt.datetime | None = None, **fields: Any) -> str:
    """One LiteLLM StandardLoggingPayload line: call `n`."""
    start = (at or NOON + dt.timedelta(seconds=n)).timestamp()
    record = {
        "id": f"chatcmpl-{n}",
        "litellm_call_id": f"call-{n}",
        "call_type": "acompletion",
        "cache_hit": None,
        "stream": False,
        "status": "success",
        "custom_llm_provider": "openai",
        "startTime": start,
        "endTime": start + 1.5,
        "completionStartTime": start + 0.5,
        "model": "gpt-4o",
        "prompt_tokens": 100 + n,
        "completion_tokens": 10 + n,
        "total_tokens": 110 + 2 * n,
        "response_cost": 0.001 * n,
        "hidden_params": {},
        "metadata": {"user_api_key_team_alias": "team-a"},
        "messages": [{"role": "user", "content": f"prompt {n}"}],
    }
    return json.dumps(record | fields) + "\n"


def write(path: Path, lines: list[str], modified: int = 0) -> Path:
    """A log file, `modified` seconds after a fixed time: older files are preferred, whenever the test runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    touch(path, modified)
    return path


def touch(path: Path, modified: int) -> None:
    """Set the modification time."""
    os.utime(path, (NOON.timestamp() + modified,) * 2)


@dataclass(frozen=True)
class Facts:
    """What an ingest made: tables in the order of their files' rows, and the ledger of doubles."""

    tables: dict[str, pl.DataFrame]
    doubles: dict[str, int]

    @property
    def requests(self) -> pl.DataFrame:
        """The fact table `requests`."""
        return self.tables[REQUESTS.name]

    @property
    def files(self) -> pl.DataFrame:
        """The manifest."""
        return self.tables[FILES.name]

    def accounts(self) -> tuple[int, int]:
        """Lines of the files that were read, and where they went: facts, rejects, other lines, doubles."""
        read = self.files.filter(pl.col("copy_of").is_null())
        facts = sum(self.tables[table.name].height for table in RECORD_TABLES)
        other = int(read["other_lines"].sum())
        return int(read["lines"].sum()), facts + self.tables[REJECTS.name].height + other + sum(
            self.doubles.values()
        )


def ingest(home: Path, *paths: Path | str, reading: Reading | None = None) -> Facts:
    """Land files, build the facts of the days an audit looks at, and read them back."""
    warehouse = Warehouse(home)
    site = Site(warehouse, tuple(map(str, paths)), Fleet.default(), home, reading or Reading())
    with warehouse.alone():
        landings = land_all(site.found(), warehouse, site.reading)
        site.remember(landings)
        forget_others(landings, warehouse)
        chosen = site.chosen()
        drop_other_days(chosen, warehouse)
        span = audited_span(chosen, None)
        if span:
            drop_days_outside(span.first, span.last, warehouse)
            ledger = DroppedDoubles(warehouse)
            for table in RECORD_TABLES:
                inside = [day for day in chosen.days(table) if span.first <= day <= span.last]
                for day, doubles in build_days(table, inside, chosen, warehouse):
                    ledger.record(table, day, doubles)
        warehouse.write_flat(FILES, manifest(landings, chosen))
        warehouse.write_flat(REJECTS, rejects(chosen, warehouse))
    return read_facts(home)


def read_facts(home: Path) -> Facts:
    """What lies in a data folder."""
    warehouse = Warehouse(home)
    tables = {table.name: warehouse.scan(table).collect() for table in RECORD_TABLES}
    tables |= {table.name: warehouse.read(table) for table in (FILES, REJECTS)}
    return Facts(tables, dict(DroppedDoubles(warehouse).by_format().iter_rows()))


@pytest.fixture(name="payload", scope="session")
def _payload():
    return payload


@pytest.fixture(name="write", scope="session")
def _write():
    return write


@pytest.fixture(name="touch", scope="session")
def _touch():
    return touch


@pytest.fixture(name="ingest", scope="session")
def _ingest():
    return ingest


@pytest.fixture(name="read_facts", scope="session")
def _read_facts():
    return read_facts


@pytest.fixture(name="noon", scope="session")
def _noon() -> dt.datetime:
    return NOON
