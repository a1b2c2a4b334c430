"""How numbers are written."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reports import numbers


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "tokens", "unknown"),
        (float("nan"), "", "unknown"),
        (0, "tokens", "0 tokens"),
        (999, "", "999"),
        (1_240_311, "tokens", "1.24 M tokens"),
        (999_950, "", "1 M"),
        (41_000, "tok/s", "41 k tok/s"),
        (1_384.0, "W", "1.38 kW"),
        (0.031249, "", "0.0312"),
        (Decimal("910.5"), "", "911"),
        (-2_500, "", "-2.5 k"),
    ],
)
def test_short_form_keeps_three_digits(value, unit, text):
    assert numbers.short(value, unit) == text


def test_unknown_is_a_word_in_every_form():
    for write in (
        numbers.short,
        numbers.exact,
        numbers.money,
        numbers.money_exact,
        numbers.percent,
        numbers.percent_exact,
        numbers.instant,
        numbers.weekday_instant,
        numbers.duration,
    ):
        assert write(None) == "unknown"


@given(st.floats(min_value=1e-9, max_value=1e15))
@settings(max_examples=60, deadline=None)
def test_short_form_is_within_half_a_unit_of_the_third_digit(value):
    """Read the text back: the error is at most 0.5 % of the value."""
    digits, _, letter = numbers.short(value).partition(" ")
    read = float(digits.replace(",", "")) * 10 ** {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}[letter]
    assert math.isclose(read, value, rel_tol=0.005001)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.714, "71 %"),
        (0.0042, "0.42 %"),
        (0.00001, "< 0.01 %"),
        (0.99999, "> 99.99 %"),
        (0.9996, "99.96 %"),
        (1.52, "152 %"),
        (0.085, "8.5 %"),
    ],
)
def test_a_share_is_never_rounded_to_all_or_nothing(ratio, text):
    assert numbers.percent(ratio) == text


def test_money_names_its_currency_and_keeps_every_digit_in_the_exact_form():
    assert numbers.money("61300") == "61,300 USD"
    assert numbers.money(Decimal("0.031249")) == "0.0312 USD"
    assert numbers.money_exact("1520.123456789012") == "1,520.123456789012 USD"
    assert numbers.money_exact("4") == "4.00 USD"


def test_instants_are_shown_in_the_zone_that_is_asked_for():
    moment = datetime(2026, 11, 17, 14, 5, tzinfo=UTC)
    assert numbers.weekday_instant(moment) == "Tue 2026-11-17 14:05"
    assert numbers.instant("2026-11-17T23:30:00Z", numbers.zone_of("Europe/Berlin")) == "2026-11-18 00:30"


def test_durations_use_the_largest_unit():
    assert [numbers.duration(seconds) for seconds in (0, 1, 240, 3600, 561_600)] == [
        "an instant",
        "1 s",
        "4 min",
        "1 h",
        "6.5 d",
    ]


def test_characters_that_hide_or_reorder_text_are_shown_as_escapes():
    assert numbers.printable("a\u202eb\x1b[31m\n") == "a\\u202eb\\x1b[31m\\n"
    assert numbers.visible("SELECT\n\t'\u202e'\u2066\x00\u200b") == "SELECT\n\t'\\u202e'\\u2066\\x00\\u200b"
    assert numbers.visible("naïve 模型") == "naïve 模型"
    assert numbers.printable("x" * 90) == "x" * 79 + "…"


def test_things_are_counted_in_words():
    assert [numbers.counted(number, "call") for number in (1, 0, 1_240_000)] == [
        "1 call",
        "0 calls",
        "1.24 M calls",
    ]
    assert numbers.counted(2, "replica of it", "replicas of it") == "2 replicas of it"
