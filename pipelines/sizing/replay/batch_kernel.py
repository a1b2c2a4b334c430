"""Batch and queues of one replica, compiled by numba.

Belongs here: a sequence's way into and out of the decoding batch, the queue of prompts being prefilled and
the queues of waiting calls; the KV blocks that steps allocate; the time of a run of like steps. Does not
belong here: what is scheduled when (`kernel.py`).
"""
# numba compiles these functions from their bytecode: no annotations, plain loops.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np

from pipelines.sizing.replay.compiled import compiled
from pipelines.sizing.replay.heap_kernel import push_heap
from pipelines.sizing.replay.prefix_kernel import release_blocks
from pipelines.sizing.replay.records import BEND_FULL, BEND_WINDOW, END, KINDS, NOBODY

# ---- time of a run of steps


@compiled
def run_s(steps, compute, compute_slope, memory, memory_slope, overhead):
    """Sum over i < steps of max(compute + i compute_slope, memory + i memory_slope) + overhead."""
    ahead, gains = compute - memory, compute_slope - memory_slope
    turn = steps
    if ahead * gains < 0.0:
        turn = np.int64(min(np.ceil(-ahead / gains), float(steps)))
    before, after = float(turn), float(steps - turn)
    compute_first = ahead > 0.0 or (ahead == 0.0 and gains > 0.0)
    in_compute, in_memory = (before, after) if compute_first else (after, before)
    early, late = 0.5 * before * (before - 1.0), after * before + 0.5 * after * (after - 1.0)
    sum_compute, sum_memory = (early, late) if compute_first else (late, early)
    return (
        in_compute * compute
        + sum_compute * compute_slope
        + in_memory * memory
        + sum_memory * memory_slope
        + steps * overhead
    )


@compiled
def ends_after(here, steps):
    """When a replica's run would end after so many steps."""
    lasts = run_s(steps, here.compute, here.compute_slope, here.memory, here.memory_slope, here.overhead)
    return here.clock + lasts


@compiled
def cut_run(here, moment):
    """End the run at the first boundary that is not before a moment."""
    low, high = 1, here.run_steps
    while low < high:
        middle = (low + high) // 2
        if ends_after(here, middle) >= moment:
            high = middle
        else:
            low = middle + 1
    here.run_steps = low
    here.end = ends_after(here, low)


@compiled
def attended_pairs(before, tokens, span):
    """Pairs of a chunk of `tokens` after `before` others; as `flops.attended_pairs`."""
    return _triangle(float(before + tokens), float(span)) - _triangle(float(before), float(span))


@compiled
def _triangle(n, span):
    if n <= span:
        return 0.5 * n * (n + 1.0)
    return 0.5 * span * (span + 1.0) + (n - span) * span


# ---- KV blocks


@compiled
def context_blocks(engine, tokens):
    """KV blocks of a context."""
    return (tokens + engine.block_tokens - 1) // engine.block_tokens * engine.grows


@compiled
def grown_blocks(state, engine, replica, steps):
    """Blocks that the next `steps` steps allocate: each sequence one whenever its context fills a block."""
    if engine.grows == 0:
        return 0
    size, here = engine.block_tokens, state.replicas[replica]
    blocks = steps // size * here.decoding
    place = size - 1 - (here.step - 1) % size
    for _ in range(steps % size):
        blocks += state.phase[replica, place]
        place = place - 1 if place > 0 else size - 1
    return blocks


