"""How many rows were dropped as doubles, by day: kept beside the facts of the day, so that lines always add up.

Belongs here: these small ledgers. Does not belong here: finding doubles (`doubles_sql.py`, `facts.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from warehouse.store import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date
    from pathlib import Path

    from parsers.records import Table
    from warehouse.store import Warehouse

_LEDGER = "doubles.json"


@dataclass(frozen=True)
class DroppedDoubles:
    """The ledgers of one data folder. One goes when its day goes."""

    warehouse: Warehouse

    def record(self, table: Table, day: date, by_format: dict[str, int]) -> None:
        """Replace what is known of a day: format -> rows dropped."""
        file = self.warehouse.day_file(table, day).with_name(_LEDGER)
        if not by_format:
            file.unlink(missing_ok=True)
            return
        with replacing(file) as path:
            path.write_text(json.dumps(by_format, sort_keys=True), encoding="utf-8")

    def total(self, table: Table) -> int:
        """Rows dropped from a table, all days that have facts."""
        return sum(sum(day.values()) for day in self._ledgers(table.name))

    def by_format(self) -> pl.DataFrame:
        """Frame (format, rows) over all tables and days that have facts."""
        counts: dict[str, int] = {}
        for day in self._ledgers("*"):
            for name, rows in day.items():
                counts[name] = counts.get(name, 0) + rows
        return pl.DataFrame(
            {"format": list(counts), "rows": list(counts.values())},
            schema={"format": pl.String, "rows": pl.Int64},
        )

    def _ledgers(self, table: str) -> Iterator[dict[str, int]]:
        files: list[Path] = sorted((self.warehouse.home / "facts").glob(f"{table}/day=*/{_LEDGER}"))
        return (json.loads(file.read_text(encoding="utf-8")) for file in files)
