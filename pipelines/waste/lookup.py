"""Columns that are looked up for each call: rules, prices, measures.

Belongs here: the ways by which all of them do: a join, or the place of the call. Does not belong here: what is looked up.
"""

from __future__ import annotations

import numpy as np
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


def at_rows(found: pl.DataFrame, rows: pl.Series, height: int) -> pl.DataFrame:
    """Lay rows out at their places in a frame of `height` rows; the others are null.

    Args:
        found: one row per place.
        rows: the places, each once.
        height: of the result.

    """
    if found.height == height and rows.is_sorted():
        return found
    place = np.full(height, -1, np.int64)
    place[rows.to_numpy()] = np.arange(found.height)
    index = pl.Series(place)
    return found.select(pl.all().gather(pl.lit(index.set(index < 0, None))))
