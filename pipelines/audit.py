"""`tokenworks audit`: the same assets as the scheduled pipeline, run once in this process over a week of logs.

Belongs here: the two runs (land, then everything that depends on which days the files hold) and their errors. Does not
belong here: the command line (`cli.py`), any computing (the stages).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from parsers.errors import NothingToAuditError, TokenworksError
from pipelines.ingest.facts import drop_days_outside, rejects
from pipelines.ingest.span import audited_span
from pipelines.reporting.write import Report, report_of

if TYPE_CHECKING:
    from pipelines.ingest.land import Landing
    from pipelines.site import Site


def run_audit(site: Site) -> Report:
    """Run the whole flow.

    Args:
        site: sources, data folder, fleet, window, report folder.

    Raises:
        TokenworksError: another run is working on the data folder.
        SiteConfigError: the scheduled pipeline keeps its history there.
        UnknownFormatError: no file is of a known format.
        NothingToAuditError: the files hold no usable row, or none in the window.
        CheckFailedError: a blocking check failed.

    """
    from pipelines.definitions import run_in_process

    with site.warehouse.alone():
        site.refuse_history()
        run_in_process(_importing_meanwhile(site), None)
        chosen = site.chosen()
        span = audited_span(chosen, site.warehouse.window)
        if span is None or not chosen.any_within(site.warehouse.window, site.warehouse):
            raise _nothing(site)
        site.warehouse.clear_marts()
        drop_days_outside(span.first, span.last, site.warehouse)
        run_in_process(site, (span.first, span.last))
        return report_of(site)


def _import_what_is_slow() -> None:
    # A head start only: an import that fails here fails again, and is told, where it is needed.
    with suppress(Exception):
        import_module("great_expectations.expectations")
        import_module("altair")


def _importing_meanwhile(site: Site) -> Site:
    """The site, with Great Expectations and Altair imported beside the reading of files, from the first one that has rows.

    That takes many seconds, and reading leaves the interpreter idle. Not before there are rows: input that is of no
    use is to be told at once.
    """
    started = threading.Event()

    def on_file(landing: Landing) -> None:
        if landing.rows and not started.is_set():
            started.set()
            # Dagster queries through SQLAlchemy meanwhile, which must not meet its own ORM half imported.
            import_module("sqlalchemy.orm")
            threading.Thread(target=_import_what_is_slow).start()
        site.on_file(landing)

    return replace(site, on_file=on_file)


def _nothing(site: Site) -> TokenworksError:
    """Why there is nothing to audit: a single file's own problem, else the first one found."""
    landings, window = site.landings(), site.warehouse.window
    days = sorted({day for item in landings for day in item.days})
    if window and days:
        start, end = window
        return NothingToAuditError(
            f"no row lies from {start.isoformat()} to {end.isoformat()}",
            where="--window",
            remedy=f"The files hold rows from {days[0]} to {days[-1]}.",
        )
    if len(landings) == 1 and not landings[0].format and landings[0].problem:
        return landings[0].error()
    unknown = sum(1 for item in landings if not item.format)
    rejected = rejects(site.chosen(), site.warehouse)
    problems = [item.problem for item in landings if item.problem]
    problems += [f"{file}:{line}: {reason}" for _, file, line, _, reason, _ in rejected.head(1).iter_rows()]
    first = f"; the first problem: {problems[0]}" if problems else ""
    return NothingToAuditError(
        f"no usable row in {len(landings):,} file(s) ({unknown:,} of no known format, "
        f"{rejected.height:,} rejected lines){first}",
        where=site.shown,
        remedy="`tokenworks sniff FILE` says what a file is; `tokenworks formats` lists what can be read.",
    )
