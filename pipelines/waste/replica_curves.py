"""One cache curve: the hit ratio by capacity of one kind of traffic, on some replicas, with one routing.

Belongs here: routing rules, exact and sampled curves, and the error of the sampled ones. Does not belong here:
which curves there are, tokens and bytes of a capacity, the mart (`cache_curve.py`); the loops
(`stack_kernels.py`).

Routing. Each replica has a cache of its own and of the same size.
    round_robin: call k in order of arrival goes to replica k mod R.
    session_sticky: session k in order of its first call goes to replica k mod R with all its calls; a call of
        no session is a session of its own.
    prefix_aware: a call goes to the replica that was sent the longest part of its prefix, ties to the least
        loaded, then to the first. The router remembers what it sent, not what was evicted since, as routers
        in front of engines do. Load is blocks sent so far. A replica that is ahead of `LOAD_BOUND` times the
        mean load by more than `SLACK_CALLS` mean calls is passed over: without a bound, one system prompt
        before all calls sends them all to one replica (consistent hashing with bounded loads: Mirrokni et
        al., arXiv 1608.01350; 1.25 is what its implementations take).

Sampling (SHARDS: Waldspurger et al., FAST'15). Above `EXACT_REFERENCES` block references a share of the
distinct blocks is followed, chosen by a hash of the block: in all calls or in none. The blocks that were touched
between two touches of one are then estimated from the sampled ones among them. That a block can only be a
hit if all blocks before it are needs no whole chains: who sends a block sends all blocks before it in its
chain, and touches them after it, so that they are never deeper in the stack. Calls are routed by their whole
chains before any block is dropped. A followed block stands for 1 / rate blocks that lie one below the other in
the stack: a capacity between them holds a part of it. What a cache without limit would hit is counted exactly,
in the sample and in all calls; the sample's lack or excess there is taken off each capacity, as far as it tells
anything about it (regression estimator; the coefficient comes from `SUBSAMPLES` parts of the sample, each a
sample of its own). It replaces SHARDS-adj: whether blocks that many calls share are in the sample is luck, which
shows in both alike, and the last point of a curve is exact always; caches smaller than a prompt, of which hits
without limit tell nothing, do without it. Capacities below `RESOLUTION` sampled blocks are not reported. The error is
the standard error of the regression over the parts, times `ERROR_FACTOR`: the parts share what errs in the distances of
the sample. On Weka sessions (a quarter and a tenth of the blocks) the error that came out was 1 to 1.9 times the
standard error, and 0.03 to 0.01 percentage points for caches of less than half a prompt (before: 1).

Memory: with sampling some 30 bytes for each of the `SAMPLED_REFERENCES`, without 30 for each reference, of which
there are few; and 5 bytes per distinct block of the log, for each of the threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.waste.block_kernels import Array
from pipelines.waste.stack_kernels import MOST_REPLICAS, WHOLE, picked, routed, stack_distances

REPLICAS = (1, 2, 4, 8)
ROUTINGS = ("round_robin", "session_sticky", "prefix_aware")
SINGLE = "single"
"""Routing of one replica: there is nothing to choose."""
LOAD_BOUND = 1.25
SLACK_CALLS = 32.0
EXACT_REFERENCES = 1 << 20
SAMPLED_REFERENCES = 1 << 19
SUBSAMPLES = 8
RESOLUTION = 32
ERROR_FACTOR = 2.0
_SUBSAMPLE_SALT = 0x5EED


@dataclass(frozen=True, slots=True)
class Traffic:
    """Calls in order of arrival and their blocks; those of call i lie at [offsets[i], offsets[i + 1])."""

    numbers: Array
    """int32 per block, below `distinct`: equal numbers are equal prefixes."""
    tokens: Array
    """Per block: its own tokens."""
    offsets: Array
    """int64, calls + 1."""
    distinct: int
    rows: Array
    """int64: the calls that count, ascending."""

    @property
    def references(self) -> int:
        """Blocks of all calls that count."""
        return int((self.offsets[self.rows + 1] - self.offsets[self.rows]).sum())

    @property
    def block_tokens(self) -> int:
        """Tokens of all blocks of all calls that count."""
        sums = np.append(0, self.tokens.cumsum(dtype=np.int64))
        return int((sums[self.offsets[self.rows + 1]] - sums[self.offsets[self.rows]]).sum())

    def part(self, low: int, high: int, salt: int = 0) -> Traffic:
        """The calls that count, with those of their blocks that `picked` takes."""
        numbers, tokens, offsets, distinct = picked(
            self.numbers, self.tokens, self.offsets, self.rows, low, high, salt, self.distinct
        )
        return Traffic(numbers, tokens, offsets, int(distinct), np.arange(self.rows.size))


@dataclass(frozen=True, slots=True)
class Sample:
    """The blocks of some calls, whole or sampled."""

    whole: Traffic
    followed: Traffic
    """Calls by their place in `whole.rows`; its blocks are all or a sample."""
    rate: float
    """Share of the distinct blocks that is followed; 1 is all."""
    parts: tuple[Traffic, ...]
    """Sub-samples of `followed`; none where it is whole."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Ratios by capacity; arrays of equal length."""

    block_hit_ratio: Array
    block_hit_ratio_error: Array
    """Standard error; 0 where nothing was sampled."""
    hit_tokens: Array
    """float64."""
    busiest_ratio: float
    """Blocks sent to the busiest replica over the mean."""


