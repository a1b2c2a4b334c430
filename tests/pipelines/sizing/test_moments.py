"""The busiest moments: rates against a slow count, burstiness where the peak is, latency as the log shows
it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.sizing.moments import Moment, busiest_moments

T0 = datetime(2026, 11, 16, tzinfo=UTC)
SECOND = 1_000_000
BASE = {
    "source_format": "t",
    "source_file": "t",
    "usage_origin": "reported",
    "status": "ok",
    "model_served": "m",
}


def call(at, ttft=0.2, tpot=0.02, output=51, **more):
    """A streamed call at a second of the day."""
    start = T0 + timedelta(seconds=at)
    first = start + timedelta(seconds=ttft)
    known = {"input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": output, "started_at": start}
    known |= {"first_token_at": first, "ended_at": first + timedelta(seconds=tpot * (output - 1))}
    return known | more


def facts(*rows):
    full = [BASE | {"source_line": line} | row for line, row in enumerate(rows, 1)]
    return REQUESTS.conform(pl.DataFrame(full, infer_schema_length=None)).lazy()


def busiest(*rows, **pool_of):
    return busiest_moments(facts(*rows), pool_of or {"m": "pool"})["pool"]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(1, 500), st.integers(1, 50)), min_size=2, max_size=25)
)
def test_moments_hold_the_highest_rates_of_points(calls):
    """Calls without a duration are points: every window that matters begins at one of them."""
    rows = [
        {
            "started_at": T0 + timedelta(seconds=at),
            "input_tokens": given,
            "cache_read_tokens": 0,
            "output_tokens": out,
        }
        for at, given, out in calls
    ]
    span = max(at for at, *_ in calls) - min(at for at, *_ in calls)
    if span < 60:
        return
    found = busiest(*rows)
    micro = [(at * SECOND, given, out) for at, given, out in calls]
    latest = max(at for at, *_ in micro) + 1 - 60 * SECOND
    starts = [min(at, latest) for at, *_ in micro]
    for n, rate in enumerate(("requests_per_s", "uncached_per_s", "output_per_s")):
        best = max(
            sum((1, given, out)[n] for at, given, out in micro if start <= at < start + 60 * SECOND)
            for start in starts
        )
        assert max(getattr(moment, rate) for moment in found.moments) == pytest.approx(best / 60)


def test_a_moment_that_another_exceeds_in_everything_is_left_out():
    small, large = Moment(0, 60.0, 1.0, 5.0, 2.0), Moment(1, 60.0, 2.0, 5.0, 3.0)
    assert large.dominates(small)
    assert not small.dominates(large)
    assert Moment(2, 60.0, 1.0, 0.0, 0.0).dominates(Moment(3, 60.0, 1.0, None, None))


def test_unknown_cache_reads_count_with_their_whole_input():
    found = busiest(call(0, cache_read_tokens=None), call(30), call(90))
    assert max(moment.uncached_per_s for moment in found.moments) == pytest.approx(1600 / 60)


def test_a_burst_is_not_bursty_inside_itself():
    """Even arrivals that come six times as fast for a minute: the hour is uneven, the peak is not."""
    rush = [call(1800 + n) for n in range(60)]
    rest = [call(30 * n) for n in range(120) if not 1790 < 30 * n < 1870]
    assert busiest(*rush, *rest).arrival_cv2 == pytest.approx(0, abs=0.05)
    pairs = [call(1800 + 2 * (n // 2)) for n in range(60)]
    assert busiest(*pairs, *rest).arrival_cv2 == pytest.approx(1, abs=0.1)


def test_with_few_arrivals_poisson_is_assumed():
    assert busiest(*[call(200 * n) for n in range(5)]).arrival_cv2 == 1.0


def test_latency_at_the_peak_is_that_of_the_log():
    slow = [call(1800 + n, ttft=0.5 + n / 100, tpot=0.03) for n in range(60)]
    quick = [call(60 * n) for n in range(60) if n != 30]
    seen = max(filter(None, busiest(*slow, *quick).observed), key=lambda seen: seen.ttft_p95_ms)
    begin = seen.start_us / SECOND - T0.timestamp() - 1800
    inside = [500 + 10 * n for n in range(60) if begin <= n < begin + 60]
    inside += [200] if any(begin <= at < begin + 60 for at in (-60, 60)) else []
    assert len(inside) >= 55
    assert (seen.calls, seen.failed, seen.window_s) == (len(inside), 0, 60.0)
    assert seen.ttft_p95_ms == pytest.approx(sorted(inside)[math.ceil(0.95 * (len(inside) - 1))])
    assert seen.tpot_p95_ms == pytest.approx(30)
    assert seen.tpot_p50_ms == pytest.approx(30, abs=11)


def test_a_thin_peak_is_judged_with_its_surroundings_and_a_thinner_one_not_at_all():
    rows = [call(20 * n) for n in range(60)]
    thin = busiest(*rows, *[call(600 + n) for n in range(5)])
    assert {seen.window_s for seen in thin.observed} == {300}
    thinner = busiest(*[call(600 * n) for n in range(60)])
    assert set(thinner.observed) == {None}
    assert len(thinner.observed) == len(thinner.moments)


def test_calls_that_were_not_streamed_show_no_first_token():
    rows = [call(n, first_token_at=None) for n in range(120)]
    assert set(busiest(*rows).observed) == {None}


@pytest.mark.parametrize(("status", "counts"), [(503, True), (429, True), (None, True), (400, False)])
def test_calls_that_failed_for_want_of_capacity_have_no_first_token(status, counts):
    fine = [call(n) for n in range(60)]
    lost = [call(10 + n, status="error", http_status=status, output_tokens=None) for n in range(10)]
    seen = busiest(*fine, *lost, call(200)).observed[0]
    assert seen.failed == (10 if counts else 0)
    assert math.isinf(seen.ttft_p95_ms) == counts


def test_a_few_failures_move_the_p95_and_calls_without_a_first_token_dilute_them():
    """Two of a hundred failed: the p95 of all is the 97th percentile of those that were answered."""
    fine = [call(n / 2, ttft=0.1 + n / 1000) for n in range(98)]
    lost = [call(10 + n, status="error", http_status=503, output_tokens=None) for n in range(2)]
    quiet = [call(n / 2, first_token_at=None) for n in range(98)]
    few = busiest(*fine, *lost, call(200)).observed[0]
    assert few.ttft_p95_ms == pytest.approx(100 + math.ceil(0.95 / 0.98 * 97), abs=1.1)
    many = busiest(*fine[:30], *quiet[:30], *lost, call(200)).observed[0]
    assert not math.isinf(many.ttft_p95_ms)


def test_models_of_one_pool_share_their_moments_and_pools_do_not():
    rows = [call(n, model_served=f"m{n % 2}") for n in range(120)]
    (moment,) = busiest_moments(facts(*rows), {"m0": "one", "m1": "one"})["one"].moments[:1]
    assert moment.requests_per_s == pytest.approx(1)
    apart = busiest_moments(facts(*rows), {"m0": "one", "m1": "two"})
    assert apart["one"].moments[0].requests_per_s == pytest.approx(0.5)


def test_nothing_is_known_of_no_data_or_of_one_instant():
    assert busiest_moments(REQUESTS.empty().lazy(), {"m": "pool"}) == {}
    assert busiest_moments(facts({"started_at": T0}), {"m": "pool"}) == {}
