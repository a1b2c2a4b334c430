"""Loops over prefix blocks, compiled by numba.

Belongs here: what must see blocks one after the other in time: giving them dense numbers, and finding prefixes
that were sent before. Each is checked against a slow reference in the tests.
Does not belong here: caches of limited size (`stack_kernels.py`), frames, rules, money. Imported where it is
used, since numba takes a while to import.

Blocks of all requests lie in flat arrays; those of request i are [offsets[i], offsets[i + 1]), in prompt
order. Requests are in order of arrival. Times are microseconds. Arrays are writable, changed or not: for those that
are not, numba would compile a kernel once more, which takes longer than the work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, Any]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio: spreads nearby keys over the table
_FIRST_SLOTS = 1 << 12
_LARGE = 1 << 23
"""Slots from which the table doubles; below, where memory is no matter, it grows by four."""
_RUN = 32
"""Blocks whose slots are fetched at once."""
_HALF, _NUMBER = np.uint64(32), np.uint64(0xFFFFFFFF)
NEVER = -(1 << 62)  # microseconds: earlier than any start less any lifetime


@njit(cache=True, nogil=True)
def _mixed(value: Any, scope: Any) -> Any:
    """64 bits of a hash and its scope: the high ones say where to look, the low ones tell most others apart."""
    mixed = (value ^ (np.uint64(scope) * _MULTIPLIER)) * _MULTIPLIER
    mixed ^= mixed >> np.uint64(29)
    return mixed * _MULTIPLIER


@njit(cache=True, nogil=True)
def new_table() -> tuple[Array, Array, Array]:
    """An empty table of block numbers: slots, hash (uint64) and scope (int32) by number.

    A slot (uint64) holds 32 bits of the mixed hash and, below them, the number + 1; 0 is an empty one.
    """
    slots = np.zeros(_FIRST_SLOTS, np.uint64)
    return slots, np.empty(_FIRST_SLOTS, np.uint64), np.empty(_FIRST_SLOTS, np.int32)


@njit(cache=True, nogil=True)
def number_more(
    hashes: Array, scopes: Array, offsets: Array, table: tuple[Array, Array, Array], distinct: int
) -> tuple[Array, tuple[Array, Array, Array], int]:
    """Give each distinct pair of scope and hash a number, in order of first sight, going on from earlier calls.

    Open addressing with linear probing; the table grows, so memory follows the distinct blocks: 12 to 24 bytes
    for each, and 12 to 24 for its slot. Memory in no order is what takes time. So the block after one with number
    n is first held against n + 1, since most were first seen together; a slot tells other blocks apart without a
    look at their hash; and the slots of a run of blocks are touched before any is needed, so that they are
    fetched side by side.

    Args:
        hashes: uint64, one per block.
        scopes: int32, one per request.
        offsets: int64, requests + 1.
        table: of `new_table`, or what the call before returned; overwritten.
        distinct: how many numbers are given.

    Returns:
        int32 number per block, the table, and how many numbers are given now.

    """
    slots, key_hash, key_scope = table
    numbers = np.empty(hashes.size, np.int32)
    shift = _shift(slots)
    mixed = np.empty(_RUN + 1, np.uint64)
    for request in range(offsets.size - 1):
        scope, end = scopes[request], offsets[request + 1]
        block, number = offsets[request], np.int64(-1)
        while block < end:
            number += 1
            if number < distinct and key_hash[number] == hashes[block] and key_scope[number] == scope:
                numbers[block] = number
                block += 1
                continue
            slots, key_hash, key_scope, shift = _with_room(slots, key_hash, key_scope, distinct, shift)
            stop = min(end, block + _RUN)
            _fetch(hashes[block:stop], scope, slots, shift, mixed)
            for at in range(block, stop):
                known = distinct
                number, distinct = _find(
                    hashes[at], scope, mixed[at - block], slots, shift, key_hash, key_scope, distinct
                )
                numbers[at] = number
                if distinct == known:
                    break
            block = at + 1
    return numbers, (slots, key_hash, key_scope), distinct


@njit(cache=True, nogil=True)
def _fetch(hashes: Array, scope: Any, slots: Array, shift: Any, mixed: Array) -> None:
    """Mix the hashes of a run of blocks, and look at the slot of each; the last cell makes sure that it is looked at."""
    touched = np.uint64(0)
    for k in range(hashes.size):
        mixed[k] = _mixed(hashes[k], scope)
        touched ^= slots[np.int64(mixed[k] >> shift)]
    mixed[_RUN] = touched


@njit(cache=True, nogil=True)
def _shift(slots: Array) -> Any:
    """By how many bits a mixed hash is shifted to be the place of a slot."""
    shift = 64
    while 1 << (64 - shift) < slots.size:
        shift -= 1
    return np.uint64(shift)


@njit(cache=True, nogil=True)
def _find(
    value: Any,
    scope: Any,
    mixed: Any,
    slots: Array,
    shift: Any,
    key_hash: Array,
    key_scope: Array,
    distinct: Any,
) -> Any:
    """Number of a block, a new one where it is not known, and how many numbers are given then."""
    tag = mixed << _HALF
    slot = np.int64(mixed >> shift)
    while slots[slot] != 0:
        if (slots[slot] ^ tag) >> _HALF == 0:
            number = np.int64(slots[slot] & _NUMBER) - 1
            if key_hash[number] == value and key_scope[number] == scope:
                return number, distinct
        slot = (slot + 1) & (slots.size - 1)
    slots[slot] = tag | np.uint64(distinct + 1)
    key_hash[distinct] = value
    key_scope[distinct] = scope
    return np.int64(distinct), distinct + 1


@njit(cache=True, nogil=True)
def _with_room(slots: Array, key_hash: Array, key_scope: Array, distinct: Any, shift: Any) -> Any:
    """The table with room for a run of new blocks, at most two thirds of its slots taken; its shift."""
    if distinct + _RUN > key_hash.size:
        key_hash, key_scope = _longer(key_hash), _longer(key_scope)
    if (distinct + _RUN) * 3 >= slots.size * 2:
        wider = slots.size * (4 if slots.size < _LARGE else 2)
        slots = np.zeros(wider, np.uint64)
        shift = _shift(slots)
        for number in range(distinct):
            mixed = _mixed(key_hash[number], key_scope[number])
            slot = np.int64(mixed >> shift)
            while slots[slot] != 0:
                slot = (slot + 1) & (wider - 1)
            slots[slot] = (mixed << _HALF) | np.uint64(number + 1)
    return slots, key_hash, key_scope, shift


@njit(cache=True, nogil=True)
def _longer(keys: Array) -> Array:
    more = np.empty(keys.size * 2, keys.dtype)
    more[: keys.size] = keys
    return more


def number_blocks(hashes: Array, scopes: Array, offsets: Array) -> tuple[Array, int]:
    """Numbers of the blocks of one batch, and how many distinct ones there are: see `number_more`."""
    numbers, _, distinct = number_more(hashes, scopes, offsets, new_table(), 0)
    return numbers, distinct


@njit(cache=True)
def bounded_counts(counts: Array, offsets: Array, input_tokens: Array, bounded: Array) -> Array:
    """Write cumulative tokens per block that never fall and never exceed the request's input to `bounded`."""
    for request in range(offsets.size - 1):
        highest = np.int64(0)
        for block in range(offsets[request], offsets[request + 1]):
            highest = min(max(highest, counts[block]), input_tokens[request])
            bounded[block] = highest
    return bounded


@njit(cache=True)
def block_tokens(counts: Array, offsets: Array) -> Array:
    """Tokens of each block by itself, of the cumulative ones; same type."""
    tokens = np.empty(counts.size, counts.dtype)
    for request in range(offsets.size - 1):
        before = np.int64(0)
        for block in range(offsets[request], offsets[request + 1]):
            tokens[block] = counts[block] - before
            before = counts[block]
    return tokens


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
