"""Conversations and what their growing histories cost, over rows of the contract and public traces."""

from __future__ import annotations

import datetime as dt
import gzip
import itertools
import json
import tarfile
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.waste import conversation_kernels
from pipelines.waste.blocks import exact_blocks
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.conversations import found
from pipelines.waste.repetition import repeated_prefixes
from pipelines.waste.session_growth import COMPACT_EVERY, SUMMARY_PERCENT, WINDOW_TURNS, session_history
from warehouse.reuse_tables import SESSION_HISTORY

RULES = default_rules()


def chain(*names: str, tokens: int = 1000) -> dict[str, object]:
    return {
        "prefix_hashes": [hash(names[: k + 1]) % 2**64 for k in range(len(names))],
        "prefix_token_counts": [tokens * (k + 1) for k in range(len(names))],
        "input_tokens": tokens * len(names),
        "prompt_bytes": 4000 * len(names),
        "output_tokens": 5,
        "cache_read_tokens": 0,
    }


def history(frame, prices):
    blocks = exact_blocks(frame.lazy(), RULES)
    calls = repeated_prefixes(frame.lazy(), prices, RULES, blocks)
    conversations = found(calls, blocks)
    mart = session_history(calls, conversations)
    assert SESSION_HISTORY.problems(mart) == {}
    return mart, conversations


def everything(mart, evidence="hash_chain"):
    return mart.row(by_predicate=(pl.col("scope") == "all") & (pl.col("evidence") == evidence), named=True)


def test_sessions_without_ids_are_found_by_their_chain(requests_of, no_prices):
    """Two conversations of one application, interleaved; a third call shares only the system prompt."""
    rows = [
        chain("sys", "a"),
        chain("sys", "b"),
        chain("sys", "a", "a2"),
        chain("sys", "b", "b2", "b3"),
        chain("sys", "c"),
        chain("sys", "a", "a2", "a3", "a4"),
    ]
    mart, conversations = history(requests_of(rows), no_prices)
    assert conversations.parent.tolist() == [-1, -1, 0, 1, -1, 2]
    assert conversations.turn.tolist() == [1, 1, 2, 2, 1, 3]
    row = everything(mart)
    assert (row["sessions"], row["requests"], row["branches"]) == (2, 5, 0)
    assert (row["resent_tokens"], row["input_tokens"]) == (2000 + 2000 + 3000, 16_000)
    assert row["growth_tokens_per_turn"] == 1750, "medians 1,500 and 2,000"
    assert (row["first_input_tokens"], row["last_input_tokens"]) == (2000, 4500)


def test_branches_sub_agents_and_compaction_in_a_session_with_an_id(requests_of, no_prices):
    turns = [
        ("sys", "a"),
        ("sys", "a", "b"),
        ("agent", "task"),
        ("agent", "task", "x"),
        ("sys", "a", "b", "c"),
        ("sys", "a", "other"),
        ("sys", "summary", "d"),
    ]
    mart, conversations = history(
        requests_of([{**chain(*turn), "session_id": "s"} for turn in turns]), no_prices
    )
    assert conversations.turn.tolist() == [1, 2, 1, 2, 3, 2, 1]
    row = everything(mart)
    assert (row["sessions"], row["requests"], row["branches"], row["rewritten"]) == (1, 7, 3, 2)
    assert row["resent_tokens"] == 2000 + 0 + 2000 + 3000 + 2000 + 1000


def test_what_was_sent_again_is_read_paid_or_unknown(requests_of, no_prices):
    reads = [0, 1500, None]
    rows = [
        {**chain(*("abcd"[: n + 2])), "session_id": "s", "cache_read_tokens": read}
        for n, read in enumerate(reads)
    ]
    row = everything(history(requests_of(rows), no_prices)[0])
    assert (row["resent_tokens"], row["resent_read_tokens"], row["resent_paid_tokens"]) == (5000, 1500, 500)
    assert row["requests_reads_unknown"] == 1
    assert row["resent_ratio"] == pytest.approx(5 / 9)


