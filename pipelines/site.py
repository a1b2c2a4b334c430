"""What one run works on: the data folder, the sources, how to read them, the fleet, the window.

Belongs here: `Site`, and its settings from the environment for the scheduled pipeline. Does not belong here: Dagster
(`resources.py`), the command line (`cli.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic_settings import BaseSettings, SettingsConfigDict

from parsers.errors import SiteConfigError
from pipelines.fleet import Fleet, load_fleet
from pipelines.ingest.facts import Chosen, choose
from pipelines.ingest.land import Landing, Reading
from warehouse.store import Warehouse, replacing

Window = tuple[datetime, datetime]


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
    on_file: Callable[[Landing], None] = _ignore
    """Told each file as it is landed."""

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

    @property
    def _landings_file(self) -> Path:
        return self.warehouse.home / "landings.json"


class SiteSettings(BaseSettings):
    """Settings of the scheduled pipeline, from TOKENWORKS_* variables."""

    model_config = SettingsConfigDict(env_prefix="TOKENWORKS_")

    home: Path = Path("tokenworks-home")
    """Data folder."""
    logs: Path = Path("logs")
    """Folder that the gateway and the meters write to."""
    fleet: Path | None = None
    """fleet.toml."""
    window_days: int = 7
    """Days, ended with yesterday, that marts and the weekly report cover."""

    def site(self) -> Site:
        """The site as these settings describe it.

        Raises:
            SiteConfigError: the fleet file is wrong.

        """
        return Site(
            warehouse=Warehouse(self.home),
            sources=(str(self.logs),),
            fleet=load_fleet(self.fleet) if self.fleet else Fleet.default(),
            report_folder=self.home / "reports",
            fleet_path=str(self.fleet) if self.fleet else None,
        )


def parse_window(text: str) -> Window:
    """Read START..END (ISO dates or instants, UTC unless a zone is given; an END that is a date is the end of that day).

    Raises:
        SiteConfigError: the text is no window.

    """
    start, separator, end = text.partition("..")
    try:
        first, last = _instant(start), _instant(end)
    except ValueError as error:
        raise SiteConfigError(
            f"{text} is no window", where="--window", remedy="Write it like 2026-11-16..2026-11-22."
        ) from error
    if len(end.strip()) == len("2026-11-22"):
        last += timedelta(days=1)
    if not separator or first >= last:
        raise SiteConfigError(f"{text} ends before it begins", where="--window", remedy="Give START..END.")
    return first, last


def _instant(text: str) -> datetime:
    value = datetime.fromisoformat(text.strip())
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
