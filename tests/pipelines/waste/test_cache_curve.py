"""The cache curve against a plain simulation: one and several replicas, each routing, exact and sampled."""

from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.fleet import Fleet
from pipelines.waste.block_kernels import number_blocks
from pipelines.waste.blocks import chained_frames, exact_blocks
from pipelines.waste.cache_curve import cache_curve
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.replica_curves import EXACT_REFERENCES, RESOLUTION, ROUTINGS, Traffic, curve, sampled
from pipelines.waste.stack_kernels import WHOLE, picked, routed
from tests.pipelines.waste.plain_cache import simulate
from tests.pipelines.waste.weka import weka_rows
from warehouse.waste_tables import CACHE_CURVE

RULES = default_rules()
KINDS = [(1, "single"), *((replicas, routing) for replicas in (2, 4, 8) for routing in ROUTINGS)]
PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=5), st.sampled_from([None, "s", "t", "u"])),
    min_size=1,
    max_size=40,
)


def chain(parts) -> list[int]:
    """Chained hashes: equal n-th hashes mean equal first n parts."""
    return [hash(tuple(parts[: size + 1])) % 2**64 for size in range(len(parts))]


def traffic_of(chains: list[list[int]]) -> Traffic:
    """10 tokens a block."""
    offsets = np.cumsum([0, *(len(c) for c in chains)]).astype(np.int64)
    hashes = np.array([h for c in chains for h in c], np.uint64)
    numbers, distinct = number_blocks(hashes, np.zeros(len(chains), np.int32), offsets)
    tokens = np.full(hashes.size, 10, np.int32)
    return Traffic(numbers, tokens, offsets, distinct, np.arange(len(chains)))


def mart_of(frame: pl.DataFrame, fleet: Fleet | None = None) -> pl.DataFrame:
    frames = chained_frames(exact_blocks(frame.lazy(), RULES))
    return cache_curve(*frames, fleet or Fleet.default())


@given(PROMPTS, st.integers(1, 8), st.sampled_from([1.0, 1.25, 9.0]), st.sampled_from([0.0, 1.0, 32.0]))
@settings(max_examples=50)
def test_calls_go_where_the_rule_sends_them(prompts, replicas, bound, slack_calls):
    chains = [chain(parts) for parts, _ in prompts]
    traffic = traffic_of(chains)
    given_to = np.full(len(chains), -1, np.int8)
    chosen, load, entered, hits, hit_tokens = routed(
        traffic.numbers, traffic.tokens, traffic.offsets, traffic.rows, given_to, replicas,
        bound, slack_calls, traffic.distinct,
    )  # fmt: skip
    expected = simulate(chains, 10**9, replicas, "prefix_aware", bound=bound, slack_calls=slack_calls)
    assert (hits, hit_tokens) == (sum(expected), 10 * sum(expected))
    sent = [[c for c, to in zip(chains, chosen, strict=True) if to == r] for r in range(replicas)]
    assert load.tolist() == [sum(map(len, theirs)) for theirs in sent]
    assert entered.tolist() == [len({block for c in theirs for block in c}) for theirs in sent]


@given(PROMPTS.filter(lambda prompts: any(parts for parts, _ in prompts)), st.sampled_from(KINDS))
@settings(max_examples=60)
def test_every_point_of_every_curve_is_that_of_a_plain_simulation(requests_of, prompts, kind):
    rows = [
        {
            "prefix_hashes": chain(parts),
            "prefix_token_counts": [10 * (k + 1) for k in range(len(parts))],
            "input_tokens": 10 * len(parts) + 3,
            "session_id": session,
        }
        for parts, session in prompts
        if parts
    ]
    replicas, routing = kind
    chains, sessions = [row["prefix_hashes"] for row in rows], [row["session_id"] for row in rows]
    found = mart_of(requests_of(rows)).filter(
        pl.col("scope") == "all", pl.col("replicas") == replicas, pl.col("routing") == routing
    )
    distinct = len({block for blocks in chains for block in blocks})
    if routing == "session_sticky" and len(set(sessions) - {None}) + sessions.count(None) == len(rows):
        assert found.is_empty(), "no session has two calls"
        return
    assert found["capacity_blocks"][-1] == distinct
    for row in found.iter_rows(named=True):
        hits = sum(simulate(chains, row["capacity_blocks"], replicas, routing, sessions))
        assert row["block_hit_ratio"] == pytest.approx(hits / sum(map(len, chains)), abs=1e-12)
        assert row["token_hit_ratio"] == pytest.approx(
            10 * hits / sum(row["input_tokens"] for row in rows), abs=1e-12
        )
        assert row["block_hit_ratio_error"] == 0


