"""Totals of engine samples against slow counting, and which of two series of one engine counts."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import ENGINE_SAMPLES
from pipelines.efficiency.engines import engine_totals

START = datetime(2026, 11, 16, tzinfo=UTC)


def samples(*rows: dict) -> pl.LazyFrame:
    """ENGINE_SAMPLES of rows with `at` in seconds."""
    base = {"source_format": "metrics", "source_file": "a", "instance": "i", "model": "m"}
    full = [
        base | row | {"at": START + timedelta(seconds=row["at"]), "source_line": number}
        for number, row in enumerate(rows, 1)
    ]
    return ENGINE_SAMPLES.conform(pl.DataFrame(full, infer_schema_length=None)).lazy()


def test_without_samples_there_is_no_engine():
    totals = engine_totals(ENGINE_SAMPLES.empty().lazy())
    assert totals.is_empty()
    assert {"generated_tokens", "counted", "basis"} <= set(totals.columns)


@given(st.lists(st.one_of(st.none(), st.integers(0, 1000)), min_size=1, max_size=12), st.integers(0, 12))
@settings(max_examples=40)
def test_a_counter_grows_by_its_steps_and_a_restart_counts_from_zero(values, cut):
    """The same whether one file holds the samples, or two that follow each other and overlap by one."""
    read = [value for value in values if value is not None]
    slow = 0
    for before, after in itertools.pairwise(read):
        slow += after - before if after >= before else after
    rows = [{"at": at, "generation_tokens_total": value} for at, value in enumerate(values)]
    first = [row | {"source_file": "one"} for row in rows[: cut + 1]]
    second = [row | {"source_file": "two"} for row in rows[cut:]]
    for chosen in (rows, first + second):
        [row] = engine_totals(samples(*chosen)).to_dicts()
        assert row["generated_tokens"] == (slow if len(read) > 1 else None)
        assert row["basis"] == ("counters" if len(read) > 1 else None)


def test_windows_are_summed_and_gauges_are_maxima():
    rows = [
        {"at": 0, "window_generation_tokens": 5.0, "running": 2.0, "prefix_cache_hit_ratio": 0.1},
        {"at": 10, "window_generation_tokens": 7.0, "running": 1.0, "prefix_cache_hit_ratio": 0.4},
        {"at": 20, "kv_usage_ratio": 0.5},
    ]
    [row] = engine_totals(samples(*rows)).to_dicts()
    assert (row["generated_tokens"], row["prompt_tokens"], row["basis"]) == (12, None, "windows")
    assert (row["running_max"], row["waiting_max"], row["kv_usage_max_ratio"]) == (2, None, 0.5)
    assert row["prefix_cache_hit_ratio"] == 0.4


def test_the_hit_ratio_is_of_the_counters_where_there_are_any():
    rows = [
        {"at": 0, "prefix_cache_queries_total": 100, "prefix_cache_hits_total": 90},
        {"at": 9, "prefix_cache_queries_total": 300, "prefix_cache_hits_total": 140},
    ]
    [row] = engine_totals(samples(*rows)).to_dicts()
    assert row["prefix_cache_hit_ratio"] == 0.25


def test_counters_speak_for_a_model_before_log_lines_of_the_same_time():
    counters = [{"at": at, "generation_tokens_total": at * 10} for at in (0, 60)]
    log = {"source_format": "log", "source_file": "b", "instance": "pid-1", "window_generation_tokens": 600.0}
    later, other = {"at": 90, "instance": "pid-2"}, {"at": 30, "instance": "pid-3", "model": "n"}
    totals = engine_totals(samples(*counters, log | {"at": 30}, log | later, log | other))
    assert dict(totals.select("instance", "counted").iter_rows()) == {
        "i": True,
        "pid-1": False,
        "pid-2": True,
        "pid-3": True,
    }
