"""Load by pool: counts and tails, peaks, the share of waste, and what stays unknown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.demand.largest import MOST_MODELS, OTHER_MODELS
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.load import SECONDS_PER_MONTH, demand_summary
from pipelines.sizing.waste_removed import Removed, all_without_waste
from warehouse.tables import COVERAGE

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


def seconds(at):
    return T0 + timedelta(seconds=at)


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


def test_models_with_little_load_are_one_pool_and_lose_nothing():
    """The fleet's own models keep their pool, however little they do."""
    names = [f"api-{n:03}" for n in range(MOST_MODELS + 20)]
    rows = [TOKENS | {"model_served": name, "input_tokens": 9000 - n} for n, name in enumerate(names)]
    found = {load.pool: load for load in demand_summary(requests(*rows, TOKENS), DAY, FLEET)}
    assert len(found) == MOST_MODELS + 2
    others = found[OTHER_MODELS]
    assert (others.requests, others.log_models, others.model) == (20, tuple(names[MOST_MODELS:]), None)
    assert others.input_tokens == sum(9000 - n for n in range(MOST_MODELS, MOST_MODELS + 20))
    assert "20 models beyond the 64 with most tokens, taken together" in others.basis
    assert found["small"].requests == 1


def test_the_peak_of_a_pool_is_one_moment_of_all_its_models_together():
    """One model is busy in the first minute, the other an hour later: their peaks are not added up."""
    first = [TOKENS | {"started_at": seconds(n)} for n in range(30)]
    later = [TOKENS | {"started_at": seconds(3600 + n), "model_served": "a/qwen3-8b"} for n in range(20)]
    both = [TOKENS | {"started_at": seconds(7200)}]
    (load,) = demand_summary(requests(*first, *later, *both), DAY, FLEET)
    assert (load.peak_window_s, load.peak_requests_per_s) == (60, 0.5)
    assert load.peak_uncached_per_s == 30 * 600 / 60
    assert load.peak_rate == 30 * 50 / 60
    assert load.peak_prompt_ratio == 12
    (moment,) = load.moments
    assert moment.start_us == int(T0.timestamp() * 1e6)


def test_moments_of_different_kinds_are_kept_apart_and_prompts_bring_their_usual_output():
    prompts = [TOKENS | {"started_at": seconds(n), "input_tokens": 8400} for n in range(10)]
    answers = [TOKENS | {"started_at": seconds(3600 + n), "output_tokens": 900} for n in range(12)]
    (load,) = demand_summary(requests(*prompts, *answers, TOKENS | {"started_at": seconds(7200)}), DAY, FLEET)
    assert len(load.moments) == 2
    rates = sorted((part.peak_uncached_per_s, part.peak_output_per_s) for part in load.at_moments)
    assert rates[0] == (12 * 600 / 60, 12 * 900 / 60)
    assert rates[1][0] == 10 * 8000 / 60
    assert rates[1][1] == pytest.approx(max(10 * 50 / 60, rates[1][0] / load.prompt_ratio))
    assert all(not part.moments for part in load.at_moments)


def test_an_unknown_peak_stays_unknown():
    (load,) = demand_summary(requests(TOKENS), DAY, FLEET)
    assert load.peak_rate is None
    assert "peak is unknown" in load.basis[0]
    assert load.at_moments == (load,)


def test_calls_without_tokens_are_not_in_the_means():
    (load,) = demand_summary(requests(TOKENS, {}), DAY, FLEET)
    assert (load.requests, load.missing, load.input_mean) == (2, {"input": 1, "output": 1}, 1000)
    assert any("1 of 2 calls have an unknown input token count" in line for line in load.basis)


def test_each_mean_is_over_the_calls_that_tell_its_own_measure():
    """Three calls tell their input, one its output, one nothing: four like them in all."""
    no_output = TOKENS | {"output_tokens": None}
    (load,) = demand_summary(requests(TOKENS, no_output, no_output, {}), DAY, FLEET)
    assert (load.input_mean, load.uncached_mean, load.output_mean) == (1000, 600, 50)
    assert (load.missing, load.unmeasured, load.unknown_ratio) == ({"input": 1, "output": 3}, (), 0.75)
    assert load.output_per_s == load.output_tokens_per_s == 4 * 50 / 86_400
    assert load.month_tokens == pytest.approx(3050 / 86_400 * SECONDS_PER_MONTH)
    assert load.context_p99 == 1050


