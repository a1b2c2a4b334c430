"""Causes of missed reads, over rows of the contract: each is told, and together they add up."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from pipelines.waste.blocks import exact_blocks
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.causes import causes_of, missed_causes
from pipelines.waste.conversations import found
from pipelines.waste.repetition import repeated_prefixes
from pipelines.waste.unstable_prompts import unstable_prompts
from warehouse.reuse_tables import MISSED_CAUSES

RULES = default_rules()
CLAUDE = {"provider": "anthropic", "model_served": "claude-sonnet-4-5"}


def chain(*names: str, tokens: int = 1024, size: int = 4) -> dict[str, object]:
    """Blocks of 1024 tokens named by their path, of 1,024 bytes each but the last one."""
    return {
        "prefix_hashes": [hash(names[: k + 1]) % 2**64 for k in range(len(names))],
        "prefix_token_counts": [tokens * (k + 1) for k in range(len(names))],
        "input_tokens": tokens * len(names) + 10,
        "output_tokens": 5,
        "cache_read_tokens": 0,
    }


def judged(frame, prices):
    blocks = exact_blocks(frame.lazy(), RULES)
    calls = repeated_prefixes(frame.lazy(), prices, RULES, blocks)
    return calls, blocks


def causes(frame, prices):
    calls, blocks = judged(frame, prices)
    rows = causes_of(calls, blocks)
    seen = calls["seen_before_tokens"].sum()
    in_own = rows.filter(~pl.col("cause").is_in(["model_switch", "region_switch", "account_spread"]))
    assert in_own["tokens"].sum() <= rows["tokens"].sum()
    assert rows["tokens"].sum() >= seen, "what other caches hold comes on top"
    missed = [
        "no_cache_control",
        "beyond_breakpoint",
        "cache_off",
        "replica_spread",
        "evicted",
        "unexplained",
    ]
    assert rows.filter(pl.col("cause").is_in(missed))["tokens"].sum() == (calls["missed_tokens"].sum() or 0)
    return {row["cause"]: (row["requests"], row["tokens"], row["usd"]) for row in all_of(rows)}


def all_of(rows):
    mart = missed_causes(rows)
    assert MISSED_CAUSES.problems(mart) == {}
    return mart.filter(pl.col("scope") == "all").to_dicts()


def test_what_is_seen_is_split_without_a_rest(requests_of, prices_of):
    frame = requests_of(
        [
            {"s": 0, "ready": 5, **chain("a", "b")},
            {"s": 3, "ready": 6, **chain("a", "b")},
            {"s": 10, **chain("a", "b"), "cache_read_tokens": 1000},
            {"s": 400, **chain("a", "b")},
            {"s": 410, **chain("a", "b"), "cache_read_tokens": None},
            {"s": 420, **chain("a", "b", tokens=300), "prefix_hashes": chain("a", "b")["prefix_hashes"]},
        ]
    )
    found_causes = causes(frame, prices_of(frame, input="2", cache_read="1"))
    assert found_causes == {
        "read": (1, 1000, 0),
        "in_flight": (1, 2048, 0),
        "unexplained": (1, 1048, Decimal("0.001048")),
        "expired": (1, 2048, Decimal("0.002048")),
        "reads_unknown": (1, 2048, None),
        "below_minimum": (1, 600, 0),
    }


def test_rounding_to_the_step_is_no_miss(requests_of, no_prices):
    row = chain("a", "b", tokens=1000)
    found_causes = causes(requests_of([row, {**row, "cache_read_tokens": 1920}]), no_prices)
    assert found_causes == {"read": (1, 1920, 0), "step": (1, 80, 0)}


def test_calls_that_do_not_ask_and_breakpoints_that_come_too_early(requests_of, no_prices):
    """Anthropic: without cache_control; then with a breakpoint after the first of three blocks."""
    row = {**CLAUDE, **chain("a", "b", "c"), "cache_write_5m_tokens": 0}
    assert causes(requests_of([row, row]), no_prices) == {
        "no_cache_control": (1, 3072, None),
    }
    marked = {**row, "cache_read_tokens": 1024}
    first = {**row, "cache_write_5m_tokens": 1024}
    assert causes(requests_of([first, marked]), no_prices) == {
        "read": (1, 1024, 0),
        "beyond_breakpoint": (1, 2048, None),
    }
    silent = {**CLAUDE, **chain("a", "b", "c")}
    assert causes(requests_of([silent, silent]), no_prices)["no_cache_control"][1] == 3072
    written_again = {**row, "cache_write_5m_tokens": 3072}
    assert causes(requests_of([written_again] * 2), no_prices) == {"unexplained": (1, 3072, None)}


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ({"model_served": "gpt-4o-mini"}, "model_switch"),
        ({"region": "eu"}, "region_switch"),
        ({"organization": "second"}, "account_spread"),
        ({"provider": "azure"}, "account_spread"),
        ({"instance": "b"}, "replica_spread"),
        ({"api_key_hash": "k"}, "replica_spread"),
        ({"gateway": "litellm", "api_key_hash": "k"}, "unexplained"),
    ],
)
def test_a_prefix_that_is_warm_elsewhere(requests_of, no_prices, other, cause):
    """A gateway's keys are not the provider's; its instances are."""
    row = chain("a", "b")
    both = {name: value for name, value in other.items() if name == "gateway"}
    frame = requests_of([{**row, **both}, {**row, **other}])
    assert causes(frame, no_prices) == {cause: (1, 2048, None)}


def test_a_switch_after_the_lifetime_is_expiry(requests_of, no_prices):
    row = chain("a", "b")
    frame = requests_of([{"s": 0, **row}, {"s": 1000, **row, "region": "eu"}])
    assert causes(frame, no_prices) == {"expired": (1, 2048, None)}


def test_an_engine_without_reads_has_its_cache_off_and_a_full_one_evicts(requests_of, no_prices):
    own = {"provider": "vllm", "model_served": "qwen"}
    row = {**own, **chain("a", "b")}
    assert list(causes(requests_of([row, row]), no_prices)) == ["cache_off"]
    hit = {**row, "cache_read_tokens": 2048}
    others = [{**own, **chain(f"x{n}", f"y{n}", f"z{n}")} for n in range(4)]
    found_causes = causes(requests_of([row, hit, *others, row]), no_prices)
    assert found_causes["evicted"][:2] == (1, 2048)
    assert "unexplained" in causes(requests_of([row, hit, row]), no_prices)


def layout(*messages: tuple[str, int], tokens_per_byte: float = 0.25, **more) -> dict[str, object]:
    """A prompt of messages (name, bytes), its blocks cut as the hasher cuts them."""
    ends, names, at = [], [], 0
    for name, size in messages:
        for begin in range(0, size, 1024):
            at += min(1024, size - begin)
            ends.append(at)
            names.append((name, begin))
    tokens = [round(end * tokens_per_byte) for end in ends]
    return {
        "prefix_hashes": [hash(tuple(names[: k + 1])) % 2**64 for k in range(len(names))],
        "prefix_token_counts": tokens,
        "input_tokens": tokens[-1],
        "prompt_bytes": at,
        "output_tokens": 5,
        "cache_read_tokens": 0,
        **more,
    }


def unstable(frame, prices):
    calls, blocks = judged(frame, prices)
    return unstable_prompts(calls, blocks, found(calls, blocks))


def test_a_time_in_the_system_prompt_is_a_volatile_head(requests_of, no_prices):
    """10,000 bytes of system prompt whose second block holds the time, behind tools that stay."""
    rows = [
        layout(
            ("tools", 1500),
            (f"system at {n}", 10_000 + n % 3),
            (f"question {n}", 300 + 40 * n),
            project="bot",
        )
        for n in range(8)
    ]
    rows_found = unstable(requests_of(rows), no_prices)
    assert set(rows_found["cause"]) == {"volatile_head"}
    assert rows_found.height >= 5
    assert set(rows_found["differing_block"]) == {3}
    assert set(rows_found["tokens_before"]) == {375}
    assert rows_found["tokens"].is_between(2490, 2510).all(), "the system prompt of 10,000 bytes"
    assert rows_found["usd"].null_count() == rows_found.height
    mart = all_of(rows_found)
    assert (mart[0]["is_estimate"], mart[0]["usd"], mart[0]["differing_block"]) == (True, None, 3)


def test_different_prompts_are_no_volatile_head(requests_of, no_prices):
    rows = [
        layout((f"document {n}", 9_000 + 130 * n), (f"question {n}", 200), project="bot") for n in range(20)
    ]
    assert unstable(requests_of(rows), no_prices).is_empty()
    stable = [layout(("system", 9_000), (f"question {n}", 200), project="bot") for n in range(20)]
    assert unstable(requests_of(stable), no_prices).is_empty()


def test_the_same_tools_in_another_order(requests_of, no_prices):
    tools = {"tools_hash": 7, "tools_bytes": 8192, "project": "bot"}
    rows = [layout((f"tools {n % 2}", 8192), (f"q{n}", 300), **tools, s=n * 1000.0) for n in range(2)] + [
        layout(("tools 2", 8192), ("q", 300), **{**tools, "tools_hash": 8}, s=9000.0)
    ]
    rows_found = unstable(requests_of(rows), no_prices)
    assert rows_found.select("cause", "tokens", "differing_block").rows() == [("reordered_tools", 2048, 1)]


def test_a_session_that_goes_on_with_a_summary_has_a_changed_history_and_a_sub_agent_has_not(
    requests_of, no_prices
):
    def turn(*names, **more):
        return {**layout(*((name, 8000) for name in names), **more), "session_id": "s"}

    grown = [turn("sys", "a"), turn("sys", "a", "b"), turn("sys", "a", "b", "c")]
    compacted = unstable(
        requests_of([*grown, turn("sys", "summary", "d"), turn("sys", "summary", "d", "e")]), no_prices
    )
    assert compacted.select("cause", "tokens").rows() == [("changed_history", 4000)]
    branched = unstable(
        requests_of([*grown, turn("sys", "sub", "d"), turn("sys", "a", "b", "c", "e")]), no_prices
    )
    assert branched.is_empty()


def test_no_calls_no_causes(requests_of, no_prices):
    frame = requests_of([{"input_tokens": 5}])
    calls, blocks = judged(frame, no_prices)
    assert missed_causes(causes_of(calls, blocks)).schema == MISSED_CAUSES.schema
    assert unstable_prompts(calls, blocks, found(calls, blocks)).is_empty()
