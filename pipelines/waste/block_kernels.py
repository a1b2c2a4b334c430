"""Loops over prefix blocks, compiled by numba.

Belongs here: what must see blocks one after the other in time: giving them dense numbers, finding prefixes
that were sent before, and LRU stack distances. Each is checked against a slow reference in the tests.
Does not belong here: frames, rules, money. Imported where it is used, since numba takes a while to import.

Blocks of all requests lie in flat arrays; those of request i are [offsets[i], offsets[i + 1]), in prompt
order. Requests are in order of arrival. Times are microseconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads nearby keys over the table
_FIRST_SLOTS = 1 << 12
NEVER = -(1 << 62)  # microseconds: earlier than any start less any lifetime
_DISTANCE_CLASSES = 64
_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_H01 = np.uint64(0x0101010101010101)


@njit(cache=True)
def _slot(value: Any, scope: Any, bits: Any) -> Any:
    mixed = (value ^ (np.uint64(scope) * _MULTIPLIER)) * _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    return np.int64((mixed * _MULTIPLIER) >> np.uint64(64 - bits))


@njit(cache=True)
def number_blocks(hashes: Array, scopes: Array, offsets: Array) -> tuple[Array, int]:
    """Give each distinct pair of scope and hash a number from 0, in order of first sight.

    Open addressing with linear probing; the table doubles, so memory follows the distinct blocks.

    Args:
        hashes: uint64, one per block.
        scopes: int32, one per request.
        offsets: int64, requests + 1.

    Returns:
        int32 number per block, and how many distinct ones there are.

    """
    numbers = np.empty(hashes.size, np.int32)
    bits = 12
    slots = np.full(_FIRST_SLOTS, -1, np.int32)
    key_hash = np.empty(_FIRST_SLOTS >> 1, np.uint64)
    key_scope = np.empty(_FIRST_SLOTS >> 1, np.int32)
    distinct = 0
    for request in range(offsets.size - 1):
        scope = scopes[request]
        for block in range(offsets[request], offsets[request + 1]):
            value = hashes[block]
            mask = slots.size - 1
            slot = _slot(value, scope, bits)
            while slots[slot] >= 0 and (key_hash[slots[slot]] != value or key_scope[slots[slot]] != scope):
                slot = (slot + 1) & mask
            if slots[slot] < 0:
                slots[slot] = distinct
                key_hash[distinct] = value
                key_scope[distinct] = scope
                distinct += 1
            numbers[block] = slots[slot]
            if distinct == key_hash.size:
                bits += 1
                slots = np.full(1 << bits, -1, np.int32)
                more_hash = np.empty(1 << (bits - 1), np.uint64)
                more_scope = np.empty(1 << (bits - 1), np.int32)
                more_hash[:distinct] = key_hash
                more_scope[:distinct] = key_scope
                key_hash = more_hash
                key_scope = more_scope
                for number in range(distinct):
                    place = _slot(key_hash[number], key_scope[number], bits)
                    while slots[place] >= 0:
                        place = (place + 1) & (slots.size - 1)
                    slots[place] = number
    return numbers, distinct


@njit(cache=True)
def bounded_counts(counts: Array, offsets: Array, input_tokens: Array) -> Array:
    """Cumulative tokens per block that never fall and never exceed the request's input."""
    bounded = np.empty(counts.size, np.int64)
    for request in range(offsets.size - 1):
        highest = np.int64(0)
        for block in range(offsets[request], offsets[request + 1]):
            highest = min(max(highest, counts[block]), input_tokens[request])
            bounded[block] = highest
    return bounded


@njit(cache=True)
def _pay(numbers: Array, counts: Array, unpaid: Array, first: Any, end: Any, read: Any, tokens: Any) -> Any:
    """Tokens in (read, tokens] of the blocks that nobody had paid to write; the blocks are paid then."""
    total = np.int64(0)
    before = np.int64(0)
    for block in range(first, end):
        number = numbers[block]
        upto = min(counts[block], tokens)
        if unpaid[number] and upto > read:
            total += upto - max(before, read)
        unpaid[number] = False
        before = upto
    return total


