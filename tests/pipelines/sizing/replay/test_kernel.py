"""The compiled replay against a slow one, and what must hold of any queue."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sizing.replay.simulate import ROUTINGS, Setup, simulate
from pipelines.sizing.replay.simulate import _calls as records_of
from pipelines.sizing.replay.simulate import _engine as engine_of
from pipelines.sizing.replay.simulate import _prefix_books as books_of
from pipelines.sizing.replay.step_terms import step_terms
from pipelines.sizing.replay.workload import lengths
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import find_model, match_accelerator

sys.path.insert(0, str(Path(__file__).parent))
from reference import Call, Rules, replay

# All layers see all; some a window; all a window; the best tokens only.
MODELS = ("Llama 3.1 8B", "gpt-oss-20b", "Mistral 7B v0.1", "DeepSeek-V3.2")


def replica_of(model: str) -> Replica:
    """A replica whose windows are so short that small cases reach their ends."""
    found, card = find_model(model), match_accelerator("H100 SXM5 80GB")
    assert found is not None
    assert card is not None
    short = replace(found, sliding_window=found.sliding_window and 48, sparse_top_k=found.sparse_top_k and 70)
    return Replica(short, card, 1, "bf16")


@st.composite
def cases(draw):
    """A small workload and a set-up in which blocks, places and budget run out."""
    count = draw(st.integers(1, 14))
    tokens = st.integers(0, 180)
    inputs = draw(st.lists(tokens, min_size=count, max_size=count))
    outputs = draw(st.lists(st.integers(0, 90), min_size=count, max_size=count))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.003, 0.0171, 0.2, 1.7]), min_size=count, max_size=count))
    cached = draw(st.lists(st.sampled_from([0, 16, 40, 500]), min_size=count, max_size=count))
    classes = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    work = lengths(inputs, outputs, np.cumsum(gaps), cached, classes)
    if draw(st.booleans()):
        work = with_blocks(work, draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    replicas = draw(st.integers(1, 3))
    if draw(st.booleans()):
        # Equal pauses, and several replicas without any, have arrivals meet boundaries to the last bit: chance.
        pauses = 0.05 + 0.1 * np.modf(np.arange(1, count + 1) * np.sqrt(2))[0]
        work = work.in_closed_loop(draw(st.integers(1, 5)), pauses * (replicas > 1 or draw(st.booleans())))
    setup = Setup(
        replica_of(draw(st.sampled_from(MODELS))),
        replicas=replicas,
        routing=draw(st.sampled_from(ROUTINGS)),
        max_sequences=draw(st.integers(1, 6)),
        step_tokens=draw(st.sampled_from([6, 32, 100])),
        kv_blocks=draw(st.sampled_from([12, 20, 60])),
        request_overhead_s=0.0 if work.clients else draw(st.sampled_from([0.0, 0.01])),
    )
    return work, setup


def with_blocks(work, conversations):
    """Prompts of blocks of 32 tokens; those of one conversation share them from the start on."""
    numbers, ends, offsets = [], [], [0]
    known: dict[tuple[int, int], int] = {}
    for tokens, conversation in zip(work.input_tokens, conversations, strict=True):
        for place in range(int(tokens) // 32):
            numbers.append(known.setdefault((conversation, place), len(known)))
            ends.append((place + 1) * 32)
        offsets.append(len(numbers))
    arrays = (np.array(values, dtype=np.int64) for values in (offsets, numbers, ends))
    return replace(work, **dict(zip(("block_offsets", "blocks", "block_ends"), arrays, strict=True)))


def by_reference(work, setup):
    engine, records = engine_of(work, setup), records_of(work, setup)
    books = books_of(work, engine)
    calls = [
        Call(
            number=number,
            arrival=float(one["arrival_s"]),
            **{
                name: int(one[name])
                for name in ("input_tokens", "output_tokens", "window_blocks", "priority")
            },
            cached=int(one["cached_tokens"]),
            blocks=[
                (int(books.numbers[place]), int(books.ends[place]))
                for place in range(books.offsets[number], books.offsets[number + 1])
            ],
        )
        for number, one in enumerate(records)
    ]
    rules = Rules(
        step_terms(setup.replica, engine.step_tokens + engine.max_sequences),
        **{
            name: getattr(engine, name)
            for name in ("replicas", "max_sequences", "step_tokens", "pool_blocks")
        },
        routing=setup.routing,
        grows=bool(engine.grows),
        clients=work.clients,
        pauses=records["pause_s"].tolist(),
        cost=dict(enumerate(books.cost.tolist())),
    )
    return calls, replay(calls, rules)


@settings(max_examples=100)
@given(cases())
def test_skipping_steps_changes_nothing(case):
    """Every call's times, replica, hits and preemptions, and every replica's sums, equal the slow replay's."""
    work, setup = case
    told = simulate(work, setup)
    calls, replicas = by_reference(work, setup)
    overhead = setup.request_overhead_s
    for name in ("admitted", "first", "ended"):
        expected = [getattr(call, name) for call in calls]
        np.testing.assert_allclose(getattr(told, f"{name}_s"), expected, rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(told.arrived_s, [call.arrived - overhead for call in calls], atol=1e-9)
    assert told.replica.tolist() == [call.replica for call in calls]
    assert told.preempted.tolist() == [call.preempted for call in calls]
    assert told.hit_tokens.tolist() == [max(call.hit, 0) for call in calls]
    (machines,) = told.machines
    np.testing.assert_allclose(machines.busy_s, [one.busy for one in replicas], rtol=1e-9)
    np.testing.assert_allclose(machines.sequence_s, [one.running_s for one in replicas], rtol=1e-9)
    for name in ("steps", "prompt_tokens", "output_tokens", "preemptions", "most_blocks"):
        assert getattr(machines, name).tolist() == [getattr(one, name) for one in replicas], name
