"""Reading numbers and instants out of text: against the obvious reference, and at the edges."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers import values
from parsers.errors import SiteConfigError
from parsers.format import Context
from parsers.hashing import PromptHasher

if TYPE_CHECKING:
    from parsers.values import Reading

RAW = pl.col("raw")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS = st.integers(1_000_000_000_000_000, 9_000_000_000_000_000)


def read(reading: Reading, *texts: str | None) -> list[tuple[object, str | None, str | None]]:
    """Each text as (value, fault, flag)."""
    frame = pl.DataFrame({"raw": texts}, schema={"raw": pl.String})
    return values.read_fields(frame, {"x": reading}).with_columns(pl.col("_flags").list.first()).rows()


def test_whole_numbers_and_what_is_none():
    got = read(
        values.whole(RAW, "n"), "12", " 12 ", "12.0", "1.2e1", "-3", "12.5", "x", "NaN", "1e300", "", None
    )
    assert [value for value, _, _ in got] == [12, 12, 12, 12, -3, None, None, None, None, None, None]
    assert [fault for _, fault, _ in got] == [None] * 5 + ["n is not a whole number"] * 4 + [None] * 2


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
@settings(max_examples=25)
def test_every_64_bit_integer_is_read_exactly(numbers):
    assert [value for value, _, _ in read(values.whole(RAW, "n"), *map(str, numbers))] == numbers


@pytest.mark.parametrize(
    ("factor", "text", "expected"), [(1e3, "1.5", 1500), (1e6, "0.0000014", 1), (1e3, "-2", -2000)]
)
def test_counts_in_thousands_and_millions_are_rounded(factor, text, expected):
    assert read(values.whole(RAW, "n", factor=factor), text)[0][0] == expected


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
@settings(max_examples=25)
def test_numbers_are_finite_or_faults(numbers):
    for number, (value, fault, _) in zip(
        numbers, read(values.number(RAW, "n"), *map(str, numbers)), strict=True
    ):
        assert (value, fault) == ((number, None) if math.isfinite(number) else (None, "n is not a number"))


@given(st.decimals(0, 10**9, places=12), st.sampled_from([1, 100, 500_000, 10**9]))
@settings(max_examples=50)
def test_money_is_exact_to_twelve_decimals(amount, parts):
    expected = (amount / parts).quantize(Decimal("1e-12"), rounding=ROUND_HALF_UP)
    value, fault, _ = read(values.money(RAW, "cost", parts=parts), str(amount))[0]
    assert fault is None
    assert abs(value - expected) <= Decimal("1e-12")
    assert parts != 1 or value == amount


def test_money_in_scientific_notation_and_no_money():
    got = read(values.money(RAW, "cost"), "1.2e-05", "0.1", "free", "1e40")
    assert [value for value, _, _ in got] == [Decimal("0.000012"), Decimal("0.1"), None, None]
    assert got[2][1] == got[3][1] == "cost is not an amount"


def test_truth_words():
    got = read(values.truth(RAW, "stream"), "true", "False", "1", "no", "maybe", None)
    assert [value for value, _, _ in got] == [True, False, True, False, None, None]
    assert got[4][1] == "stream is neither true nor false"


@given(INSTANTS, st.sampled_from([("s", 10**6), ("ms", 10**3), ("us", 1)]))
@settings(max_examples=40)
def test_an_epoch_number_tells_its_own_unit(micros, unit):
    name, size = unit
    whole_units = micros // size
    expected = EPOCH + timedelta(microseconds=whole_units * size)
    for told in ("auto", name):
        assert read(values.instant(RAW, "ts", unit=told), str(whole_units)) == [(expected, None, None)]


@given(INSTANTS)
@settings(max_examples=25)
def test_nanoseconds_ticks_and_decimals_keep_the_microsecond(micros):
    expected = EPOCH + timedelta(microseconds=micros)
    ticks = micros * 10 + 621_355_968_000_000_000
    seconds = f"{micros // 10**6}.{micros % 10**6:06d}"
    texts = [str(ticks), seconds] + ([f"{micros}789"] if micros < 9_223_372_036_854_775 else [])
    assert {value for value, _, _ in read(values.instant(RAW, "ts"), *texts)} == {expected}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-11-16 18:17:03.9799600", "2023-11-16T17:17:03.979960+00:00"),
        ("2024-05-10 00:00:00.009930+00:00", "2024-05-10T00:00:00.009930+00:00"),
        ("2024-05-10T00:00:00Z", "2024-05-10T00:00:00+00:00"),
        ("2024-05-10T00:00:00,5+02:00", "2024-05-09T22:00:00.500000+00:00"),
        ("2026/03/02 10:00:00 +0100", "2026-03-02T09:00:00+00:00"),
        ("2024-05-10 00:00:00 UTC", "2024-05-10T00:00:00+00:00"),
    ],
)
def test_iso_variants_in_berlin(text, expected):
    [(value, fault, flag)] = read(values.instant(RAW, "ts", zone="Europe/Berlin"), text)
    assert (value.isoformat(), fault, flag) == (expected, None, None)


def test_clock_changes_are_flagged_or_refused():
    twice, never = read(
        values.instant(RAW, "ts", zone="Europe/Berlin"), "2025-10-26 02:30:00", "2025-03-30 02:30:00"
    )
    assert twice == (datetime(2025, 10, 26, 0, 30, tzinfo=UTC), None, "local_time_ambiguous")
    assert never == (None, "ts is not an instant", None)


def test_an_assumed_zone_is_flagged_where_it_was_used():
    got = read(
        values.instant(RAW, "ts", zone_assumed=True),
        "2025-10-26 02:30:00",
        "2025-10-26 02:30:00Z",
        "1710000000",
    )
    assert [flag for _, _, flag in got] == ["zone_assumed_utc", None, None]


@pytest.mark.parametrize(
    "text", ["bad", "5", "-1710000000", "99999999999999999999", "9" * 26, "1e30", "20240510", "NaN", "inf"]
)
def test_what_is_no_instant_is_a_fault(text):
    assert read(values.instant(RAW, "ts"), text) == [(None, "ts is not an instant", None)]


def test_time_since_the_start():
    got = read(values.since(RAW, "t", "ms", values.RELATIVE_ORIGIN), "0", "1500.25", "-1", "x", "1e300")
    assert [value for value, _, _ in got][:2] == [
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(2000, 1, 1, 0, 0, 1, 500_250, tzinfo=UTC),
    ]
    assert [fault for _, fault, _ in got][2:] == ["t is not a time since the start in ms"] * 3


@given(st.integers(1, 4_000), st.integers(1, 600))
@settings(max_examples=40)
def test_cumulative_tokens_end_at_the_prompts_end(tokens, block):
    for blocks in {-(-tokens // block), tokens // block} - {0}:
        frame = pl.DataFrame({"b": [blocks, 0, None, 3], "n": [tokens, 5, 5, None]})
        counts = frame.select(values.cumulative_tokens(pl.col("b"), block, pl.col("n"))).to_series().to_list()
        assert counts == [[min(n * block, tokens) for n in range(1, blocks + 1)], None, None, None]


def test_the_origin_is_an_option_and_a_wrong_one_is_named():
    def context(**options: str) -> Context:
        return Context("x", PromptHasher(b"key"), options=options)

    assert values.relative_origin(context()) == values.RELATIVE_ORIGIN
    assert values.relative_origin(context(origin="2026-03-02T01:00:00+01:00")) == datetime(
        2026, 3, 2, tzinfo=UTC
    )
    with pytest.raises(SiteConfigError, match="option origin: 'soon' is not an instant"):
        values.relative_origin(context(origin="soon"))


@pytest.mark.parametrize("unit", ["auto", "iso", "%H:%M"])
def test_an_instant_that_no_record_has_is_null_for_each(unit):
    """A field that is absent is read as one null, which fits frames of any length."""
    frame = pl.DataFrame({"raw": ["a", "b"]})
    found = values.read_fields(frame, {"x": values.instant(values.NO_TEXT, "t", unit=unit)})
    assert found["x"].to_list() == [None, None]
