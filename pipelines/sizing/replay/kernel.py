"""Loop of the replay, compiled by numba: replicas of a continuous-batching engine and the calls they serve.

Belongs here: what happens at each boundary between two steps (scheduling, admission, preemption), and the
skipping of steps between which nothing happens. Does not belong here: the batch's books (`batch_kernel.py`),
blocks of the prefix cache (`prefix_kernel.py`), time of a step (`step_terms.py`), frames, percentiles.

The engine's rules, after vLLM's scheduler (v1, first come first served within a priority):

1. A step decodes one token of every running sequence; where a sequence's next token begins a KV block and
   none is free, the latest admitted of the lowest priority is preempted: it frees its blocks, waits in front
   of its class, and is later prefilled again, its own output included.
2. What is left of the step's token budget goes to prompts being prefilled, in order of admission.
3. Then waiting calls are admitted, in order of priority and arrival, while there is budget, a place, and room
   for the whole prompt in KV blocks; the first that does not fit blocks those behind it. A step that preempted
   admits nobody.
4. A prompt's first output token comes at the end of the step that completes it, each later one at the end of
   a step. A call that is over frees its blocks at that moment.
5. A call that arrives during a step is seen at the next boundary.

Between two boundaries at which the composition changes, all steps are alike but for contexts that grow by one
token a step. So compute and memory grow linearly, and the time of k steps is the sum of the larger of two
lines: closed form. The next change is the soonest end or bend (a context that reaches its span) in a heap, or
the step at which blocks run out; an arrival that could be admitted cuts the run short.
"""
# numba compiles these functions from their bytecode: no annotations, plain loops.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202

import numpy as np

from pipelines.sizing.replay.batch_kernel import (
    attended_pairs,
    context_blocks,
    cut_run,
    ends_after,
    first_waiting,
    free_blocks,
    grown_blocks,
    start_decoding,
    start_prefilling,
    steps_that_fit,
    stop_decoding,
    stop_prefilling,
    stop_waiting,
    wait_behind,
    wait_in_front,
)
from pipelines.sizing.replay.compiled import compiled
from pipelines.sizing.replay.heap_kernel import drop_from_heap, pop_heap, push_heap
from pipelines.sizing.replay.prefix_kernel import (
    blocks_to_claim,
    claim_blocks,
    evict_idle,
    seen_prefix,
)
from pipelines.sizing.replay.records import (
    ADMISSIONS,
    BEND_FULL,
    BEND_WINDOW,
    END,
    IN_SYSTEM,
    KINDS,
    NEXT,
    NOBODY,
    PENDING,
    TURN,
)

ROUND_ROBIN, LEAST_LOADED, PREFIX_AWARE = 0, 1, 2
ABOVE_LEAST, TIMES_LEAST = 64, 1.5
"""A prefix is followed unless some replica has this many calls, and this multiple, more than the least loaded
one: the balance rule and its defaults of SGLang's cache-aware router."""


# ---- a boundary


