"""Runs that are listed one by one: usage that parents repeat is counted once, wherever the parent stands."""

from __future__ import annotations

import json

import pytest

from parsers.parse import MAX_CHUNK_ROWS

AT = "2026-05-04T09:20:46.847Z"


def observation(own, parent=None, kind="GENERATION", tokens=(7, 3), **more):
    counts = {} if tokens is None else {"input": tokens[0], "output": tokens[1]}
    plain = {"id": own, "traceId": "t", "type": kind, "startTime": AT, "parentObservationId": parent}
    return {**plain, "usageDetails": counts} | more


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def counted(result):
    return dict(result.rows.select("request_id", "input_tokens").iter_rows())


def test_agents_and_chains_are_dropped_where_their_calls_are_listed(read):
    """Cases B141 and B142: 59,798 tokens with the root's sum, 29,899 without."""
    root = observation("root", kind="AGENT", tokens=(29_000, 899))
    calls = [observation(f"call {n}", "step", tokens=(14_500, tokens)) for n, tokens in ((1, 449), (2, 450))]
    step = observation("step", "root", kind="CHAIN", tokens=(29_000, 899))
    for order in ([root, step, *calls], [*calls, step, root]):
        result = read(lines(*order))
        assert sum(result.rows["input_tokens"]) + sum(result.rows["output_tokens"]) == 29_899
        assert result.other_lines == 2


@pytest.mark.parametrize(
    ("parent", "rows"),
    [
        ((10, 6), {"a": 5, "b": 5}),
        ((100, 60), {"parent": 100, "a": 5, "b": 5}),
    ],
)
def test_a_call_above_calls_is_a_copy_only_if_it_has_their_sum(read, parent, rows):
    """Case B143: the sum of the children is dropped, another count is kept and flagged."""
    children = [observation(name, "parent", tokens=(5, 3)) for name in ("a", "b")]
    result = read(lines(observation("parent", tokens=parent), *children))
    assert counted(result) == rows
    flagged = result.rows.filter(result.rows["flags"].list.contains("usage_differs_from_children"))
    assert flagged["request_id"].to_list() == (["parent"] if "parent" in rows else [])


def test_the_parent_of_a_call_may_stand_in_another_chunk(read):
    between = [observation(f"alone {n}") for n in range(MAX_CHUNK_ROWS)]
    result = read(lines(observation("parent"), *between, observation("child", "parent")))
    found = counted(result)
    assert "child" in found
    assert "parent" not in found
    assert len(found) == MAX_CHUNK_ROWS + 1
    assert result.rows["source_line"].to_list() == list(range(2, MAX_CHUNK_ROWS + 3))


def test_a_file_that_is_read_anew_gives_each_row_once(read):
    """The damage is behind a chunk that was kept already."""
    records = [observation(f"alone {n}") for n in range(MAX_CHUNK_ROWS)]
    array = json.dumps([*records, observation("parent"), observation("child", "parent")])
    result = read(f'{array[:-1]}, {{"id": "cut')
    assert result.was_strict
    assert len(counted(result)) == result.rows.height == MAX_CHUNK_ROWS + 1


def test_a_sum_without_its_calls_is_refused_and_says_why(read):
    result = read(lines(observation("agent", kind="AGENT"), observation("call", tokens=(1, 1))))
    assert result.reasons == {1: "a sum of usage without the calls that it sums up"}
    assert counted(result) == {"call": 1}


def test_the_latest_version_of_a_run_counts(read):
    """Case B074: a table that keeps versions, read before they are merged."""
    early = observation("a", tokens=None, event_ts="2026-05-04T09:20:47Z")
    late = observation("a", tokens=(9, 1), event_ts="2026-05-04T09:20:50Z")
    for order in ([early, late], [late, early]):
        result = read(lines(*order))
        assert counted(result) == {"a": 9}
        assert result.other_lines == 1
