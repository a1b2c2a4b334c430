"""Rows for tests of the demand stage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from parsers.records import REQUESTS

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else MONDAY + timedelta(microseconds=round(seconds * 1e6))


@pytest.fixture(scope="session")
def monday() -> datetime:
    """Second 0 of `facts`."""
    return MONDAY


@pytest.fixture(scope="session")
def facts() -> Callable[..., pl.LazyFrame]:
    """Make `requests` of dicts: `at`, `first`, `end` are seconds after Monday 00:00 UTC, others columns."""

    def make(*rows: dict[str, Any]) -> pl.LazyFrame:
        full = [
            {
                "source_format": "test",
                "source_file": "test.jsonl",
                "source_line": line,
                "status": "ok",
                "usage_origin": "reported",
                "model_served": "m",
                "started_at": _instant(row["at"]),
                "first_token_at": _instant(row.get("first")),
                "ended_at": _instant(row.get("end")),
            }
            | {name: value for name, value in row.items() if name not in ("at", "first", "end")}
            for line, row in enumerate(rows, 1)
        ]
        if not full:
            return REQUESTS.empty().lazy()
        names = {name for row in full for name in row}
        schema = {name: dtype for name, dtype in REQUESTS.schema.items() if name in names}
        return REQUESTS.conform(pl.DataFrame(full, schema=schema)).lazy()

    return make
