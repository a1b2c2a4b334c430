"""Loops that say why a prefix was not read from cache, compiled by numba.

Belongs here: splitting each prompt's seen prefix by what became of it, the time between two uses of a block, the tokens
that went through a cache in between. Each is checked against a slow reference in the tests. Does not belong here: frames,
rules, money, names of causes (`causes.py`, `gaps.py`).

Arrays are laid out as in `block_kernels.py`. Beside the arrays, memory is at most 44 bytes per distinct block.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from pipelines.waste.block_kernels import NEVER, Array

READ, IN_FLIGHT, BELOW_MINIMUM, STEP, NOT_CACHED, MISSED, EXPIRED = range(7)
MODEL_SWITCH, REGION_SWITCH, ACCOUNT_SWITCH, UNKNOWN_READS = range(7, 11)
PARTS = 11
"""Columns of the split that `split_seen` returns."""


@njit(cache=True)
def _where_else(now: Any, other: Any, model: Array, region: Array) -> Any:
    """Which switch took a call to another cache than the call that used the block last."""
    if model[now] != model[other]:
        return MODEL_SWITCH
    if region[now] != region[other]:
        return REGION_SWITCH
    return ACCOUNT_SWITCH


@njit(cache=True)
def _take_in(
    numbers: Array,
    offsets: Array,
    started: Array,
    ready: Array,
    order: Array,
    pending: Any,
    now: Any,
    at: Array,
) -> Any:
    """Note the start (`at`, per block) of all requests that are ready by now; returns how many were."""
    while pending < order.size and ready[order[pending]] <= now:
        j = order[pending]
        pending += 1
        for block in range(offsets[j], offsets[j + 1]):
            at[numbers[block]] = max(at[numbers[block]], started[j])
    return pending


@njit(cache=True)
def _kept(numbers: Array, first: Any, end: Any, at: Array, oldest: Any) -> Any:
    """Index of the first block that was not noted since `oldest`."""
    while first < end and at[numbers[first]] >= oldest:
        first += 1
    return first


@njit(cache=True)
def _cut(tokens: Any, whole: Any, minimum: Any, step: Any) -> Any:
    """What of a kept prefix can be read: at most all but the last token, in steps, nothing below the minimum."""
    tokens = min(tokens, whole - 1)
    tokens -= tokens % step
    return tokens if minimum >= 0 and tokens > 0 and tokens >= minimum else np.int64(0)


@njit(cache=True)
def _beyond(i: Any, last: Any, own_use: Any, oldest: Any, started: Array, ready: Array) -> Any:
    """What became of a block that its own cache does not hold; -1 where another cache does."""
    if own_use >= oldest:
        return IN_FLIGHT
    if started[last] < oldest:
        return EXPIRED
    return -1 if ready[last] <= started[i] else IN_FLIGHT


@njit(cache=True)
def split_seen(
    own: Array,
    own_distinct: int,
    wide: Array,
    wide_distinct: int,
    narrow: Array,
    narrow_distinct: int,
    offsets: Array,
    counts: Array,
    input_tokens: Array,
    started: Array,
    ready: Array,
    ready_order: Array,
    read: Array,
    minimum: Array,
    step: Array,
    lifetime: Array,
    model: Array,
    region: Array,
) -> tuple[Array, Array, Array, Array]:
    """Split the tokens of each request's longest prefix seen anywhere by what became of them.

    Positions of the prompt are judged one after the other. Up to the reads reported they were read. What lies
    in the prefix that was alive in the request's own cache could be read up to the multiple of the step;
    the rest of the prefix was in flight, alive in another cache only, or expired everywhere.

    Args:
        own: block numbers apart by cache (`blocks.cache_codes`).
        own_distinct: how many of them.
        wide: block numbers over all caches.
        wide_distinct: how many of them.
        narrow: block numbers apart by cache and by who could have held it alone (instance, key).
        narrow_distinct: how many of them.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block, bounded.
        input_tokens: per request.
        started: microseconds per request, not falling.
        ready: microseconds per request, later than its start.
        ready_order: request indices by `ready`.
        read: cache reads, -1 if unknown.
        minimum: fewest tokens cached, -1 where nothing is.
        step: a cacheable prefix is a multiple of it.
        lifetime: microseconds, -1 without limit.
        model: a number per model.
        region: a number per region.

    Returns:
        tokens per request and part (the row's sum is the prefix seen anywhere), tokens cacheable, index of
        the first missed block (-1: none), whether that one was alive in the narrow cache.

    """
    requests = offsets.size - 1
    split = np.zeros((requests, PARTS), np.int64)
    cacheable = np.zeros(requests, np.int64)
    first_missed = np.full(requests, -1, np.int64)
    alive_narrow = np.zeros(requests, np.bool_)
    used = np.full(own_distinct, NEVER, np.int64)
    own_ready = np.full(own_distinct, NEVER, np.int64)
    narrow_ready = np.full(narrow_distinct, NEVER, np.int64)
    wide_by = np.full(wide_distinct, -1, np.int64)
    pending = 0
    for i in range(requests):
        now = started[i]
        _take_in(narrow, offsets, started, ready, ready_order, pending, now, narrow_ready)
        pending = _take_in(own, offsets, started, ready, ready_order, pending, now, own_ready)
        oldest = now - lifetime[i] if lifetime[i] >= 0 else NEVER + 1
        first, end = offsets[i], offsets[i + 1]
        alive_end = _kept(own, first, end, own_ready, oldest)
        alive = counts[alive_end - 1] if alive_end > first else np.int64(0)
        cacheable[i] = _cut(alive, input_tokens[i], minimum[i], step[i])
        before = np.int64(0)
        for block in range(first, end):
            last = wide_by[wide[block]]
            if last < 0:
                break
            upto = counts[block]
            low = min(max(before, read[i]), upto)
            split[i, READ] += low - before
            before = upto
            if read[i] < 0:
                fate = UNKNOWN_READS
            elif minimum[i] < 0:
                fate = NOT_CACHED
            elif block < alive_end:
                missed = min(max(cacheable[i], low), upto) - low
                split[i, MISSED] += missed
                low += missed
                fate = BELOW_MINIMUM if alive < minimum[i] else STEP
                if missed > 0 and first_missed[i] < 0:
                    first_missed[i] = block
                    alive_narrow[i] = narrow_ready[narrow[block]] >= oldest
            else:
                fate = _beyond(i, last, used[own[block]], oldest, started, ready)
                if fate < 0:
                    fate = _where_else(i, last, model, region)
            split[i, fate] += upto - low
        for block in range(first, end):
            used[own[block]] = now
            wide_by[wide[block]] = i
    return split, cacheable, first_missed, alive_narrow


@njit(cache=True)
def _pings(gap: Any, lifetime: Any, longer: Any) -> Any:
    """Pings, one each lifetime, that a block has until its next use."""
    return min(gap, longer) // lifetime if longer >= 0 else np.int64(0)


@njit(cache=True)
def gaps_between_uses(
    own: Array,
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
    longer: Array,
    cell: Array,
    cells: int,
    edges: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Sum reuses by the time since the block was last used, and what a longer lifetime would change.

    Args:
        own: block numbers apart by cache.
        distinct: how many.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block, bounded.
        input_tokens: per request.
        started: microseconds per request, not falling.
        ready: microseconds per request, later than its start.
        ready_order: request indices by `ready`.
        read: cache reads, -1 if unknown.
        written: cache writes, 0 if unknown.
        minimum: fewest tokens cached, -1 where nothing is.
        step: a cacheable prefix is a multiple of it.
        lifetime: microseconds, -1 without limit.
        longer: microseconds of the longer lifetime that can be had, -1 where there is none or no lifetime.
        cell: where a request is summed, from 0.
        cells: how many there are.
        edges: upper bounds of the gap classes, microseconds, ascending; one class more is beyond.

    Returns:
        by cell and class: requests with tokens in it, tokens, tokens not read (of requests whose reads are
        known); per request: tokens that the longer lifetime makes readable on top, the part of them that was
        written again.

    """
    requests = offsets.size - 1
    classes = edges.size + 1
    reuses = np.zeros((cells, classes), np.int64)
    tokens_in = np.zeros((cells, classes), np.int64)
    unread_in = np.zeros((cells, classes), np.int64)
    extended = np.zeros(requests, np.int64)
    rewritten = np.zeros(requests, np.int64)
    used = np.full(distinct, NEVER, np.int64)
    own_ready = np.full(distinct, NEVER, np.int64)
    counted = np.full(classes, -1, np.int64)
    pending = 0
    for i in range(requests):
        now = started[i]
        pending = _take_in(own, offsets, started, ready, ready_order, pending, now, own_ready)
        first, end = offsets[i], offsets[i + 1]
        was_read = max(read[i], np.int64(0))
        before = np.int64(0)
        for block in range(first, end):
            if used[own[block]] == NEVER:
                break
            size = counts[block] - before
            kind = np.searchsorted(edges, now - used[own[block]])
            if size > 0 and counted[kind] != i:
                counted[kind] = i
                reuses[cell[i], kind] += 1
            tokens_in[cell[i], kind] += size
            if read[i] >= 0:
                unread_in[cell[i], kind] += counts[block] - min(max(before, was_read), counts[block])
            before = counts[block]
        if longer[i] >= 0 and read[i] >= 0:
            alive_end = _kept(own, first, end, own_ready, now - lifetime[i])
            longer_end = _kept(own, first, end, own_ready, now - longer[i])
            held = counts[longer_end - 1] if longer_end > first else np.int64(0)
            tokens = _cut(held, input_tokens[i], minimum[i], step[i])
            low = max(was_read, counts[alive_end - 1] if alive_end > first else np.int64(0))
            extended[i] = max(np.int64(0), tokens - low)
            rewritten[i] = max(np.int64(0), min(tokens, was_read + written[i]) - low)
        for block in range(first, end):
            used[own[block]] = now
    return reuses, tokens_in, unread_in, extended, rewritten


@njit(cache=True)
def pinged_tokens(
    own: Array,
    distinct: int,
    offsets: Array,
    counts: Array,
    started: Array,
    covered: Array,
    lifetime: Array,
    longer: Array,
    cell: Array,
    cells: int,
) -> Array:
    """Tokens that pings every lifetime would read to keep what was cached.

    Args:
        own: block numbers apart by cache.
        distinct: how many.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block, bounded.
        started: microseconds per request, not falling.
        covered: cache reads and writes per request.
        lifetime: microseconds; that of the request that uses a block next says how often to ping.
        longer: microseconds for which a prefix is kept at most, -1 for not at all.
        cell: where a request is summed, from 0.
        cells: how many there are.

    Returns:
        by cell of the request that cached it: tokens read until its next use, or until `longer` is over.

    """
    pinged = np.zeros(cells, np.int64)
    used_by = np.full(distinct, -1, np.int64)
    warm = np.zeros(distinct, np.int64)
    warm_by = np.full(distinct, -1, np.int32)
    for i in range(offsets.size - 1):
        before = np.int64(0)
        for block in range(offsets[i], offsets[i + 1]):
            number = own[block]
            if warm_by[number] >= 0:
                pinged[warm_by[number]] += warm[number] * _pings(
                    started[i] - started[used_by[number]], lifetime[i], longer[i]
                )
            is_warm = longer[i] >= 0 and min(counts[block], covered[i]) > before
            warm[number] = min(counts[block], covered[i]) - before if is_warm else 0
            warm_by[number] = cell[i] if is_warm else -1
            used_by[number] = i
            before = counts[block]
    # What nobody used again is kept to the end of the longer lifetime in vain.
    for i in range(offsets.size - 1):
        for block in range(offsets[i], offsets[i + 1]):
            number = own[block]
            if warm_by[number] >= 0 and used_by[number] == i:
                pinged[warm_by[number]] += warm[number] * _pings(longer[i], lifetime[i], longer[i])
                warm_by[number] = -1
    return pinged


@njit(cache=True)
def last_read(offsets: Array, counts: Array, read: Array) -> Array:
    """Index of the last block of each request that was read whole, -1 for none."""
    last = np.full(offsets.size - 1, -1, np.int64)
    for i in range(offsets.size - 1):
        for block in range(offsets[i], offsets[i + 1]):
            if counts[block] > read[i]:
                break
            last[i] = block
    return last


@njit(cache=True)
def tokens_between(
    numbers: Array, offsets: Array, counts: Array, rows: Array, watched: Array, last: Array, weight: Array
) -> Array:
    """LRU stack distance in tokens of one block per request: what a cache must hold for it to be there still.

    The blocks of a request are looked up before any is touched. A Fenwick tree over the touches holds, at
    each block's last touch, its tokens.

    Args:
        numbers: block numbers; requests of different caches share none.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block.
        rows: indices of the requests of one cache, ascending.
        watched: per row, index of the block in question, -1 for none.
        last: int64 per distinct block, -1; overwritten for the blocks of these rows.
        weight: int64 per distinct block; overwritten likewise.

    Returns:
        per row: tokens of the distinct blocks used since the watched block's last use, its own included; -1
        where it was not used before or nothing is watched.

    """
    touches = np.int64(0)
    for row in rows:
        touches += offsets[row + 1] - offsets[row]
    tree = np.zeros(touches + 2, np.int64)
    found = np.full(rows.size, -1, np.int64)
    total = np.int64(0)
    position = np.int64(0)
    for at in range(rows.size):
        i = rows[at]
        if watched[at] >= 0 and last[numbers[watched[at]]] >= 0:
            older = np.int64(0)
            node = last[numbers[watched[at]]]
            while node > 0:
                older += tree[node]
                node -= node & -node
            found[at] = total - older
        for block in range(offsets[i + 1] - 1, offsets[i] - 1, -1):
            number = numbers[block]
            if last[number] >= 0:
                node = last[number] + 1
                while node < tree.size:
                    tree[node] -= weight[number]
                    node += node & -node
                total -= weight[number]
            weight[number] = counts[block] - (counts[block - 1] if block > offsets[i] else 0)
            node = position + 1
            while node < tree.size:
                tree[node] += weight[number]
                node += node & -node
            total += weight[number]
            last[number] = position
            position += 1
    return found
