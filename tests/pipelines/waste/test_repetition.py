"""Repetition over rows of the contract: evidence, rules, money, scopes, a public trace."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.repetition import repeated_prefixes, repetition
from tests.pipelines.waste.weka import weka_rows
from warehouse.waste_tables import REPETITION

RULES = default_rules()


def chain(*names: str, tokens: int = 1024) -> dict[str, object]:
    """Blocks of 1024 tokens named by their path; the input is 10 tokens longer."""
    return {
        "prefix_hashes": [hash(names[: k + 1]) % 2**64 for k in range(len(names))],
        "prefix_token_counts": [tokens * (k + 1) for k in range(len(names))],
        "input_tokens": tokens * len(names) + 10,
        "output_tokens": 5,
        "cache_read_tokens": 0,
    }


def scope(frame: pl.DataFrame, name: str) -> dict[str, object]:
    return frame.filter(pl.col("scope") == name).row(0, named=True)


def test_mooncake_trace_has_its_three_ratios(shared, no_prices):
    """Block ratio = 1 - unique / total, since the ids are chained; the others by their definitions."""
    path = shared / "data" / "mooncake" / "conversation_trace.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        trace = [json.loads(line) for line in lines]
    ids = [row["hash_ids"] for row in trace]
    frame = REQUESTS.conform(
        pl.DataFrame(
            {
                "source_format": "mooncake",
                "source_file": path.name,
                "source_line": range(1, len(trace) + 1),
                "started_at": [row["timestamp"] * 1000 for row in trace],
                "input_tokens": [row["input_length"] for row in trace],
                "status": "ok",
                "usage_origin": "reported",
                "prefix_hashes": ids,
                "prefix_token_counts": [[512 * (k + 1) for k in range(len(row))] for row in ids],
                "flags": [["relative_clock"]] * len(trace),
            }
        )
    )
    seen: set[int] = set()
    hit_tokens = []
    for row, blocks in zip(trace, ids, strict=True):
        hits = next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))
        hit_tokens.append(min(512 * hits, row["input_length"]))
        seen.update(blocks)
    inputs = np.array([row["input_length"] for row in trace])
    total = sum(map(len, ids))

    calls = repeated_prefixes(frame.lazy(), no_prices, RULES)
    measured = scope(repetition(calls), "all")
    names = ("block_hit_ratio", "token_hit_ratio", "mean_request_hit_ratio")
    assert [round(measured[name], 3) for name in names] == [0.366, 0.374, 0.409]
    print({name: round(measured[name], 4) for name in names})  # noqa: T201  (pytest -s shows them)
    assert measured["block_hit_ratio"] == pytest.approx(1 - len(seen) / total, abs=1e-12)
    assert measured["token_hit_ratio"] == pytest.approx(sum(hit_tokens) / inputs.sum(), abs=1e-12)
    assert measured["mean_request_hit_ratio"] == pytest.approx(np.mean(hit_tokens / inputs), abs=1e-12)
    assert measured["seen_before_tokens"] == sum(hit_tokens)
    assert measured["missed_tokens"] is None, "the trace does not say what was read from cache"
    assert measured["requests_missed_unknown"] == len(trace)


@pytest.mark.slow
def test_weka_sessions_repeat_what_a_plain_count_says(shared, requests_of, no_prices):
    rows = weka_rows(shared / "data" / "weka" / "traces_237.tar.xz", sessions=6)
    rows.sort(key=lambda row: row["s"])
    seen: set[int] = set()
    hits = []
    for row in rows:
        blocks = row["prefix_hashes"]
        hits.append(next((k for k, block in enumerate(blocks) if block not in seen), len(blocks)))
        seen.update(blocks)
    inputs = np.array([row["input_tokens"] for row in rows])

    calls = repeated_prefixes(requests_of(rows).lazy(), no_prices, RULES)
    assert calls["hit_blocks"].to_list() == hits
    measured = scope(repetition(calls), "all")
    assert measured["block_hit_ratio"] == pytest.approx(sum(hits) / sum(inputs // 64), abs=1e-12)
    assert measured["token_hit_ratio"] == pytest.approx(64 * sum(hits) / sum(inputs), abs=1e-12)
    assert measured["mean_request_hit_ratio"] == pytest.approx(
        np.mean(64 * np.array(hits) / inputs), abs=1e-12
    )


def test_missed_is_cacheable_less_reads_by_the_rule_and_priced_on_the_day(requests_of, prices_of):
    """OpenAI: 128-token steps, 1024 minimum, 300 s; the third call comes too late, the fourth read a part."""
    frame = requests_of(
        [
            {"s": 0, **chain("a", "b")},
            {"s": 10, **chain("a", "b")},
            {"s": 400, **chain("a", "b")},
            {"s": 410, **chain("a", "c"), "cache_read_tokens": 1000},
        ]
    )
    prices = prices_of(frame, input="2.50", cache_read="1.25")
    calls = repeated_prefixes(frame.lazy(), prices, RULES)
    assert calls["seen_before_tokens"].to_list() == [0, 2048, 2048, 1024]
    assert calls["cacheable_tokens"].to_list() == [0, 2048, 0, 1024]
    assert calls["missed_tokens"].to_list() == [0, 2048, 0, 24]
    assert calls["missed_usd"].to_list() == [0, Decimal("0.00256"), 0, Decimal("0.00003")]
    row = scope(repetition(calls), "model:gpt-4o/team:search")
    assert (row["missed_tokens"], row["missed_usd"]) == (2072, Decimal("0.00259"))
    assert (row["blocks"], row["hit_blocks"], row["cache_read_tokens"]) == (8, 5, 1000)


def test_an_exact_repeat_still_computes_its_last_token(requests_of, no_prices):
    whole = {**chain("a", "b"), "input_tokens": 2048, "provider": "vllm"}
    calls = repeated_prefixes(requests_of([whole, whole]).lazy(), no_prices, RULES)
    assert calls["seen_before_tokens"].to_list() == [0, 2048]
    assert calls["cacheable_tokens"].to_list() == [0, 2032], "one step of 16 less"


def test_twin_in_flight_is_seen_but_not_missed(requests_of, no_prices):
    frame = requests_of(
        [
            {"s": 0, "ready": 5, **chain("a", "b")},
            {"s": 3, "ready": 6, **chain("a", "b")},
            {"s": 5, "ready": 7, **chain("a", "b")},
        ]
    )
    calls = repeated_prefixes(frame.lazy(), no_prices, RULES)
    assert calls["seen_before_tokens"].to_list() == [0, 2048, 2048]
    assert calls["missed_tokens"].to_list() == [0, 0, 2048]
    assert calls["missed_usd"].to_list() == [0, 0, None], (
        "no price: money unknown, but nothing missed costs nothing"
    )


def test_missed_is_net_of_cache_writes_where_they_are_charged(requests_of, prices_of):
    """Anthropic writes at 1.25 x input, once: 2048 x (3 - 0.3 - 0.75), then 2048 x 2.7, per million."""
    row = {**chain("a", "b"), "provider": "anthropic", "model_served": "claude-sonnet-4-5"}
    frame = requests_of([row, row, row])
    prices = prices_of(frame, "anthropic", "claude-sonnet-4-5", input="3", cache_read="0.3")
    calls = repeated_prefixes(frame.lazy(), prices, RULES)
    assert calls["missed_usd"].to_list() == [0, Decimal("0.0039936"), Decimal("0.0055296")]
    listed = prices_of(
        frame, "anthropic", "claude-sonnet-4-5", input="3", cache_read="0.3", cache_write_5m="4"
    )
    calls = repeated_prefixes(frame.lazy(), listed, RULES)
    assert calls["missed_usd"].to_list()[1] == Decimal("0.0034816"), (
        "a listed write price goes before the multiple"
    )
    no_read = prices_of(frame, "anthropic", "claude-sonnet-4-5", input="3")
    row = scope(repetition(repeated_prefixes(frame.lazy(), no_read, RULES)), "team:search")
    assert (row["missed_usd"], row["requests_unpriced"]) == (None, 2), "the first call's 0 is not the sum"


def test_unknown_reads_make_missed_unknown_and_are_counted(requests_of, no_prices):
    frame = requests_of([{**chain("a", "b"), "cache_read_tokens": None}] * 3 + [chain("x", "y")])
    row = scope(repetition(repeated_prefixes(frame.lazy(), no_prices, RULES)), "all")
    assert row["seen_before_tokens"] == 2 * 2048
    assert (row["missed_tokens"], row["requests_missed_unknown"]) == (0, 3)
    only = frame.filter(pl.col("cache_read_tokens").is_null())
    row = scope(repetition(repeated_prefixes(only.lazy(), no_prices, RULES)), "all")
    assert row["missed_tokens"] is None
    assert row["missed_usd"] is None


def test_levels_of_evidence(requests_of, no_prices):
    frame = requests_of(
        [
            chain("a"),
            {**chain("a"), "prefix_token_counts": [1, 2], "prompt_hash": 7},
            {**chain("a"), "prefix_hashes": [None], "prompt_hash": 7},
            {"input_tokens": 5, "prompt_hash": 8, "prefix_hashes": [], "prefix_token_counts": []},
            {"input_tokens": 5, "session_id": "s"},
            {"input_tokens": 5, "session_id": "s"},
            {"input_tokens": 5, "session_id": "alone"},
            {"input_tokens": 5},
            {"input_tokens": None},
            {"input_tokens": 5, "status": "error"},
            {"input_tokens": 5, "response_cache_hit": True},
            {"input_tokens": 5, "status": "cancelled"},
        ]
    )
    calls = repeated_prefixes(frame.lazy(), no_prices, RULES)
    assert calls["evidence"].to_list() == [
        "hash_chain", "prompt_hash", "prompt_hash", "prompt_hash", "session", "session",
        "none", "none", "none",
    ]  # fmt: skip
    assert calls["seen_before_tokens"].to_list() == [0, 0, 1034, 0, None, None, None, None, None]
    row = scope(repetition(calls), "all")
    assert row["requests"] == sum(
        row[f"{level}_requests"] for level in ("hash_chain", "prompt_hash", "session", "none")
    )
    assert row["hash_chain_requests"] == 1
    assert row["session_input_tokens"] == 10


def test_a_placeholder_instead_of_the_prompt_is_no_evidence(requests_of, prices_of):
    """A gateway that redacts bodies logs one text for all: 45 bytes can't hold 5,000 tokens. Images can."""
    row = {**chain("a", tokens=5000), "prompt_hash": 1, "prompt_bytes": 45}
    frame = requests_of([row, {**row, "session_id": "s"}, {**row, "session_id": "s"}])
    calls = repeated_prefixes(frame.lazy(), prices_of(frame, input="2", cache_read="1"), RULES)
    assert calls["evidence"].to_list() == ["none", "session", "session"]
    assert calls["missed_usd"].null_count() == 3
    assert calls["repeated_prompt"].null_count() == 3
    pictures = requests_of([{**row, "image_input_tokens": 4990}] * 2)
    calls = repeated_prefixes(pictures.lazy(), prices_of(frame), RULES)
    assert calls["evidence"].to_list() == ["hash_chain"] * 2


