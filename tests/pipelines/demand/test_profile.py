"""Burstiness, joint lengths, rhythm, growth, tail, unmet demand and counters against slow or known answers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from statistics import mean, variance

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import ENGINE_SAMPLES, INSTANT
from pipelines.demand.burstiness import burstiness, counts_of, covered_stretches, whole_windows
from pipelines.demand.counters import counter_demand
from pipelines.demand.coverage import coverage
from pipelines.demand.joint import joint_lengths, rank_correlation
from pipelines.demand.peak_confidence import (
    LEAST_BLOCKS,
    QUANTILE,
    Tail,
    fit_tail,
    peak_confidence,
    resampled_quantile,
)
from pipelines.demand.profile import demand_profile
from pipelines.demand.rhythm import cannot_show, daily, growth, rhythm, student_quantile
from pipelines.demand.scopes import Calls
from pipelines.demand.series import minute_series
from pipelines.demand.spread import work_intervals
from pipelines.demand.unmet import unmet_demand

NO_SAMPLES = ENGINE_SAMPLES.empty().lazy()


def calls_of(requests):
    return Calls.of(work_intervals(requests))


def bursts_of(requests, beat_us=0):
    found = burstiness(calls_of(requests), covered_stretches(coverage(requests)), beat_us)
    return {row["window_s"]: row for row in found}


def minutes_of(days, *, requests=60, start=datetime(2026, 11, 16, tzinfo=UTC), tops=None):
    """`days` whole days of equal minutes; day k has one minute of tops[k]."""
    rows = []
    for day in range(days):
        values = [requests] * 1440
        if tops:
            values[600] = tops[day]
        rows += [
            {
                "minute_at": start + timedelta(days=day, minutes=minute),
                "requests": value,
                "input_tokens": 10.0 * value,
                "output_tokens": 1.0 * value,
                "concurrency_max": None,
            }
            for minute, value in enumerate(values)
        ]
    return pl.DataFrame(rows).with_columns(pl.col("minute_at").cast(INSTANT))


def test_poisson_arrivals_have_a_dispersion_of_one_and_even_ones_of_none(facts):
    rng = np.random.default_rng(0)
    random = bursts_of(facts(*({"at": float(at)} for at in np.sort(rng.uniform(0, 7200, 3000)))))
    assert random[60]["dispersion"] == pytest.approx(1, abs=0.35)
    assert random[10]["dispersion_within_hour"] == pytest.approx(1, abs=0.3)
    assert random[600]["interarrival_cv2_p50"] == pytest.approx(1, abs=0.25)
    even = bursts_of(facts(*({"at": 2.0 * n} for n in range(2000))))
    assert even[600]["interarrival_cv2_p50"] == pytest.approx(0)
    assert even[60]["dispersion"] == pytest.approx(0)
    batches = bursts_of(facts(*({"at": 100.0 * (n // 10)} for n in range(400))), beat_us=100_000_000)
    assert batches[300]["dispersion"] == pytest.approx(0)
    assert min(batches) == 300, "windows below the clock's beat are left out"


def test_rhythm_of_the_day_is_left_out_within_hours(facts):
    rng = np.random.default_rng(1)
    at = np.concatenate((rng.uniform(0, 3600, 60), rng.uniform(3600, 7200, 3000)))
    found = bursts_of(facts(*({"at": float(second)} for second in np.sort(at))))
    assert found[60]["dispersion"] > 10
    assert found[60]["dispersion_within_hour"] == pytest.approx(1, abs=0.35)


def test_too_little_to_tell_has_no_row(facts):
    assert bursts_of(facts({"at": 5})) == {}
    assert bursts_of(facts()) == {}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 400), max_size=40),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=3),
    st.integers(1, 60),
)
def test_counts_in_windows_equal_a_count_by_hand(arrivals, stretches, width):
    edges = np.cumsum([part for pair in stretches for part in pair])
    bounds = (edges[::2].astype(np.int64), edges[1::2].astype(np.int64))
    first = whole_windows(bounds, width)
    by_hand = [
        start
        for begin, end in zip(*bounds, strict=True)
        for start in range(0, 1300, width)
        if begin <= start and start + width <= end
    ]
    assert first.tolist() == by_hand
    counts = counts_of(np.sort(np.array(arrivals, np.int64)), first, width)
    assert counts.tolist() == [sum(start <= at < start + width for at in arrivals) for start in by_hand]


def test_dispersion_is_variance_over_mean(facts):
    rng = np.random.default_rng(2)
    seconds = np.sort(rng.uniform(0, 1200, 200))
    row = bursts_of(facts(*({"at": float(at)} for at in seconds)))[60]
    # Windows are those wholly inside the data.
    bins = Counter(int(at // 60) for at in seconds)
    inside = [bins[k] for k in range(int(np.ceil(seconds[0] / 60)), int(seconds[-1] // 60))]
    assert row["windows"] == len(inside)
    assert row["dispersion"] == pytest.approx(variance(inside) / mean(inside))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5_000_000)), min_size=20, max_size=40))
def test_rank_correlation_equals_polars(pairs):
    one, other = (np.array(values, np.float64) for values in zip(*pairs, strict=True))
    other = np.minimum(other, 2**22)
    expected = pl.select(pl.corr(pl.lit(pl.Series(one)), pl.lit(pl.Series(other)), method="spearman")).item()
    found = rank_correlation(one, other)
    if found is None:
        assert len(set(one)) == 1 or len(set(other)) == 1
    else:
        assert found == pytest.approx(expected, abs=1e-9)


def test_joint_lengths_hold_every_known_call_once(facts):
    rows = [
        {"at": n, "input_tokens": n, "output_tokens": 2 * n, "cache_read_tokens": 1 if n % 2 else None}
        for n in range(40)
    ]
    found = joint_lengths(calls_of(facts(*rows, {"at": 50, "input_tokens": 9})))
    assert found["calls"] == 41
    assert found["quantiles"]["output"] == {
        "known": 40,
        "p50": 38,
        "p90": 70,
        "p95": 74,
        "p99": 78,
        "max": 78,
    }
    assert found["rank_correlation"]["input_output"] == pytest.approx(1)
    cells = {(row["input_most"], row["output_most"]): row for row in found["classes"]}
    assert sum(row["calls"] for row in cells.values()) == 40
    assert sum(row["input_tokens"] for row in cells.values()) == sum(range(40))
    assert cells[(0, 0)]["uncached_input_tokens"] is None
    assert cells[(31, 63)]["calls"] == 16
    assert cells[(31, 63)]["uncached_input_tokens"] == sum(n - 1 for n in range(17, 32, 2))


def test_rhythm_counts_the_days_that_were_seen():
    found = rhythm(minutes_of(2), "Europe/Berlin")
    assert [row["hour"] for row in found["hour_of_day"]] == list(range(24))
    assert {row["seen"] for row in found["hour_of_day"]} == {2}
    assert {row["requests_per_s"] for row in found["hour_of_day"]} == {1.0}
    assert [(row["weekday"], row["seen"]) for row in found["weekday"]] == [(1, 1), (2, 1), (3, 0)]
    # Berlin is an hour ahead: the last hour of two UTC days falls on Wednesday.
    assert found["weekday"][2]["minutes"] == 60


def test_students_quantiles_are_those_of_the_tables():
    for freedom, value in ((1, 12.706), (4, 2.7764), (30, 2.0423)):
        assert student_quantile(0.975, freedom) == pytest.approx(value, rel=1e-4)


def test_growth_is_found_within_its_interval_and_unknown_for_few_days():
    days = daily(
        pl.concat(
            minutes_of(
                1, requests=round(6000 * 1.02**day), start=datetime(2026, 11, 16, tzinfo=UTC) + timedelta(day)
            )
            for day in range(14)
        ),
        "UTC",
    )
    found = growth(days, "requests_per_s")
    assert found["days"] == 14
    assert found["low"] <= 1.02**7 - 1 <= found["high"]
    assert found["growth_per_week"] == pytest.approx(1.02**7 - 1, rel=0.02)
    few = growth(days.head(3), "requests_per_s")
    assert few["growth_per_week"] is None
    assert few["basis"] == "unknown: 3 whole days with demand, a trend needs 4"


def test_the_tail_is_that_of_the_draws():
    rng = np.random.default_rng(3)
    for shape in (0.0, -0.2, 0.2):
        true = Tail(np.array(100.0), np.array(20.0), np.array(shape))
        fitted = fit_tail(true.level(rng.uniform(size=20_000)), with_shape=shape != 0)
        assert fitted.place == pytest.approx(100, rel=0.02)
        assert fitted.scale == pytest.approx(20, rel=0.05)
        assert fitted.shape == pytest.approx(shape, abs=0.03)
        slow = np.median(true.level(rng.uniform(size=(4000, 30))).max(axis=1))
        assert true.highest_of(30) == pytest.approx(slow, rel=0.03)
    assert fit_tail(np.full(6, 7.0), with_shape=False).highest_of(30) == 7


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=30), min_size=1, max_size=4))
def test_the_resampled_quantile_is_that_of_all_values(days):
    values = np.array([value for day in days for value in day], np.float64)
    index = np.array([number for number, day in enumerate(days) for _ in day])
    found, low, high = resampled_quantile(values, index)
    assert found == np.quantile(values, QUANTILE, method="inverted_cdf")
    assert low <= high
    own = [np.quantile(day, QUANTILE, method="inverted_cdf") for day in days]
    assert min(own) <= low
    assert high <= max(own)


def test_the_peak_of_a_week_has_a_factor_and_that_of_three_days_says_why_not():
    tops = [500, 520, 480, 610, 530, 90, 80]
    requests, tokens = (
        next(row for row in peak_confidence(minutes_of(7, tops=tops), "UTC") if row["measure"] == measure)
        for measure in ("requests", "total_tokens")
    )
    assert requests["blocks"] == LEAST_BLOCKS, "weekends are another kind of day"
    assert requests["observed_max"] == 610
    assert requests["expected_max_low"] < requests["expected_max"] < requests["expected_max_high"]
    assert requests["factor"] == pytest.approx(requests["expected_max_high"] / 610)
    assert tokens["factor"] == pytest.approx(requests["factor"])
    few = peak_confidence(minutes_of(3, tops=tops), "UTC")[0]
    assert few["factor"] is None
    assert few["p99_low"] is None
    assert few["basis"] == "too few blocks: 3 whole days, a tail needs 5"


def test_what_the_days_can_not_show():
    said = {row["what"] for row in cannot_show(minutes_of(7), "UTC", has_calendar=True)}
    assert said == {"how weeks differ", "month end", "quarter end", "seasons and holidays", "launches"}
    month = minutes_of(30, start=datetime(2026, 12, 4, tzinfo=UTC))
    assert {row["what"] for row in cannot_show(month, "UTC", has_calendar=True)} == {
        "seasons and holidays",
        "launches",
    }
    assert cannot_show(month, "UTC", has_calendar=False)[0]["what"] == "any day or hour"


def test_unmet_calls_count_once_however_often_they_were_tried(facts):
    refused = {"status": "error", "http_status": 429}
    rows = [
        {"at": 0, "input_tokens": 100, "output_tokens": 10},
        {"at": 1, "input_tokens": 300, "output_tokens": 30},
        # Met on the second try.
        {"at": 2, **refused, "call_id": "a"},
        {"at": 3, "call_id": "a", "input_tokens": 200, "output_tokens": 20},
        # Tried twice, never met.
        {"at": 4, **refused, "call_id": "b", "input_tokens": 50},
        {"at": 5, "status": "error", "http_status": 503, "call_id": "b", "input_tokens": 50},
        # Alone, and its input unknown.
        {"at": 6, "status": "error", "error_kind": "timeout"},
        # The caller's own fault.
        {"at": 7, "status": "error", "http_status": 400},
        {"at": 8, "status": "error", "error_kind": "invalid_request_error"},
        {"at": 90, "status": "error", "http_status": 401},
    ]
    found = unmet_demand(facts(*rows), NO_SAMPLES)
    assert found["failed_attempts"] == 4
    assert found["by_kind"] == {"rate_limited": 2, "overloaded": 1, "timed_out": 1, "server_error": 0}
    assert (found["met_later_calls"], found["unmet_calls"], found["unlinked_attempts"]) == (1, 2, 1)
    assert found["requests"] == {"low": 3, "high": 5}
    assert found["total_tokens"] == {"low": 660, "high": 660 + (50 + 20) + (200 + 20)}
    assert found["saturation"]["queue_share"] is None


def samples_of(*rows):
    start = datetime(2026, 11, 16, tzinfo=UTC)
    base = {"source_format": "prometheus_text", "source_file": "m", "instance": "i", "model": "m"}
    return ENGINE_SAMPLES.conform(
        pl.DataFrame(
            [
                {**base, "source_line": n, **row, "at": start + timedelta(seconds=row["at"])}
                for n, row in enumerate(rows)
            ],
            infer_schema_length=None,
        )
    ).lazy()


def test_counters_alone_give_peaks_at_their_resolution_and_minutes():
    totals = [0, 10, 20, 80, 90, 5, 15]  # a restart before the sixth
    rows = [
        {"at": 30 * n, "generation_tokens_total": value, "running": n % 3} for n, value in enumerate(totals)
    ]
    found = counter_demand(samples_of(*rows))
    of_all = {(row["measure"], row["window_s"]): row for row in found.peaks if row["scope"] == "all"}
    assert of_all["generated_tokens", 60]["value"] == pytest.approx(70), (
        "30 s with 60 and a neighbour with 10"
    )
    assert of_all["generated_tokens", 60]["resolution_s"] == 30
    assert ("generated_tokens", 10) not in of_all, "nothing is claimed below the time between samples"
    assert of_all["running", 0]["value"] == 2
    assert found.minutes["output_tokens"].sum() == pytest.approx(10 + 10 + 60 + 10 + 5 + 10)
    assert found.minutes["requests"].null_count() == found.minutes.height


def test_growth_over_a_gap_of_samples_is_left_out_and_told():
    rows = [{"at": at, "generation_tokens_total": at} for at in (0, 10, 20, 30, 40, 1000, 1010)]
    found = counter_demand(samples_of(*rows))
    ten = next(row for row in found.peaks if row["window_s"] == 10)
    assert ten["left_out"] == 960
    assert ten["value"] == pytest.approx(10)


def test_a_log_without_calls_is_described_from_counters(facts):
    samples = samples_of(
        *({"at": 15 * n, "prompt_tokens_total": 9 * n, "generation_tokens_total": n} for n in range(400))
    )
    requests = facts()
    work, cover = work_intervals(requests), coverage(requests)
    found = demand_profile(requests, work, cover, minute_series(work, cover), samples, "UTC")
    assert found["source"] == "counters"
    assert found["rhythm"]["hour_of_day"][0]["tokens_per_s"] == pytest.approx(10 / 15)
    assert found["peak_confidence"] == []
    nothing = demand_profile(requests, work, cover, minute_series(work, cover), NO_SAMPLES, "UTC")
    assert nothing["source"] is None
    assert nothing["cannot_show"] == [{"what": "any rhythm", "why": "no minute of demand is known"}]


def test_a_model_with_few_calls_is_not_described(facts):
    rows = [{"at": float(n), "end": n + 1.0, "input_tokens": 5, "output_tokens": 2} for n in range(200)]
    requests = facts(*rows, {"at": 3, "model_served": "rare", "input_tokens": 5})
    work, cover = work_intervals(requests), coverage(requests)
    found = demand_profile(requests, work, cover, minute_series(work, cover), NO_SAMPLES, "UTC")
    assert [row["scope"] for row in found["lengths_together"]] == ["all", "model:m"]
    assert found["source"] == "requests"