def test_a_window_loses_the_cache_and_compaction_pays_its_summary(requests_of, prices_of):
    """30 turns that add 1,000 tokens each, all but these read at a tenth of the price."""
    names = [str(n) for n in range(31)]
    rows = [
        {**chain(*names[: n + 1]), "session_id": "s", "cache_read_tokens": 1000 * n, "provider": "vllm"}
        for n in range(30)
    ]
    frame = requests_of(rows)
    prices = prices_of(frame, "vllm", "gpt-4o", input="10", cache_read="1", output="50")
    row = everything(history(frame, prices)[0])
    slid = [max(0, 1000 * (n - WINDOW_TURNS)) for n in range(30)]
    assert row["window_tokens"] == sum(slid)
    before = [1000 * n * 1 + 1000 * 10 for n in range(30)]
    after = [
        1000 + (1000 * n - left) * 10 if left else cost
        for n, (left, cost) in enumerate(zip(slid, before, strict=True))
    ]
    assert row["window_usd"] == Decimal(sum(before) - sum(after)) / 10**6
    assert row["window_usd"] < 0, "without the cache the shorter prompt costs more"
    summary = COMPACT_EVERY * 1000 * SUMMARY_PERCENT // 100
    left_out = COMPACT_EVERY * 1000 - summary
    inputs = [1000 * (n + 1) for n in range(30)]
    assert row["compaction_tokens"] == 10 * left_out - inputs[COMPACT_EVERY]
    first = before[COMPACT_EVERY] - (1000 + (inputs[COMPACT_EVERY] - left_out - 1000) * 10)
    written = before[COMPACT_EVERY] + summary * 50
    assert row["compaction_usd"] == Decimal(first - written + 9 * left_out) / 10**6


def test_sessions_by_counts_are_estimates_of_their_own(requests_of, no_prices):
    sizes = [(2000, 100), (2500, 100), (5000, 10), (3000, 10), (3500, 10)]
    rows = [
        {"input_tokens": size, "output_tokens": out, "cache_read_tokens": 0, "session_id": "s"}
        for size, out in sizes
    ]
    row = everything(history(requests_of(rows), no_prices)[0], "session")
    assert row["resent_tokens"] == 2100 + 2600 + 3010
    assert (row["branches"], row["rewritten"], row["growth_tokens_per_turn"]) == (1, 1, 500)
    assert history(requests_of(rows[:1]), no_prices)[0].is_empty()


def test_embeddings_make_no_conversation(requests_of, no_prices):
    rows = [{**chain("a", *"bc"[:n]), "session_id": "s", "operation": "embedding"} for n in range(3)]
    assert history(requests_of(rows), no_prices)[0].is_empty()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 50)), min_size=1, max_size=25), st.integers(1, 3)
)
def test_what_ifs_equal_a_walk_along_each_branch(calls, window):
    parent = np.array([min(p, i - 1) for i, (p, _) in enumerate(calls)], np.int64)
    inputs = np.array([size for _, size in calls], np.int64)
    paths = []
    for i, p in enumerate(parent):
        paths.append([*(paths[p] if p >= 0 else []), i])
    turn = np.array([len(path) for path in paths], np.int64)
    head, slid, compacted, summary = conversation_kernels.shortened(parent, turn, inputs, window, 3, 40)
    for i, path in enumerate(paths):
        heads = [min(inputs[k] for k in path[: n + 1]) for n in range(len(path))]
        assert head[i] == heads[-1]
        history = inputs[i] - heads[-1]
        at = len(path) - 1 - window
        assert slid[i] == (min(max(inputs[path[at]] - heads[at], 0), history) if at > 0 else 0)
        gone = written = 0
        for n, k in enumerate(path[1:], 1):
            whole = inputs[k] - heads[n]
            gone, written = min(gone, whole), 0
            if n % 3 == 0:
                written = (whole - gone) * 40 // 100
                gone = whole - written
        assert (compacted[i], summary[i]) == (gone, written)


WEKA_SESSIONS = 25


def weka(path):
    """Conversations of the first sessions: by session, the requests that are no sub-agent's."""
    sessions = []
    with tarfile.open(path) as archive:
        for member in itertools.islice((m for m in archive if m.name.endswith(".json")), WEKA_SESSIONS):
            document = json.load(archive.extractfile(member))
            sessions.append([row for row in document["requests"] if row["type"] != "subagent"])
    return sessions


