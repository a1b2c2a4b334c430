"""Findings on causes and lifetimes: thresholds, sentences, and that their money is that of the changes applied."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from pipelines.waste.blocks import exact_blocks
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.net_savings import alone
from pipelines.waste.repetition import repeated_prefixes
from pipelines.waste.repetition_findings import repetition_by_leaf, repetition_findings
from pipelines.waste.reused_prefixes import reused_prefixes

RULES = default_rules()
CLAUDE = {"provider": "anthropic", "model_served": "claude-sonnet-4-5"}
CLAUDE_PRICES = {
    "input": "3",
    "cache_read": "0.3",
    "cache_write_5m": "3.75",
    "cache_write_1h": "6",
    "output": "15",
}


def chain(*names: str, tokens: int = 1024) -> dict[str, object]:
    return {
        "prefix_hashes": [hash(names[: k + 1]) % 2**64 for k in range(len(names))],
        "prefix_token_counts": [tokens * (k + 1) for k in range(len(names))],
        "input_tokens": tokens * len(names) + 10,
        "output_tokens": 5,
        "cache_read_tokens": 0,
    }


def reused(frame, prices):
    blocks = exact_blocks(frame.lazy(), RULES)
    calls = repeated_prefixes(frame.lazy(), prices, RULES, blocks)
    return calls, reused_prefixes(calls, blocks, repetition_by_leaf(calls))


def applied(frame, prices, found):
    return {row["id"]: row for row in alone(frame.lazy(), prices, found.calls).iter_rows(named=True)}


def test_the_money_of_a_longer_lifetime_is_that_of_its_calls_priced_again(requests_of, prices_of):
    """One prefix of three comes again each 20 minutes, so that the price for writing the others counts."""
    rows = []
    for n in range(6):
        rows += [{**CLAUDE, **chain("a", "b"), "s": 1200.0 * n, "cache_write_5m_tokens": 2048}]
        rows += [{**CLAUDE, **chain(f"x{n}"), "s": 1200.0 * n + 1, "cache_write_5m_tokens": 500}]
    frame = requests_of(rows)
    prices = prices_of(frame, "anthropic", "claude-sonnet-4-5", **CLAUDE_PRICES)
    found = reused(frame, prices)[1].found
    row = found.rows.row(by_predicate=pl.col("kind") == "longer_lifetime", named=True)
    usd = (5 * 2048 * Decimal("3.45") - (2048 + 6 * 500) * Decimal("2.25")) / 10**6
    assert (row["tokens"], row["usd"], row["step"]) == (5 * 2048, usd, "kept_longer")
    assert "1 h" in row["title"]
    priced = applied(frame, prices, found)[row["id"]]
    assert priced["requests"] == 5
    assert abs(priced["usd"] - usd) < Decimal("1e-9")


@pytest.mark.parametrize(("name", "kind"), [("region", "region_switch"), ("organization", "account_spread")])
def test_calls_that_are_spread_have_the_money_of_the_reads_they_missed(requests_of, prices_of, name, kind):
    rows = [{**chain("a", "b"), name: str(n), "s": 2.0 * n} for n in range(12)]
    frame = requests_of(rows)
    prices = prices_of(frame, input="2", cache_read="1", output="8")
    found = reused(frame, prices)[1].found
    row = found.rows.row(by_predicate=pl.col("kind") == kind, named=True)
    usd = 11 * 2048 * Decimal(1) / 10**6
    assert (row["tokens"], row["usd"], row["step"]) == (11 * 2048, usd, "read")
    assert applied(frame, prices, found)[row["id"]]["usd"] == usd


def test_a_switch_of_models_claims_nothing(requests_of, no_prices):
    rows = [{**chain(f"a{n // 2}", "b"), "model_served": "mn"[n % 2], "s": 2.0 * n} for n in range(40)]
    row = reused(requests_of(rows), no_prices)[1].found.rows.row(
        by_predicate=pl.col("kind") == "model_switch", named=True
    )
    assert (row["step"], row["usd"], row["model"], row["tokens"]) == (None, None, "n", 20 * 2048)


def test_few_calls_make_no_finding(requests_of, no_prices):
    rows = [{**chain("a", "b"), "region": str(n), "s": 2.0 * n} for n in range(5)]
    assert reused(requests_of(rows), no_prices)[1].found.rows.is_empty()


def test_a_missed_read_names_its_main_cause(requests_of, prices_of):
    frame = requests_of([{**CLAUDE, **chain("a", "b"), "cache_write_5m_tokens": 0}] * 3)
    prices = prices_of(frame, "anthropic", "claude-sonnet-4-5", **CLAUDE_PRICES)
    calls, told = reused(frame, prices)
    missed = repetition_findings(calls, told.leaves, frame.lazy(), prices).rows
    row = missed.row(by_predicate=pl.col("kind") == "missed_cache", named=True)
    assert "Main cause: no cache control (100 % of it)." in row["title"]
    assert "cache_control" in row["advice"]


def test_nothing_in_nothing_out(requests_of, no_prices):
    _, told = reused(requests_of([{"input_tokens": 5}]), no_prices)
    assert told.found.rows.is_empty()
    assert all(mart.is_empty() for mart in told.marts)
