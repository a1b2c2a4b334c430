"""Intervals against hours: nothing is lost, and unions equal a count second by second."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.efficiency.spread import HOUR_US, over_hours, union

SECOND = 1_000_000
PAIRS = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9_000)), min_size=1, max_size=30)


def frame(pairs, **more):
    start = [begin * SECOND for begin, _ in pairs]
    return pl.DataFrame(
        {"start_us": start, "end_us": [a + b * SECOND for a, (_, b) in zip(start, pairs, strict=True)]} | more
    )


@settings(max_examples=40, deadline=None)
@given(PAIRS)
def test_amounts_land_in_the_hours_of_their_interval(pairs):
    out = over_hours(frame(pairs, tokens=[10.0] * len(pairs)), ["tokens"])
    slow: dict[int, float] = {}
    for begin, length in pairs:
        seconds = range(begin, begin + length) if length else [begin]
        for second in seconds:
            slow[second // 3600] = slow.get(second // 3600, 0.0) + 10.0 / len(seconds)
    assert {
        hour // HOUR_US: tokens for hour, tokens in out.select("hour_us", "tokens").rows()
    } == pytest.approx(slow)


@settings(max_examples=40, deadline=None)
@given(PAIRS)
def test_a_union_covers_each_second_once(pairs):
    merged = union(frame(pairs))
    seconds = {second for begin, length in pairs for second in range(begin, begin + length)}
    assert (merged["end_us"] - merged["start_us"]).sum() == len(seconds) * SECOND
    assert (merged["start_us"].shift(-1) > merged["end_us"]).drop_nulls().all()


def test_an_hour_with_unknown_parts_only_is_unknown():
    out = over_hours(frame([(0, 60), (4000, 60)], tokens=[None, 5.0]), ["tokens"])
    assert out["tokens"].to_list() == [None, 5.0]


def test_no_intervals_give_no_hours():
    empty = pl.DataFrame(schema={"start_us": pl.Int64, "end_us": pl.Int64, "tokens": pl.Float64})
    assert over_hours(empty, ["tokens"]).is_empty()
    assert union(empty).is_empty()
