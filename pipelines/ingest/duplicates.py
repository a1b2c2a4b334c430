"""How many rows were dropped as doubles, by day: kept beside the facts, so that lines always add up.

Belongs here: this one small ledger. Does not belong here: finding doubles (`facts.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from warehouse.store import replacing

if TYPE_CHECKING:
    from datetime import date
    from pathlib import Path

    from parsers.records import Table
    from warehouse.store import Warehouse


@dataclass(frozen=True)
class DroppedDoubles:
    """The ledger of one data folder."""

    warehouse: Warehouse

    @property
    def _file(self) -> Path:
        return self.warehouse.home / "facts" / "doubles.json"

    def _read(self) -> dict[str, dict[str, dict[str, int]]]:
        return json.loads(self._file.read_text(encoding="utf-8")) if self._file.exists() else {}  # type: ignore[no-any-return]

    def record(self, table: Table, day: date, by_format: dict[str, int]) -> None:
        """Replace what is known of a day."""
        ledger = self._read()
        ledger.setdefault(table.name, {})[day.isoformat()] = by_format
        with replacing(self._file) as path:
            path.write_text(json.dumps(ledger, sort_keys=True), encoding="utf-8")

    def total(self, table: Table) -> int:
        """Rows dropped from a table, all days."""
        return sum(sum(day.values()) for day in self._read().get(table.name, {}).values())

    def by_format(self) -> pl.DataFrame:
        """Frame (format, rows) over all tables and days that still have facts."""
        counts: dict[str, int] = {}
        for table in self._read().values():
            for day in table.values():
                for name, rows in day.items():
                    counts[name] = counts.get(name, 0) + rows
        return pl.DataFrame(
            {"format": list(counts), "rows": list(counts.values())}, schema={"format": pl.String, "rows": pl.Int64}
        )