def test_a_peak_holds_calls_without_a_count_as_others_of_the_pool():
    rows = [TOKENS | {"started_at": seconds(n)} for n in range(10)]
    rows += [{"started_at": seconds(n + 10)} for n in range(10)]
    (load,) = demand_summary(requests(*rows, TOKENS | {"started_at": seconds(7200)}), DAY, FLEET)
    assert (load.peak_uncached_per_s, load.peak_output_per_s) == (20 * 600 / 60, 20 * 50 / 60)


def test_a_measure_that_no_call_tells_has_no_mean():
    (load,) = demand_summary(requests({"input_tokens": 1000}, {"input_tokens": 2000}), DAY, FLEET)
    assert (load.unmeasured, load.input_mean, load.month_tokens) == (("output",), 1500, None)
    with pytest.raises(ValueError, match="no mean of output tokens"):
        _ = load.output_mean


def test_an_embedding_writes_no_tokens_where_none_are_stated():
    rows = [{"input_tokens": 10, "operation": "embedding", "started_at": seconds(n * 90)} for n in range(2)]
    (load,) = demand_summary(requests(*rows), DAY, FLEET)
    assert (load.unmeasured, load.output_tokens, load.output_mean) == ((), 0, 1)


def test_what_changes_take_leaves_the_rest_of_each_measure():
    """200k of input with 190k from the cache, of which half is no longer sent: half of the 10k is computed."""
    long = {"input_tokens": 200_000, "cache_read_tokens": 190_000, "output_tokens": 50}
    as_is = demand_summary(requests(long), DAY, FLEET)
    half = Removed(input_tokens=100_000, computed_tokens=5000)
    (load,) = all_without_waste(as_is, {"qwen3-8b": half})
    assert (load.input_tokens, load.uncached_input_tokens, load.output_tokens) == (100_000, 5000, 50)
    (load,) = all_without_waste(as_is, {"qwen3-8b": half + Removed(computed_tokens=2000)})
    assert (load.input_tokens, load.uncached_input_tokens) == (100_000, pytest.approx(3000))


def test_waste_is_taken_out_evenly_and_at_most_once():
    args = (requests(TOKENS | {"started_at": T0}, TOKENS | {"started_at": seconds(120)}), DAY, FLEET)
    as_is = demand_summary(*args)
    (load,) = all_without_waste(as_is, {"qwen3-8b": Removed(computed_tokens=600)})
    assert (load.uncached_input_tokens, load.peak_uncached_per_s, load.input_tokens) == (600, 5, 2000)
    assert [moment.uncached_per_s for moment in load.moments] == [5]
    trimmed = Removed(input_tokens=200, computed_tokens=120)
    (load,) = all_without_waste(as_is, {"qwen3-8b": trimmed, "other": Removed(input_tokens=900)})
    assert (load.uncached_input_tokens, load.input_tokens) == (1080, 1800)
    (load,) = all_without_waste(as_is, {"qwen3-8b": Removed(computed_tokens=1e9)})
    assert load.uncached_input_tokens == 0
    assert all_without_waste(as_is, {}) == as_is


def test_calls_that_are_not_made_shorten_no_others():
    rows = [TOKENS | {"started_at": seconds(120 * n)} for n in range(4)]
    as_is = demand_summary(requests(*rows), DAY, FLEET)
    (load,) = all_without_waste(as_is, {"qwen3-8b": Removed(2, 2000, 1200, 100)})
    (before,) = as_is
    assert (load.requests, load.input_mean, load.output_mean) == (2, before.input_mean, before.output_mean)
    assert (load.context_p99, load.uncached_input_p95) == (before.context_p99, before.uncached_input_p95)
    for measure in ("peak_requests_per_s", "peak_uncached_per_s", "peak_output_per_s"):
        assert getattr(load, measure) == getattr(before, measure) / 2
    (none,) = all_without_waste(as_is, {"qwen3-8b": Removed(9, 9e9, 9e9, 9e9)})
    assert (none.requests, none.input_tokens, none.output_mean) == (1, 0, 1)


def test_a_log_without_a_wall_clock_says_so():
    (load,) = demand_summary(requests(TOKENS | {"flags": ["relative_clock"]}, TOKENS), DAY, FLEET)
    assert any("no wall clock" in line for line in load.basis)
    (load,) = demand_summary(requests(TOKENS), DAY, FLEET)
    assert not any("no wall clock" in line for line in load.basis)


def test_no_requests_no_load():
    assert demand_summary(REQUESTS.empty().lazy(), DAY, FLEET) == []
