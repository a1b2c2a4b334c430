"""Public traces through the replay: what is known of them comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipelines.ingest.land import Reading
from pipelines.sizing.replay.command import requests_of
from pipelines.sizing.replay.simulate import Setup, simulate
from pipelines.sizing.replay.workload import trace_of
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import accelerators, models

REPLICA = Replica(models()["Llama 3.1 70B"], accelerators()["H200 SXM 141GB"], 8, "fp8")


@pytest.fixture(scope="module")
def mooncake(shared, tmp_path_factory):
    path = shared / "data" / "mooncake" / "conversation_trace.jsonl.gz"
    return trace_of(requests_of([str(path)], Reading(), None, 0.0, tmp_path_factory.mktemp("mooncake")))


@pytest.mark.slow
def test_mooncakes_hits_with_room_for_all_are_those_of_an_infinite_cache(mooncake):
    """Prefixes seen before, in order of arrival; the published ratio is about 40 %."""
    work = mooncake.workload
    assert (len(work), mooncake.unknown_tokens, mooncake.prefix_source) == (12_031, 0, "blocks")
    # One after the other, so that admission is in order of arrival and nothing is preempted.
    told = simulate(work.in_closed_loop(1), Setup(REPLICA, kv_blocks=20_000_000))
    seen: set[int] = set()
    hits = 0
    for number, tokens in enumerate(work.input_tokens):
        held = 0
        places = range(work.block_offsets[number], work.block_offsets[number + 1])
        for place in places:
            if work.blocks[place] not in seen:
                break
            held = int(work.block_ends[place])
        seen.update(work.blocks[places].tolist())
        hits += min(held, int(tokens) - 1) // 16 * 16
    assert told.hit_tokens.sum() == hits
    assert hits / work.input_tokens.sum() == pytest.approx(0.40, abs=0.05)


@pytest.mark.slow
def test_routing_by_prefix_finds_more_of_mooncakes_prefixes(mooncake):
    """Spread over replicas, a conversation loses its prefix unless it comes back to where it was."""
    hits = {
        routing: simulate(mooncake.workload, Setup(REPLICA, 4, routing)).hit_tokens.sum()
        for routing in ("round_robin", "prefix_aware")
    }
    assert hits["prefix_aware"] > 1.3 * hits["round_robin"]


@pytest.mark.slow
def test_azures_hour_is_served_at_its_own_pace(shared, tmp_path):
    """All calls of the trace end soon after its hour, and faster arrivals wait longer."""
    path = shared / "data" / "azure2023" / "AzureLLMInferenceTrace_conv.csv"
    work = trace_of(requests_of([str(path)], Reading(), None, 0.0, tmp_path)).workload
    assert len(work) == 19_366
    told = simulate(work, Setup(REPLICA, 2))
    assert 3400 < told.ended_s.max() < 3600
    hurried = simulate(replace(work, arrival_s=work.arrival_s / 20), Setup(REPLICA, 2))
    waits = [np.percentile(one.first_s - one.arrived_s, 95) for one in (told, hurried)]
    assert waits[0] < 0.5 < waits[1]
