"""Terms of a step against the roofline that they are read off."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.efficiency.flops import attended_pairs
from pipelines.sizing.replay.step_terms import step_terms
from pipelines.sizing.roofline import Replica, step_time
from warehouse.catalogue import accelerators, models

MOST = 4096
CARDS = ("H100 SXM5 80GB", "MI300X", "L40S")


@pytest.mark.parametrize("model", models().values(), ids=lambda model: model.name)
def test_a_batch_of_equals_takes_as_long_as_the_roofline_says(model):
    """Within 0.1 %, for any batch, context and chunk: decode, prefill, and both in one step."""
    random = np.random.default_rng(model.layers)
    card = accelerators()[CARDS[model.layers % len(CARDS)]]
    replica = Replica(model, card, int(random.choice([1, 2, 8])), "bf16")
    terms = step_terms(replica, 2 * MOST)
    batch = random.integers(0, MOST, 200)
    context = np.exp2(random.uniform(0, 17, 200)).astype(int)
    chunk = random.integers(0, MOST, 200) * random.integers(0, 2, 200) + (batch == 0)
    before = np.exp2(random.uniform(0, 17, 200)).astype(int)
    expected = step_time(replica, batch, context, chunk, before)
    full, window = (np.minimum(context, span) for span in (terms.full_span, terms.window_span))
    memory = terms.memory_by_tokens[batch + chunk] + batch * (
        full * terms.memory_per_read_full + window * terms.memory_per_read_window
    )
    compute = (
        batch * terms.compute_per_sequence
        + batch * (full * terms.compute_per_read_full + window * terms.compute_per_read_window)
        + chunk * terms.compute_per_prompt_token
        + attended_pairs(before, before + chunk, terms.full_span) * terms.compute_per_pair_full
        + attended_pairs(before, before + chunk, terms.window_span) * terms.compute_per_pair_window
    )
    overhead = terms.overhead_by_tokens[batch + chunk] + batch * terms.overhead_per_sequence
    np.testing.assert_allclose(memory, expected.memory, rtol=1e-3)
    np.testing.assert_allclose(compute, expected.compute, rtol=1e-3)
    np.testing.assert_allclose(overhead, np.broadcast_to(expected.overhead, 200), rtol=1e-3)
    np.testing.assert_allclose(np.maximum(memory, compute) + overhead, expected.total, rtol=1e-3)
