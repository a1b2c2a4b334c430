"""Time of a step of any mix of sequences, in a form that a loop adds up in a few multiplications.

Belongs here: reading the terms off `roofline.step_time`. Does not belong here: any parameter of the roofline
itself; it may change what a term costs, and this module follows.

The roofline speaks of a batch whose sequences are alike. What it says is linear: FLOPs in the tokens and in
the pairs of tokens that attend to one another, bytes of KV cache in the tokens read; bytes of weights and
traffic between accelerators follow from the tokens of the step alone. So a step of unlike sequences is a sum
over sequences, plus what a table holds by tokens of the step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pipelines.efficiency.flops import Array, attended_pairs
from pipelines.sizing.roofline import Replica, step_time

NO_BOUND = 1 << 40
"""Tokens that no context reaches: the span of attention that sees all of it."""


class StepTerms(NamedTuple):
    """Seconds that each part of a step takes. A step lasts max(compute, memory) + overhead.

    A decoding sequence with c tokens before it reads min(c, `full_span`) tokens in the layers that see the
    whole context (or its best tokens), and min(c, `window_span`) in those with a sliding window. A chunk of
    p prompt tokens after b others makes `attended_pairs(b, b + p, span)` pairs in them.
    """

    memory_by_tokens: Array
    """Weights read by a step of so many tokens, decoded and prompt together."""
    overhead_by_tokens: Array
    overhead_per_sequence: float
    memory_per_read_full: float
    memory_per_read_window: float
    compute_per_sequence: float
    compute_per_read_full: float
    compute_per_read_window: float
    compute_per_prompt_token: float
    compute_per_pair_full: float
    compute_per_pair_window: float
    full_span: int
    window_span: int


def step_terms(replica: Replica, most_tokens: int) -> StepTerms:
    """Read the terms of a replica's steps of up to `most_tokens` tokens.

    Raises:
        ValueError: the accelerator has no known peak at the replica's precision.

    """
    model = replica.model
    full = model.sparse_top_k or NO_BOUND
    window = (model.sliding_window or 0) if model.sliding_layers else 0
    tokens = np.arange(most_tokens + 1, dtype=np.float64)
    by_tokens = step_time(replica, 0.0, 0.0, tokens, 0.0)
    overhead = by_tokens.overhead + np.zeros_like(tokens)
    contexts = _probes(model.context, full, window)
    alone = step_time(replica, 1.0, contexts)
    reads = np.minimum.outer([full, window], contexts)
    kv = _solved(alone.memory, np.ones_like(contexts), *reads)
    attention = _solved(alone.compute, np.ones_like(contexts), *reads)
    before, chunk = (grid.ravel() for grid in np.meshgrid(contexts, [1.0, 64.0, 1024.0]))
    prompt = _solved(
        step_time(replica, 0.0, 0.0, chunk, before).compute,
        chunk,
        attended_pairs(before, before + chunk, full),
        attended_pairs(before, before + chunk, window),
    )
    one_sequence = float(step_time(replica, 1.0, 0.0).overhead)
    return StepTerms(
        memory_by_tokens=by_tokens.memory + np.zeros_like(tokens),
        overhead_by_tokens=overhead,
        overhead_per_sequence=one_sequence - float(overhead[1]),
        memory_per_read_full=kv[1],
        memory_per_read_window=kv[2],
        compute_per_sequence=attention[0],
        compute_per_read_full=attention[1],
        compute_per_read_window=attention[2],
        compute_per_prompt_token=prompt[0],
        compute_per_pair_full=prompt[1],
        compute_per_pair_window=prompt[2],
        full_span=full,
        window_span=window,
    )


def _probes(longest: int, full: int, window: int) -> Array:
    """Contexts on both sides of every bound."""
    bounds = [bound for bound in (full, window) if 0 < bound < NO_BOUND]
    spread = [bound * share for bound in bounds for share in (0.25, 0.5, 2.0, 4.0)]
    return np.unique(np.array([0.0, 1.0, longest / 2, longest, *spread]))


def _solved(values: Array, *features: Array) -> tuple[float, ...]:
    """Least squares with columns of like size; a feature that is nowhere gets zero."""
    matrix = np.stack(features, axis=1)
    scale = np.abs(matrix).max(axis=0)
    scale[scale == 0] = 1.0
    found, *_ = np.linalg.lstsq(matrix / scale, np.broadcast_to(values, matrix.shape[0]), rcond=None)
    return tuple(float(value) for value in found / scale)
