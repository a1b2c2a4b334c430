"""The replay's working memory: records of calls and replicas, queues, heaps.

Belongs here: what is kept, and its empty state. Does not belong here: what happens (`kernel.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

NOBODY = -1
END, BEND_FULL, BEND_WINDOW, KINDS = 0, 1, 2, 3
"""Kinds of a sequence's entries in a heap; a value is call * KINDS + kind."""


class Engine(NamedTuple):
    """What all replicas have in common."""

    replicas: int
    routing: int
    max_sequences: int
    step_tokens: int
    """Tokens of a step, at least `max_sequences`."""
    pool_blocks: int
    block_tokens: int
    grows: int
    """1 if a sequence's KV cache grows with its context, 0 if all layers have a window."""
    classes: int
    """Classes of priority."""
    clients: int
    """0: calls come at their `arrival_s`. Else so many clients send the next call when their last is over."""


def _record(**names_by_kind: str) -> np.dtype[np.void]:
    fields = [(name, kind) for kind, names in names_by_kind.items() for name in names.split()]
    return np.dtype(fields, align=True)


CALL = _record(
    # Given: arrival, in a closed loop of a client's first call; pause before the call in a closed loop.
    # Told, NaN where it never came to that: arrived, admitted, first token, ended.
    f8="arrival_s pause_s arrived_s admitted_s first_s ended_s",
    # Context less step while it decodes; number of its admission.
    i8="base admission",
    # Given: tokens (cached: whatever happens, for calls without blocks), KV blocks of layers with a window,
    # class of priority from 0. Told: replica to hit_tokens. Then: next in its queue; tokens to prefill, those
    # left, tokens made when it last stopped; KV blocks held without shared ones.
    i4=(
        "input_tokens output_tokens cached_tokens window_blocks priority "
        "replica preempted hit_tokens following prompt left made held"
    ),
)
"""One call. Records keep side by side in memory what is needed together."""

REPLICA = _record(
    # The run of like steps in progress; sums over steps (KV blocks in use by time).
    f8="clock end compute compute_slope memory memory_slope overhead busy_s block_s",
    # The run, the batch, its queue of prompts; then sums.
    i8=(
        "run_steps run_prompt run_prefilled step decoding prefilling load used read_full read_window "
        "growing_full growing_window heap_size prefill_head prefill_tail "
        "most_blocks steps prompt_tokens output_tokens preemptions"
    ),
)
"""One replica."""

NEXT, ADMISSIONS, IN_SYSTEM, TURN, PENDING = range(5)
"""Places of `State.counters`: next call, admissions, calls in the system, turn of round robin, size of the
heap of pending calls."""


class State(NamedTuple):
    """All that changes."""

    calls: Array
    """Of `CALL`, in order of arrival."""
    replicas: Array
    """Of `REPLICA`."""
    heap_key: Array
    """By replica: the steps before which sequences end or their context reaches a span."""
    heap_value: Array
    phase: Array
    """By replica and remainder: decoding sequences whose context less step leaves it, divided by the block."""
    waiting: Array
    """By replica and priority: first and last call of the queue."""
    pending_s: Array
    """Heap of the calls to come in a closed loop."""
    pending: Array
    counters: Array
    by_batch_s: Array
    """By replica and running sequences: seconds of such steps."""
    in_system_s: Array
    """One number: integral over time of the calls that have arrived and not ended."""


def new_calls(count: int) -> Array:
    """Records of calls before anything has happened."""
    calls = np.zeros(count, CALL)
    for name in ("arrived_s", "admitted_s", "first_s", "ended_s"):
        calls[name] = np.nan
    for name in ("following", "replica"):
        calls[name] = NOBODY
    return calls


def new_state(engine: Engine, calls: Array) -> State:
    """A state before anything has arrived."""
    replicas = np.zeros(engine.replicas, REPLICA)
    replicas["end"] = np.inf
    replicas["prefill_head"] = replicas["prefill_tail"] = NOBODY
    heap = np.zeros((engine.replicas, KINDS * engine.max_sequences + 1), np.int64)
    return State(
        calls=calls,
        replicas=replicas,
        heap_key=heap,
        heap_value=heap.copy(),
        phase=np.zeros((engine.replicas, engine.block_tokens), np.int64),
        waiting=np.full((engine.replicas, engine.classes, 2), NOBODY, np.int64),
        pending_s=np.zeros(engine.clients + 1),
        pending=np.zeros(engine.clients + 1, np.int64),
        counters=np.zeros(5, np.int64),
        by_batch_s=np.zeros((engine.replicas, engine.max_sequences + 1)),
        in_system_s=np.zeros(1),
    )