def test_caches_of_models_providers_and_organisations_are_apart_but_a_fleet_is_shared(requests_of, no_prices):
    different = [
        {},
        {"model_served": "gpt-4o-mini"},
        {"provider": "azure"},
        {"organization": "other"},
        {"region": "eu"},
    ]
    frame = requests_of([{**chain("a"), **what} for what in different])
    assert repeated_prefixes(frame.lazy(), no_prices, RULES)["seen_before_tokens"].to_list() == [0] * 5
    fleet = requests_of([{**chain("a"), "provider": "vllm", "organization": name} for name in ("a", "b")])
    assert repeated_prefixes(fleet.lazy(), no_prices, RULES)["seen_before_tokens"].to_list() == [0, 1024]
    unnamed = requests_of([{**chain("a"), "provider": None, "model_served": None}] * 2)
    assert repeated_prefixes(unnamed.lazy(), no_prices, RULES)["seen_before_tokens"].to_list() == [0, 1024]


def test_session_upper_bound_from_counts(requests_of, no_prices):
    """Turn 2 re-sends turn 1 and its answer; turn 3 shrank; turn 4 came too late; turn 5 read all but 300."""
    turns = [
        (0, 2000, 100, 0),
        (10, 5000, 10, 0),
        (20, 3000, 10, 0),
        (900, 3500, 10, 0),
        (910, 4000, 10, 3200),
    ]
    frame = requests_of(
        [
            {"s": s, "input_tokens": i, "output_tokens": o, "cache_read_tokens": read, "session_id": "s"}
            for s, i, o, read in turns
        ]
    )
    calls = repeated_prefixes(frame.lazy(), no_prices, RULES)
    assert calls["upper_bound_tokens"].to_list() == [0, 2048, 0, 0, 3456 - 3200]
    assert calls["missed_usd"].null_count() == 5, "no money from estimates"