def test_distances_over_many_words_of_the_bitmap():
    """Long random chains, so that the Fenwick tree over 64-bit words is used at depth."""
    random = np.random.default_rng(7)
    chains = [chain(random.integers(0, 2, random.integers(1, 12)).tolist()) for _ in range(600)]
    traffic = traffic_of(chains)
    capacities = [1, 8, 64, 300, 512, traffic.distinct]
    found = curve(sampled(traffic), "single", 1, np.zeros(600, np.int64), capacities)
    expected = [sum(simulate(chains, capacity)) / traffic.references for capacity in capacities]
    assert found.block_hit_ratio == pytest.approx(expected, abs=1e-12)


def test_a_block_is_picked_in_all_calls_or_in_none():
    chains = [chain([0, 1, k % 3, k]) for k in range(200)]
    whole = traffic_of(chains)
    numbers, tokens, offsets, distinct = picked(
        whole.numbers, whole.tokens, whole.offsets, whole.rows, 0, WHOLE // 4, 0, whole.distinct
    )
    others = picked(
        whole.numbers, whole.tokens, whole.offsets, whole.rows, WHOLE // 4, WHOLE, 0, whole.distinct
    )
    assert distinct + others[3] == whole.distinct
    assert 0.15 < distinct / whole.distinct < 0.35
    assert len(numbers) + len(others[0]) == whole.references == 800
    assert np.array_equal(np.diff(offsets) + np.diff(others[2]), np.full(200, 4))
    assert sorted(set(numbers.tolist())) == list(range(distinct))
    assert tokens.sum() == 10 * len(numbers)


def growing_sessions(calls: int) -> tuple[Traffic, np.ndarray]:
    """Sessions that grow by a block each turn, behind one of three system prompts: blocks that many calls share."""
    random = np.random.default_rng(3)
    histories: list[list[int]] = []
    chains, sessions = [], []
    for _ in range(calls):
        if random.random() < 0.1 or not histories:
            histories.append(chain([int(random.integers(0, 3)), 0, 0, 0]))
        # Recent sessions go on more often than old ones.
        at = max(0, len(histories) - 1 - int(random.exponential(40)))
        histories[at].append(len(chains) + 10)
        chains.append(histories[at][:])
        sessions.append(at)
    return traffic_of(chains), np.array(sessions)


@pytest.fixture(scope="module")
def sessions_that_grow():
    return growing_sessions(4_000)


