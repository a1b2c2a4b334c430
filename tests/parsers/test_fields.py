"""Fields are read alike in every chunk: the fast readings give what the careful ones give, or leave it to them."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.fields import Fields, first_fault

# One text that only the careful reading can read makes a whole chunk go through it.
ODD = {"whole": "1e3", "instant": "2026-01-01T00:00:00Z"}


def read(texts, kind):
    fields = Fields(
        pl.DataFrame({"source_line": range(len(texts)), "t": texts}, schema_overrides={"t": pl.String})
    )
    reading = getattr(fields, kind)("t")
    return fields.frame.select(value=reading.value, fault=reading.fault).rows()


WHOLE = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(
        ["", " ", " 12", "12 ", "+5", "1.0", "1.5", "1_000", "0x10", "abc", "-0", "NaN", "inf", "1e400", "٣"]
    ),
)
INSTANT = st.one_of(
    st.none(),
    st.floats(1e9, 9.9e9).map(repr),
    st.tuples(st.integers(10**9, 2 * 10**9), st.integers(0, 10**7 - 1)).map(lambda t: f"{t[0]}.{t[1]:07d}"),
    st.integers(0, 10**19).map(str),
    st.sampled_from(
        [
            "",
            "x",
            "1.7e9",
            "999999999.9999999",
            "1000000000",
            "9999999999.9999995",
            "-1",
            " 1700000000 ",
            "NaN",
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WHOLE, min_size=1, max_size=5))
def test_counts_are_read_alike_with_and_without_an_odd_neighbour(texts):
    assert read([*texts, ODD["whole"]], "whole")[:-1] == [
        row for text in texts for row in read([text], "whole")
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(INSTANT, min_size=1, max_size=5))
def test_instants_are_read_alike_to_the_microsecond(texts):
    assert read([*texts, ODD["instant"]], "instant")[:-1] == [
        row for text in texts for row in read([text], "instant")
    ]


def test_the_seventh_decimal_of_a_second_is_rounded_one_way():
    """Python logs such times; a double of their microseconds is a tie that decimals may break the other way."""
    texts = [f"17765207{n:02}.721826{n % 10}" for n in range(100)]
    assert read(texts, "instant") == read([*texts, ODD["instant"]], "instant")[:-1]


@pytest.mark.parametrize("kind", ["whole", "number", "money", "instant"])
def test_a_field_that_no_record_has_is_null_without_fault(kind):
    fields = Fields(pl.DataFrame({"source_line": [1, 2], "empty": [None, None]}))
    for name in ("empty", "absent"):
        reading = getattr(fields, kind)(name)
        assert fields.frame.select(reading.value.alias("v"), reading.fault.alias("f")).rows() in (
            [(None, None)],
            [(None, None)] * 2,
        )
        assert fields.frame.select("source_line", v=reading.value)["v"].to_list() == [None, None]


def test_nested_fields_have_dotted_names_and_the_first_that_is_there_counts():
    raw = pl.DataFrame(
        {"source_line": [1, 2], "a": [{"b": {"c": "1"}, "d": " "}, {"b": None, "d": "2"}], "e": ["x", "y"]}
    )
    fields = Fields(raw)
    assert fields.has("a.b.c")
    assert not fields.has("a")
    whole = fields.whole("a.b.c", "a.d")
    texts = fields.frame.select(fields.text("a.d", "e").alias("t"), whole.value.alias("n"))
    assert texts.rows() == [("x", 1), ("2", 2)]


def test_the_first_fault_in_the_order_given_is_the_reason():
    fields = Fields(pl.DataFrame({"source_line": [1, 2, 3], "n": ["x", "1", None], "m": ["y", "z", "1"]}))
    reads = [fields.whole("n").needed("n"), fields.whole("m")]
    assert fields.frame.select(first_fault(reads)).to_series().to_list() == [
        "n is not a whole number",
        "m is not a whole number",
        "n is missing",
    ]


def test_of_no_records_the_lines_are_still_a_column():
    fields = Fields(pl.DataFrame(schema={"source_line": pl.Int64, "model": pl.String}))
    assert fields.rows(model=fields.text("model")).columns == ["source_line", "model", "_reject", "_other"]


def test_a_series_of_absent_fields_is_as_long_as_the_chunk():
    """Polars gives a single value for an expression that names no column."""
    fields = Fields(pl.DataFrame({"source_line": [1, 2, 3], "t": ["a", None, "b"]}))
    assert fields.series(fields.text("absent").is_null()).to_list() == [True, True, True]
    assert fields.series(fields.text("t")).to_list() == ["a", None, "b"]
