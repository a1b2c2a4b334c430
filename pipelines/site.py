"""What one run works on: the data folder, the sources, how to read them, the fleet, the window.

Belongs here: `Site`, and its settings from the environment for the scheduled pipeline. Does not belong here:
Dagster (`resources.py`), the command line (`cli.py`).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pydantic import PositiveInt
from pydantic_settings import BaseSettings, SettingsConfigDict

from parsers.errors import NothingToAuditError, SiteConfigError
from parsers.live import Live, shown
from parsers.options import checked
from parsers.sources import Source, find_sources
from pipelines.fleet import Fleet, load_fleet
from pipelines.ingest.facts import Chosen, choose
from pipelines.ingest.land import Landing, Reading
from warehouse.store import WORK_PREFIX, Warehouse, replacing

Window = tuple[datetime, datetime]
LONGEST_WINDOW = timedelta(days=3660)
"""An audit counts in days and hours; a window of ten years is a slip of the pen."""


def _ignore(_: Landing) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Site:
    """Everything a run needs to know; made by the command line, or from the environment."""

    warehouse: Warehouse
    sources: tuple[str, ...]
    fleet: Fleet
    report_folder: Path
    reading: Reading = field(default_factory=Reading)
    fleet_path: str | None = None
    title: str = ""
    keeps_history: bool = False
    """Whether the facts of a day outlive the files they were made from."""
    on_file: Callable[[Landing], None] = _ignore
    """Told each file as it is landed."""

    def found(self) -> list[Source]:
        """The files below the sources, without those of the data folder itself (it may lie among the logs).

        Raises:
            NothingToAuditError: there is none.
            UnreadableSourceError: a path that was given does not exist, or a server does not answer.

        """
        live = Live(self.live_folder, self.warehouse.window)
        found = [
            source
            for source in find_sources(self.sources, live)
            if source.path.is_relative_to(live.folder) or not self.warehouse.owns(source.path)
        ]
        if not found:
            raise NothingToAuditError(
                "no logs, only results of earlier runs", where=self.shown, remedy="Give log files."
            )
        return found

    def forget_brought(self) -> None:
        """Remove what servers and pipes gave, once it has landed: unlike what landed it may hold prompts."""
        shutil.rmtree(self.live_folder, ignore_errors=True)

    @property
    def shown(self) -> str:
        """The sources as a reader may see them."""
        return ", ".join(map(shown, self.sources))

    def remember(self, landings: list[Landing]) -> None:
        """Keep which files the facts are made of."""
        with replacing(self._landings_file) as path:
            path.write_text(json.dumps([asdict(item) for item in landings]), encoding="utf-8")

    def landings(self) -> list[Landing]:
        """The files of the last landing."""
        if not self._landings_file.exists():
            return []
        return [Landing(**item) for item in json.loads(self._landings_file.read_text(encoding="utf-8"))]

    def chosen(self) -> Chosen:
        """The landings that count."""
        return choose(self.landings())

    def within(self, window: Window | None) -> Site:
        """The same site, seen through a window."""
        return replace(self, warehouse=replace(self.warehouse, window=window))

    def mark_history(self) -> None:
        """Leave word in the data folder that its facts outlive their files."""
        self._history_file.touch()

    def refuse_history(self) -> None:
        """Protect a folder that keeps history from a run that keeps the given files only.

        Raises:
            SiteConfigError: the scheduled pipeline keeps its facts there.

        """
        if self._history_file.exists() and not self.keeps_history:
            raise SiteConfigError(
                "the scheduled pipeline keeps its history in this folder; an audit would delete it",
                where=str(self.warehouse.home),
                remedy="Give another --out.",
            )

    @property
    def live_folder(self) -> Path:
        """Where what servers and pipes give lies until it has landed."""
        return self.warehouse.home / f"{WORK_PREFIX}live"

    @property
    def _history_file(self) -> Path:
        return self.warehouse.home / "keeps-history"

    @property
    def _landings_file(self) -> Path:
        return self.warehouse.home / "landings.json"


class SiteSettings(BaseSettings):
    """Settings of the scheduled pipeline, from TOKENWORKS_* variables."""

    model_config = SettingsConfigDict(env_prefix="TOKENWORKS_", use_attribute_docstrings=True)

    home: Path = Path("tokenworks-home")
    """Data folder."""
    logs: Path = Path("logs")
    """Folder that the gateway and the meters write to."""
    fleet: Path | None = None
    """fleet.toml."""
    options: dict[str, str] = {}
    """What the logs do not say of themselves, as JSON: {"timezone": "Europe/Berlin"}. The names are those of `--set`."""
    window_days: PositiveInt = 7
    """Days, ended with yesterday, that marts and the weekly report cover."""

    def site(self) -> Site:
        """The site as these settings describe it.

        Raises:
            SiteConfigError: the fleet file or an option is wrong.

        """
        return Site(
            warehouse=Warehouse(self.home),
            sources=(str(self.logs),),
            fleet=load_fleet(self.fleet) if self.fleet else Fleet.default(),
            report_folder=self.home / "reports",
            reading=Reading(options=checked(self.options, "TOKENWORKS_OPTIONS: ")),
            keeps_history=True,
            fleet_path=str(self.fleet) if self.fleet else None,
        )


def parse_window(text: str) -> Window:
    """Read START..END: ISO dates or instants, UTC unless a zone is given.

    An END that is a date is the end of that day.

    Raises:
        SiteConfigError: the text is no window.

    """
    start, separator, end = text.partition("..")
    try:
        first, last = _instant(start), _instant(end)
        if _is_date(end):
            last += timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise SiteConfigError(
            f"{text} is no window", where="--window", remedy="Write it like 2026-11-16..2026-11-22."
        ) from error
    if not separator or first >= last:
        raise SiteConfigError(f"{text} ends before it begins", where="--window", remedy="Give START..END.")
    if last - first > LONGEST_WINDOW:
        raise SiteConfigError(
            f"{text} is longer than {LONGEST_WINDOW.days:,} days",
            where="--window",
            remedy="Give a shorter one.",
        )
    return first, last


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text.strip())
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text.strip())
    except ValueError:
        return False
    return True
