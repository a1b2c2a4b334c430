"""One meaning for all counts: each rule with its figures, and what holds whatever a log says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.format import TokenSemantics
from parsers.normalise import MAX_COUNT, MAX_SPAN_MS, OUTSIDE, TOTAL, normalise
from parsers.records import REQUESTS

INSIDE = TokenSemantics()
OUTSIDE_ALL = TokenSemantics(cache_read="outside", cache_write="outside", reasoning="outside")
ABSENT = TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent")
START = datetime(2026, 1, 1, tzinfo=UTC)
SHORT = {
    "input": "input_tokens",
    "output": "output_tokens",
    "read": "cache_read_tokens",
    "write": "cache_write_5m_tokens",
    "hour": "cache_write_1h_tokens",
    "reasoning": "reasoning_tokens",
    "total": TOTAL,
    "outside": OUTSIDE,
}


def frame(**values):
    named = {SHORT.get(name, name): [value] for name, value in values.items()}
    schema = {**REQUESTS.schema, TOTAL: pl.Int64, OUTSIDE: pl.Boolean}
    rows = pl.DataFrame(named, schema={name: schema[name] for name in named})
    missing = [
        pl.lit(None, dtype=kind).alias(name) for name, kind in REQUESTS.schema.items() if name not in named
    ]
    return rows.with_columns(missing)


def normal(semantics=INSIDE, **values):
    return normalise(frame(**values), semantics).row(0, named=True)


@pytest.mark.parametrize(
    ("semantics", "stated", "wanted", "flags"),
    [
        # The sum of LiteLLM issue 11364: 98,805 = 66,360 read + 32,435 written + 10.
        (
            INSIDE,
            {"input": 98_805, "read": 66_360, "write": 32_435, "output": 5120, "total": 103_925},
            {},
            [],
        ),
        # LiteLLM issue 15056: what is written alone exceeds the prompt, so it can't be inside of it.
        (INSIDE, {"input": 31, "write": 1253, "output": 5}, {"input": 1284}, ["cache_outside_input"]),
        (
            INSIDE,
            {"input": 31, "write": 1253, "output": 5, "total": 36},
            {"input": 1284},
            ["cache_outside_input"],
        ),
        (INSIDE, {"input": 4, "read": 2455, "output": 5}, {"input": 2459}, ["cache_outside_input"]),
        # Bedrock adds up to 2,435 = 3 + 61 + 2,074 + 297.
        (
            INSIDE,
            {"input": 3, "output": 61, "read": 2074, "write": 297, "total": 2435},
            {"input": 2374},
            ["cache_outside_input"],
        ),
        # A total alone shows it, also where the parts would fit.
        (
            INSIDE,
            {"input": 100, "output": 10, "read": 50, "write": 0, "total": 160},
            {"input": 150},
            ["cache_outside_input"],
        ),
        # Both the cache and the reasoning beside: 860 + 24 + 200 + 40 = 1,124.
        (
            INSIDE,
            {"input": 860, "output": 24, "read": 200, "reasoning": 40, "total": 1124},
            {"input": 1060, "output": 64},
            ["cache_outside_input", "reasoning_outside_output"],
        ),
        # OpenAI's two prefix counts may overlap.
        (INSIDE, {"input": 100, "read": 80, "write": 90}, {"write": 20}, ["cache_clamped"]),
        (INSIDE, {"input": 100, "read": 80, "write": 15, "hour": 30}, {"hour": 5}, ["cache_clamped"]),
        (INSIDE, {"input": 100, "read": 0, "write": 0}, {}, []),
        (INSIDE, {"input": 100}, {}, []),
        (INSIDE, {"input": 0, "output": 0, "read": 0}, {}, []),
        (INSIDE, {"input": None, "read": 5}, {}, []),
        (OUTSIDE_ALL, {"input": 6, "read": 20_443, "write": 574, "output": 489}, {"input": 21_023}, []),
        (OUTSIDE_ALL, {"input": 6, "write": 500, "hour": 74}, {"input": 580}, []),
        (OUTSIDE_ALL, {"input": 6, "outside": False, "read": 2}, {}, []),
        (INSIDE, {"input": 6, "outside": True, "read": 2}, {"input": 8}, []),
        (OUTSIDE_ALL, {"input": None, "read": 5}, {}, []),
        # xAI: 10,120 + 1,499 + 2,809 = 14,428.
        (
            INSIDE,
            {"input": 10_120, "output": 1499, "reasoning": 2809, "total": 14_428},
            {"output": 4308},
            ["reasoning_outside_output"],
        ),
        (INSIDE, {"input": 10, "output": 600, "reasoning": 512, "total": 610}, {}, []),
        (
            INSIDE,
            {"input": 10, "output": 5, "reasoning": 7},
            {"reasoning": None},
            ["reasoning_exceeds_output"],
        ),
        (OUTSIDE_ALL, {"output": 75, "reasoning": 414}, {"output": 489}, []),
        (OUTSIDE_ALL, {"output": 75}, {}, []),
        (OUTSIDE_ALL, {"output": None, "reasoning": 4}, {}, []),
        # Gemini through its OpenAI door: 35 + 12 is not 109.
        (INSIDE, {"input": 35, "output": 12, "total": 109}, {"output": 74}, ["hidden_reasoning"]),
        (INSIDE, {"input": 35, "output": 12, "reasoning": 0, "total": 109}, {}, []),
        (INSIDE, {"input": 35, "output": None, "total": 109}, {}, []),
        (INSIDE, {"input": 35, "output": 12, "total": 40}, {}, []),
        (ABSENT, {"input": 35, "output": 12, "total": 109}, {}, []),
        (INSIDE, {"input": -5, "output": 3}, {"input": None}, ["count_out_of_range"]),
        (INSIDE, {"input": MAX_COUNT, "output": MAX_COUNT + 1}, {"output": None}, ["count_out_of_range"]),
        (
            INSIDE,
            {"input": 5, "audio_input_tokens": 6, "image_input_tokens": 5},
            {"audio_input_tokens": None},
            ["part_exceeds_whole"],
        ),
        (INSIDE, {"cost_reported": Decimal("-0.008907")}, {"cost_reported": None}, ["cost_below_zero"]),
        (INSIDE, {"cost_reported": Decimal(0)}, {}, []),
        (INSIDE, {"input": 5, "flags": ["before"]}, {}, ["before"]),
    ],
)
def test_counts(semantics, stated, wanted, flags):
    """What is not named in `wanted` is as stated: null never becomes 0, and 0 never null."""
    row = normal(semantics, **stated)
    for name in SHORT.keys() | stated.keys():
        column = SHORT.get(name, name)
        if column in REQUESTS.names and column != "flags":
            assert row[column] == wanted.get(name, stated.get(name)), name
    assert row["flags"] == flags


def after(seconds):
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("stated", "wanted", "flags"),
    [
        ({"ended_at": after(2)}, {"duration_ms": 2000.0}, []),
        ({"duration_ms": 1500.0}, {"ended_at": after(1.5)}, []),
        ({"first_token_at": after(0.5), "ended_at": after(2)}, {"ttft_ms": 500.0, "duration_ms": 2000.0}, []),
        ({"ttft_ms": 250.0}, {"first_token_at": after(0.25)}, []),
        ({}, {}, []),
        ({"ended_at": after(0)}, {"duration_ms": 0.0}, []),
        ({"ended_at": after(-1)}, {"ended_at": None}, ["ended_before_start"]),
        ({"ended_at": after(-1), "duration_ms": 3000.0}, {"ended_at": after(3)}, ["ended_before_start"]),
        (
            {"first_token_at": after(-1), "ended_at": after(2)},
            {"first_token_at": None, "duration_ms": 2000.0},
            ["first_token_out_of_order"],
        ),
        (
            {"first_token_at": after(3), "ended_at": after(2)},
            {"first_token_at": None, "duration_ms": 2000.0},
            ["first_token_out_of_order"],
        ),
        # Seconds and milliseconds mixed up.
        (
            {"ttft_ms": 250_000.0, "ended_at": after(2)},
            {"ttft_ms": None, "duration_ms": 2000.0},
            ["first_token_out_of_order"],
        ),
        ({"queue_ms": -1.0}, {"queue_ms": None}, ["duration_out_of_range"]),
        ({"duration_ms": 1e300}, {"duration_ms": None}, ["duration_out_of_range"]),
        ({"ttft_ms": float("nan")}, {"ttft_ms": None}, ["duration_out_of_range"]),
        ({"duration_ms": MAX_SPAN_MS + 1.0}, {"duration_ms": None}, ["duration_out_of_range"]),
    ],
)
def test_times(stated, wanted, flags):
    row = normal(started_at=START, **stated)
    for name in ("first_token_at", "ended_at", "queue_ms", "ttft_ms", "duration_ms"):
        assert row[name] == wanted.get(name, stated.get(name)), name
    assert row["flags"] == flags


def test_the_tokens_along_a_prompt_end_at_its_input():
    """The parts of a prompt were counted before its cached tokens were added."""
    grown = normal(input=10, read=90, prefix_token_counts=[2, 5, 10])
    assert grown["prefix_token_counts"] == [20, 50, 100]
    assert normal(input=-1, prefix_token_counts=[0, -1])["prefix_token_counts"] is None
    assert normal(input=0, read=7, prefix_token_counts=[0, 0])["prefix_token_counts"] is None
    assert normal(input=9, read=7, prefix_token_counts=[4, 9])["prefix_token_counts"] == [4, 9]
    assert normal(input=None, prefix_token_counts=None)["prefix_token_counts"] is None


COUNT = st.one_of(
    st.none(), st.integers(0, 40), st.integers(-(2**62), 2**62), st.sampled_from([0, -1, MAX_COUNT])
)
SECONDS = st.one_of(st.none(), st.integers(-3, 3).map(after))
SPAN = st.one_of(
    st.none(), st.sampled_from([0.0, 1.0, 1500.0, -1.0, 1e12, 1e300, float("inf"), float("nan")])
)
WHERE = st.sampled_from(["inside", "outside", "absent"])


@settings(max_examples=60, deadline=None)
@given(
    counts=st.fixed_dictionaries({name: COUNT for name in SHORT if name != "outside"}),
    outside=st.one_of(st.none(), st.booleans()),
    parts=st.fixed_dictionaries(dict.fromkeys(("audio_input_tokens", "image_output_tokens"), COUNT)),
    times=st.fixed_dictionaries({"first_token_at": SECONDS, "ended_at": SECONDS}),
    spans=st.fixed_dictionaries(dict.fromkeys(("queue_ms", "ttft_ms", "duration_ms"), SPAN)),
    semantics=st.builds(TokenSemantics, cache_read=WHERE, cache_write=WHERE, reasoning=WHERE),
)
def test_whatever_a_log_says(counts, outside, parts, times, spans, semantics):
    """Nothing is negative, parts fit in their whole, instants are in order, and a second time changes nothing."""
    stated = frame(
        started_at=START,
        outside=outside,
        status="ok",
        usage_origin="reported",
        **counts,
        **parts,
        **times,
        **spans,
    )
    once = normalise(stated, semantics)
    row = once.row(0, named=True)
    assert {text for text in REQUESTS.problems(once) if "missing" not in text} == set()
    if row["input_tokens"] is not None and semantics.cache_read != "absent":
        held = [
            row[name] or 0 for name in ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")
        ]
        assert row["input_tokens"] - sum(held) >= 0
    if row["output_tokens"] is not None:
        assert (row["reasoning_tokens"] or 0) <= row["output_tokens"]
    if row["first_token_at"] is not None:
        assert START <= row["first_token_at"] <= (row["ended_at"] or row["first_token_at"])
    assert row["ended_at"] is None or row["ended_at"] >= START
    for name, value in counts.items():
        if value is None and SHORT[name] in row:
            assert row[SHORT[name]] is None
        if value == 0 and SHORT[name] in row and "count_out_of_range" not in row["flags"]:
            assert row[SHORT[name]] is not None
    assert normalise(once, INSIDE if semantics.cache_read != "absent" else ABSENT).row(0, named=True) == row