def test_embeddings_have_no_prefix_cache(requests_of, no_prices):
    frame = requests_of([{**chain("a", "b"), "operation": "embedding"}] * 2)
    calls = repeated_prefixes(frame.lazy(), no_prices, RULES)
    assert calls["seen_before_tokens"].to_list() == [0, 2048]
    assert calls["missed_tokens"].to_list() == [None, None]


def test_marts_keep_the_contract_for_hostile_and_empty_input(requests_of, no_prices):
    """Names that imitate scopes stay apart, hash values go up to 2^64 - 1, counts exceed the input."""
    frame = requests_of(
        [
            {**chain("a"), "model_served": "m/team:x", "team": None},
            {**chain("a"), "model_served": "m", "team": "x"},
            {**chain("a"), "model_served": "m/team:x", "team": ""},
            {**chain("a"), "model_served": "m/team%3Ax", "team": "x/project:p"},
            {"prefix_hashes": [2**64 - 1], "prefix_token_counts": [10**12], "input_tokens": 3},
            {"prefix_hashes": [2**64 - 1], "prefix_token_counts": [10**12], "input_tokens": 0},
        ]
    )
    mart = repetition(repeated_prefixes(frame.lazy(), no_prices, RULES))
    assert REPETITION.problems(mart) == {}
    assert scope(mart, "model:m/team%3Ax/team:")["requests"] == 2
    assert scope(mart, "all")["seen_before_tokens"] == 1024
    empty = REQUESTS.empty().lazy()
    assert repetition(repeated_prefixes(empty, no_prices, RULES)).schema == REPETITION.schema
