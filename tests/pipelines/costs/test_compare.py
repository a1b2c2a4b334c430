"""Reported against list, and what an API would cost instead."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest

from pipelines.costs.calls import price_keys
from pipelines.costs.compare import api_cost, price_disagreement
from warehouse.prices import unit_prices

D = Decimal


def test_disagreement_is_measured_over_calls_that_have_both(make_requests):
    call = {"input_tokens": 10_000, "output_tokens": 0}
    requests = make_requests(
        call | {"cost_reported": D("0.02")},
        call | {"cost_reported": D(0)},
        call,
        {"model_served": "house", "cost_reported": D(5)},
    )
    found = price_disagreement(requests, unit_prices(price_keys(requests))).row(0, named=True)
    assert (found["requests"], found["requests_zero_reported"]) == (2, 1)
    assert (found["reported_usd"], found["list_usd"], found["difference_usd"]) == (
        D("0.02"),
        D("0.05"),
        D("-0.03"),
    )
    assert found["reported_to_list_ratio"] == pytest.approx(0.4)


def test_no_reported_costs_means_no_rows(make_requests):
    requests = make_requests({"input_tokens": 1, "output_tokens": 1})
    assert price_disagreement(requests, unit_prices(price_keys(requests))).is_empty()


def candidates(*pairs, days=(dt.date(2026, 11, 20),)):
    keys = [(provider, model, day) for provider, model in pairs for day in days]
    return unit_prices(
        pl.DataFrame(keys, schema={"provider": pl.String, "model": pl.String, "day": pl.Date}, orient="row")
    )


def test_the_same_tokens_at_other_list_prices_tiers_included(make_requests):
    requests = make_requests(
        {"provider": "hosted_vllm", "model_served": "m", "input_tokens": 200_001, "output_tokens": 1_000},
        {"provider": "hosted_vllm", "model_served": "m", "input_tokens": 200_000, "output_tokens": 1_000},
        {"provider": "hosted_vllm", "input_tokens": None},
        {"status": "error", "input_tokens": 5, "output_tokens": 5},
        {"response_cache_hit": True, "input_tokens": 5, "output_tokens": 5},
    )
    found = api_cost(requests, candidates(("gemini", "gemini-2.5-pro"), ("openai", "gpt-4o"))).rows_by_key(
        "model", named=True
    )
    gemini, gpt = found["gemini-2.5-pro"][0], found["gpt-4o"][0]
    assert gemini["usd"] == D("0.5150025") + D("0.26")
    assert gpt["usd"] == D("0.0000025") * 400_001 + D("0.00001") * 2_000
    assert (gpt["requests"], gpt["requests_unknown"], gpt["is_upper_bound"]) == (2, 1, False)


def test_unknown_cache_reads_make_the_api_cost_an_upper_bound(make_requests):
    requests = make_requests({"input_tokens": 1_000_000, "cache_read_tokens": None, "output_tokens": 0})
    row = api_cost(requests, candidates(("openai", "gpt-4o"))).row(0, named=True)
    assert (row["usd"], row["is_upper_bound"]) == (D("2.5"), True)


def test_a_day_without_a_price_makes_the_sum_unknown(make_requests):
    requests = make_requests(
        {"input_tokens": 1, "output_tokens": 1},
        {"input_tokens": 1, "output_tokens": 1, "started_at": dt.datetime(2026, 11, 21, tzinfo=dt.UTC)},
    )
    assert api_cost(requests, candidates(("openai", "gpt-4o")))["usd"].to_list() == [None]
