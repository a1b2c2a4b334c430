"""One replay: a workload on replicas of one kind.

Belongs here: how an engine is set up (`Setup`), running the kernel, what came of it (`Outcome`), prefill and
decode on machines of their own. Does not belong here: rules of the engine (`kernel.py`), percentiles
(`summary.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from pipelines.efficiency.flops import kv_bytes_of
from pipelines.sizing.memory import kv_copies
from pipelines.sizing.power import busy_power_w, idle_power_w
from pipelines.sizing.replay.records import Array, Engine, new_calls, new_state
from pipelines.sizing.replay.step_terms import step_terms
from pipelines.sizing.replay.workload import Reals, Wholes, Workload, lengths
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import parameters

if TYPE_CHECKING:
    from pipelines.sizing.replay.prefix_kernel import Prefixes

Routing = Literal["round_robin", "least_loaded", "prefix_aware"]
ROUTINGS: tuple[Routing, ...] = ("round_robin", "least_loaded", "prefix_aware")
MOST_CACHE_BYTES = 4e9
"""Memory that the books of the prefix caches may take."""
_BYTES_PER_BLOCK = 12


@dataclass(frozen=True)
class Setup:
    """How the engines run. None: the default of `warehouse/reference/*.toml`, or what the memory leaves."""

    replica: Replica
    replicas: int = 1
    routing: Routing = "least_loaded"
    max_sequences: int | None = None
    step_tokens: int | None = None
    kv_blocks: int | None = None
    request_overhead_s: float | None = None


@dataclass(frozen=True)
class Machines:
    """What replicas of one kind did; sums over their steps, one element each.

    `busy_j` (over busy time) and `idle_w` are of all accelerators of a replica; None where the TDP is unknown.
    """

    busy_s: Reals
    busy_j: Reals | None
    idle_w: float | None
    sequence_s: Reals
    """Integral of the running sequences over time."""
    block_s: Reals
    """Integral of the KV blocks in use over busy time."""
    most_blocks: Wholes
    pool_blocks: int
    steps: Wholes
    prompt_tokens: Wholes
    """Prompt tokens computed: without cache hits, with those computed again after a preemption."""
    output_tokens: Wholes
    preemptions: Wholes
    in_system_s: float
    """Integral over time of the calls that have arrived and not ended, over all replicas."""


@dataclass(frozen=True)
class Outcome:
    """What a replay tells of each call, in the order of the workload.

    Times are seconds on its clock, NaN where it never came to that: a call that fits into no replica is never
    admitted (`replica` -1). `machines` are the replicas, kind by kind.
    """

    arrived_s: Reals
    admitted_s: Reals
    first_s: Reals
    ended_s: Reals
    replica: Wholes
    preempted: Wholes
    hit_tokens: Wholes
    machines: tuple[Machines, ...]


def kv_pool_blocks(replica: Replica) -> int:
    """KV blocks of a replica; 0 where the model does not fit."""
    return max(int(replica.memory.kv_pool_bytes // _block_bytes(replica)), 0)


def _block_bytes(replica: Replica) -> float:
    model, tokens = replica.model, int(parameters("memory")["kv_block_tokens"])
    layers = model.full_attention_layers or model.sliding_layers or 0
    return tokens * layers * model.kv_bytes_per_layer() * kv_copies(model, replica.tensor_parallel)


def _window_blocks(whole: Wholes, replica: Replica) -> Wholes:
    """KV blocks that the layers with a window take for calls of `whole` tokens: at their end, so a bound."""
    model = replica.model
    if not (model.sliding_layers and model.sliding_window):
        return np.zeros_like(whole)
    growing = model.full_attention_layers * model.kv_bytes_per_layer() * whole
    copies = kv_copies(model, replica.tensor_parallel)
    held = (kv_bytes_of(model, whole.astype(np.float64)) - growing) * copies
    return np.ceil(held / _block_bytes(replica)).astype(np.int64)


def simulate(workload: Workload, setup: Setup) -> Outcome:
    """Serve a workload.

    Raises:
        ValueError: the model does not fit, its speed is unknown, or the set-up makes no sense.

    """
    from pipelines.sizing.replay.kernel import run

    engine = _engine(workload, setup)
    terms = step_terms(setup.replica, engine.step_tokens + engine.max_sequences)
    watts = _power_w(setup.replica, engine.max_sequences, _mean_context(workload))
    state = new_state(engine, _calls(workload, setup))
    run(engine, terms, _prefix_books(workload, engine), state)
    calls, replicas = state.calls, state.replicas
    machines = Machines(
        busy_s=replicas["busy_s"],
        busy_j=None if watts is None else state.by_batch_s @ watts,
        idle_w=_idle_w(setup.replica),
        sequence_s=state.by_batch_s @ np.arange(engine.max_sequences + 1.0),
        block_s=replicas["block_s"],
        most_blocks=replicas["most_blocks"],
        pool_blocks=engine.pool_blocks,
        steps=replicas["steps"],
        prompt_tokens=replicas["prompt_tokens"],
        output_tokens=replicas["output_tokens"],
        preemptions=replicas["preemptions"],
        in_system_s=float(state.in_system_s[0]),
    )
    return Outcome(
        arrived_s=calls["arrived_s"] - _overhead_s(setup),
        admitted_s=calls["admitted_s"],
        first_s=calls["first_s"],
        ended_s=calls["ended_s"],
        replica=calls["replica"],
        preempted=calls["preempted"],
        hit_tokens=calls["hit_tokens"],
        machines=(machines,),
    )


def simulate_apart(workload: Workload, prefill: Setup, decode: Setup, link_bytes_per_s: float) -> Outcome:
    """Serve a workload with prefill and decode on replicas of their own.

    A call's first token comes of its prefill; then its KV cache goes over the link, at `link_bytes_per_s` for
    each call, and a decode replica goes on from it. A call that a decode replica preempts gets its cache back
    without computing, but for what it had generated.

    Raises:
        ValueError: as `simulate`; or the workload is a closed loop, whose arrivals follow from the ends.

    """
    if workload.clients or link_bytes_per_s <= 0:
        raise ValueError("prefill and decode apart need calls at moments of their own, and a link")
    first = simulate(replace(workload, output_tokens=np.minimum(workload.output_tokens, 1)), prefill)
    going_on = np.flatnonzero((workload.output_tokens > 1) & ~np.isnan(first.ended_s))
    moved = kv_bytes_of(prefill.replica.model, workload.input_tokens[going_on].astype(np.float64))
    ready = first.ended_s[going_on] + moved / link_bytes_per_s
    order = np.argsort(ready, kind="stable")
    chosen = going_on[order]
    rest = lengths(
        workload.input_tokens[chosen] + 1,
        workload.output_tokens[chosen] - 1,
        ready[order],
        workload.input_tokens[chosen],
        workload.priority[chosen],
    )
    second = simulate(rest, replace(decode, request_overhead_s=0.0))
    ended, replica, preempted = first.ended_s.copy(), first.replica.copy(), first.preempted.copy()
    ended[chosen], replica[chosen] = second.ended_s, second.replica
    preempted[chosen] += second.preempted
    return replace(
        first,
        ended_s=ended,
        replica=replica,
        preempted=preempted,
        machines=(*first.machines, *second.machines),
    )


def _overhead_s(setup: Setup) -> float:
    if setup.request_overhead_s is not None:
        return setup.request_overhead_s
    return float(parameters("step_time")["request_overhead_ms"]) / 1e3


def _engine(workload: Workload, setup: Setup) -> Engine:
    replica, defaults = setup.replica, parameters("step_time")
    pool = kv_pool_blocks(replica) if setup.kv_blocks is None else setup.kv_blocks
    most = setup.max_sequences or int(defaults["max_sequences"])
    budget = setup.step_tokens or int(defaults["prefill_budget_tokens"])
    if pool < 1:
        raise ValueError(f"{replica.model.name} does not fit on {replica.accelerator.name}")
    if not 1 <= most <= budget or setup.replicas < 1:
        raise ValueError("a step has room for each of its sequences, and there is a replica or more")
    return Engine(
        replicas=setup.replicas,
        routing=ROUTINGS.index(setup.routing),
        max_sequences=most,
        step_tokens=budget,
        pool_blocks=pool,
        block_tokens=int(parameters("memory")["kv_block_tokens"]),
        grows=int(replica.model.full_attention_layers > 0),
        classes=int(workload.priority.max(initial=0)) + 1,
        clients=workload.clients,
    )


def _calls(workload: Workload, setup: Setup) -> Array:
    overhead_s, calls = _overhead_s(setup), new_calls(len(workload))
    calls["arrival_s"] = workload.arrival_s + overhead_s
    calls["pause_s"] = workload.pause_s + overhead_s
    # A prompt of no tokens has a beginning to compute all the same.
    calls["input_tokens"] = np.maximum(workload.input_tokens, 1)
    calls["output_tokens"] = workload.output_tokens
    calls["cached_tokens"] = workload.cached_tokens
    calls["priority"] = workload.priority
    calls["window_blocks"] = _window_blocks(calls["input_tokens"] + workload.output_tokens, setup.replica)
    return calls


def _prefix_books(workload: Workload, engine: Engine) -> Prefixes:
    from pipelines.sizing.replay.prefix_kernel import prefixes

    numbers, ends, offsets = workload.blocks, workload.block_ends, workload.block_offsets
    distinct = int(numbers.max(initial=-1)) + 1
    if engine.replicas * distinct * _BYTES_PER_BLOCK > MOST_CACHE_BYTES:
        raise ValueError("the books of the prefix caches would take too much memory: replay a shorter window")
    starts = np.zeros_like(ends)
    starts[1:] = ends[:-1]
    starts[offsets[:-1][np.diff(offsets) > 0]] = 0
    cost = np.zeros(distinct, np.int64)
    # Of one number the first sight counts, so it is written last.
    cost[numbers[::-1]] = (ends // engine.block_tokens - starts // engine.block_tokens)[::-1]
    return prefixes(offsets, numbers, ends, cost, engine.replicas)


def _mean_context(workload: Workload) -> float:
    """Mean tokens before a token that is decoded."""
    if not len(workload):
        return 0.0
    return float(np.mean(workload.input_tokens + workload.output_tokens / 2))


def _power_w(replica: Replica, most: int, context: float) -> Reals | None:
    """Power of a busy replica by the sequences in its batch."""
    each = busy_power_w(replica, np.arange(most + 1, dtype=np.float64), context)
    return None if each is None else each * replica.accelerators


def _idle_w(replica: Replica) -> float | None:
    each = idle_power_w(replica.accelerator)
    return None if each is None else each * replica.accelerators
