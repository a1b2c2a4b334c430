"""What `demand_peaks` claims, what it does not, and what it says of it."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import INSTANT, REQUESTS
from pipelines.demand.peaks import data_span
from pipelines.demand.peaks import peaks as peaks_of
from pipelines.demand.spread import work_intervals
from warehouse.tables import DEMAND_PEAKS


def peaks(requests):
    return peaks_of(work_intervals(requests), data_span(requests))


def one(frame, measure, window_s, scope="all"):
    return frame.row(
        by_predicate=(pl.col("measure") == measure)
        & (pl.col("window_s") == window_s)
        & (pl.col("scope") == scope),
        named=True,
    )


def windows(frame, measure, scope="all"):
    return frame.filter(measure=measure, scope=scope)["window_s"].to_list()


def test_values_of_two_overlapping_calls(facts, monday):
    call = {"first": 1, "end": 101, "input_tokens": 10, "cache_read_tokens": 4, "output_tokens": 1000}
    found = peaks(facts(call | {"at": 0}, call | {"at": 50, "first": 52, "end": 252}))
    assert DEMAND_PEAKS.problems(found) == {}
    # The first makes 10 tokens a second until 101, the second 5 from 52 on.
    busiest = one(found, "output_tokens", 10)
    assert (busiest["value"], busiest["per_s"]) == (150, 15)
    assert busiest["start_at"] == monday + timedelta(seconds=52)
    assert one(found, "input_tokens", 1)["value"] == 10
    assert one(found, "uncached_input_tokens", 1)["value"] == 6
    assert one(found, "requests", 60)["value"] == 2
    assert one(found, "requests", 10)["value"] == 1
    assert one(found, "concurrency", 0) | {"value": 2, "start_at": monday + timedelta(seconds=50)} == one(
        found, "concurrency", 0
    )
    assert one(found, "concurrency", 60)["value"] == pytest.approx((60 + 51) / 60)
    # Just before the first call ends it holds 1010 tokens and the second 10 + 5 x 49.
    held = one(found, "resident_kv_tokens", 0)
    assert held["value"] == pytest.approx(1010 + 10 + 5 * 49)
    assert held["start_at"] == monday + timedelta(seconds=101)
    assert held["per_s"] is None


def test_each_model_has_its_own_peak(facts):
    rows = [
        {"at": n, "end": n + 100, "model_served": "ab"[n % 2], "input_tokens": 1, "output_tokens": 1}
        for n in range(4)
    ]
    found = peaks(facts(*rows))
    assert found["scope"].unique(maintain_order=True).to_list() == ["all", "model:a", "model:b"]
    assert one(found, "concurrency", 0)["value"] == 4
    assert one(found, "concurrency", 0, "model:a")["value"] == 2


def test_one_model_has_the_peaks_of_all(facts):
    found = peaks(facts({"at": 0, "end": 100, "input_tokens": 1}))
    both = found.partition_by("scope", include_key=False)
    assert len(both) == 2
    assert both[0].equals(both[1])


def test_windows_longer_than_the_data_are_not_claimed(facts):
    found = peaks(facts({"at": 0, "end": 30, "input_tokens": 5}, {"at": 200, "end": 299, "input_tokens": 5}))
    assert windows(found, "input_tokens") == [1, 10, 60]
    assert windows(found, "concurrency") == [0, 1, 10, 60]


def test_the_span_is_that_of_the_log_not_of_the_model(facts):
    found = peaks(
        facts(
            {"at": 0, "end": 5, "model_served": "a", "input_tokens": 5},
            {"at": 7000, "end": 7200, "status": "error"},
        )
    )
    assert windows(found, "input_tokens", "model:a") == [1, 10, 60, 300, 3600]


def test_without_durations_only_arrivals_are_claimed_under_a_minute(facts):
    found = peaks(facts(*({"at": 7.3 * n, "input_tokens": 100, "output_tokens": 10} for n in range(100))))
    assert windows(found, "input_tokens") == [60, 300]
    assert windows(found, "requests") == [1, 10, 60, 300]
    assert set(found["measure"]) == {"input_tokens", "output_tokens", "total_tokens", "requests"}
    row = one(found, "total_tokens", 60)
    assert row["value"] == 9 * 110
    assert row["assumed_ratio"] == 1.0
    assert "100 of 100 calls have no duration" in row["basis"]
    assert one(found, "requests", 60)["assumed_ratio"] == 0.0


def test_a_few_calls_without_duration_do_not_forbid_short_windows(facts):
    timed = [{"at": n, "end": n + 2, "input_tokens": 10, "output_tokens": 0} for n in range(199)]
    one_in_two_hundred = peaks(facts(*timed, {"at": 50, "input_tokens": 10, "output_tokens": 0}))
    assert windows(one_in_two_hundred, "input_tokens") == [1, 10, 60]
    assert "duration unknown for 1 of 200 calls" in one(one_in_two_hundred, "concurrency", 0)["basis"]
    two_in_hundred = peaks(facts(*timed[:98], *({"at": n, "input_tokens": 10} for n in (5, 6))))
    assert windows(two_in_hundred, "input_tokens") == [60]


def test_arrivals_stamped_in_batches_are_not_claimed_below_their_beat(facts):
    rows = [{"at": 3.0 * (n // 4), "input_tokens": 1} for n in range(400)]
    assert windows(peaks(facts(*rows)), "requests") == [10, 60]


def test_partly_unknown_cache_reads_give_a_lower_bound_and_all_unknown_gives_nothing(facts):
    known = {"at": 0, "end": 100, "input_tokens": 10, "cache_read_tokens": 4, "output_tokens": 1}
    unknown = {"at": 10, "end": 100, "input_tokens": 10, "output_tokens": 1, "model_served": "dark"}
    found = peaks(facts(known, unknown))
    assert (
        "Lower bound: cache reads or input unknown for 1 of 2 calls"
        in one(found, "uncached_input_tokens", 60)["basis"]
    )
    assert windows(found, "uncached_input_tokens", "model:dark") == []
    assert windows(found, "uncached_input_tokens", "model:m") == [1, 10, 60]
    assert "Lower bound" not in one(found, "input_tokens", 60)["basis"]


def test_calls_without_usage_count_as_calls_and_in_concurrency(facts):
    found = peaks(facts(*({"at": n, "end": n + 100, "usage_origin": "missing"} for n in range(3))))
    assert set(found["measure"]) == {"requests", "concurrency"}
    assert one(found, "concurrency", 0)["value"] == 3


def test_the_assumed_split_is_counted_and_told(facts):
    whole = {"end": 100, "input_tokens": 10, "output_tokens": 10}
    found = peaks(facts(whole | {"at": 0}, whole | {"at": 1, "first": 20}))
    row = one(found, "output_tokens", 60)
    assert row["assumed_ratio"] == 0.5
    assert "First token assumed for 1 of 2 calls" in row["basis"]
    assert "as long as 50 input tokens (median of published measurements)" in row["basis"]
    assert one(found, "concurrency", 0)["assumed_ratio"] == 0.0
    assert one(found, "resident_kv_tokens", 0)["assumed_ratio"] == 0.5


def test_no_rows_no_peaks(facts):
    assert peaks(facts()).schema == DEMAND_PEAKS.schema
    assert peaks(facts({"at": 0, "end": 1, "status": "error"})).is_empty()


calls = st.fixed_dictionaries(
    {
        "at": st.integers(0, 200),
        "end": st.one_of(st.none(), st.integers(0, 200)),
        "input_tokens": st.one_of(st.none(), st.integers(0, 90)),
        "output_tokens": st.one_of(st.none(), st.integers(0, 90)),
        "cache_read_tokens": st.one_of(st.none(), st.integers(0, 90)),
        "model_served": st.sampled_from(["a", "b"]),
        "status": st.sampled_from(["ok", "cancelled", "error"]),
    }
)


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(calls, min_size=1, max_size=12))
def test_no_window_of_a_minute_beats_the_claimed_one(facts, rows):
    """Every whole-second window, call by call, from the placed work: none is above the claim."""
    requests = facts(*rows)
    found = peaks(requests)
    assert DEMAND_PEAKS.problems(found) == {}
    work = work_intervals(requests)
    first = min(row["at"] for row in rows)
    for (scope,), group in [(("all",), work), *work.partition_by("model", as_dict=True).items()]:
        name = scope if scope == "all" else f"model:{scope}"
        claimed = found.filter(scope=name, measure="input_tokens", window_s=60.0)["value"]
        zero = min(start.timestamp() for start in requests.collect()["started_at"]) - first
        slow = 0.0
        for t in range(first, 200):
            left, inside = (zero + t) * 1e6, 0.0
            for row in group.iter_rows(named=True):
                begin, end = row["work_from_us"], row["first_token_us"]
                overlap = max(0.0, min(end, left + 60e6) - max(begin, left))
                share = overlap / (end - begin) if end > begin else float(left <= begin < left + 60e6)
                inside += (row["input_tokens"] or 0) * share
            slow = max(slow, inside)
        if len(claimed):
            assert claimed[0] >= slow - 1e-5


def azure(path):
    rows = pl.read_csv(path, try_parse_dates=True)
    return REQUESTS.conform(
        rows.select(
            pl.lit("azure").alias("source_format"),
            pl.lit("azure").alias("source_file"),
            pl.int_range(1, pl.len() + 1).alias("source_line"),
            pl.lit("ok").alias("status"),
            pl.lit("reported").alias("usage_origin"),
            pl.col("TIMESTAMP").cast(INSTANT).alias("started_at"),
            pl.col("ContextTokens").alias("input_tokens"),
            pl.col("GeneratedTokens").alias("output_tokens"),
        )
    )


@pytest.mark.parametrize(("name", "height"), [("code", 8819), ("conv", 19366)])
def test_azure_trace_of_an_hour(shared, name, height):
    """Under an hour and without durations: no hour, no seconds; the sliding minute beats every fixed one."""
    rows = azure(shared / "data" / "azure2023" / f"AzureLLMInferenceTrace_{name}.csv")
    assert rows.height == height
    found = peaks(rows.lazy())
    assert windows(found, "input_tokens") == [60, 300]
    assert windows(found, "concurrency") == []
    minute = one(found, "input_tokens", 60)["value"]
    starts = rows["started_at"].dt.timestamp("us")
    fixed = (
        rows.group_by((starts - starts.min()) // 60_000_000)
        .agg(pl.col("input_tokens").sum())["input_tokens"]
        .max()
    )
    rolled = (
        rows.sort("started_at")
        .rolling("started_at", period="60s", offset="0s", closed="left")
        .agg(pl.col("input_tokens").sum())["input_tokens"]
        .max()
    )
    assert minute == rolled
    assert minute >= fixed
