"""Loops that find which call a call continues, compiled by numba.

Belongs here: the tree of the prompts of a conversation, and where a prompt parts from the one before it. Each is checked
against a slow reference in the tests. Does not belong here: what a conversation costs (`session_growth.py`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from pipelines.waste.block_kernels import Array


@njit(cache=True)
def continued(
    numbers: Array, distinct: int, offsets: Array, counts: Array, spare: Array
) -> tuple[Array, Array, Array]:
    """Find, per request, the earlier one whose whole prompt its own begins with.

    Args:
        numbers: block numbers apart by conversation scope, requests in order of arrival.
        distinct: how many.
        offsets: int64, requests + 1.
        counts: cumulative tokens per block.
        spare: blocks at the end of a request's prompt that its successor need not begin with (1 where the
            last block is cut by size and changes when it fills up, else 0).

    Returns:
        per request: index of the request continued with the longest prompt, the latest of equals (-1: none);
        tokens of the longest prefix seen in its scope; index of the request that used the end of that prefix
        last (-1: none seen).

    """
    requests = offsets.size - 1
    parent = np.full(requests, -1, np.int64)
    seen_tokens = np.zeros(requests, np.int64)
    nearest = np.full(requests, -1, np.int64)
    ends_here = np.full(distinct, -1, np.int64)
    used_by = np.full(distinct, -1, np.int64)
    for i in range(requests):
        first, end = offsets[i], offsets[i + 1]
        block = first
        while block < end and used_by[numbers[block]] >= 0:
            block += 1
        if block > first:
            seen_tokens[i] = counts[block - 1]
            nearest[i] = used_by[numbers[block - 1]]
            at = block - 1
            while at >= first and ends_here[numbers[at]] < 0:
                at -= 1
            if at >= first:
                parent[i] = ends_here[numbers[at]]
        for block in range(first, end):
            used_by[numbers[block]] = i
        last = end - 1 - min(spare[i], end - first - 1)
        if last >= first:
            ends_here[numbers[last]] = i
    return parent, seen_tokens, nearest


@njit(cache=True)
def turns(parent: Array, named: Array, scopes: Array) -> tuple[Array, Array]:
    """Number the session of each request and its turn on its branch.

    Args:
        parent: of `continued`.
        named: whether the request states its session; those that don't share one with the request they continue.
        scopes: number of the conversation scope, that of the session where it is stated.

    Returns:
        number of the session: the scope where it is stated, else -1 - the index of its first request; the turn, from 1.

    """
    session = np.empty(parent.size, np.int64)
    turn = np.ones(parent.size, np.int64)
    for i in range(parent.size):
        session[i] = scopes[i] if named[i] else -1 - i
        if parent[i] >= 0:
            session[i] = session[parent[i]]
            turn[i] = turn[parent[i]] + 1
    return session, turn


@njit(cache=True)
def passed_over(parent: Array, scopes: Array, distinct: int) -> Array:
    """Whether any request after it, in its scope, continues one before it: the conversation went on beside it."""
    over = np.zeros(parent.size, np.bool_)
    earliest = np.full(distinct, parent.size, np.int64)
    for i in range(parent.size - 1, -1, -1):
        over[i] = earliest[scopes[i]] < i
        if parent[i] >= 0:
            earliest[scopes[i]] = min(earliest[scopes[i]], parent[i])
    return over


@njit(cache=True)
def shortened(
    parent: Array, turn: Array, input_tokens: Array, window: int, every: int, kept_percent: int
) -> tuple[Array, Array, Array, Array]:
    """What a sliding window and a regular compaction would leave out of each request.

    The head (the input of a branch's first request) always stays. The history is what the input has beyond it.
    Window: a request sends the head and what was added in the last `window` turns. Compaction: before every
    `every`-th turn the history is replaced by a summary of `kept_percent` of its length, and grows on from there.

    Args:
        parent: index of the request continued, -1 at the start of a branch.
        turn: turn on its branch, from 1.
        input_tokens: per request.
        window: turns kept.
        every: turns between compactions.
        kept_percent: length of the summary, per cent of the history.

    Returns:
        per request: tokens of the head, tokens left out by the window, tokens left out by compaction, tokens of the
        summary written before it (0 where none is).

    """
    requests = parent.size
    head = np.zeros(requests, np.int64)
    slid = np.zeros(requests, np.int64)
    compacted = np.zeros(requests, np.int64)
    summary = np.zeros(requests, np.int64)
    for i in range(requests):
        if parent[i] < 0:
            head[i] = input_tokens[i]
            continue
        head[i] = min(head[parent[i]], input_tokens[i])
        history = input_tokens[i] - head[i]
        if turn[i] > window + 1:
            oldest = parent[i]
            for _ in range(window - 1):
                oldest = parent[oldest]
            slid[i] = min(max(input_tokens[oldest] - head[oldest], 0), history)
        compacted[i] = min(compacted[parent[i]], history)
        if (turn[i] - 1) % every == 0:
            left = history - compacted[i]
            summary[i] = left * kept_percent // 100
            compacted[i] += left - summary[i]
    return head, slid, compacted, summary


@njit(cache=True)
def compared_with(
    before: Array, numbers: Array, offsets: Array, ends: Array, tolerance: Array, full: int
) -> tuple[Array, Array, Array]:
    """Compare each request with an earlier one: where they part, and how far they are laid out alike from there.

    Args:
        before: index of the request to compare with, -1 for none.
        numbers: block numbers over all caches.
        offsets: int64, requests + 1.
        ends: bytes from the start of the prompt to each block's end.
        tolerance: bytes by which two blocks of one size may differ, per request.
        full: bytes of a block that does not end a message.

    Returns:
        per request: blocks in common; blocks up to which sizes agree (the common ones where none does); how
        many of the agreeing ones after the common are the ends of messages.

    """
    requests = offsets.size - 1
    common = np.zeros(requests, np.int64)
    alike = np.zeros(requests, np.int64)
    message_ends = np.zeros(requests, np.int64)
    for i in range(requests):
        j = before[i]
        if j < 0:
            continue
        length = min(offsets[i + 1] - offsets[i], offsets[j + 1] - offsets[j])
        k = np.int64(0)
        while k < length and numbers[offsets[i] + k] == numbers[offsets[j] + k]:
            k += 1
        common[i] = k
        while k < length:
            mine = ends[offsets[i] + k] - (ends[offsets[i] + k - 1] if k > 0 else 0)
            other = ends[offsets[j] + k] - (ends[offsets[j] + k - 1] if k > 0 else 0)
            if abs(mine - other) > tolerance[i]:
                break
            if mine < full - 2 * tolerance[i]:
                message_ends[i] += 1
            k += 1
        alike[i] = k
    return common, alike, message_ends
