"""What holds of any replay, whatever the rules: tokens, Little's law, capacity, order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sizing.replay.simulate import ROUTINGS, Setup, simulate, simulate_apart
from pipelines.sizing.replay.workload import lengths
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import accelerators, models

REPLICA = Replica(models()["Llama 3.1 8B"], accelerators()["H100 SXM5 80GB"], 1, "bf16")


def traffic(seed: int, calls: int = 3000, per_s: float = 40.0):
    """Chat traffic with Poisson arrivals."""
    random = np.random.default_rng(seed)
    inputs = random.lognormal(6.5, 0.9, calls).astype(int) + 1
    outputs = random.lognormal(5, 0.8, calls).astype(int)
    return lengths(inputs, outputs, np.cumsum(random.exponential(1 / per_s, calls)))


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=5)
@given(seeds, st.sampled_from([600, 4000, 26_000]), st.sampled_from(ROUTINGS))
def test_tokens_are_conserved(seed, blocks, routing):
    """Output tokens are the calls'; prompt tokens are the calls' without hits, and more where preempted."""
    work = traffic(seed)
    told = simulate(work, Setup(REPLICA, 3, routing, kv_blocks=blocks))
    (machines,) = told.machines
    served = ~np.isnan(told.ended_s)
    assert machines.output_tokens.sum() == work.output_tokens[served].sum()
    computed = int(machines.prompt_tokens.sum())
    if told.preempted.sum():
        assert computed > work.input_tokens[served].sum()
    else:
        assert computed == work.input_tokens[served].sum()
    assert (machines.most_blocks <= blocks).all()


@settings(max_examples=5)
@given(seeds, st.sampled_from([20.0, 60.0, 200.0]))
def test_littles_law_holds(seed, per_s):
    """Mean calls in the system = arrivals per second x mean time in it, each counted by itself."""
    told = simulate(traffic(seed, per_s=per_s), Setup(REPLICA, 2, request_overhead_s=0.0))
    stayed = told.ended_s - told.arrived_s
    lasted = told.ended_s.max() - told.arrived_s.min()
    mean_in_system = told.machines[0].in_system_s / lasted
    assert mean_in_system == pytest.approx(len(stayed) / lasted * stayed.mean(), rel=0.01)


@settings(max_examples=3)
@given(seeds)
def test_more_replicas_are_never_slower(seed):
    """Percentiles of TTFT and E2E do not grow by more than 2 % from a number of replicas to its double.

    Of single calls this does not hold: another batch may serve one of them later.
    """
    work = traffic(seed, per_s=120.0)
    before = None
    for replicas in (1, 2, 4, 8):
        told = simulate(work, Setup(REPLICA, replicas))
        figures = np.concatenate(
            [np.percentile(times - told.arrived_s, [50, 95, 99]) for times in (told.first_s, told.ended_s)]
        )
        if before is not None:
            assert (figures <= before * 1.02).all()
        before = figures


@settings(max_examples=3)
@given(seeds, st.integers(1, 200))
def test_a_closed_loop_keeps_its_clients_busy_and_no_more(seed, clients):
    """At no moment are more calls in the system than clients, and without a pause there are never fewer."""
    work = traffic(seed, calls=1000).in_closed_loop(clients)
    told = simulate(work, Setup(REPLICA, request_overhead_s=0.0))
    moments = np.concatenate([told.arrived_s, told.ended_s])
    changes = np.repeat([1, -1], len(work))
    in_system = np.cumsum(changes[np.lexsort((changes, moments))])
    assert in_system.max() <= min(clients, len(work))
    assert told.machines[0].in_system_s == pytest.approx((told.ended_s - told.arrived_s).sum())
    assert (np.sort(told.arrived_s)[clients:] == np.sort(told.ended_s)[: max(len(work) - clients, 0)]).all()


def test_the_same_replay_twice_is_the_same():
    """Nothing is drawn."""
    first, second = (simulate(traffic(1), Setup(REPLICA, 3, "prefix_aware")) for _ in range(2))
    for name in ("admitted_s", "first_s", "ended_s", "replica"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_prefill_and_decode_apart_conserve_tokens_and_order():
    """A call is prefilled, moved and decoded, in this order; the link's time lies between."""
    work = traffic(3, per_s=20.0)
    together = simulate(work, Setup(REPLICA, 4))
    apart = simulate_apart(work, Setup(REPLICA, 2), Setup(REPLICA, 2), 50e9)
    prefill, decode = apart.machines
    assert prefill.output_tokens.sum() + decode.output_tokens.sum() == work.output_tokens.sum()
    assert (apart.ended_s >= apart.first_s).all()
    slow = simulate_apart(work, Setup(REPLICA, 2), Setup(REPLICA, 2), 1e9)
    long = work.output_tokens > 1
    np.testing.assert_array_equal(slow.first_s, apart.first_s)
    assert (slow.ended_s - apart.ended_s)[long].mean() > 0.05

    # No prompt interrupts decoding.
    def worst_tpot(told):
        return np.percentile((told.ended_s - told.first_s)[long] / (work.output_tokens[long] - 1), 99)

    assert worst_tpot(apart) < worst_tpot(together)
    with pytest.raises(ValueError, match="moments of their own"):
        simulate_apart(work.in_closed_loop(3), Setup(REPLICA), Setup(REPLICA), 50e9)


def test_higher_priority_waits_less():
    """Calls of class 0 overtake the others in the queue."""
    work = traffic(5, per_s=50.0)
    classes = np.arange(len(work)) % 2
    told = simulate(replace(work, priority=classes), Setup(REPLICA, max_sequences=64))
    waited = told.admitted_s - told.arrived_s
    assert waited[classes == 0].mean() < 0.2 * waited[classes == 1].mean()


def test_what_does_not_fit_is_refused_by_name():
    """A call too long for the pool is not served, and the others are; a model too large is an error."""
    work = lengths([100, 5000, 100], [5, 5, 5], [0, 1, 2])
    told = simulate(work, Setup(REPLICA, kv_blocks=100))
    assert np.isnan(told.ended_s).tolist() == [False, True, False]
    assert told.replica.tolist() == [0, -1, 0]
    large = Replica(models()["Llama 3.1 405B"], REPLICA.accelerator, 1, "bf16")
    with pytest.raises(ValueError, match=r"Llama 3.1 405B does not fit on H100"):
        simulate(work, Setup(large))
    with pytest.raises(ValueError, match="room for each"):
        simulate(work, Setup(REPLICA, max_sequences=10, step_tokens=5))