def weka_rows(sessions, *, named):
    """Ids of a session are numbers of its own: here they are told apart by the session's."""
    start = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
    rows = [(n, row) for n, session in enumerate(sessions) for row in session]
    ids = [[(n + 1) * 10**7 + block for block in row["hash_ids"]] for n, row in rows]
    frame = pl.DataFrame(
        {
            "source_format": "weka",
            "source_file": "archive",
            "source_line": range(1, len(rows) + 1),
            "started_at": [start + dt.timedelta(days=n, seconds=row["t"]) for n, row in rows],
            "session_id": pl.Series([str(n) if named else None for n, _ in rows], dtype=pl.String),
            "model_served": [row["model"] for _, row in rows],
            "input_tokens": [row["in"] for _, row in rows],
            "output_tokens": [row["out"] for _, row in rows],
            "prefix_hashes": ids,
            "prefix_token_counts": [[64 * (k + 1) for k in range(len(blocks))] for blocks in ids],
            "status": "ok",
            "usage_origin": "reported",
        }
    )
    return REQUESTS.conform(frame).sort("started_at", maintain_order=True)


def unbroken(blocks, seen):
    return next((k for k, block in enumerate(blocks) if block not in seen), len(blocks))


@pytest.mark.slow
def test_weka_sessions_resend_what_a_plain_count_says(shared, no_prices):
    """Published for all 739 sessions: consecutive overlap, median 96 %, mean 93 %; checked on the first ones."""
    sessions = weka(shared / "data" / "weka" / "traces_237.tar.xz")
    overlaps, resent, blocks = [], 0, 0
    for session in sessions:
        pairs = itertools.pairwise(row["hash_ids"] for row in session)
        hits = [(unbroken(now, set(before)), len(now)) for before, now in pairs]
        overlaps.append(sum(hit for hit, _ in hits) / sum(size for _, size in hits))
        seen: set[int] = set()
        for row in session:
            resent += 64 * unbroken(row["hash_ids"], seen)
            blocks += row["in"]
            seen.update(row["hash_ids"])
    median, mean = float(np.median(overlaps)), float(np.mean(overlaps))
    row = everything(history(weka_rows(sessions, named=True), no_prices)[0])
    said = (
        f"consecutive overlap: median {median:.4f}, mean {mean:.4f}; resent ratio {row['resent_ratio']:.4f}"
    )
    assert row["resent_tokens"] == resent, said
    assert row["resent_ratio"] == pytest.approx(resent / blocks), said
    assert 0.92 < median < 0.98, said
    assert row["sessions"] == len(sessions)
    by_chain = everything(history(weka_rows(sessions, named=False), no_prices)[0])
    assert by_chain["resent_tokens"] == pytest.approx(resent, rel=0.03), (
        "almost all of it is found without ids"
    )
    assert by_chain["window_tokens"] == row["window_tokens"], "branches are the same"


@pytest.mark.slow
def test_mooncake_conversations_are_found_by_their_chain(shared, no_prices):
    """The trace names no session. What is sent again in those found is a part of what was seen at all."""
    with gzip.open(shared / "data" / "mooncake" / "conversation_trace.jsonl.gz", "rt") as lines:
        trace = [json.loads(line) for line in lines]
    sizes = [row["input_length"] for row in trace]
    ids = [row["hash_ids"] for row in trace]
    frame = pl.DataFrame(
        {
            "source_format": "mooncake",
            "source_file": "trace",
            "source_line": range(1, len(trace) + 1),
            "started_at": [row["timestamp"] * 1000 for row in trace],
            "input_tokens": sizes,
            "output_tokens": [row["output_length"] for row in trace],
            "prefix_hashes": ids,
            "prefix_token_counts": [
                [min(512 * (k + 1), size) for k in range(len(row))]
                for row, size in zip(ids, sizes, strict=True)
            ],
            "status": "ok",
            "usage_origin": "reported",
        }
    )
    mart, conversations = history(REQUESTS.conform(frame), no_prices)
    row = everything(mart)
    seen: set[int] = set()
    seen_before = 0
    for blocks, size in zip(ids, sizes, strict=True):
        seen_before += min(512 * unbroken(blocks, seen), size)
        seen.update(blocks)
    said = f"{row['sessions']} sessions, {row['requests']} calls, sent again {row['resent_tokens']} of {seen_before}"
    for i, parent in enumerate(conversations.parent):
        if parent >= 0:
            own, before = ids[i], ids[parent]
            assert own[: len(before) - 1] == before[:-1], said
            assert sizes[i] >= sizes[parent] - 512, said
    assert 0 < row["resent_tokens"] < seen_before, said
