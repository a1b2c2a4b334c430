"""KV cache held and TTFT by input: sums by hand, a line that is known, and silence where nothing is odd."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.waste.applications import judged_calls
from pipelines.waste.kv_held import held_by_application, kv_held_findings
from pipelines.waste.ttft_by_input import ttft_by_input
from warehouse.application_tables import KV_HELD, TTFT_BY_INPUT


def calls(count: int, **what: object) -> list[dict[str, object]]:
    return [
        {"provider": "vllm", "output_tokens": 100, "input_tokens": 1_000, "duration_ms": 2_000.0, **what}
    ] * count


def test_few_calls_that_hold_most_of_the_kv_cache(requests_of):
    huge = calls(60, project="dumps", input_tokens=100_000, duration_ms=10_000.0, queue_ms=4_000.0)
    unknown = calls(3, project="dumps", duration_ms=None, first_token_at=None)
    frame = requests_of(calls(600, project="chat") + huge + unknown)
    held = held_by_application(judged_calls(frame.lazy()))
    mart = KV_HELD.conform(held)
    assert KV_HELD.problems(mart) == {}
    row = mart.filter(pl.col("application") == "dumps").row(0, named=True)
    assert row["kv_token_seconds"] == 60 * (100_000 + 50) * 6
    assert row["requests_unknown"] == 3
    assert row["mean_kv_tokens"] == pytest.approx(100_050)
    assert row["kv_share"] == pytest.approx(60 * 100_050 * 6 / (60 * 100_050 * 6 + 600 * 1_050 * 2))
    found = kv_held_findings(held)
    assert found.rows["application"].to_list() == ["dumps"]
    hosted = requests_of([row | {"provider": "openai"} for row in calls(600, project="chat") + huge])
    assert kv_held_findings(held_by_application(judged_calls(hosted.lazy()))).rows.is_empty(), "their memory"
    assert held_by_application(judged_calls(REQUESTS.empty().lazy())).is_empty()


def test_a_line_through_ttft_bears_with_odd_calls_and_takes_cache_reads_out(requests_of):
    random = np.random.default_rng(5)
    rows = []
    for k, tokens in enumerate(random.integers(500, 20_000, 600).tolist()):
        odd = 60_000.0 if k % 10 == 0 else 0.0
        ttft = 80 + 0.05 * tokens + random.normal(0, 20) + odd
        rows.append(
            {
                "input_tokens": tokens + 3_000,
                "cache_read_tokens": 3_000,
                "ttft_ms": max(ttft, 0.0),
                "output_tokens": 9,
            }
        )
    frame = requests_of(rows)
    mart = ttft_by_input(judged_calls(frame.lazy()))
    assert TTFT_BY_INPUT.problems(mart) == {}
    row = mart.row(0, named=True)
    assert row["ms_per_1k_tokens"] == pytest.approx(50, rel=0.05)
    assert row["ms_per_1k_tokens_low"] <= 50 <= row["ms_per_1k_tokens_high"]
    assert row["intercept_ms"] == pytest.approx(80, abs=25)
    assert row["requests_reads_unknown"] == 0
    assert ttft_by_input(judged_calls(requests_of(rows[:50]).lazy())).is_empty(), "too few calls"
    alike = requests_of([row | {"input_tokens": 5_000, "cache_read_tokens": 0} for row in rows])
    assert ttft_by_input(judged_calls(alike.lazy())).is_empty(), "inputs that don't differ tell no slope"


@settings(max_examples=10, deadline=None)
@given(st.integers(100, 160), st.integers(0, 10**6))
def test_the_slope_is_the_median_of_the_slopes_of_its_pairs(requests_of, count, seed):
    random = np.random.default_rng(seed)
    x, y = random.integers(1, 50_000, count), random.uniform(1, 9_000, count)
    rows = [
        {"input_tokens": int(a), "cache_read_tokens": 0, "ttft_ms": float(b), "output_tokens": 1}
        for a, b in zip(x, y, strict=True)
    ]
    points = sorted(zip(x.tolist(), y.tolist(), strict=True))
    half = count // 2
    pairs = [(points[i], points[count - half + i]) for i in range(half)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairs if b[0] > a[0]]
    mart = ttft_by_input(judged_calls(requests_of(rows).lazy()))
    assert mart["ms_per_1k_tokens"].item() == pytest.approx(1_000 * float(np.median(slopes)))
