"""Load by pool: counts and tails, peaks, the share of waste, and what stays unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.load import demand_summary
from warehouse.tables import COVERAGE, DEMAND_PEAKS

T0 = datetime(2026, 11, 16, tzinfo=UTC)
POOL = Pool(name="small", models=("*qwen3-8b",), architecture="Qwen3 8B", accelerator="L40S", accelerators=2)
FLEET = Fleet(pools=(POOL,))
DAY = COVERAGE.conform(pl.DataFrame([{"start_at": T0, "end_at": T0 + timedelta(days=1), "is_gap": False}]))


def requests(*rows):
    base = {
        "source_format": "t",
        "source_file": "t",
        "status": "ok",
        "usage_origin": "reported",
        "model_served": "qwen3-8b",
    }
    full = [
        base | {"source_line": line, "started_at": T0 + timedelta(seconds=line)} | row
        for line, row in enumerate(rows, 1)
    ]
    return REQUESTS.conform(pl.DataFrame(full, infer_schema_length=None)).lazy()


def peaks(**scopes):
    rows = [
        {
            "scope": f"model:{name}",
            "measure": measure,
            "window_s": window,
            "value": rate * window,
            "per_s": rate,
        }
        | {"start_at": T0, "basis": "t"}
        for name, rates in scopes.items()
        for (measure, window), rate in rates.items()
    ]
    return DEMAND_PEAKS.conform(pl.DataFrame(rows)) if rows else DEMAND_PEAKS.empty()


TOKENS = {"input_tokens": 1000, "cache_read_tokens": 400, "output_tokens": 50}


def test_a_pool_gathers_its_models_and_api_models_stand_alone():
    found = demand_summary(
        requests(
            TOKENS,
            TOKENS | {"model_served": "hosted_vllm/qwen3-8b"},
            TOKENS | {"model_served": "gpt-4o"},
            TOKENS | {"model_served": None, "model_requested": "qwen3-32b"},
            TOKENS | {"status": "error"},
            TOKENS | {"response_cache_hit": True},
        ),
        peaks(),
        DAY,
        FLEET,
    )
    by_pool = {load.pool: load for load in found}
    assert set(by_pool) == {"small", "gpt-4o", "qwen3-32b"}
    small = by_pool["small"]
    assert (small.requests, small.input_tokens, small.uncached_input_tokens, small.output_tokens) == (
        2,
        2000,
        1200,
        100,
    )
    assert small.today is POOL
    assert small.window_s == 86_400
    assert by_pool["gpt-4o"].model is None
    assert by_pool["qwen3-32b"].model.name == "Qwen3 32B"
    assert by_pool["qwen3-32b"].today is None


def test_the_peak_is_that_of_the_window_nearest_to_a_minute_added_over_models():
    one = {
        ("requests", 60): 2.0,
        ("uncached_input_tokens", 60): 900.0,
        ("output_tokens", 60): 80.0,
        ("requests", 10): 9.0,
    }
    two = {("requests", 60): 1.0, ("uncached_input_tokens", 60): 100.0, ("output_tokens", 60): 20.0}
    rows = requests(TOKENS, TOKENS | {"model_served": "a/qwen3-8b"})
    (load,) = demand_summary(rows, peaks(**{"qwen3-8b": one, "a/qwen3-8b": two}), DAY, FLEET)
    assert (load.peak_window_s, load.peak_requests_per_s, load.peak_uncached_per_s) == (60, 3.0, 1000.0)
    assert load.peak_rate == 100.0
    assert load.peak_prompt_ratio == 10.0


def test_an_unknown_peak_stays_unknown():
    (load,) = demand_summary(requests(TOKENS), peaks(), DAY, FLEET)
    assert load.peak_rate is None
    assert "peak is unknown" in load.basis[0]


def test_calls_without_tokens_are_not_in_the_means():
    (load,) = demand_summary(requests(TOKENS, {}), peaks(), DAY, FLEET)
    assert (load.requests, load.counted, load.input_mean) == (2, 1, 1000)
    assert any("unknown tokens" in line for line in load.basis)


def test_waste_is_taken_out_evenly_and_at_most_once():
    rate = {("requests", 60): 1.0, ("uncached_input_tokens", 60): 600.0, ("output_tokens", 60): 50.0}
    args = (requests(TOKENS, TOKENS), peaks(**{"qwen3-8b": rate}), DAY, FLEET)
    (load,) = demand_summary(*args, missed_tokens={"qwen3-8b": 600})
    assert (load.uncached_input_tokens, load.peak_uncached_per_s, load.input_tokens) == (600, 300, 2000)
    (load,) = demand_summary(*args, oversize_tokens={"qwen3-8b": 200})
    assert (load.uncached_input_tokens, load.input_tokens) == (1000, 1800)
    (load,) = demand_summary(*args, missed_tokens={"qwen3-8b": 1e9})
    assert load.uncached_input_tokens == 0


def test_burstiness_is_that_of_the_busiest_hour():
    even = [TOKENS | {"started_at": T0 + timedelta(seconds=10 * n)} for n in range(100)]
    (load,) = demand_summary(requests(*even), peaks(), DAY, FLEET)
    assert load.arrival_cv2 == pytest.approx(0)
    pairs = [TOKENS | {"started_at": T0 + timedelta(seconds=20 * (n // 2))} for n in range(100)]
    (load,) = demand_summary(requests(*pairs), peaks(), DAY, FLEET)
    assert load.arrival_cv2 == pytest.approx(1, abs=0.1)
    (load,) = demand_summary(requests(*even[:5]), peaks(), DAY, FLEET)
    assert load.arrival_cv2 == 1


def test_no_requests_no_load():
    assert demand_summary(REQUESTS.empty().lazy(), peaks(), DAY, FLEET) == []
