"""What the scheduled pipeline takes from the environment, and what a run leaves of what it fetched."""

from __future__ import annotations

import io
import sys
import threading
from dataclasses import dataclass

import pytest

from parsers.errors import SiteConfigError
from pipelines import audit
from pipelines.fleet import Fleet
from pipelines.site import Site, SiteSettings
from warehouse.store import Warehouse


def test_options_of_the_scheduled_pipeline_are_those_of_the_command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKENWORKS_OPTIONS", '{"timezone": "Europe/Berlin", "instance": "gpu-1"}')
    assert SiteSettings().site().reading.options == {"timezone": "Europe/Berlin", "instance": "gpu-1"}
    monkeypatch.setenv("TOKENWORKS_OPTIONS", '{"zone": "UTC"}')
    with pytest.raises(SiteConfigError, match="TOKENWORKS_OPTIONS: zone: there is no option zone"):
        SiteSettings().site()


def test_what_was_fetched_is_no_part_of_the_folder_and_goes(monkeypatch, tmp_path):
    home = tmp_path / "out"
    site = Site(Warehouse(home), ("-",), Fleet.default(), home)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}\n")))
    (source,) = site.found()
    assert (source.name, source.path.read_bytes()) == ("stdin", b"{}\n")
    assert site.warehouse.owns(source.path)
    site.forget_brought()
    assert list(home.iterdir()) == []


def test_sources_are_shown_without_secrets(tmp_path):
    addresses = ("logs", "-", "postgresql://u:s3cret@h/db", "https://h/x?sig=s3cret")
    site = Site(Warehouse(tmp_path), addresses, Fleet.default(), tmp_path)
    assert site.shown == "logs, stdin, postgresql://h/db, https://h/x"


def test_dagster_and_the_checks_never_import_one_package_at_once(monkeypatch, tmp_path):
    """SQLAlchemy's ORM is whole before a second thread, and Dagster's queries, go on."""

    @dataclass
    class Landed:
        rows: int

    imported: list[tuple[str, bool]] = []
    here = threading.current_thread()
    monkeypatch.setattr(
        audit, "import_module", lambda name: imported.append((name, threading.current_thread() is here))
    )
    site = audit._importing_meanwhile(Site(Warehouse(tmp_path), (), Fleet.default(), tmp_path))
    for rows in (0, 3, 4):
        site.on_file(Landed(rows))  # type: ignore[arg-type]
    for thread in threading.enumerate():
        if thread is not here and not thread.daemon:
            thread.join(5)
    beside = ("great_expectations.expectations", "altair")
    assert imported == [("sqlalchemy.orm", True), *((name, False) for name in beside)]
