"""Kernels of causes, gaps and conversations against slow, obvious references on random prompts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.waste import cause_kernels, conversation_kernels
from pipelines.waste.block_kernels import number_blocks

NOBODY = -(1 << 62)


def chain(parts: list[int]) -> list[int]:
    """Chained ids: equal n-th ids mean equal first n parts."""
    return [hash(tuple(parts[: k + 1])) % 2**64 for k in range(len(parts))]


CALL = st.fixed_dictionaries(
    {
        "parts": st.lists(st.integers(0, 1), min_size=1, max_size=5),
        "gap": st.integers(0, 6),
        "work": st.integers(1, 5),
        "read": st.integers(-1, 40),
        "written": st.integers(0, 30),
        "cache": st.integers(0, 1),
        "narrow": st.integers(0, 1),
        "minimum": st.sampled_from([-1, 0, 12, 25]),
        "step": st.sampled_from([1, 7]),
        "lifetime": st.sampled_from([3, 8]),
    }
)
TRACE = st.lists(CALL, min_size=1, max_size=25)


class Trace:
    """A random trace as arrays; blocks have 10 tokens each, the input one more."""

    def __init__(self, calls):
        self.calls, now = [], 0
        for call in calls:
            now += call["gap"]
            size = 10 * len(call["parts"])
            read = min(call["read"], size + 1)
            self.calls.append(
                {**call, "start": now, "ready": now + call["work"], "read": read, "input": size + 1,
                 "ids": chain(call["parts"]), "counts": [10 * (k + 1) for k in range(len(call["parts"]))]}
            )  # fmt: skip
        self.offsets = np.cumsum([0, *(len(c["ids"]) for c in self.calls)]).astype(np.int64)
        self.hashes = np.array([h for c in self.calls for h in c["ids"]], np.uint64)
        self.counts = np.array([n for c in self.calls for n in c["counts"]], np.int64)

    def of(self, name, dtype=np.int64):
        return np.array([c[name] for c in self.calls], dtype)

    def numbered(self, scopes):
        return number_blocks(self.hashes, np.asarray(scopes, np.int32), self.offsets)


def cut(tokens, call):
    tokens = min(tokens, call["input"] - 1)
    tokens -= tokens % call["step"]
    return tokens if call["minimum"] >= 0 and tokens > 0 and tokens >= call["minimum"] else 0


def alive(earlier, call, block, *, same, age=None):
    """Whether an earlier, ready call of the same cache held the block within the lifetime."""
    age = call["lifetime"] if age is None else age
    return any(
        block in other["ids"] and other["ready"] <= call["start"] and call["start"] - other["start"] <= age
        for other in earlier
        if same(other, call)
    )


def own(other, call):
    return other["cache"] == call["cache"]


def alone(other, call):
    return own(other, call) and other["narrow"] == call["narrow"]


def fate_beyond(earlier, call, block):
    recent = [o for o in earlier if block in o["ids"] and call["start"] - o["start"] <= call["lifetime"]]
    if any(own(o, call) for o in recent):
        return cause_kernels.IN_FLIGHT
    if not recent:
        return cause_kernels.EXPIRED
    return cause_kernels.MODEL_SWITCH if recent[-1]["ready"] <= call["start"] else cause_kernels.IN_FLIGHT


def slow_split(earlier, call):
    """Token by token."""
    parts = [0] * cause_kernels.PARTS
    held = 0
    while held < len(call["ids"]) and alive(earlier, call, call["ids"][held], same=own):
        held += 1
    kept, first_missed = 10 * held, -1
    cacheable = cut(kept, call)
    for k, block in enumerate(call["ids"]):
        if not any(block in o["ids"] for o in earlier):
            break
        for token in range(10 * k, 10 * k + 10):
            if token < call["read"]:
                fate = cause_kernels.READ
            elif call["read"] < 0:
                fate = cause_kernels.UNKNOWN_READS
            elif call["minimum"] < 0:
                fate = cause_kernels.NOT_CACHED
            elif token < cacheable:
                fate = cause_kernels.MISSED
                first_missed = k if first_missed < 0 else first_missed
            elif token < kept:
                fate = cause_kernels.BELOW_MINIMUM if kept < call["minimum"] else cause_kernels.STEP
            else:
                fate = fate_beyond(earlier, call, block)
            parts[fate] += 1
    return parts, cacheable, first_missed


@settings(max_examples=60, deadline=None)
@given(TRACE)
def test_every_token_of_a_seen_prefix_has_the_cause_of_the_slow_reference(calls):
    """Model numbers are those of the caches, so that every switch is one of models."""
    trace = Trace(calls)
    caches = trace.of("cache", np.int32)
    one = np.zeros(len(calls), np.int32)
    numbers = [trace.numbered(scopes) for scopes in (caches, one, caches * 2 + trace.of("narrow", np.int32))]
    ready = trace.of("ready")
    split, cacheable, first_missed, alive_narrow = cause_kernels.split_seen(
        *(item for pair in numbers for item in pair),
        trace.offsets,
        trace.counts,
        trace.of("input"),
        trace.of("start"),
        ready,
        np.argsort(ready, kind="stable"),
        *(trace.of(name) for name in ("read", "minimum", "step", "lifetime")),
        caches,
        one,
    )
    for i, call in enumerate(trace.calls):
        earlier = trace.calls[:i]
        wanted, kept, missed = slow_split(earlier, call)
        assert split[i].tolist() == wanted
        assert cacheable[i] == kept
        assert first_missed[i] == (-1 if missed < 0 else trace.offsets[i] + missed)
        if missed >= 0:
            assert alive_narrow[i] == alive(earlier, call, call["ids"][missed], same=alone)


@settings(max_examples=60, deadline=None)
@given(TRACE, st.sampled_from([-1, 9, 17]))
def test_gaps_and_longer_lifetimes_equal_the_slow_reference(calls, longer):
    trace = Trace(calls)
    edges = np.array([1, 4, 9], np.int64)
    numbers, distinct = trace.numbered(trace.of("cache"))
    ready = trace.of("ready")
    cell = trace.of("narrow", np.int32)
    found = cause_kernels.gaps_between_uses(
        numbers,
        distinct,
        trace.offsets,
        trace.counts,
        trace.of("input"),
        trace.of("start"),
        ready,
        np.argsort(ready, kind="stable"),
        *(trace.of(name) for name in ("read", "written", "minimum", "step", "lifetime")),
        np.full(len(calls), longer, np.int64),
        cell,
        2,
        edges,
    )
    reuses, tokens, unread, extended, rewritten = found
    pinged = cause_kernels.pinged_tokens(
        numbers,
        distinct,
        trace.offsets,
        trace.counts,
        trace.of("start"),
        np.maximum(trace.of("read"), 0) + trace.of("written"),
        trace.of("lifetime"),
        np.full(len(calls), longer, np.int64),
        cell,
        2,
    )
    wanted = [np.zeros((2, 4), np.int64) for _ in range(3)]
    pings = [0, 0]
    for i, call in enumerate(trace.calls):
        earlier = [o for o in trace.calls[:i] if own(o, call)]
        classes = set()
        for k, block in enumerate(call["ids"]):
            uses = [o["start"] for o in earlier if block in o["ids"]]
            if not uses:
                break
            kind = int(np.searchsorted(edges, call["start"] - uses[-1]))
            classes.add(kind)
            wanted[1][call["narrow"], kind] += 10
            if call["read"] >= 0:
                wanted[2][call["narrow"], kind] += 10 * k + 10 - min(max(10 * k, call["read"]), 10 * k + 10)
        for kind in classes:
            wanted[0][call["narrow"], kind] += 1
        gain, again = slow_extension(earlier, call, longer)
        assert (extended[i], rewritten[i]) == (gain, again)
        later = [o for o in trace.calls[i + 1 :] if own(o, call)]
        pings[call["narrow"]] += slow_pings(call, later, longer)
    assert [found.tolist() for found in (reuses, tokens, unread)] == [w.tolist() for w in wanted]
    assert pinged.tolist() == pings


def slow_extension(earlier, call, longer):
    if longer < 0 or call["read"] < 0:
        return 0, 0
    kept = [0, 0]
    for which, age in enumerate((call["lifetime"], longer)):
        for block in call["ids"]:
            if not alive(earlier, call, block, same=own, age=age):
                break
            kept[which] += 10
    readable = cut(kept[1], call)
    extra = set(range(max(call["read"], kept[0]), readable))
    return len(extra), len(extra & set(range(call["read"] + call["written"])))


def slow_pings(call, later, longer):
    if longer < 0:
        return 0
    total = 0
    for k, block in enumerate(call["ids"]):
        covered = min(10 * k + 10, max(call["read"], 0) + call["written"]) - 10 * k
        following = next((o for o in later if block in o["ids"]), None)
        if covered <= 0:
            continue
        gap = longer if following is None else min(following["start"] - call["start"], longer)
        # The lifetime is that of the call that uses the block next.
        total += covered * (gap // (call if following is None else following)["lifetime"])
    return total


@settings(max_examples=60, deadline=None)
@given(TRACE, st.data())
def test_tokens_between_uses_equal_a_list_of_last_uses(calls, data):
    """Reference: a stack of blocks, the last used on top; a call's own blocks are touched from its end."""
    trace = Trace(calls)
    numbers, distinct = trace.numbered(np.zeros(len(calls)))
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(calls) - 1), min_size=1))), np.int64)
    watched = [data.draw(st.sampled_from([-1, *range(trace.offsets[i], trace.offsets[i + 1])])) for i in rows]
    found = cause_kernels.tokens_between(
        numbers,
        trace.offsets,
        trace.counts,
        rows,
        np.array(watched, np.int64),
        np.full(distinct, -1, np.int64),
        np.zeros(distinct, np.int64),
    )
    stack: list[int] = []
    for at, i in enumerate(rows):
        block = numbers[watched[at]] if watched[at] >= 0 else -1
        assert found[at] == (10 * (stack.index(block) + 1) if block in stack else -1)
        for number in numbers[trace.offsets[i] : trace.offsets[i + 1]][::-1]:
            stack = [number, *(other for other in stack if other != number)]


