"""Builders of `requests` rows and prices for the tests of the waste stage."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.waste.row_prices import PRICES_SCHEMA

START = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


def build_requests(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Rows of the contract; `s` is the start in seconds, `ready` the first token, the rest column names."""
    full = []
    for line, row in enumerate(rows, start=1):
        given = dict(row)
        start = given.pop("s", float(line))
        ready = given.pop("ready", start + 0.5)
        full.append(
            {
                "source_format": "test",
                "source_file": "log",
                "source_line": line,
                "started_at": at(start),
                "first_token_at": None if ready is None else at(ready),
                "provider": "openai",
                "model_served": "gpt-4o",
                "team": "search",
                "status": "ok",
                "usage_origin": "reported",
                **given,
            }
        )
    known = {name: dtype for name, dtype in REQUESTS.schema.items() if any(name in row for row in full)}
    return REQUESTS.conform(pl.DataFrame(full, schema=known))


def build_prices(
    frame: pl.DataFrame, provider: str = "openai", model: str = "gpt-4o", **usd_per_mtok: str
) -> pl.DataFrame:
    """One price per meter for every day of the rows."""
    days = frame["started_at"].dt.date().unique()
    rows = [
        (provider, model, day, meter, Decimal(price) / 10**6)
        for day in days
        for meter, price in usd_per_mtok.items()
    ]
    return pl.DataFrame(rows, schema=PRICES_SCHEMA, orient="row")


@pytest.fixture(scope="session")
def requests_of():
    return build_requests


@pytest.fixture(scope="session")
def prices_of():
    return build_prices


@pytest.fixture(scope="session")
def no_prices() -> pl.DataFrame:
    return pl.DataFrame(schema=PRICES_SCHEMA)
