"""Oversize prompts: each rule on rows where the answer is known, and silence on clean rows."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from pipelines.waste.oversize import CLIFFS_SCHEMA, CONTEXTS_SCHEMA, oversize
from warehouse.application_tables import TTFT_BY_INPUT
from warehouse.waste_tables import OVERSIZE


def usual(count: int, seed: int = 1, **what: object) -> list[dict[str, object]]:
    """Log-normal prompts around 1,000 tokens with answers of 200."""
    inputs = np.random.default_rng(seed).lognormal(np.log(1000), 0.5, count).astype(int)
    return [{"input_tokens": int(tokens), "output_tokens": 200, **what} for tokens in inputs]


def test_nothing_is_oversize_in_usual_traffic(requests_of, no_prices):
    frame = requests_of(usual(500) + usual(500, 2, team="chat") + usual(30, 3, team="small", project="p"))
    assert oversize(frame.lazy(), no_prices).is_empty()


def test_outliers_are_judged_against_the_rest_of_their_own_team(requests_of, prices_of):
    big = [{"input_tokens": 200_000, "output_tokens": 200, "cache_read_tokens": 100_000}] * 12
    frame = requests_of(usual(500) + big + usual(500, 2, team="chat"))
    prices = prices_of(frame, input="2", cache_read="1")
    rows = oversize(frame.lazy(), prices)
    assert rows.select("scope", "rule", "requests").rows() == [("model:gpt-4o/team:search", "outlier", 12)]
    row = rows.row(0, named=True)
    inputs = np.array([r["input_tokens"] for r in usual(500)])
    logs = np.log(np.concatenate([inputs, [200_000] * 12]))
    spread = 1.4826 * np.median(np.abs(logs - np.median(logs)))
    robust = np.exp(np.median(logs) + 6 * spread)
    expected = int(np.ceil(max(robust, 1.5 * np.percentile(inputs, 99))))
    assert row["threshold_tokens"] == expected
    assert row["excess_tokens"] == 12 * (200_000 - expected)
    assert row["excess_usd"] == 12 * (200_000 - expected) * Decimal("0.0000015"), "half at each price"
    assert OVERSIZE.problems(OVERSIZE.conform(rows)) == {}


def test_too_few_calls_say_nothing(requests_of, no_prices):
    big = [{"input_tokens": 200_000, "output_tokens": 200}] * 2
    assert oversize(requests_of(usual(40) + big).lazy(), no_prices).is_empty()


def test_equal_prompts_need_twice_the_median(requests_of, no_prices):
    flat = [{"input_tokens": 1000, "output_tokens": 5}] * 60
    assert oversize(requests_of([*flat, {"input_tokens": 1999}]).lazy(), no_prices).is_empty()
    assert oversize(requests_of([*flat, {"input_tokens": 2100}]).lazy(), no_prices)["requests"].to_list() == [
        1
    ]


def test_an_application_whose_prompts_are_all_huge_for_its_task(requests_of, no_prices):
    random = np.random.default_rng(3)
    huge = [
        {"input_tokens": int(n), "output_tokens": 4, "project": "tagger", "api_key_alias": "k"}
        for n in random.integers(60_000, 150_000, 80)
    ]
    frame = requests_of(usual(300) + usual(300, 2, team="chat") + huge)
    row = oversize(frame.lazy(), no_prices).filter(pl.col("rule") == "input_output_ratio").row(0, named=True)
    assert row["scope"] == "model:gpt-4o/team:search/project:tagger"
    assert (row["requests"], row["app_kind"], row["app"]) == (80, "project", "tagger")
    others = [r["input_tokens"] for r in usual(300) + usual(300, 2)]
    assert row["threshold_tokens"] == int(np.ceil(1.5 * np.percentile(others, 99)))
    assert (row["excess_usd"], row["requests_unpriced"]) == (None, 80)


def test_an_application_with_a_model_of_its_own_is_held_against_the_rest_of_the_log(requests_of, no_prices):
    huge = [{"input_tokens": 90_000, "output_tokens": 4, "model_served": "other"}] * 60
    rows = oversize(requests_of(usual(300) + huge).lazy(), no_prices)
    assert rows["scope"].to_list() == ["model:other/team:search"]
    assert oversize(requests_of(huge).lazy(), no_prices).is_empty(), "nothing to compare with"


def test_a_growing_conversation_that_is_read_from_cache_is_no_dump(requests_of, no_prices):
    turns = [
        {"input_tokens": 40_000 + 2_000 * k, "output_tokens": 400, "model_served": "agent"} for k in range(60)
    ]
    assert oversize(requests_of(usual(300) + turns).lazy(), no_prices)["rule"].to_list() == [
        "input_output_ratio"
    ]
    cached = [{**turn, "cache_read_tokens": turn["input_tokens"] - 2_000} for turn in turns]
    assert oversize(requests_of(usual(300) + cached).lazy(), no_prices).is_empty()


def test_embeddings_have_no_task_ratio(requests_of, no_prices):
    huge = [{"input_tokens": 90_000, "output_tokens": 0, "operation": "embedding"}] * 60
    assert oversize(requests_of(usual(300) + huge).lazy(), no_prices).is_empty()


LOST = 199_500 * Decimal("1e-6") + 1_000 * Decimal("1e-7") + 200 * Decimal("2e-6") + Decimal("0.001225")
"""Computed input, reads, 5-minute writes; 300 one-hour writes at 4 and 5 output tokens at 5 USD per million."""


def test_share_of_context_and_price_cliff(requests_of, prices_of):
    cached = {"cache_read_tokens": 1_000, "cache_write_5m_tokens": 200, "cache_write_1h_tokens": 300}
    near = [
        {"input_tokens": 201_000, "output_tokens": 5, **cached},
        {"input_tokens": 230_000, "output_tokens": 5},
    ]
    frame = requests_of(usual(10) + near)
    contexts = pl.DataFrame([("gpt-4o", 400_000)], schema=CONTEXTS_SCHEMA, orient="row")
    steps = [
        # reads, writes of both lives and output have steps of their own
        (
            "openai",
            "gpt-4o",
            dt.date(2026, 9, 1),
            200_000,
            *map(Decimal, ("1e-6", "1e-7", "2e-6", "4e-6", "5e-6")),
        ),
        ("openai", "gpt-4o", dt.date(2026, 9, 1), 100, *[Decimal("3e-6")] * 5),
    ]
    cliffs = pl.DataFrame(steps, schema=CLIFFS_SCHEMA, orient="row")
    rows = oversize(frame.lazy(), prices_of(frame, input="2"), contexts, cliffs)
    assert rows.select("rule", "threshold_tokens", "requests", "excess_tokens", "excess_usd").rows() == [
        ("context_share", 200_000, 2, 31_000, Decimal("0.06")),  # the reads of the first have no price
        ("price_cliff", 200_000, 1, 1_000, LOST),
    ]


def test_what_the_excess_holds_and_delays_is_estimated_where_times_are_known(requests_of, no_prices):
    """1,000 tokens of excess each: in flight for 4 and 6 s, one of unknown time; a fifth of each was read from cache."""
    timed = [{"duration_ms": 5_000.0, "queue_ms": 1_000.0}, {"duration_ms": 6_000.0}, {}]
    long = [
        {"input_tokens": 201_000, "cache_read_tokens": 40_200, "output_tokens": 5, **call} for call in timed
    ]
    frame = requests_of(long)
    contexts = pl.DataFrame([("gpt-4o", 400_000)], schema=CONTEXTS_SCHEMA, orient="row")
    line = TTFT_BY_INPUT.conform(pl.DataFrame({"model": ["gpt-4o"], "ms_per_1k_tokens": [250.0]}))
    unknown = oversize(frame.lazy(), no_prices, contexts).row(0, named=True)
    known = oversize(frame.lazy(), no_prices, contexts, ttft=line).row(0, named=True)
    assert known["excess_kv_token_seconds"] == pytest.approx(1_000 * 4 + 1_000 * 6)
    assert known["excess_ttft_s"] == pytest.approx(3 * 0.8 * 0.25)
    assert unknown["excess_ttft_s"] is None


def test_short_prompts_are_never_oversize(requests_of, no_prices):
    rows = [{"input_tokens": 10, "output_tokens": 5}] * 60 + [{"input_tokens": 1000, "output_tokens": 5}] * 3
    assert oversize(requests_of(rows).lazy(), no_prices).is_empty()


def test_small_applications_are_judged_together(requests_of, no_prices):
    """Forty keys of ten calls each: none has statistics of its own, together they have."""
    rows = [{**row, "api_key_alias": f"k{k % 40}"} for k, row in enumerate(usual(400))]
    big = {"input_tokens": 200_000, "output_tokens": 200, "api_key_alias": "k1"}
    found = oversize(requests_of([*rows, big]).lazy(), no_prices)
    assert found.select("scope", "rule", "requests").rows() == [("model:gpt-4o/team:search", "outlier", 1)]