@pytest.mark.parametrize(("replicas", "routing"), [(1, "single"), (4, "round_robin"), (8, "prefix_aware")])
def test_a_sampled_curve_is_the_exact_one_within_its_error(sessions_that_grow, replicas, routing):
    """A tenth of the blocks; the error stated is a standard error, so most points lie within two of it."""
    traffic, sessions = sessions_that_grow
    sample = sampled(traffic, exact_references=0, sampled_references=traffic.references // 10)
    assert sample.rate == pytest.approx(0.1, abs=1e-4)
    capacities = [c for c in (2**k for k in range(20)) if RESOLUTION * 10 <= c < traffic.distinct]
    capacities.append(traffic.distinct)
    exact = curve(sampled(traffic), routing, replicas, sessions, capacities)
    estimate = curve(sample, routing, replicas, sessions, capacities)
    off = np.abs(estimate.block_hit_ratio - exact.block_hit_ratio)
    told = estimate.block_hit_ratio_error
    print(np.column_stack([capacities, exact.block_hit_ratio, estimate.block_hit_ratio, told]))  # noqa: T201
    assert np.all(off <= 4 * told + 1e-9)
    assert np.mean(off <= 2 * told + 1e-9) >= 0.75
    assert np.all(told < 0.06)
    assert (off[-1], told[-1]) == (0, 0), "a cache without limit is counted, not estimated"
    assert estimate.busiest_ratio == exact.busiest_ratio, "calls are routed by their whole chains"
    assert np.all(np.diff(estimate.block_hit_ratio) >= 0)
    assert estimate.hit_tokens == pytest.approx(10 * estimate.block_hit_ratio * traffic.references)


def test_caches_smaller_than_a_prompt_are_sampled_without_bias():
    """Sessions of 400 blocks that resend everything: the hits of a small cache are the heads of their prompts."""
    chains = [chain([session, *range(400 + turn)]) for turn in range(6) for session in range(40)]
    chains.sort(key=lambda blocks: blocks[0])
    traffic, alone = traffic_of(chains), np.zeros(len(chains), np.int64)
    capacities = [160, 200, traffic.distinct]
    exact = curve(sampled(traffic), "single", 1, alone, capacities)
    sample = sampled(traffic, exact_references=0, sampled_references=traffic.references // 5)
    estimate = curve(sample, "single", 1, alone, capacities)
    assert exact.block_hit_ratio[0] == pytest.approx(0.33, abs=0.01)
    assert estimate.block_hit_ratio == pytest.approx(exact.block_hit_ratio, abs=0.004)


def test_the_sample_is_as_large_as_was_asked_for(sessions_that_grow):
    traffic, _ = sessions_that_grow
    sample = sampled(traffic, exact_references=0, sampled_references=traffic.references // 5)
    assert sample.followed.references == pytest.approx(traffic.references / 5, rel=0.2)
    assert sum(part.references for part in sample.parts) == sample.followed.references
    assert sampled(traffic, exact_references=traffic.references).rate == 1


def one_block(name: str, **more) -> dict[str, object]:
    return {
        "prefix_hashes": [hash(name) % 2**64],
        "prefix_token_counts": [1024],
        "input_tokens": 1034,
        **more,
    }


def point(mart: pl.DataFrame, scope: str, blocks: int, replicas: int = 1, routing: str = "single"):
    return mart.row(
        by_predicate=(pl.col("scope") == scope)
        & (pl.col("capacity_blocks") == blocks)
        & (pl.col("replicas") == replicas)
        & (pl.col("routing") == routing),
        named=True,
    )


def test_curve_of_a_model_has_its_own_cache(requests_of):
    """Two models in turn, one block each: 1 block serves each alone, both together need 2."""
    mart = mart_of(requests_of([one_block("a", model_served=name) for name in ("m", "n") * 5]))
    assert point(mart, "model:m", 1)["block_hit_ratio"] == 0.8
    assert point(mart, "all", 1)["block_hit_ratio"] == 0
    both = point(mart, "all", 2)
    assert (both["capacity_tokens"], both["block_hit_ratio"]) == (2048, 0.8)
    assert (both["capacity_bytes"], both["mark"]) == (None, None), "bytes of two models together are unknown"


def test_replicas_share_nothing_unless_the_router_keeps_prefixes_together(requests_of):
    """Three prompts in turn on two replicas: in turn, each replica sees all three; by prefix, each its own."""
    mart = mart_of(requests_of([one_block("abc"[k % 3]) for k in range(60)]))
    spread, kept = (point(mart, "all", 3, 2, routing) for routing in ("round_robin", "prefix_aware"))
    assert (spread["block_hit_ratio"], kept["block_hit_ratio"]) == (54 / 60, 57 / 60)
    assert (kept["capacity_tokens"], kept["total_capacity_tokens"]) == (3072, 6144)
    assert "session_sticky" not in mart["routing"].to_list(), "no session is known"


def test_capacities_are_bytes_and_marks_where_the_architecture_is_known(requests_of):
    """Llama 3.1 8B: 2 x 8 heads x 128 x 2 bytes x 32 layers = 131,072 bytes per token."""
    mart = mart_of(requests_of([one_block("a", model_served="meta-llama/Llama-3.1-8B-Instruct")] * 2))
    one = point(mart, "model:meta-llama/Llama-3.1-8B-Instruct", 1)
    assert one["capacity_bytes"] == 1024 * 131_072
    marks = dict(
        mart.filter(pl.col("replicas") == 1, pl.col("scope") == "all").select("mark", "capacity_bytes").rows()
    )
    assert marks["80 GB HBM"] == pytest.approx(80e9, rel=0.002)
    assert marks["1 TB host memory"] == pytest.approx(1e12, rel=0.002)
    assert mart.filter(pl.col("mark") == "80 GB HBM")["block_hit_ratio"][0] == 0.5
    assert "131,072 per token of Llama 3.1 8B" in one["basis"]


def test_the_cache_of_todays_pool_is_named(requests_of):
    pool = {
        "name": "chat",
        "models": ["house-*"],
        "architecture": "Llama 3.1 8B",
        "accelerator": "H100 SXM",
        "accelerators": 4,
        "tensor_parallel": 2,
    }
    mart = mart_of(
        requests_of([one_block("a", model_served="house-1")] * 2), Fleet.model_validate({"pools": [pool]})
    )
    named = mart.filter(pl.col("mark") == "pool chat, one of 2", pl.col("scope") == "all")
    assert named.select("replicas").n_unique() == 4
    assert 100e9 < named["capacity_bytes"][0] < 160e9
    assert named["total_capacity_bytes"].max() == pytest.approx(8 * named["capacity_bytes"][0])


def test_blocks_read_in_parts_are_those_read_at_once(requests_of):
    rows = [one_block("abcd"[k % 4], s=k // 3, model_served="mn"[k % 2]) for k in range(40)]
    rows += [{"prompt_hash": k % 2, "input_tokens": 9, "s": 3.5 * k} for k in range(10)]
    # Stretches of calls that say nothing of their prompts: parts of them have no block at all.
    rows += [{"input_tokens": 9, "s": second} for second in (-9, -8, -7, *range(40, 60), 900, 901)]
    rows += [one_block("a", s=800)]
    frame = requests_of(rows).sample(fraction=1, shuffle=True, seed=1)
    whole, parts = (exact_blocks(frame.lazy(), RULES, size) for size in (1000, 7))
    assert whole.calls.equals(parts.calls)
    for name in ("numbers", "offsets", "counts", "hashes"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name)), name
    assert whole.distinct == len(
        {
            (row.get("model_served"), *row.get("prefix_hashes", [row.get("prompt_hash")]))
            for row in rows
            if "prefix_hashes" in row or "prompt_hash" in row
        }
    )
    calls, blocks = chained_frames(whole)
    assert (calls.height, blocks.height, blocks["tokens"].unique().to_list()) == (41, 41, [1024])


def test_hostile_and_empty_input_keeps_the_contract(requests_of):
    huge = {"prefix_hashes": [2**64 - 1], "prefix_token_counts": [10**12]}
    frame = requests_of(
        [
            one_block("a", model_served="m/team:x"),
            one_block("a", model_served="m"),
            {**huge, "input_tokens": 3},
            {**huge, "input_tokens": 0},
            {**huge, "input_tokens": 10**12},
        ]
    )
    mart = mart_of(frame)
    assert CACHE_CURVE.problems(mart) == {}
    assert set(mart["scope"]) >= {"all", "model:m", "model:m/team:x"}
    assert mart_of(REQUESTS.empty()).schema == CACHE_CURVE.schema
    assert mart_of(requests_of([{**huge, "input_tokens": 0}]))["token_hit_ratio"].null_count() > 0


@pytest.fixture(scope="module")
def mooncake(shared) -> list[dict[str, object]]:
    path = shared / "data" / "mooncake" / "conversation_trace.jsonl.gz"
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def rows_of(trace) -> list[dict[str, object]]:
    return [
        {
            "s": row["timestamp"] / 1000,
            "prefix_hashes": row["hash_ids"],
            "prefix_token_counts": [512 * (k + 1) for k in range(len(row["hash_ids"]))],
            "input_tokens": row["input_length"],
        }
        for row in trace
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "routing"), [kind for kind in KINDS if kind[1] != "session_sticky"])
def test_mooncake_has_the_curve_of_a_plain_simulation(requests_of, mooncake, replicas, routing):
    mart = mart_of(requests_of(rows_of(mooncake)))
    chains = [row["hash_ids"] for row in mooncake]
    for capacity in (1024, 32_768, 182_790):
        hits = sum(simulate(chains, capacity, replicas, routing)) / sum(map(len, chains))
        found = point(mart, "all", capacity, replicas, routing)["block_hit_ratio"]
        assert found == pytest.approx(hits, abs=1e-12), (capacity, found, hits)


@pytest.mark.slow
def test_weka_sessions_have_the_curve_of_a_plain_simulation(requests_of, shared):
    """The first sessions of the archive, as if they had started together; block ids are local to a session."""
    rows = weka_rows(shared / "data" / "weka" / "traces_237.tar.xz", sessions=4)
    assert sum(len(row["prefix_hashes"]) for row in rows) <= EXACT_REFERENCES, "else it would be sampled"
    mart = mart_of(requests_of(rows))
    rows.sort(key=lambda row: row["s"])
    chains, sessions = [row["prefix_hashes"] for row in rows], [row["session_id"] for row in rows]
    for replicas, routing in KINDS:
        for capacity in (256, 4096):
            hits = sum(simulate(chains, capacity, replicas, routing, sessions)) / sum(map(len, chains))
            found = point(mart, "all", capacity, replicas, routing)["block_hit_ratio"]
            assert found == pytest.approx(hits, abs=1e-12), (replicas, routing, capacity, found, hits)
