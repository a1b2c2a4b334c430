"""No input breaks the parsers: short runs of the fuzzer, records of every JSON format with odd values in them, and heads
that make careless patterns search for ever.

`make fuzz` runs the fuzzer over 100,000 inputs.
"""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.format import Head
from parsers.registry import all_formats
from parsers.sources import HEAD_BYTES
from tests import fuzz

QUICK_INPUTS = 300
SLOW_INPUTS = 1_500
HEAD_LIMIT_S = 2.0
JSON_FORMATS = [fmt for fmt in all_formats() if fmt.container == "json_lines"]
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(
        ["", "0", "-1", "1e400", "NaN", "null", "2026-01-01T00:00:00Z", "2026-02-30", "1767225600", "[]", "{"]
    ),
    st.text(max_size=8),
    st.just([]),
    st.just({}),
)


def records_of(structure):
    """Records with some of a format's fields, each with a value that may be of any type."""
    if isinstance(structure, dict):
        fields = {name: records_of(inner) for name, inner in structure.items()}
        return st.one_of(st.fixed_dictionaries({}, optional=fields), LEAVES)
    if isinstance(structure, list):
        return st.one_of(st.lists(records_of(structure[0]), max_size=3), LEAVES)
    return LEAVES


def test_damaged_samples_are_read_or_refused_and_no_line_is_lost():
    """The first inputs of the seed, whatever their sample."""
    assert fuzz.run_batch(seed=1, numbers=range(QUICK_INPUTS)) == []


def test_damaged_samples_are_landed_and_every_row_is_a_fact_or_a_counted_double():
    """A few groups, their formats detected."""
    assert fuzz.run_batch(seed=3, numbers=range(3 * fuzz.GROUP), landed=True) == []


@pytest.mark.slow
def test_many_damaged_samples_are_read_or_refused_and_no_line_is_lost():
    """More of them, in processes of their own, where one that hangs or dies is a failure as well."""
    assert fuzz.run(seed=2, inputs=SLOW_INPUTS, jobs=2) == []


@pytest.mark.slow
@pytest.mark.parametrize("fmt", all_formats(), ids=lambda fmt: fmt.name)
def test_a_file_that_is_not_in_the_named_format_breaks_nothing(fmt, tmp_path):
    """`--format` names it, whatever the file holds."""
    for data in (b"a,b\n1,2\n", b'{"x": 1}\nx', b"[]", b"[{}]", b"\n", b"x"):
        assert fuzz.broken_rule(fuzz.Sample(fmt.name, "foreign", data), data, tmp_path) is None


@pytest.mark.parametrize("tile", ["a", "1:", " ", '"', "[", "{", "a=", '{"a":', "- ", '"usage": {'])
def test_no_head_is_looked_at_for_long(tile):
    """A pattern that backtracks takes minutes for such a head, where others take milliseconds."""
    text = tile * (HEAD_BYTES // len(tile))
    head = Head("log", f"INFO {text}\n{text}".encode())
    slow = []
    for fmt in all_formats():
        before = time.process_time()
        fmt.recognise(head)
        if time.process_time() - before > HEAD_LIMIT_S:
            slow.append(fmt.name)
    assert slow == []


@pytest.mark.parametrize("fmt", JSON_FORMATS, ids=lambda fmt: fmt.name)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_records_with_odd_values_are_rows_or_rejects(fmt, tmp_path, data):
    """Each line is exactly one of row, reject and other, whatever types its fields have."""
    lines = data.draw(st.lists(records_of(fmt.structure), min_size=1, max_size=6))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    sample = fuzz.Sample(fmt.name, "odd values", text.encode())
    assert fuzz.broken_rule(sample, sample.data, tmp_path) is None


def test_records_without_any_field_of_use_are_read_beside_one_with_an_odd_count(tmp_path):
    """What is made of absent fields alone is a single value, and each record gets it."""
    records = b'{"prompt_tokens": 4.8e-18, "status": "x"}\n{"latency_ms": "x"}\n'
    assert fuzz.broken_rule(fuzz.Sample("openai_usage", "odd count", records), records, tmp_path) is None
