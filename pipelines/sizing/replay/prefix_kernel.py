"""Prefix cache of each replica, compiled by numba: blocks that calls share, and those kept after their end.

Belongs here: which blocks are held, by how many running calls, and in which order idle ones leave. Does not
belong here: which calls run (`kernel.py`), numbering of blocks (`workload.py`).

As in vLLM: a call claims all blocks of its prompt when it is admitted. A block that no running call claims
stays until its room is needed; the longest unclaimed leaves first, of one call the end of the prompt before
its beginning. A call's hit is its unbroken run of held blocks from the start.
"""
# numba compiles these functions from their bytecode: no annotations, plain loops.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202

from typing import Any, NamedTuple

import numpy as np

from pipelines.sizing.replay.compiled import compiled

Array = np.ndarray[Any, Any]

ABSENT = -1


class Prefixes(NamedTuple):
    """Blocks of all calls, and where they are held. Those of call i lie at [offsets[i], offsets[i + 1]).

    `numbers` are dense; `ends` are cumulative tokens of the prompt; `cost` is KV blocks by number. By replica
    and number: `claims` (running calls that hold it; `ABSENT`), and the ring of idle blocks (`before`,
    `after`; the last place is the ring's anchor). `idle` is KV blocks held by nobody, by replica.
    """

    offsets: Array
    numbers: Array
    ends: Array
    cost: Array
    claims: Array
    before: Array
    after: Array
    idle: Array


def prefixes(offsets: Array, numbers: Array, ends: Array, cost: Array, replicas: int) -> Prefixes:
    """Empty caches for calls with these blocks."""
    anchor = cost.size
    ring = np.full((replicas, anchor + 1), anchor, np.int32)
    claims = np.full((replicas, anchor), ABSENT, np.int32)
    return Prefixes(offsets, numbers, ends, cost, claims, ring, ring.copy(), np.zeros(replicas, np.int64))


@compiled
def seen_prefix(prefixes, replica, call):
    """Tokens of a call's prompt that the cache holds, and KV blocks that its prompt's whole blocks take."""
    tokens = np.int64(0)
    blocks = np.int64(0)
    unbroken = True
    for place in range(prefixes.offsets[call], prefixes.offsets[call + 1]):
        number = prefixes.numbers[place]
        blocks += prefixes.cost[number]
        unbroken = unbroken and prefixes.claims[replica, number] != ABSENT
        if unbroken:
            tokens = prefixes.ends[place]
    return tokens, blocks


@compiled
def blocks_to_claim(prefixes, replica, call):
    """KV blocks that would come into use if the call were admitted: those that no running call holds."""
    blocks = np.int64(0)
    for place in range(prefixes.offsets[call], prefixes.offsets[call + 1]):
        number = prefixes.numbers[place]
        if prefixes.claims[replica, number] <= 0:
            blocks += prefixes.cost[number]
    return blocks


@compiled
def claim_blocks(prefixes, replica, call):
    """Hold all blocks of a call's prompt."""
    for place in range(prefixes.offsets[call], prefixes.offsets[call + 1]):
        number = prefixes.numbers[place]
        if prefixes.claims[replica, number] == 0:
            _unlink(prefixes, replica, number)
        prefixes.claims[replica, number] = max(prefixes.claims[replica, number], 0) + 1


@compiled
def release_blocks(prefixes, replica, call):
    """Let go of a call's blocks, the last first; returns the KV blocks that nobody holds any more."""
    freed = np.int64(0)
    before, after, anchor = prefixes.before[replica], prefixes.after[replica], prefixes.cost.size
    for place in range(prefixes.offsets[call + 1] - 1, prefixes.offsets[call] - 1, -1):
        number = prefixes.numbers[place]
        prefixes.claims[replica, number] -= 1
        if prefixes.claims[replica, number] == 0:
            freed += prefixes.cost[number]
            last = before[anchor]
            after[last], before[number] = number, last
            after[number], before[anchor] = anchor, number
    prefixes.idle[replica] += freed
    return freed


@compiled
def evict_idle(prefixes, replica, room):
    """Drop the longest idle blocks until the rest takes at most `room` KV blocks."""
    while prefixes.idle[replica] > room:
        number = prefixes.after[replica, prefixes.cost.size]
        _unlink(prefixes, replica, number)
        prefixes.claims[replica, number] = ABSENT


@compiled
def _unlink(prefixes, replica, number):
    before, after = prefixes.before[replica], prefixes.after[replica]
    after[before[number]], before[after[number]] = after[number], before[number]
    prefixes.idle[replica] -= prefixes.cost[number]