@compiled
def _preempt(state, engine, terms, prefixes, replica):
    """Send the latest admitted of the lowest priority back to wait."""
    here = state.replicas[replica]
    victim, decodes = NOBODY, False
    for place in range(here.heap_size):
        value = state.heap_value[replica, place]
        if value % KINDS == END and _yields_before(state, value // KINDS, victim):
            victim, decodes = value // KINDS, True
    call = here.prefill_head
    while call != NOBODY:
        if _yields_before(state, call, victim):
            victim, decodes = call, False
        call = np.int64(state.calls[call].following)
    one = state.calls[victim]
    if decodes:
        ends, here.heap_size = drop_from_heap(
            state.heap_key[replica], state.heap_value[replica], here.heap_size, victim, KINDS
        )
        one.made = one.output_tokens - (ends - here.step)
        stop_decoding(state, engine, terms, replica, victim)
    else:
        stop_prefilling(state, replica, victim)
    free_blocks(state, prefixes, replica, victim)
    wait_in_front(state, replica, victim)
    one.preempted += 1
    here.preemptions += 1


@compiled
def _yields_before(state, call, other):
    """Whether a call is preempted before another one."""
    if other == NOBODY:
        return True
    one, two = state.calls[call], state.calls[other]
    if one.priority != two.priority:
        return one.priority > two.priority
    return one.admission > two.admission


@compiled
def _admit(state, engine, prefixes, replica, call, promised):
    """Admit a call if its whole prompt fits; `promised` blocks go to the step's decoding."""
    here, one = state.replicas[replica], state.calls[call]
    prompt = one.input_tokens + one.made
    hit, hashed = seen_prefix(prefixes, replica, call)
    own = max(context_blocks(engine, prompt) - hashed, 0) + one.window_blocks
    needed = own + blocks_to_claim(prefixes, replica, call)
    if needed > engine.pool_blocks - here.used - promised:
        return False
    claim_blocks(prefixes, replica, call)
    here.used += needed
    evict_idle(prefixes, replica, engine.pool_blocks - here.used)
    if prefixes.offsets[call + 1] == prefixes.offsets[call]:
        hit = np.int64(one.cached_tokens)
    # Whole blocks are reused, and the last token is computed always: the first output token comes of it.
    hit = min(hit, prompt - 1) // engine.block_tokens * engine.block_tokens
    one.held, one.prompt, one.left = own, prompt, prompt - hit
    one.admission = state.counters[ADMISSIONS]
    state.counters[ADMISSIONS] += 1
    if np.isnan(one.admitted_s):
        one.admitted_s = here.clock
        one.hit_tokens = hit
    stop_waiting(state, replica, call)
    start_prefilling(state, replica, call)
    return True


@compiled
def _fill_step(state, engine, terms, prefixes, replica, promised, admits):
    """Fill a step's token budget with prompts; returns their tokens and seconds of attention."""
    here = state.replicas[replica]
    budget = engine.step_tokens - here.decoding
    tokens, attention_s = np.int64(0), 0.0
    here.run_prefilled = 0
    call = here.prefill_head
    while budget > 0:
        if call == NOBODY:
            if not admits or here.decoding + here.prefilling >= engine.max_sequences:
                break
            call = first_waiting(state, replica)
            if call == NOBODY or not _admit(state, engine, prefixes, replica, call, promised):
                break
        one = state.calls[call]
        chunk, before = min(np.int64(one.left), budget), one.prompt - one.left
        attention_s += terms.compute_per_pair_full * attended_pairs(before, chunk, terms.full_span)
        attention_s += terms.compute_per_pair_window * attended_pairs(before, chunk, terms.window_span)
        one.left -= chunk
        tokens += chunk
        budget -= chunk
        if one.left > 0:
            break
        here.run_prefilled += 1
        call = np.int64(one.following)
    return tokens, attention_s


@compiled
def _plan(state, engine, terms, prefixes, replica):
    """Schedule the step that begins now, and as many like it as follow undisturbed."""
    here = state.replicas[replica]
    admits = True
    promised = grown_blocks(state, engine, replica, 1)
    while promised > engine.pool_blocks - here.used:
        _preempt(state, engine, terms, prefixes, replica)
        promised = grown_blocks(state, engine, replica, 1)
        admits = False
    tokens, attention_s = _fill_step(state, engine, terms, prefixes, replica, promised, admits)
    decoding = here.decoding
    here.run_prompt = tokens
    if decoding + tokens == 0:
        here.end, here.run_steps = np.inf, 0
        return
    full, window = float(here.read_full), float(here.read_window)
    here.compute = (
        decoding * terms.compute_per_sequence
        + full * terms.compute_per_read_full
        + window * terms.compute_per_read_window
        + tokens * terms.compute_per_prompt_token
        + attention_s
    )
    here.memory = (
        terms.memory_by_tokens[decoding + tokens]
        + full * terms.memory_per_read_full
        + window * terms.memory_per_read_window
    )
    here.overhead = terms.overhead_by_tokens[decoding + tokens] + decoding * terms.overhead_per_sequence
    full, window = float(here.growing_full), float(here.growing_window)
    here.compute_slope = full * terms.compute_per_read_full + window * terms.compute_per_read_window
    here.memory_slope = full * terms.memory_per_read_full + window * terms.memory_per_read_window
    steps = np.int64(1)
    if tokens == 0 and admits:
        steps = steps_that_fit(state, engine, replica, state.heap_key[replica, 0] - here.step)
    here.run_steps = steps
    here.end = ends_after(here, steps)


@compiled
def _measure(state, engine, prefixes, replica):
    """Add a finished run to the replica's sums, and let its batch have grown."""
    here = state.replicas[replica]
    steps, lasted, before = here.run_steps, here.end - here.clock, here.used
    running = here.decoding + here.prefilling
    here.used += grown_blocks(state, engine, replica, steps)
    evict_idle(prefixes, replica, engine.pool_blocks - here.used)
    here.busy_s += lasted
    state.by_batch_s[replica, running] += lasted
    here.block_s += lasted * 0.5 * (before + here.used)
    here.most_blocks = max(here.most_blocks, here.used)
    here.steps += steps
    here.prompt_tokens += here.run_prompt
    here.output_tokens += steps * here.decoding
    here.clock = here.end
    here.step += steps
    here.read_full += steps * here.growing_full
    here.read_window += steps * here.growing_window


@compiled
def _commit(state, engine, terms, prefixes, replica):
    """Carry out the run that ends now: sums, ends of calls, first tokens."""
    _measure(state, engine, prefixes, replica)
    here = state.replicas[replica]
    keys, values = state.heap_key[replica], state.heap_value[replica]
    while here.heap_size > 0 and keys[0] <= here.step:
        call, kind = values[0] // KINDS, values[0] % KINDS
        here.heap_size = pop_heap(keys, values, here.heap_size)
        if kind == BEND_FULL:
            here.growing_full -= 1
        elif kind == BEND_WINDOW:
            here.growing_window -= 1
        else:
            stop_decoding(state, engine, terms, replica, call)
            _end_call(state, engine, prefixes, replica, call)
    for _ in range(here.run_prefilled):
        call = here.prefill_head
        one = state.calls[call]
        stop_prefilling(state, replica, call)
        if np.isnan(one.first_s):
            one.first_s = here.clock
        if one.output_tokens > 0:
            one.made += 1
            here.output_tokens += 1
        if one.made >= one.output_tokens:
            _end_call(state, engine, prefixes, replica, call)
        else:
            start_decoding(state, engine, terms, replica, call)
    here.run_steps = 0


@compiled
def _end_call(state, engine, prefixes, replica, call):
    here = state.replicas[replica]
    free_blocks(state, prefixes, replica, call)
    state.calls[call].ended_s = here.clock
    here.load -= 1
    _leave_system(state, engine, here.clock)


# ---- arrivals


@compiled
def _push_pending(state, moment, call):
    counters = state.counters
    counters[PENDING] = push_heap(state.pending_s, state.pending, counters[PENDING], moment, call)


@compiled
def _leave_system(state, engine, now):
    """A call is over; in a closed loop its client pauses, then sends the next."""
    counters = state.counters
    counters[IN_SYSTEM] -= 1
    if engine.clients > 0 and counters[NEXT] < state.calls.size:
        _push_pending(state, now + state.calls[counters[NEXT]].pause_s, counters[NEXT])
        counters[NEXT] += 1


@compiled
def _route(state, engine, prefixes, call):
    if engine.routing == ROUND_ROBIN:
        turn = state.counters[TURN]
        state.counters[TURN] = (turn + 1) % engine.replicas
        return turn
    replicas = state.replicas
    least = most = 0
    for replica in range(1, engine.replicas):
        if replicas[replica].load < replicas[least].load:
            least = replica
        if replicas[replica].load > replicas[most].load:
            most = replica
    low, high = replicas[least].load, replicas[most].load
    if engine.routing == LEAST_LOADED or (high - low > ABOVE_LEAST and high > TIMES_LEAST * low):
        return least
    chosen, longest = least, seen_prefix(prefixes, least, call)[0]
    for replica in range(engine.replicas):
        seen = seen_prefix(prefixes, replica, call)[0]
        if seen > longest or (seen == longest and replicas[replica].load < replicas[chosen].load):
            chosen, longest = replica, seen
    return chosen


@compiled
def _arrive(state, engine, prefixes, call, now):
    one = state.calls[call]
    state.counters[IN_SYSTEM] += 1
    one.arrived_s = now
    whole = one.input_tokens + max(one.output_tokens, 1)
    if context_blocks(engine, whole) + one.window_blocks > engine.pool_blocks:
        _leave_system(state, engine, now)
        return
    replica = _route(state, engine, prefixes, call)
    here, first = state.replicas[replica], first_waiting(state, replica)
    one.replica = replica
    wait_behind(state, replica, call)
    here.load += 1
    if np.isinf(here.end):
        # Idle: the step begins when all that arrive at this very moment are there.
        here.clock = here.end = now
        return
    is_next = first == NOBODY or one.priority < state.calls[first].priority
    if is_next and here.run_steps > 1 and here.decoding < engine.max_sequences:
        cut_run(here, now)


@compiled
def _coming(state, engine):
    """The next arrival that is known: its call, or NOBODY, and its moment."""
    counters = state.counters
    if engine.clients > 0:
        return (state.pending[0], state.pending_s[0]) if counters[PENDING] > 0 else (NOBODY, np.inf)
    if counters[NEXT] < state.calls.size:
        return counters[NEXT], state.calls[counters[NEXT]].arrival_s
    return NOBODY, np.inf


@compiled
def run(engine, terms, prefixes, state):
    """Serve all calls.

    Args:
        engine: `Engine`.
        terms: `StepTerms` of steps up to `step_tokens + max_sequences` tokens.
        prefixes: `Prefixes` of the calls.
        state: fresh from `new_state`; its records tell what came of it.

    """
    counters, replicas = state.counters, state.replicas
    if engine.clients > 0:
        for call in range(min(engine.clients, state.calls.size)):
            _push_pending(state, state.calls[call].arrival_s, call)
            counters[NEXT] += 1
    call, arrival = _coming(state, engine)
    seen = arrival
    while True:
        replica = 0
        for other in range(1, engine.replicas):
            if replicas[other].end < replicas[replica].end:
                replica = other
        here = replicas[replica]
        now = min(arrival, here.end)
        if np.isinf(now):
            break
        state.in_system_s[0] += (now - seen) * counters[IN_SYSTEM]
        seen = now
        if arrival <= here.end:
            if engine.clients > 0:
                counters[PENDING] = pop_heap(state.pending_s, state.pending, counters[PENDING])
            else:
                counters[NEXT] += 1
            _arrive(state, engine, prefixes, call, now)
            call, arrival = _coming(state, engine)
            continue
        if here.run_steps > 0:
            _commit(state, engine, terms, prefixes, replica)
            # In a closed loop an end may bring an arrival at this very moment, which the next step is to see.
            call, arrival = _coming(state, engine)
            if arrival <= now:
                continue
        _plan(state, engine, terms, prefixes, replica)
