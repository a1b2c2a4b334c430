"""From the facts to a workload: what is taken, what is left out, where prefixes come from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.sizing.replay.workload import lengths, trace_of

START = datetime(2026, 11, 16, tzinfo=UTC)


def facts(*rows):
    """Rows of `requests`, a second apart unless they say when."""
    given = [
        {"started_at": START + timedelta(seconds=number), "status": "ok", **row}
        for number, row in enumerate(rows)
    ]
    kinds = {name: REQUESTS.schema[name] for row in given for name in row}
    return REQUESTS.conform(pl.DataFrame(given, schema=kinds)).lazy()


def test_what_an_engine_served_and_whose_tokens_are_known_is_taken():
    """Failed calls and the gateway's own cache are no load; unknown counts are left out and counted."""
    trace = trace_of(
        facts(
            {"input_tokens": 100, "output_tokens": 10},
            {"input_tokens": 100, "output_tokens": 10, "status": "error"},
            {"input_tokens": 100, "output_tokens": 10, "response_cache_hit": True},
            {"input_tokens": None, "output_tokens": 10},
            {"input_tokens": 50, "output_tokens": None},
            {"input_tokens": 60, "output_tokens": None, "operation": "embedding"},
            {"input_tokens": 70, "output_tokens": 0, "service_tier": "flex"},
        )
    )
    work = trace.workload
    assert (trace.calls, trace.unknown_tokens, trace.prefix_source) == (5, 2, "none")
    assert work.input_tokens.tolist() == [100, 60, 70]
    assert work.output_tokens.tolist() == [10, 0, 0]
    assert work.arrival_s.tolist() == [0.0, 5.0, 6.0]
    assert work.priority.tolist() == [0, 0, 1]
    assert work.start_at == START


def test_logged_cache_reads_stand_in_for_unknown_blocks():
    """Unknown reads are none, and counted."""
    trace = trace_of(
        facts(
            {"input_tokens": 100, "output_tokens": 1, "cache_read_tokens": 64},
            {"input_tokens": 100, "output_tokens": 1},
        )
    )
    assert (trace.prefix_source, trace.without_cache) == ("logged", 1)
    assert trace.workload.cached_tokens.tolist() == [64, 0]


def test_blocks_get_dense_numbers_and_stand_once_in_a_call():
    """Equal hashes are one block; a hash that a call repeats is no chain and counts once."""
    trace = trace_of(
        facts(
            {
                "input_tokens": 70,
                "output_tokens": 1,
                "prefix_hashes": [9, 5],
                "prefix_token_counts": [32, 64],
            },
            {"input_tokens": 50, "output_tokens": 1},
            {
                "input_tokens": 100,
                "output_tokens": 1,
                "prefix_hashes": [9, 7, 7],
                "prefix_token_counts": [32, 64, 96],
            },
        )
    )
    work = trace.workload
    assert (trace.prefix_source, trace.without_cache) == ("blocks", 1)
    assert work.block_offsets.tolist() == [0, 2, 2, 4]
    assert work.blocks.tolist() == [0, 1, 0, 2]
    assert work.block_ends.tolist() == [32, 64, 32, 64]


def test_a_log_without_calls_is_an_empty_workload():
    """Nothing to replay is no error here."""
    trace = trace_of(facts({"input_tokens": None, "output_tokens": None}))
    assert len(trace.workload) == 0
    assert trace.calls == trace.unknown_tokens == 1


def test_a_closed_loop_begins_with_a_burst_or_spread():
    """First arrivals by client."""
    work = lengths([1] * 5, [1] * 5)
    assert work.in_closed_loop(3).arrival_s.tolist() == [0.0] * 5
    assert work.in_closed_loop(4, start_up_s=2.0).arrival_s[:4].tolist() == [0.0, 0.5, 1.0, 1.5]
    with pytest.raises(ValueError, match="a client or more"):
        work.in_closed_loop(0)


def test_lengths_must_make_sense():
    """One arrival per call, in order, and no negative counts."""
    with pytest.raises(ValueError, match="order of arrival"):
        lengths([1, 1], [1, 1], [1.0, 0.0])
    with pytest.raises(ValueError, match="no count below 0"):
        lengths([1, -1], [1, 1])
    assert lengths([1], [np.int32(2)]).output_tokens.tolist() == [2]