@njit(cache=True)
def prefixes_seen(
    numbers: Array,
    distinct: int,
    offsets: Array,
    counts: Array,
    input_tokens: Array,
    started: Array,
    ready: Array,
    ready_order: Array,
    read: Array,
    written: Array,
    minimum: Array,
    step: Array,
    lifetime: Array,
) -> tuple[Array, Array, Array, Array]:
    """Find, per request, the longest prefix sent before and the part of it that could have been reused.

    A block is seen once an earlier request held it, whatever its age. It is reusable once such a request has
    given its first token (`ready`), until `lifetime` after the last start of a request that held it.

    Args:
        numbers: block numbers of `number_blocks`.
        distinct: how many distinct numbers there are.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block, of `bounded_counts`.
        input_tokens: int64 per request.
        started: int64 per request, not falling.
        ready: int64 per request, later than its start.
        ready_order: request indices by `ready`.
        read: cache reads per request, -1 if unknown.
        written: cache writes per request, 0 if unknown.
        minimum: fewest tokens the provider caches, -1 where it caches nothing.
        step: tokens to whose multiples a reusable prefix is cut.
        lifetime: microseconds, -1 without limit.

    Returns:
        per request: leading blocks seen, tokens seen, tokens reusable, tokens of these that nobody had paid
        to write (charged once per run of sights within the lifetime).

    """
    requests = offsets.size - 1
    seen = np.zeros(distinct, np.bool_)
    last_use = np.full(distinct, NEVER, np.int64)
    unpaid = np.zeros(distinct, np.bool_)
    matched = np.zeros(requests, np.int64)
    seen_blocks = np.zeros(requests, np.int64)
    seen_tokens = np.zeros(requests, np.int64)
    reusable = np.zeros(requests, np.int64)
    unwritten = np.zeros(requests, np.int64)
    pending = 0
    for i in range(requests):
        now = started[i]
        while pending < requests and ready[ready_order[pending]] <= now:
            j = ready_order[pending]
            pending += 1
            covered = max(read[j], 0) + written[j]
            for block in range(offsets[j], offsets[j + 1]):
                number = numbers[block]
                if block - offsets[j] >= matched[j]:
                    unpaid[number] = counts[block] > covered
                last_use[number] = max(last_use[number], started[j])
        first, end = offsets[i], offsets[i + 1]
        block = first
        while block < end and seen[numbers[block]]:
            block += 1
        seen_blocks[i] = block - first
        if block > first:
            seen_tokens[i] = counts[block - 1]
        oldest = now - lifetime[i] if lifetime[i] >= 0 else NEVER + 1
        block = first
        while block < end and last_use[numbers[block]] >= oldest:
            block += 1
        if block > first and minimum[i] >= 0:
            # The last token is computed always: without it there is nothing to continue from.
            tokens = min(counts[block - 1], input_tokens[i] - 1)
            tokens -= tokens % step[i]
            if tokens > 0 and tokens >= minimum[i]:
                reusable[i] = tokens
                matched[i] = block - first
                unwritten[i] = _pay(numbers, counts, unpaid, first, block, read[i], tokens)
        for block in range(first, end):
            seen[numbers[block]] = True
    return seen_blocks, seen_tokens, reusable, unwritten


@njit(cache=True)
def answered_before(numbers: Array, distinct: int, started: Array, ended: Array) -> Array:
    """Whether an earlier request with the same prompt had ended when this one started.

    Args:
        numbers: one per request: number of its whole prompt.
        distinct: how many distinct numbers there are.
        started: int64 per request, not falling.
        ended: int64 per request.

    """
    first_end = np.full(distinct, -NEVER, np.int64)
    before = np.zeros(numbers.size, np.bool_)
    for request in range(numbers.size):
        number = numbers[request]
        before[request] = first_end[number] <= started[request]
        first_end[number] = min(first_end[number], ended[request])
    return before


@njit(cache=True)
def _ones(word: Any) -> Any:
    word = word - ((word >> np.uint64(1)) & _M1)
    word = (word & _M2) + ((word >> np.uint64(2)) & _M2)
    word = (word + (word >> np.uint64(4))) & _M4
    return np.int64((word * _H01) >> np.uint64(56))


@njit(cache=True)
def _add(tree: Array, word: Any, delta: int) -> None:
    node = word + 1
    while node < tree.size:
        tree[node] += delta
        node += node & -node


@njit(cache=True)
def _up_to(tree: Array, live: Array, position: Any) -> Any:
    word = position >> 6
    keep = np.uint64(63 - (position & 63))
    total = _ones(live[word] & (np.uint64(0xFFFFFFFFFFFFFFFF) >> keep))
    node = word
    while node > 0:
        total += tree[node]
        node -= node & -node
    return total


@njit(cache=True)
def stack_distances(numbers: Array, offsets: Array, rows: Array, last: Array) -> Any:
    """Histogram of the LRU capacity that each block of the given requests would have needed to be a hit.

    The blocks of a request are looked up before any of them is touched, and then touched from the last to
    the first, so that a cache loses the end of a prompt before its beginning, as engines do (vLLM frees a
    request's blocks in reverse). A block is a hit only if all blocks before it in the request are: its need
    is the largest so far. A bit per touch marks where each block was touched last; a Fenwick tree counts
    bits by words of 64.

    Args:
        numbers: block numbers.
        offsets: int64, requests + 1.
        rows: indices of the requests that use the cache, ascending.
        last: int64 per distinct block, -1; overwritten.

    Returns:
        hits by capacity class (int64[64]; class c: needs more than 2^(c-1) and at most 2^c blocks), number
        of all blocks, number of distinct blocks.

    """
    touches = np.int64(0)
    for row in rows:
        touches += offsets[row + 1] - offsets[row]
    live = np.zeros((touches >> 6) + 1, np.uint64)
    tree = np.zeros(live.size + 1, np.int64)
    hits = np.zeros(_DISTANCE_CLASSES, np.int64)
    position = np.int64(0)
    distinct = np.int64(0)
    for row in rows:
        need = np.int64(0)
        capacity_class = 0
        before = np.int64(-2)
        distance = np.int64(0)
        for block in range(offsets[row], offsets[row + 1]):
            at = last[numbers[block]]
            if at < 0:
                break
            # Neighbours in the last touch are neighbours in the stack; only a jump needs the tree.
            distance = distance + 1 if at == before - 1 else distinct - _up_to(tree, live, at) + 1
            before = at
            need = max(need, distance)
            while (np.int64(1) << capacity_class) < need:
                capacity_class += 1
            hits[capacity_class] += 1
        for block in range(offsets[row + 1] - 1, offsets[row] - 1, -1):
            number = numbers[block]
            at = last[number]
            if at >= 0:
                live[at >> 6] ^= np.uint64(1) << np.uint64(at & 63)
                _add(tree, at >> 6, -1)
            else:
                distinct += 1
            live[position >> 6] |= np.uint64(1) << np.uint64(position & 63)
            _add(tree, position >> 6, 1)
            last[number] = position
            position += 1
    return hits, touches, distinct