@settings(max_examples=40, deadline=None)
@given(TRACE)
def test_the_last_block_read_whole(calls):
    trace = Trace(calls)
    found = cause_kernels.last_read(trace.offsets, trace.counts, trace.of("read"))
    for i, call in enumerate(trace.calls):
        whole = sum(count <= call["read"] for count in call["counts"])
        assert found[i] == (trace.offsets[i] + whole - 1 if whole else -1)


@settings(max_examples=60, deadline=None)
@given(TRACE, st.data())
def test_prompts_are_compared_block_by_block(calls, data):
    trace = Trace(calls)
    sizes = [[data.draw(st.sampled_from([3, 40, 41, 100])) for _ in c["ids"]] for c in trace.calls]
    ends = np.array([e for row in sizes for e in np.cumsum(row)], np.int64)
    before = [data.draw(st.integers(-1, i - 1)) for i in range(len(calls))]
    numbers, _ = trace.numbered(np.zeros(len(calls)))
    common, alike, message_ends = conversation_kernels.compared_with(
        np.array(before, np.int64), numbers, trace.offsets, ends, np.full(len(calls), 2, np.int64), 100
    )
    for i, j in enumerate(before):
        if j < 0:
            assert (common[i], alike[i], message_ends[i]) == (0, 0, 0)
            continue
        pairs = list(zip(trace.calls[i]["ids"], trace.calls[j]["ids"], strict=False))
        k = next((k for k, (a, b) in enumerate(pairs) if a != b), len(pairs))
        run = k
        while run < len(pairs) and abs(sizes[i][run] - sizes[j][run]) <= 2:
            run += 1
        assert (common[i], alike[i]) == (k, run)
        assert message_ends[i] == sum(size < 96 for size in sizes[i][k:run])


@settings(max_examples=60, deadline=None)
@given(TRACE)
def test_a_call_continues_the_longest_earlier_prompt_that_it_begins_with(calls):
    trace = Trace(calls)
    scopes = trace.of("cache")
    numbers, distinct = trace.numbered(scopes)
    spare = trace.of("narrow")
    parent, seen, nearest = conversation_kernels.continued(
        numbers, distinct, trace.offsets, trace.counts, spare
    )
    for i, call in enumerate(trace.calls):
        earlier = [j for j in range(i) if own(trace.calls[j], call)]
        held = [
            k for k, block in enumerate(call["ids"]) if any(block in trace.calls[j]["ids"] for j in earlier)
        ]
        assert seen[i] == 10 * len(held)
        users = [j for j in earlier if held and call["ids"][held[-1]] in trace.calls[j]["ids"]]
        assert nearest[i] == (users[-1] if users else -1)
        needed = {}
        for j in earlier:
            ids = trace.calls[j]["ids"]
            length = max(1, len(ids) - int(spare[j]))
            if call["ids"][:length] == ids[:length]:
                needed[length] = j
        assert parent[i] == (needed[max(needed)] if needed else -1)
