"""Exact splits and products against slow, obvious references."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import MONEY
from pipelines.costs.exact import split, times

MONEYS = st.decimals(0, 1_000_000, places=12, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(amount=MONEYS, weights=st.lists(st.integers(0, 10**15), min_size=1, max_size=8).filter(any))
def test_a_split_adds_up_and_no_part_is_a_picodollar_off_its_share(amount, weights):
    frame = pl.DataFrame(
        {"group": [1] * len(weights), "amount": [amount] * len(weights), "weight": weights},
        schema={"group": pl.Int64, "amount": MONEY, "weight": pl.Int128},
    )
    parts = split(frame, amount="amount", weight="weight", by=["group"], into="part")["part"].to_list()
    assert sum(parts) == amount
    for part, weight in zip(parts, weights, strict=True):
        assert abs(Fraction(part) - Fraction(amount) * weight / sum(weights)) < Fraction(1, 10**12)


def test_a_split_of_great_sums_over_great_weights_still_adds_up():
    """1e9 USD over weights near 1e38 must neither wrap nor lose a picodollar."""
    frame = pl.DataFrame(
        {
            "g": [1, 1, 1],
            "amount": [Decimal("999999999.999999999999")] * 3,
            "weight": [10**37, 3 * 10**37, 1],
        },
        schema={"g": pl.Int64, "amount": MONEY, "weight": pl.Int128},
    )
    parts = split(frame, amount="amount", weight="weight", by=["g"], into="part")["part"]
    assert parts.sum() == Decimal("999999999.999999999999")
    assert abs(parts[0] - 250_000_000) < Decimal("0.000001")


def test_groups_are_split_apart():
    frame = pl.DataFrame(
        {"g": ["a", "b", "a"], "amount": [Decimal(1), Decimal(5), Decimal(1)], "weight": [1, 1, 1]},
        schema={"g": pl.String, "amount": MONEY, "weight": pl.Int128},
    )
    parts = split(frame, amount="amount", weight="weight", by=["g"], into="part")["part"].to_list()
    assert parts == [Decimal("0.5"), Decimal(5), Decimal("0.5")]


def test_products_are_exact_beyond_what_a_float_holds():
    frame = pl.DataFrame(
        {"q": [9_007_199_254_740_993], "p": [Decimal("0.000000000001")]}, schema_overrides={"p": MONEY}
    )
    assert frame.select(times(pl.col("q"), pl.col("p"))).item() == Decimal("9007.199254740993")
