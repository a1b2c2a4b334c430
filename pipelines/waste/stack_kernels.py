"""Loops over prefix blocks for the cache curve, compiled by numba: which replica, how deep in the LRU stack.

Belongs here: picking blocks, routing calls to replicas, LRU stack distances. Each is checked against a slow
reference in the tests. Does not belong here: numbering blocks (`block_kernels.py`), frames, what is sampled
and why (`cache_curve.py`). The kernels release the interpreter: caches that are apart can run side by side.

Blocks of all calls lie in flat arrays; those of call i are [offsets[i], offsets[i + 1]), in prompt order. Calls
are in order of arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipelines.waste.block_kernels import Array

WHOLE = 1 << 32
"""Range of `picked`: all blocks."""
MOST_REPLICAS = 8
"""`routed` keeps one bit per replica for each block."""

_UNSEEN, _LEFT_OUT, _TAKEN = -2, -1, 0
_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_H01 = np.uint64(0x0101010101010101)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True)
def _spread(number: Any, salt: Any) -> Any:
    """32 even bits of a block's number (finaliser of splitmix64)."""
    mixed = np.uint64(number) + salt
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX2
    return np.int64((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(32))


@njit(cache=True, nogil=True)
def picked(
    numbers: Array, tokens: Array, offsets: Array, rows: Array, low: int, high: int, salt: int, distinct: int
) -> Any:
    """Take, of the given calls, the blocks whose spread number lies in [low, high) of 2^32.

    A block is taken in all calls or in none. Its number alone decides, so calls keep a part of their chains, in
    order.

    Args:
        numbers: int32 per block, below `distinct`.
        tokens: tokens per block.
        offsets: int64, calls + 1.
        rows: indices of calls, ascending.
        low: first of the range.
        high: end of the range; `WHOLE` takes everything.
        salt: another one gives an independent choice.
        distinct: how many distinct numbers there are.

    Returns:
        numbers (from 0, in order of first sight), tokens, offsets (rows + 1), how many distinct ones.

    """
    dense = np.full(distinct, _UNSEEN, np.int32)
    uneven = np.uint64(salt)
    everything = low == 0 and high == WHOLE
    taken = np.int64(0)
    for row in rows:
        for block in range(offsets[row], offsets[row + 1]):
            number = numbers[block]
            if dense[number] == _UNSEEN:
                inside = everything or low <= _spread(number, uneven) < high
                dense[number] = _TAKEN if inside else _LEFT_OUT
            taken += dense[number] == _TAKEN
    new_numbers = np.empty(taken, np.int32)
    new_tokens = np.empty(taken, tokens.dtype)
    new_offsets = np.zeros(rows.size + 1, np.int64)
    count = 0
    at = np.int64(0)
    for i in range(rows.size):
        for block in range(offsets[rows[i]], offsets[rows[i] + 1]):
            number = numbers[block]
            if dense[number] == _LEFT_OUT:
                continue
            if dense[number] == _TAKEN:
                count += 1
                dense[number] = count  # one more than the number: `_TAKEN` is not numbered yet
            new_numbers[at] = dense[number] - 1
            new_tokens[at] = tokens[block]
            at += 1
        new_offsets[i + 1] = at
    return new_numbers, new_tokens, new_offsets, count


@njit(cache=True, nogil=True)
def routed(
    numbers: Array,
    tokens: Array,
    offsets: Array,
    rows: Array,
    given: Array,
    replicas: int,
    bound: float,
    slack_calls: float,
    distinct: int,
) -> Any:
    """Send calls to replicas, and count what caches without limit would hit.

    A call without a given replica goes to the one that was sent the longest part of its prefix, ties to the
    least loaded, then to the first. Replicas above `bound` times the mean load plus `slack_calls` mean calls
    are passed over; the least loaded one never is. Load is blocks sent so far.

    Args:
        numbers: int32 per block, below `distinct`.
        tokens: tokens per block.
        offsets: int64, calls + 1.
        rows: indices of the calls that are sent, ascending.
        given: int8 per row: its replica, or -1.
        replicas: how many, at most `MOST_REPLICAS`.
        bound: highest load of a replica that is chosen for its prefix, over the mean.
        slack_calls: mean calls that a replica may be ahead besides.
        distinct: how many distinct numbers there are.

    Returns:
        replica per row (int8), blocks sent per replica, distinct blocks per replica, hit blocks and hit tokens (a
        block is a hit if its replica was sent it and all blocks before it in an earlier call).

    """
    held = np.zeros(distinct, np.uint8)
    chosen = np.empty(rows.size, np.int8)
    load = np.zeros(replicas, np.int64)
    entered = np.zeros(replicas, np.int64)
    total = np.int64(0)
    hits = np.int64(0)
    hit_tokens = np.int64(0)
    for i in range(rows.size):
        first, end = offsets[rows[i]], offsets[rows[i] + 1]
        replica = np.int64(given[i])
        if replica < 0:
            highest = bound * total / replicas + slack_calls * total / max(i, 1)
            replica = _by_prefix(numbers[first:end], held, load, highest)
        bit = np.uint8(1 << replica)
        block = first
        while block < end and held[numbers[block]] & bit:
            hit_tokens += tokens[block]
            block += 1
        hits += block - first
        for block in range(first, end):
            entered[replica] += (held[numbers[block]] & bit) == 0
            held[numbers[block]] |= bit
        load[replica] += end - first
        total += end - first
        chosen[i] = replica
    return chosen, load, entered, hits, hit_tokens


@njit(cache=True, nogil=True)
def _by_prefix(chain: Array, held: Array, load: Array, highest: float) -> Any:
    """Of the replicas whose load is at most `highest`, or least of all, that with the longest part of the chain."""
    mask = 1 << np.argmin(load)
    for replica in range(load.size):
        if load[replica] <= highest:
            mask |= 1 << replica
    for number in chain:
        longer = mask & held[number]
        if longer == 0:
            break
        mask = longer
    found = np.int64(-1)
    for replica in range(load.size):
        if mask >> replica & 1 and (found < 0 or load[replica] < load[found]):
            found = np.int64(replica)
    return found


@njit(cache=True, nogil=True)
def _ones(word: Any) -> Any:
    word = word - ((word >> np.uint64(1)) & _M1)
    word = (word & _M2) + ((word >> np.uint64(2)) & _M2)
    word = (word + (word >> np.uint64(4))) & _M4
    return np.int64((word * _H01) >> np.uint64(56))


@njit(cache=True, nogil=True)
def _add(tree: Array, word: Any, delta: Any) -> None:
    node = word + 1
    while node < tree.size:
        tree[node] += delta
        node += node & -node


@njit(cache=True, nogil=True)
def _up_to(tree: Array, live: Array, position: Any) -> Any:
    word = position >> 6
    keep = np.uint64(63 - (position & 63))
    total = _ones(live[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) >> keep))
    node = word
    while node > 0:
        total += tree[node]
        node -= node & -node
    return total


