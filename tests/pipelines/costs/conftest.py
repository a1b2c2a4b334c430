"""Rows of `requests` for the tests of costs."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal, InvalidOperation
from types import SimpleNamespace

import polars as pl
import pytest

from parsers.records import REQUESTS
from reports.audit_parts import costs_part

DEFAULTS = {
    "source_format": "test",
    "source_file": "log",
    "started_at": dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC),
    "provider": "openai",
    "model_served": "gpt-4o",
    "operation": "chat",
    "status": "ok",
    "usage_origin": "reported",
    "cache_read_tokens": 0,
    "cache_write_5m_tokens": 0,
    "cache_write_1h_tokens": 0,
}


def totals(lines: pl.DataFrame) -> SimpleNamespace:
    """What audit.json states of cost lines, its amounts as decimals."""
    return SimpleNamespace(**{key: _decimal(value) for key, value in costs_part(lines).items()})


def _decimal(value):
    if isinstance(value, dict):
        return {key: _decimal(part) for key, part in value.items()}
    try:
        return Decimal(value) if isinstance(value, str) else value
    except InvalidOperation:
        return value


def rows(*calls: dict) -> pl.LazyFrame:
    """A lazy frame of the contract; what a call leaves out is as in DEFAULTS, else null."""
    full = [{**DEFAULTS, "source_line": number + 1, **call} for number, call in enumerate(calls)]
    return pl.DataFrame(full, schema=REQUESTS.schema, orient="row").lazy()


@pytest.fixture(scope="session")
def make_requests():
    return rows
