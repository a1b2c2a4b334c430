"""The replay, step by step and call by call, in plain Python: slow and obvious.

It follows the rules at the top of `kernel.py` and nothing else: no skipping, no heaps, no running sums.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pipelines.efficiency.flops import attended_pairs


@dataclass(eq=False)
class Call:
    number: int
    arrival: float
    input_tokens: int
    output_tokens: int
    cached: int = 0
    window_blocks: int = 0
    priority: int = 0
    blocks: list[tuple[int, int]] = field(default_factory=list)  # number, cumulative tokens
    arrived: float = math.nan
    admitted: float = math.nan
    first: float = math.nan
    ended: float = math.nan
    replica: int = -1
    preempted: int = 0
    hit: int = -1
    made: int = 0
    prompt: int = 0
    computed: int = 0
    own: int = 0
    admission: int = -1

    @property
    def decodes(self) -> bool:
        return self.admission >= 0 and self.computed >= self.prompt


@dataclass
class Rules:
    terms: Any
    replicas: int = 1
    routing: str = "least_loaded"
    max_sequences: int = 4
    step_tokens: int = 64
    pool_blocks: int = 10_000
    block_tokens: int = 16
    grows: bool = True
    clients: int = 0
    pauses: list[float] = field(default_factory=list)
    cost: dict[int, int] = field(default_factory=dict)


class Replica:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.waiting: list[Call] = []
        self.running: list[Call] = []
        self.claims: dict[int, int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()
        self.step: tuple[float, list[tuple[Call, int]]] | None = None  # end, what it does
        self.steps = 0
        self.busy = 0.0
        self.running_s = 0.0
        self.prompt_tokens = self.output_tokens = self.preemptions = self.most_blocks = 0

    # KV blocks

    def blocks_of(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules.block_tokens) if self.rules.grows else 0

    @property
    def used(self) -> int:
        own = sum(call.own for call in self.running)
        return own + sum(self.rules.cost[number] for number, held in self.claims.items() if held > 0)

    @property
    def free(self) -> int:
        return self.rules.pool_blocks - self.used

    def evict(self) -> None:
        while sum(self.rules.cost[number] for number in self.idle) > self.free:
            self.idle.popitem(last=False)

    def seen(self, call: Call) -> int:
        tokens = 0
        for number, end in call.blocks:
            if not self.claims.get(number) and number not in self.idle:
                break
            tokens = end
        return tokens

    def leave(self, call: Call) -> None:
        self.running.remove(call)
        call.own, call.admission = 0, -1
        for number, _ in reversed(call.blocks):
            self.claims[number] -= 1
            if self.claims[number] == 0:
                self.idle[number] = None

    # scheduling

    def promised(self) -> int:
        size = self.rules.block_tokens
        return sum(call.decodes and call.computed % size == 0 for call in self.running) * self.rules.grows

    def preempt(self) -> None:
        call = max(self.running, key=lambda one: (one.priority, one.admission))
        self.leave(call)
        call.computed = 0
        call.preempted += 1
        self.preemptions += 1
        self.waiting.insert(0, call)

    def admit(self, call: Call, now: float, number: int, promised: int) -> bool:
        prompt = call.input_tokens + call.made
        shared = sum(self.rules.cost[block] for block, _ in call.blocks)
        own = max(self.blocks_of(prompt) - shared, 0) + call.window_blocks
        new = sum(self.rules.cost[block] for block, _ in call.blocks if not self.claims.get(block))
        if own + new > self.free - promised:
            return False
        hit = self.seen(call) if call.blocks else call.cached
        hit = min(hit, prompt - 1) // self.rules.block_tokens * self.rules.block_tokens
        for block, _ in call.blocks:
            self.idle.pop(block, None)
            self.claims[block] = self.claims.get(block, 0) + 1
        call.own, call.prompt, call.computed, call.admission = own, prompt, hit, number
        if math.isnan(call.admitted):
            call.admitted, call.hit = now, hit
        self.running.append(call)
        self.waiting.remove(call)
        self.evict()
        return True

    def begin(self, now: float, admissions: list[int]) -> None:
        """Schedule one step."""
        rules, admits = self.rules, True
        while self.promised() > self.free:
            self.preempt()
            admits = False
        promised = self.promised()
        decoding = [call for call in self.running if call.decodes]
        budget = rules.step_tokens - len(decoding)
        chunks: list[tuple[Call, int]] = []
        for call in [one for one in self.running if not one.decodes]:
            chunk = min(call.prompt - call.computed, budget)
            if chunk > 0:
                chunks.append((call, chunk))
                budget -= chunk
        while admits and budget > 0 and self.waiting and len(self.running) < rules.max_sequences:
            call = min(self.waiting, key=lambda one: one.priority)
            if not self.admit(call, now, len(admissions), promised):
                break
            admissions.append(call.number)
            chunk = min(call.prompt - call.computed, budget)
            chunks.append((call, chunk))
            budget -= chunk
        if not decoding and not chunks:
            self.step = None
            return
        lasts = self.seconds([call.computed for call in decoding], [(c.computed, n) for c, n in chunks])
        for call in decoding:
            call.own += call.computed % rules.block_tokens == 0 and rules.grows
        self.most_blocks = max(self.most_blocks, self.used)
        self.evict()
        self.busy += lasts
        self.running_s += lasts * len(self.running)
        self.step = (now + lasts, [*((call, 0) for call in decoding), *chunks])

    def seconds(self, contexts: list[int], chunks: list[tuple[int, int]]) -> float:
        terms = self.rules.terms
        tokens = len(contexts) + sum(chunk for _, chunk in chunks)
        full = sum(min(context, terms.full_span) for context in contexts)
        window = sum(min(context, terms.window_span) for context in contexts)
        compute = len(contexts) * terms.compute_per_sequence
        compute += full * terms.compute_per_read_full + window * terms.compute_per_read_window
        for before, chunk in chunks:
            compute += chunk * terms.compute_per_prompt_token
            for cost, span in (
                (terms.compute_per_pair_full, terms.full_span),
                (terms.compute_per_pair_window, terms.window_span),
            ):
                compute += cost * float(attended_pairs(before, before + chunk, span))
        memory = terms.memory_by_tokens[tokens]
        memory += full * terms.memory_per_read_full + window * terms.memory_per_read_window
        overhead = terms.overhead_by_tokens[tokens] + len(contexts) * terms.overhead_per_sequence
        return float(max(compute, memory) + overhead)

    def finish(self) -> list[Call]:
        """End the step; returns the calls that are over."""
        assert self.step is not None
        now, work = self.step
        self.steps += 1
        over: list[Call] = []
        for call, chunk in work:
            self.prompt_tokens += chunk
            call.computed += chunk or 1
            if call.computed < call.prompt:
                continue
            if math.isnan(call.first):
                call.first = now
            if call.output_tokens > 0:
                call.made += 1
                self.output_tokens += 1
            if call.made >= call.output_tokens:
                over.append(call)
        decoded = [call for call, chunk in work if not chunk and call in over]
        prefilled = [call for call, chunk in work if chunk and call in over]
        ordered = [*sorted(decoded, key=lambda one: one.number), *prefilled]
        for call in ordered:
            call.ended = now
            self.leave(call)
        return ordered


def route(replicas: list[Replica], rules: Rules, call: Call, turn: int) -> int:
    loads = [len(one.waiting) + len(one.running) for one in replicas]
    if rules.routing == "round_robin":
        return turn % rules.replicas
    least = loads.index(min(loads))
    skewed = max(loads) - min(loads) > 64 and max(loads) > 1.5 * min(loads)
    if rules.routing == "least_loaded" or skewed:
        return least
    seen = [one.seen(call) for one in replicas]
    best = [number for number in range(rules.replicas) if seen[number] == max(seen)]
    return min(best, key=lambda number: (loads[number], number))


class Loop:
    """Arrivals and boundaries in order of time; at one moment arrivals come first."""

    def __init__(self, calls: list[Call], rules: Rules) -> None:
        self.calls, self.rules = calls, rules
        self.replicas = [Replica(rules) for _ in range(rules.replicas)]
        self.boundary = [math.inf] * rules.replicas  # of a replica that is between two steps
        self.admissions: list[int] = []
        self.turn = 0
        start = rules.clients or len(calls)
        self.coming = [(call.arrival, call.number) for call in calls[:start]]
        self.following = list(range(start, len(calls)))

    def run(self) -> list[Replica]:
        while True:
            ends = [
                boundary if one.step is None else one.step[0]
                for boundary, one in zip(self.boundary, self.replicas, strict=True)
            ]
            arrival = min(self.coming, default=(math.inf, -1))
            if min(arrival[0], *ends) == math.inf:
                return self.replicas
            if arrival[0] <= min(ends):
                self.coming.remove(arrival)
                self.arrive(self.calls[arrival[1]], arrival[0])
            else:
                self.pass_boundary(ends.index(min(ends)))

    def arrive(self, call: Call, now: float) -> None:
        call.arrived = now
        whole = call.input_tokens + max(call.output_tokens, 1)
        if self.replicas[0].blocks_of(whole) + call.window_blocks > self.rules.pool_blocks:
            self.over(now)
            return
        call.replica = route(self.replicas, self.rules, call, self.turn)
        self.turn += 1
        mine = self.replicas[call.replica]
        mine.waiting.append(call)
        if mine.step is None and self.boundary[call.replica] == math.inf:
            self.boundary[call.replica] = now

    def over(self, now: float) -> None:
        if self.rules.clients and self.following:
            call = self.following.pop(0)
            self.coming.append((now + self.rules.pauses[call], call))

    def pass_boundary(self, number: int) -> None:
        mine = self.replicas[number]
        if mine.step is None:
            now, self.boundary[number] = self.boundary[number], math.inf
            mine.begin(now, self.admissions)
            return
        self.boundary[number] = mine.step[0]
        for _ in mine.finish():
            self.over(self.boundary[number])
        mine.step = None


def replay(calls: list[Call], rules: Rules) -> list[Replica]:
    """Serve all calls; what came of them stands in them."""
    return Loop(calls, rules).run()
