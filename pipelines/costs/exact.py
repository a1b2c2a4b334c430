"""Exact arithmetic on money in frames: picodollars, products without floats, and splits that add up.

Belongs here: conversions between `Decimal(38,12)` and whole picodollars (1e-12 USD, Int128), and the
largest-remainder split. Does not belong here: what is split, and by what right.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from parsers.records import MONEY

if TYPE_CHECKING:
    from collections.abc import Sequence

PICO = Decimal(1).scaleb(-12)
# amount x weight must stay below 2**127 = 1.7e38.
_ROOM = 10**38


def to_pico(money: pl.Expr) -> pl.Expr:
    """Decimal USD as whole picodollars (Int128); null stays null."""
    return money.cast(MONEY).to_physical()


def from_pico(pico: pl.Expr) -> pl.Expr:
    """Whole picodollars as Decimal(38,12) USD; null stays null."""
    return (pico.cast(pl.Decimal(38, 0)) * pl.lit(PICO)).cast(MONEY)


def times(quantity: pl.Expr, unit_price: pl.Expr) -> pl.Expr:
    """Cost in USD: quantity (Int64) x price (Decimal(38,12)), exact."""
    return from_pico(quantity.cast(pl.Int128) * to_pico(unit_price))


def split(frame: pl.DataFrame, *, amount: str, weight: str, by: Sequence[str], into: str) -> pl.DataFrame:
    """Split an amount of each group over the group's rows in proportion to weights, by largest remainder.

    Args:
        frame: `amount` (Decimal USD, the same on every row of a group), `weight` (Int128, >= 0).
        amount: column that holds the group's amount.
        weight: column that holds the row's weight; the sum of a group must be above 0.
        by: columns that name a group.
        into: name of the result, Decimal(38,12) USD.

    Returns:
        The frame with `into`; its sum over a group is the group's amount, to the picodollar. Equal remainders
        are served in the order of the rows.

    """
    group = list(by)
    total = pl.col(weight).sum().over(group)
    # Weights too heavy for the product lose their last digits; the sum of the parts is exact all the same.
    heaviest = pl.lit(_ROOM, pl.Int128) // (to_pico(pl.col(amount)) + 1)
    scaled = frame.with_columns((pl.col(weight) // (total // heaviest + 1)).alias("_weight"))
    product = to_pico(pl.col(amount)) * pl.col("_weight")
    whole = pl.col("_weight").sum().over(group)
    parts = scaled.with_columns((product // whole).alias("_share"), (product % whole).alias("_rest"))
    left = to_pico(pl.col(amount)) - pl.col("_share").sum().over(group)
    turn = pl.col("_rest").rank("ordinal", descending=True).over(group)
    served = parts.with_columns((pl.col("_share") + (turn <= left).cast(pl.Int128)).alias("_share"))
    return served.with_columns(from_pico(pl.col("_share")).alias(into)).drop("_weight", "_share", "_rest")