def sampled(
    traffic: Traffic, exact_references: int = EXACT_REFERENCES, sampled_references: int = SAMPLED_REFERENCES
) -> Sample:
    """Follow all blocks of the calls, or so many that they are touched about `sampled_references` times."""
    references = traffic.references
    if references <= exact_references:
        whole = traffic.part(0, WHOLE)
        return Sample(whole, whole, 1.0, ())
    threshold = int(WHOLE * sampled_references / references)
    followed = traffic.part(0, threshold)
    width = WHOLE // SUBSAMPLES
    parts = tuple(followed.part(k * width, (k + 1) * width, salt=_SUBSAMPLE_SALT) for k in range(SUBSAMPLES))
    return Sample(traffic, followed, threshold / WHOLE, parts)


def replicas_given(routing: str, replicas: int, sessions: Array) -> Array:
    """The replica (int8) of each call that its place or session decides; -1 where its prefix does.

    Args:
        routing: `single` or one of `ROUTINGS`.
        replicas: how many.
        sessions: per call, a number of its session that rises with the session's first call.

    """
    calls = sessions.size
    if routing == "prefix_aware":
        return np.full(calls, -1, np.int8)
    if routing == "session_sticky":
        _, ranks = np.unique(sessions, return_inverse=True)
        return (ranks % replicas).astype(np.int8)
    return (np.arange(calls) % replicas).astype(np.int8)


def distinct_blocks(traffic: Traffic) -> int:
    """How many distinct blocks the calls have."""
    given = np.zeros(traffic.rows.size, np.int8)
    return int(_routed(traffic, given, 1)[2].sum())


def curve(sample: Sample, routing: str, replicas: int, sessions: Array, capacities: Sequence[int]) -> Curve:
    """Compute a curve.

    Args:
        sample: of `sampled`.
        routing: `single` or one of `ROUTINGS`.
        replicas: how many, at most `MOST_REPLICAS`.
        sessions: see `replicas_given`, one per call that counts.
        capacities: blocks per replica, ascending; the last one holds all distinct blocks.

    """
    if not 1 <= replicas <= MOST_REPLICAS:
        raise ValueError(f"replicas = {replicas} is not between 1 and {MOST_REPLICAS}")
    given = replicas_given(routing, replicas, sessions)
    chosen, load, _, most_hits, most_tokens = _routed(sample.whole, given, replicas)
    references = int(load.sum())
    limits = np.asarray(capacities, np.float64)
    hits, tokens = _within(sample.followed, chosen, replicas, sample.rate, limits)
    error = np.zeros(limits.size)
    if sample.parts:
        rate = sample.rate / len(sample.parts)
        each = [_within(part, chosen, replicas, rate, limits) for part in sample.parts]
        hits, error = _regressed(hits, np.array([part for part, _ in each]), most_hits)
        tokens, _ = _regressed(tokens, np.array([part for _, part in each]), most_tokens)
    return Curve(
        hits / references,
        error * ERROR_FACTOR / references,
        tokens,
        float(load.max()) * replicas / references,
    )


def _regressed(sampled: Array, each: Array, most: int) -> tuple[Array, Array]:
    """Sums by capacity, of which the last is known, and the standard error of each.

    Args:
        sampled: estimates by capacity, ascending; the last one is of what is known.
        each: the same of independent parts of the sample, one row per part.
        most: what the last one is.

    """
    off = each - each.mean(axis=0)
    whole = off[:, -1:]
    spread = float((whole**2).sum())
    tells = np.clip((off * whole).sum(axis=0) / spread, 0.0, 1.0) if spread else np.ones(sampled.size)
    found = np.maximum.accumulate(np.clip(sampled + tells * (most - sampled[-1]), 0, most))
    rest = ((off - tells * whole) ** 2).sum(axis=0) / (len(each) - 2)
    found[-1], rest[-1] = most, 0.0
    return found, np.sqrt(rest / len(each))


def _routed(traffic: Traffic, given: Array, replicas: int) -> tuple[Array, Array, Array, int, int]:
    return routed(  # type: ignore[no-any-return]
        traffic.numbers, traffic.tokens, traffic.offsets, traffic.rows, given, replicas,
        LOAD_BOUND, SLACK_CALLS, traffic.distinct,
    )  # fmt: skip


def _within(
    traffic: Traffic, chosen: Array, replicas: int, rate: float, capacities: Array
) -> tuple[Array, Array]:
    """Hits, and tokens of them, that need no more room per replica than each capacity has; all for the last one."""
    followed = capacities * rate
    below = np.floor(followed)
    limits = np.append(np.unique([below, below + 1]), np.inf)
    needs = np.zeros((2, limits.size))
    for replica in range(replicas):
        rows = np.flatnonzero(chosen == replica)
        needs += stack_distances(
            traffic.numbers, traffic.tokens, traffic.offsets, rows, limits, traffic.distinct
        )
    enough = needs.cumsum(axis=1)
    at = np.searchsorted(limits, below)
    held = enough[:, at] + (followed - below) * (enough[:, at + 1] - enough[:, at])
    held[:, -1] = enough[:, -1]
    return held[0] / rate, held[1] / rate
