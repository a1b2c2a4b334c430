"""Columns that are looked up for each call: rules, prices, measures.

Belongs here: the join that all of them share. Does not belong here: what is looked up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def beside(calls: pl.DataFrame, found: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Calls with the columns of `found` for their key, null where there are none; rows and their order stay.

    Only the key is joined: a join copies every column of its left side, and calls have many.

    Args:
        calls: any frame.
        found: one row per key.
        key: columns of both.

    """
    columns = calls.select(key).join(found, on=key, how="left", nulls_equal=True, maintain_order="left")
    return calls.hstack(columns.drop(key))
