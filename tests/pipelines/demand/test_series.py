"""`demand_minute`: nothing lost, gaps without rows, unknown kept apart from zero."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.demand.coverage import coverage
from pipelines.demand.series import minute_series
from pipelines.demand.spread import work_intervals
from warehouse.tables import COVERAGE, DEMAND_MINUTE

calls = st.fixed_dictionaries(
    {
        "at": st.floats(0, 900).map(lambda s: round(s, 3)),
        "duration_ms": st.one_of(st.none(), st.integers(0, 400_000).map(float)),
        "queue_ms": st.one_of(st.none(), st.integers(0, 9000).map(float)),
        "input_tokens": st.integers(0, 10_000),
        "cache_read_tokens": st.integers(0, 3000),
        "output_tokens": st.integers(0, 5000),
        "model_served": st.sampled_from(["a", "b", "c"]),
    }
)


def series(requests):
    return minute_series(work_intervals(requests), coverage(requests))


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(calls, min_size=1, max_size=15))
def test_minutes_hold_every_token_and_every_call_once(facts, rows):
    requests = facts(*rows)
    minutes = series(requests)
    assert DEMAND_MINUTE.problems(minutes) == {}
    whole = minutes.group_by("scope").agg(
        pl.col("input_tokens", "uncached_input_tokens", "output_tokens", "requests").sum()
    )
    sums = {row["scope"]: row for row in whole.iter_rows(named=True)}
    for scope in ("all", *{f"model:{row['model_served']}" for row in rows}):
        here = [row for row in rows if scope in ("all", f"model:{row['model_served']}")]
        assert sums[scope]["requests"] == len(here)
        assert sums[scope]["input_tokens"] == pytest.approx(
            sum(row["input_tokens"] for row in here), abs=1e-5
        )
        assert sums[scope]["output_tokens"] == pytest.approx(
            sum(row["output_tokens"] for row in here), abs=1e-5
        )
        computed = sum(max(0, row["input_tokens"] - row["cache_read_tokens"]) for row in here)
        assert sums[scope]["uncached_input_tokens"] == pytest.approx(computed, abs=1e-5)
    assert minutes.filter(pl.col("concurrency_mean") > pl.col("concurrency_max") + 1e-9).is_empty()


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(calls, min_size=1, max_size=12))
def test_mean_concurrency_follows_littles_law(facts, rows):
    """Calls in flight, added over all minutes, are the time that calls spent."""
    minutes = series(facts(*rows)).filter(scope="all")
    spent = sum(row["duration_ms"] or 0 for row in rows) / 1000
    assert (minutes["concurrency_mean"].sum() or 0) * 60 == pytest.approx(spent, abs=1e-4)


def test_quiet_minutes_are_zero_and_every_scope_has_every_minute(facts, monday):
    minutes = series(
        facts(
            {"at": 30, "end": 40, "input_tokens": 5, "output_tokens": 0, "cache_read_tokens": 0},
            {
                "at": 250,
                "end": 260,
                "input_tokens": 7,
                "output_tokens": 0,
                "cache_read_tokens": 0,
                "model_served": "n",
            },
        )
    )
    assert minutes.group_by("scope").len()["len"].to_list() == [5, 5, 5]
    quiet = minutes.filter(scope="all", minute_at=monday + timedelta(minutes=2)).row(0, named=True)
    assert [quiet[name] for name in DEMAND_MINUTE.names[2:]] == [0] * 9


def test_minutes_of_a_gap_have_no_row(facts, monday):
    stretches = COVERAGE.conform(
        pl.DataFrame(
            {
                "start_at": [monday, monday + timedelta(seconds=90), monday + timedelta(seconds=310)],
                "end_at": [
                    monday + timedelta(seconds=90),
                    monday + timedelta(seconds=310),
                    monday + timedelta(seconds=320),
                ],
                "is_gap": [False, True, False],
            }
        )
    )
    minutes = minute_series(work_intervals(facts({"at": 0, "end": 90}, {"at": 310, "end": 320})), stretches)
    assert minutes.filter(scope="all")["minute_at"].dt.minute().to_list() == [0, 1, 5]


def test_unknown_counts_are_null_where_only_unknown_calls_work(facts):
    minutes = series(
        facts(
            {"at": 0, "end": 50, "input_tokens": 10, "output_tokens": 0},
            {"at": 60, "end": 110, "input_tokens": 10, "output_tokens": 0},
            {"at": 65, "end": 110, "input_tokens": 10, "cache_read_tokens": 3, "output_tokens": 0},
            {"at": 200, "end": 230, "input_tokens": 10, "cache_read_tokens": 10, "output_tokens": 0},
        )
    ).filter(scope="all")
    assert minutes["uncached_input_tokens"].to_list() == [None, 7, 0, 0]
    assert minutes["input_tokens"].to_list() == pytest.approx([10, 20, 0, 10])
    assert minutes["requests_cache_unknown"].to_list() == [1, 1, 0, 0]
    assert minutes["requests_usage_missing"].to_list() == [0, 0, 0, 0]


def test_without_durations_load_is_unknown(facts):
    minutes = series(facts({"at": 0, "input_tokens": 10}, {"at": 70, "input_tokens": 20}))
    assert minutes["concurrency_mean"].null_count() == minutes.height
    assert minutes["concurrency_max"].null_count() == minutes.height
    assert minutes["resident_kv_tokens_max"].null_count() == minutes.height
    assert minutes.filter(scope="all")["input_tokens"].to_list() == [10, 20]


def test_load_that_lasts_over_a_minute_is_carried_into_the_next(facts):
    minutes = series(
        facts({"at": 0, "first": 30, "end": 180, "input_tokens": 100, "output_tokens": 150})
    ).filter(scope="all")
    assert minutes["concurrency_max"].to_list() == [1, 1, 1, 0]
    assert minutes["concurrency_mean"].to_list() == [1, 1, 1, 0]
    assert minutes["resident_kv_tokens_max"].to_list() == pytest.approx([130, 190, 250, 0])
    assert minutes["output_tokens"].to_list() == pytest.approx([30, 60, 60, 0])


def test_no_rows_no_minutes(facts):
    assert series(facts()).schema == DEMAND_MINUTE.schema
    assert series(facts({"at": 0, "end": 1, "status": "error"})).is_empty()
