"""Gaps between uses and the net of longer lifetimes, over rows of the contract."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from pipelines.waste.blocks import exact_blocks
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.gaps import gaps_of, reuse_gaps
from pipelines.waste.repetition import repeated_prefixes
from warehouse.reuse_tables import REUSE_GAPS

RULES = default_rules()
CLAUDE = {"provider": "anthropic", "model_served": "claude-sonnet-4-5"}
PRICES = {"input": "3", "cache_read": "0.3", "cache_write_5m": "3.75", "cache_write_1h": "6"}


def chain(*names: str, tokens: int = 1024) -> dict[str, object]:
    return {
        "prefix_hashes": [hash(names[: k + 1]) % 2**64 for k in range(len(names))],
        "prefix_token_counts": [tokens * (k + 1) for k in range(len(names))],
        "input_tokens": tokens * len(names) + 10,
        "output_tokens": 5,
        "cache_read_tokens": 0,
    }


def gaps(frame, prices):
    blocks = exact_blocks(frame.lazy(), RULES)
    mart = reuse_gaps(gaps_of(repeated_prefixes(frame.lazy(), prices, RULES, blocks), blocks))
    assert REUSE_GAPS.problems(mart) == {}
    return mart


def leaf(mart, gap_class="all"):
    return mart.filter(pl.col("team").is_not_null() & pl.col("model").is_not_null()).row(
        by_predicate=pl.col("gap_class") == gap_class, named=True
    )


def test_gaps_fall_into_the_class_whose_bound_they_do_not_exceed(requests_of, no_prices):
    starts = [0, 60, 121, 421, 1022, 90_000, 200_000]
    mart = gaps(requests_of([{"s": s, **chain("a", "b")} for s in starts]), no_prices)
    everything = mart.filter(pl.col("scope") == "all")
    assert everything.select("gap_class", "reuses", "tokens").rows() == [
        ("1 min", 1, 2048),
        ("5 min", 2, 2 * 2048),
        ("30 min", 1, 2048),
        ("longer", 2, 2 * 2048),
        ("all", 6, 6 * 2048),
    ]


def test_an_hour_pays_for_a_prefix_that_comes_again_every_20_minutes(requests_of, prices_of):
    """Four writes of 2,048 at 3.75; for an hour: one at 6 and three reads at 0.3, per million."""
    rows = [{**CLAUDE, **chain("a", "b"), "s": 1200.0 * n, "cache_write_5m_tokens": 2048} for n in range(4)]
    frame = requests_of(rows)
    row = leaf(gaps(frame, prices_of(frame, "anthropic", "claude-sonnet-4-5", **PRICES)))
    paid, hourly = 4 * 2048 * Decimal("3.75"), 2048 * (6 + 3 * Decimal("0.3"))
    assert row["longer_lifetime_tokens"] == 3 * 2048
    assert row["longer_lifetime_usd"] == (paid - hourly) / 10**6
    # Four pings between each two uses, twelve in vain after the last.
    pings = (3 * 4 + 12) * 2048 * Decimal("0.3")
    assert row["keep_warm_usd"] == (3 * 2048 * Decimal("3.45") - pings) / 10**6


def test_an_hour_does_not_pay_for_what_comes_once(requests_of, prices_of):
    rows = [
        {**CLAUDE, **chain(f"a{n}", f"b{n}"), "s": 1200.0 * n, "cache_write_5m_tokens": 2048}
        for n in range(4)
    ]
    rows += [{**CLAUDE, **chain("a0", "b0"), "s": 3700.0 * 2, "cache_write_5m_tokens": 2048}]
    frame = requests_of(rows)
    row = leaf(gaps(frame, prices_of(frame, "anthropic", "claude-sonnet-4-5", **PRICES)))
    assert row["longer_lifetime_usd"] == -5 * 2048 * Decimal("2.25") / 10**6
    assert row["longer_lifetime_tokens"] == 0


def test_a_day_costs_nothing_where_the_provider_charges_no_writes(requests_of, prices_of):
    rows = [{"model_served": "gpt-5.1", **chain("a", "b"), "s": 7200.0 * n} for n in range(3)]
    frame = requests_of(rows)
    row = leaf(gaps(frame, prices_of(frame, "openai", "gpt-5.1", input="2", cache_read="0.2")))
    assert row["longer_lifetime_usd"] == 2 * 2048 * Decimal("1.8") / 10**6
    assert row["keep_warm_usd"] is None


@pytest.mark.parametrize(
    ("rows", "tokens"),
    [
        ([{**CLAUDE, "cache_write_5m_tokens": 0}] * 2, None),
        ([{"provider": "vllm", "model_served": "qwen"}] * 2, None),
        ([{"model_served": "gpt-4o"}] * 2, None),
    ],
)
def test_no_choice_no_figure(requests_of, no_prices, rows, tokens):
    """Who does not ask for caching, one's own engines, providers with one lifetime."""
    frame = requests_of([{**row, **chain("a", "b"), "s": 1000.0 * n} for n, row in enumerate(rows)])
    row = leaf(gaps(frame, no_prices))
    assert (row["longer_lifetime_tokens"], row["longer_lifetime_usd"], row["keep_warm_usd"]) == (
        tokens,
        None,
        None,
    )


def test_who_writes_for_an_hour_has_that_lifetime_and_its_price(requests_of, prices_of):
    """Accounting cases B022 to B026: an hour's write costs 2 x input, and its prefix lives an hour."""
    rows = [{**CLAUDE, **chain("a", "b"), "s": 0.0, "cache_write_1h_tokens": 2048}]
    rows += [
        {**CLAUDE, **chain("a", "b"), "s": 1200.0, "cache_write_1h_tokens": 0, "cache_write_5m_tokens": 0}
    ]
    frame = requests_of(rows)
    prices = prices_of(frame, "anthropic", "claude-sonnet-4-5", **PRICES)
    calls = repeated_prefixes(frame.lazy(), prices, RULES)
    assert calls["missed_tokens"].to_list() == [0, 2048]
    assert calls["missed_usd"].to_list()[1] == 2048 * Decimal("2.7") / 10**6, (
        "written and paid by the first call"
    )
    assert leaf(gaps(frame, prices))["longer_lifetime_usd"] is None
    unwritten = frame.with_columns(cache_write_1h_tokens=pl.Series([0, 5], dtype=pl.Int64))
    calls = repeated_prefixes(unwritten.lazy(), prices, RULES)
    assert calls["missed_usd"].to_list()[1] == 0, "2,048 x (2.7 - 3): writing for one read does not pay"
