"""No input breaks the parsers: a short run of the fuzzer, and records of every JSON format with odd values in them.

`make fuzz` runs the fuzzer over 100,000 inputs.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.registry import all_formats
from tests import fuzz

QUICK_INPUTS = 300
SLOW_INPUTS = 3_000
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


@pytest.mark.slow
def test_many_damaged_samples_are_read_or_refused_and_no_line_is_lost():
    """More of them, in processes of their own, where one that hangs or dies is a failure as well."""
    assert fuzz.run(seed=2, inputs=SLOW_INPUTS, jobs=2) == []


@pytest.mark.parametrize("fmt", JSON_FORMATS, ids=lambda fmt: fmt.name)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_records_with_odd_values_are_rows_or_rejects(fmt, tmp_path, data):
    """Each line is exactly one of row, reject and other, whatever types its fields have."""
    lines = data.draw(st.lists(records_of(fmt.structure), min_size=1, max_size=6))
    text = "".join(json.dumps(line) + "\n" for line in lines)
    sample = fuzz.Sample(fmt.name, "odd values", text.encode())
    assert fuzz.broken_rule(sample, sample.data, tmp_path) is None
