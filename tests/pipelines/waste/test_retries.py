"""Failed attempts: what was turned away, billed or guessed, and which calls came through."""

from __future__ import annotations

from decimal import Decimal

import polars as pl

from parsers.records import REQUESTS
from pipelines.waste.retries import failed_attempts, retries
from warehouse.waste_tables import RETRIES

FAIL = {"status": "error", "usage_origin": "missing"}


def scope(frame: pl.DataFrame, name: str, kind: str) -> dict[str, object]:
    return frame.filter((pl.col("scope") == name) & (pl.col("error_kind") == kind)).row(0, named=True)


def test_attempts_calls_and_recovery(requests_of):
    frame = requests_of(
        [
            {**FAIL, "call_id": "a", "attempt": 1, "error_kind": "timeout"},
            {**FAIL, "call_id": "a", "attempt": 2, "error_kind": "timeout"},
            {"call_id": "a", "attempt": 3},
            {**FAIL, "call_id": "b", "error_kind": "timeout"},
            {**FAIL, "call_id": "b", "error_kind": None},
            {"call_id": "c", "s": 1},
            {**FAIL, "call_id": "c", "s": 2, "error_kind": "timeout"},
            {**FAIL, "error_kind": "timeout"},
            {**FAIL, "error_kind": "timeout"},
            {**FAIL, "error_kind": "timeout", "response_cache_hit": True},
        ]
    )
    mart = retries(failed_attempts(frame.lazy()))
    row = scope(mart, "all", "timeout")
    assert (row["attempts"], row["calls"], row["recovered_calls"]) == (6, 5, 1)
    assert (row["billed_tokens"], row["cost_usd"]) == (None, None)
    assert scope(mart, "model:gpt-4o/team:search", "unknown")["attempts"] == 1
    assert RETRIES.problems(mart) == {}
    assert retries(failed_attempts(REQUESTS.empty().lazy())).schema == RETRIES.schema


def test_rejected_attempts_cost_nothing_whatever_the_gateway_computed(requests_of):
    """Case B125: 429 and 529 priced on an estimated input; case B126: a time-out after dispatch."""
    used = {
        "input_tokens": 1000,
        "output_tokens": 10,
        "cost_reported": Decimal("0.5"),
        "cost_currency": "USD",
    }
    frame = requests_of(
        [
            {**FAIL, **used, "usage_origin": "estimated", "http_status": 429, "error_kind": "limited"},
            {**FAIL, **used, "usage_origin": "reported", "http_status": 529, "error_kind": "limited"},
            {**FAIL, **used, "usage_origin": "estimated", "error_kind": "RateLimitError"},
            {**FAIL, **used, "usage_origin": "reported", "http_status": 500, "error_kind": "broken"},
            {**FAIL, **used, "usage_origin": "reported", "cost_currency": "EUR", "error_kind": "broken"},
            {**FAIL, **used, "usage_origin": "estimated", "http_status": 408, "error_kind": "timeout"},
        ]
    )
    mart = retries(failed_attempts(frame.lazy()))

    def carried(kind: str) -> tuple[object, ...]:
        row = scope(mart, "all", kind)
        return row["billed_tokens"], row["estimated_tokens"], row["cost_usd"]

    assert carried("limited") == (None, 2020, 0)
    assert carried("RateLimitError") == (None, 1010, 0)
    assert carried("broken") == (2020, None, Decimal("0.5"))
    assert carried("timeout") == (None, 1010, None), "may have been charged: unknown"


def test_a_cost_without_a_currency_is_in_usd_as_in_the_lines_of_cost(requests_of):
    used = {
        **FAIL,
        "usage_origin": "reported",
        "input_tokens": 10,
        "http_status": 500,
        "error_kind": "broken",
    }
    frame = requests_of(
        [
            {**used, "cost_reported": Decimal("0.5"), "cost_currency": currency}
            for currency in (None, "usd", "USD", "EUR")
        ]
    )
    mart = retries(failed_attempts(frame.lazy()))
    assert scope(mart, "all", "broken")["cost_usd"] == Decimal("1.5")