@njit(cache=True, nogil=True)
def _look_up(
    chain: Array,
    tokens: Array,
    last: Array,
    stack: Any,
    held: Any,
    capacities: Array,
    found: Any,
) -> None:
    """Count the hits of one call by what they need."""
    live, tree = stack
    hits, hit_tokens = found
    need = np.int64(0)
    enough = 0
    before = np.int64(-2)
    distance = np.int64(0)
    for i in range(chain.size):
        at = last[chain[i]]
        if at < 0:
            break
        # Neighbours in the last touch are neighbours in the stack; only a jump needs the tree.
        distance = distance + 1 if at == before - 1 else held - _up_to(tree, live, at) + 1
        before = at
        if distance > need:
            need = distance
            while enough < capacities.size - 1 and capacities[enough] < need:
                enough += 1
        hits[enough] += 1
        hit_tokens[enough] += tokens[i]


@njit(cache=True, nogil=True)
def _touch(chain: Array, last: Array, stack: Any, position: Any) -> Any:
    """Put the blocks of one call on the stack, the last one first; how many are new.

    Touches that lie in one word of the bitmap change the tree at once.
    """
    live, tree = stack
    word_off, off = np.int64(-1), np.int64(0)
    word_on, on = position >> 6, np.int64(0)
    new = np.int64(0)
    for number in chain[::-1]:
        at = last[number]
        if at >= 0:
            word = at >> 6
            live[word] ^= np.uint64(1) << np.uint64(at & 63)
            if word != word_off:
                if off:
                    _add(tree, word_off, -off)
                word_off, off = word, np.int64(0)
            off += 1
        else:
            new += 1
        word = position >> 6
        live[word] |= np.uint64(1) << np.uint64(position & 63)
        if word != word_on:
            _add(tree, word_on, on)
            word_on, on = word, np.int64(0)
        on += 1
        last[number] = position
        position += 1
    if off:
        _add(tree, word_off, -off)
    if on:
        _add(tree, word_on, on)
    return new


@njit(cache=True, nogil=True)
def stack_distances(
    numbers: Array, tokens: Array, offsets: Array, rows: Array, capacities: Array, distinct: int
) -> Any:
    """Count the blocks of the given calls by the LRU capacity that each would have needed to be a hit.

    The blocks of a call are looked up before any of them is touched, and then touched from the last to the
    first, so that a cache loses the end of a prompt before its beginning, as engines do (vLLM frees a
    request's blocks in reverse). A block is a hit only if all blocks before it in the call are: its need is
    the largest so far. A bit per touch marks where each block was touched last; a Fenwick tree counts bits by
    words of 64, so memory is 1.5 bits per block touched and 8 bytes per distinct block.

    Args:
        numbers: int32 per block, below `distinct`.
        tokens: tokens per block.
        offsets: int64, calls + 1.
        rows: indices of the calls that use the cache, ascending.
        capacities: float64, blocks, ascending; the last one is taken to suffice for everything.
        distinct: how many distinct numbers there are.

    Returns:
        hits and hit tokens per capacity (int64): those that need no more, and more than the one before.

    """
    touches = np.int64(0)
    for row in rows:
        touches += offsets[row + 1] - offsets[row]
    live = np.zeros((touches >> 6) + 1, np.uint64)
    stack = (live, np.zeros(live.size + 1, np.int32))
    last = np.full(distinct, -1, np.int64)
    found = (np.zeros(capacities.size, np.int64), np.zeros(capacities.size, np.int64))
    position = np.int64(0)
    held = np.int64(0)
    for row in rows:
        first, end = offsets[row], offsets[row + 1]
        chain = numbers[first:end]
        _look_up(chain, tokens[first:end], last, stack, held, capacities, found)
        held += _touch(chain, last, stack, position)
        position += end - first
    return found
