"""The compiled loops against slow references that follow the definitions word by word."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.waste.block_kernels import (
    block_tokens,
    bounded_counts,
    new_table,
    number_blocks,
    number_more,
    prefixes_seen,
)

PROMPTS = st.lists(
    st.tuples(st.lists(st.integers(0, 2), max_size=5), st.integers(0, 1)), min_size=1, max_size=30
)


def chain(parts: list[int]) -> list[int]:
    """Chained hashes: equal n-th hashes mean equal first n parts."""
    return [hash(tuple(parts[: size + 1])) % 2**64 for size in range(len(parts))]


def flat(prompts):
    chains = [chain(parts) for parts, _ in prompts]
    offsets = np.cumsum([0, *(len(c) for c in chains)]).astype(np.int64)
    hashes = np.array([h for c in chains for h in c], np.uint64)
    scopes = np.array([scope for _, scope in prompts], np.int32)
    return chains, offsets, hashes, scopes


@given(PROMPTS)
@settings(max_examples=50, deadline=None)
def test_numbers_are_those_of_a_dict(prompts):
    chains, offsets, hashes, scopes = flat(prompts)
    numbers, distinct = number_blocks(hashes, scopes, offsets)
    table: dict[tuple[int, int], int] = {}
    expected = [
        table.setdefault((scope, h), len(table))
        for c, (_, scope) in zip(chains, prompts, strict=True)
        for h in c
    ]
    assert numbers.tolist() == expected
    assert distinct == len(table)


@given(PROMPTS, st.integers(0, 30))
@settings(max_examples=30, deadline=None)
def test_numbers_of_two_batches_are_those_of_one(prompts, cut):
    _, offsets, hashes, scopes = flat(prompts)
    cut = min(cut, len(prompts))
    first, table, known = number_more(
        hashes[: offsets[cut]], scopes[:cut], offsets[: cut + 1], new_table(), 0
    )
    second, table, distinct = number_more(
        hashes[offsets[cut] :], scopes[cut:], offsets[cut:] - offsets[cut], table, known
    )
    numbers, together = number_blocks(hashes, scopes, offsets)
    assert [*first, *second] == numbers.tolist()
    assert distinct == together
    assert np.array_equal(table[1][:distinct][numbers], hashes), (
        "the table says which hash a number stands for"
    )


def test_numbers_stay_right_when_the_table_grows():
    """70,000 distinct blocks, each twice, in adjacent and extreme values."""
    low = np.arange(35_000, dtype=np.uint64)
    values = np.concatenate([low, ~low])
    hashes = np.concatenate([values, values])
    numbers, distinct = number_blocks(hashes, np.zeros(2, np.int32), np.array([0, 70_000, 140_000]))
    assert distinct == 70_000
    assert np.array_equal(numbers[:70_000], np.arange(70_000))
    assert np.array_equal(numbers[70_000:], np.arange(70_000))


def test_counts_never_fall_and_stay_within_the_input():
    offsets = np.array([0, 3, 5])
    counts = bounded_counts(np.array([5, 3, 9, -4, 7]), offsets, np.array([8, 6]), np.empty(5, np.int32))
    assert counts.tolist() == [5, 5, 8, 0, 6]
    assert block_tokens(counts, offsets).tolist() == [5, 0, 3, 0, 6]


CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "parts": st.lists(st.integers(0, 1), max_size=5),
            "scope": st.integers(0, 1),
            "gap": st.sampled_from([0, 1, 3, 10]),
            "prefill": st.sampled_from([1, 2, 8]),
            "lifetime": st.sampled_from([-1, 4, 12]),
            "minimum": st.sampled_from([-1, 0, 20, 35]),
            "step": st.sampled_from([1, 16]),
            "extra": st.integers(0, 9),
        }
    ),
    min_size=1,
    max_size=25,
)


def common(first: list[int], second: list[int]) -> int:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


@given(CALLS)
@settings(max_examples=120, deadline=None)
def test_prefixes_are_those_of_comparing_every_pair_of_calls(calls):
    """10 tokens a block; every earlier call of the scope is compared with every later one."""
    started = np.cumsum([call["gap"] for call in calls]).astype(np.int64)
    ready = started + np.array([call["prefill"] for call in calls])
    _, offsets, hashes, scopes = flat([(call["parts"], call["scope"]) for call in calls])
    numbers, distinct = number_blocks(hashes, scopes, offsets)
    inputs = np.array([10 * len(call["parts"]) + call["extra"] for call in calls], np.int64)
    counts = np.array([10 * (k + 1) for call in calls for k in range(len(call["parts"]))], np.int64)
    column = {
        name: np.array([call[name] for call in calls], np.int64) for name in ("minimum", "step", "lifetime")
    }
    zeros = np.zeros(len(calls), np.int64)
    order = np.argsort(ready, kind="stable")
    blocks, seen, reusable, _ = prefixes_seen(
        numbers, distinct, offsets, counts, inputs, started, ready, order, zeros, zeros,
        column["minimum"], column["step"], column["lifetime"],
    )  # fmt: skip
    for i, call in enumerate(calls):
        earlier = [j for j in range(i) if calls[j]["scope"] == call["scope"]]
        longest = max((common(calls[j]["parts"], call["parts"]) for j in earlier), default=0)
        alive = [
            j
            for j in earlier
            if ready[j] <= started[i]
            and (call["lifetime"] < 0 or started[i] - started[j] <= call["lifetime"])
        ]
        kept = max((common(calls[j]["parts"], call["parts"]) for j in alive), default=0)
        tokens = min(10 * kept, inputs[i] - 1) if kept else 0
        tokens -= tokens % call["step"]
        if call["minimum"] < 0 or tokens < call["minimum"]:
            tokens = 0
        assert (blocks[i], seen[i], reusable[i]) == (longest, 10 * longest, tokens)


def test_a_run_of_uses_is_charged_one_write():
    """Three uses within the lifetime, a pause, two more: the second and the fifth pay 20 tokens each."""
    started = np.array([0, 5, 10, 100, 105], np.int64)
    offsets = np.array([0, 2, 4, 6, 8, 10], np.int64)
    numbers = np.tile(np.array([0, 1], np.int32), 5)
    counts = np.tile(np.array([10, 20]), 5)
    inputs = np.full(5, 25, np.int64)
    ready = started + 1

    def charged(read, written):
        result = prefixes_seen(
            numbers, 2, offsets, counts, inputs, started, ready, np.arange(5),
            np.array(read), np.array(written), np.zeros(5, np.int64), np.ones(5, np.int64), np.full(5, 50),
        )  # fmt: skip
        return result[3].tolist()

    assert charged([0] * 5, [0] * 5) == [0, 20, 0, 0, 20]
    assert charged([0] * 5, [20, 0, 0, 10, 0]) == [0, 0, 0, 0, 10], "what was written already is not charged"
    assert charged([0, 20, 0, 0, 0], [0] * 5) == [0, 0, 0, 0, 20], "what was read had been written"