@compiled
def steps_that_fit(state, engine, replica, steps):
    """How many of `steps` steps, at least one, the free blocks allow."""
    here = state.replicas[replica]
    free = engine.pool_blocks - here.used
    if (steps // engine.block_tokens + 1) * here.decoding * engine.grows <= free:
        return steps
    low, high = 1, steps
    while low < high:
        middle = (low + high + 1) // 2
        if grown_blocks(state, engine, replica, middle) <= free:
            low = middle
        else:
            high = middle - 1
    return low


@compiled
def free_blocks(state, prefixes, replica, call):
    """Give up all that a call holds."""
    one = state.calls[call]
    state.replicas[replica].used -= one.held + release_blocks(prefixes, replica, call)
    one.held = 0


# ---- decoding


@compiled
def start_decoding(state, engine, terms, replica, call):
    """Have a call decode from the replica's present step on."""
    here, one = state.replicas[replica], state.calls[call]
    step, context = here.step, np.int64(one.prompt)
    ends = step + one.output_tokens - one.made
    one.base = context - step
    here.decoding += 1
    state.phase[replica, one.base % engine.block_tokens] += 1
    here.read_full += min(context, terms.full_span)
    here.read_window += min(context, terms.window_span)
    _push(state, replica, ends, call, END)
    if context < terms.full_span:
        here.growing_full += 1
        _push_bend(state, replica, ends, step + terms.full_span - context, call, BEND_FULL)
    if context < terms.window_span:
        here.growing_window += 1
        _push_bend(state, replica, ends, step + terms.window_span - context, call, BEND_WINDOW)


@compiled
def _push_bend(state, replica, ends, bends, call, kind):
    if bends <= ends:
        _push(state, replica, bends, call, kind)


@compiled
def _push(state, replica, step, call, kind):
    here = state.replicas[replica]
    here.heap_size = push_heap(
        state.heap_key[replica], state.heap_value[replica], here.heap_size, step, call * KINDS + kind
    )


@compiled
def stop_decoding(state, engine, terms, replica, call):
    """Take a call out of the batch; the blocks it has grown by join those it was admitted with."""
    here, one = state.replicas[replica], state.calls[call]
    context = one.base + here.step
    here.decoding -= 1
    state.phase[replica, one.base % engine.block_tokens] -= 1
    here.read_full -= min(context, terms.full_span)
    here.read_window -= min(context, terms.window_span)
    if context < terms.full_span:
        here.growing_full -= 1
    if context < terms.window_span:
        here.growing_window -= 1
    # A step whose sequence has c tokens allocates where c is a multiple of the block.
    size = engine.block_tokens
    one.held += ((context - 1) // size - (one.prompt - 1) // size) * engine.grows


# ---- prompts being prefilled


@compiled
def start_prefilling(state, replica, call):
    """Put a call behind those being prefilled."""
    here = state.replicas[replica]
    state.calls[call].following = NOBODY
    if here.prefill_tail == NOBODY:
        here.prefill_head = call
    else:
        state.calls[here.prefill_tail].following = call
    here.prefill_tail = call
    here.prefilling += 1


@compiled
def stop_prefilling(state, replica, call):
    """Take a call out of those being prefilled."""
    here = state.replicas[replica]
    before, at = NOBODY, here.prefill_head
    while at != call:
        before, at = at, np.int64(state.calls[at].following)
    after = state.calls[call].following
    if before == NOBODY:
        here.prefill_head = after
    else:
        state.calls[before].following = after
    if here.prefill_tail == call:
        here.prefill_tail = before
    here.prefilling -= 1


# ---- waiting


@compiled
def first_waiting(state, replica):
    """The call whose turn it is, or NOBODY."""
    waiting = state.waiting
    for priority in range(waiting.shape[1]):
        if waiting[replica, priority, 0] != NOBODY:
            return waiting[replica, priority, 0]
    return NOBODY


@compiled
def wait_behind(state, replica, call):
    """Put a call behind those of its priority."""
    waiting, one = state.waiting, state.calls[call]
    one.following = NOBODY
    last = waiting[replica, one.priority, 1]
    if last == NOBODY:
        waiting[replica, one.priority, 0] = call
    else:
        state.calls[last].following = call
    waiting[replica, one.priority, 1] = call


@compiled
def wait_in_front(state, replica, call):
    """Put a call before those of its priority."""
    waiting, one = state.waiting, state.calls[call]
    one.following = waiting[replica, one.priority, 0]
    waiting[replica, one.priority, 0] = call
    if one.following == NOBODY:
        waiting[replica, one.priority, 1] = call


@compiled
def stop_waiting(state, replica, call):
    """Take the first call of a priority out of its queue."""
    waiting, one = state.waiting, state.calls[call]
    waiting[replica, one.priority, 0] = one.following
    if one.following == NOBODY:
        waiting[replica, one.priority, 1] = NOBODY
