"""Lengths of calls and growth of sessions against counting one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.demand.shapes import EDGES, lengths, session_growth

T0 = datetime(2026, 11, 16, tzinfo=UTC)


def facts(*rows: dict) -> pl.LazyFrame:
    base = {"source_format": "t", "source_file": "t", "status": "ok", "usage_origin": "reported"}
    full = [
        base | {"source_line": line, "started_at": T0 + timedelta(seconds=line)} | row
        for line, row in enumerate(rows, 1)
    ]
    return REQUESTS.conform(pl.DataFrame(full, infer_schema_length=None)).lazy()


@given(st.lists(st.one_of(st.none(), st.integers(0, 5_000_000)), min_size=1, max_size=60))
def test_every_call_of_known_length_is_in_one_bin_and_quantiles_occur(sizes):
    found = lengths(facts(*({"input_tokens": size} for size in sizes))).filter(pl.col("measure") == "input")
    known = sorted(size for size in sizes if size is not None)
    assert found["calls"].sum() == len(known)
    for low, high, calls in found.select("from_tokens", "to_tokens", "calls").iter_rows():
        assert calls == sum(low <= size < high for size in known)
    for name, at in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
        if known:
            assert found[name][0] == known[max(0, -(-round(at * 100) * len(known) // 100) - 1)]


def test_failed_calls_and_answers_from_the_response_cache_are_no_work():
    rows = lengths(
        facts(
            {"input_tokens": 10, "output_tokens": 5},
            {"input_tokens": 10, "status": "error"},
            {"input_tokens": 10, "output_tokens": 5, "response_cache_hit": True},
            {"input_tokens": 10, "operation": "embedding"},
        )
    )
    assert rows.select("measure", "from_tokens", "calls").rows() == [
        ("input", 8, 2),
        ("output", 0, 1),
        ("output", 4, 1),
    ]
    assert EDGES[:6] == (0, 1, 2, 3, 4, 6)


def test_sessions_are_followed_turn_by_turn():
    calls = [{"session_id": "a", "input_tokens": 100 * turn} for turn in range(1, 10)]
    calls += [{"session_id": "b", "input_tokens": size} for size in (500, 700)]
    calls += [{"session_id": "alone", "input_tokens": 9}, {"input_tokens": 9}]
    found = session_growth(facts(*calls))
    assert found.select("turn", "sessions", "input_max").head(2).rows() == [(1, 2, 500), (2, 2, 700)]
    # Turns 8 and 9 share a bin.
    assert found["turn"].to_list() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert found.select("sessions", "input_p90", "input_max").row(-1) == (1, 900, 900)
