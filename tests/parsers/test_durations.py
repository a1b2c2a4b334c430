"""Durations as spans between instants: numbers that are none make no instant, and none overflows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.durations import MAX_SPAN_MS, before, span
from parsers.formats.ollama_response import FORMAT as OLLAMA
from parsers.formats.tensorzero_inferences import FORMAT as TENSORZERO

END = datetime(2026, 3, 8, 12, tzinfo=UTC)
MS = pl.col("ms")


def began(ms: float | None) -> datetime:
    """When a call ended that took so long."""
    return pl.DataFrame({"ms": [ms]}, schema={"ms": pl.Float64}).select(before(pl.lit(END), MS)).item()


def test_a_span_is_told_to_the_microsecond():
    assert began(1.2345) == END - timedelta(microseconds=1234)
    assert began(MAX_SPAN_MS) == END - timedelta(days=366)


@pytest.mark.parametrize("ms", [None, -5.0, MAX_SPAN_MS + 1.0, 9_223_372_036_854_776.0, 1e300, float("nan")])
def test_of_an_unknown_or_impossible_span_the_end_is_all_that_is_known(ms):
    assert began(ms) == END


@given(st.one_of(st.none(), st.floats(), st.integers(-(2**63), 2**63 - 1)))
def test_no_number_overflows(ms):
    dtype = pl.Int64 if isinstance(ms, int) else pl.Float64
    told = pl.DataFrame({"ms": [ms]}, schema={"ms": dtype}).select(span(MS)).item()
    assert told is None or abs(told) <= timedelta(milliseconds=MAX_SPAN_MS)


@pytest.mark.parametrize(
    ("fmt", "record"),
    [
        (TENSORZERO, {"id": "i", "inference_id": "a", "timestamp": "2026-03-08T12:00:00Z", "response_time_ms": 1e18}),
        (OLLAMA, {"model": "m", "created_at": "2026-03-08T12:00:00Z", "done": True, "total_duration": 9e18,
                  "eval_count": 1}),
    ],
    ids=["tensorzero", "ollama"],
)  # fmt: skip
def test_a_call_of_an_impossible_duration_ends_when_it_says_and_is_flagged(fmt, record, read):
    row = read(json.dumps(record) + "\n", fmt=fmt).rows.row(0, named=True)
    assert row["started_at"] == END
    assert row["duration_ms"] in (0.0, None)
    assert "duration_out_of_range" in row["flags"]
