"""Cached tokens beside an input that is meant to leave them out, when the sender did not.

Belongs here: what observability products that store disjoint parts (Langfuse, Helicone) are told wrongly, and
how a row shows it. Does not belong here: formats whose total shows it (`normalise.py`).

A prompt that repeats an earlier one is cached but for its end. So an input that is as large as its cached
part, or larger by less than a seventh, is the whole prompt; one that is smaller is what the cache left over.
Of larger ones nothing tells.
"""

from __future__ import annotations

import polars as pl

_WHOLE, _CACHED = 8, 7


def is_inside(stated: pl.Expr, cached: pl.Expr) -> pl.Expr:
    """Whether the cached tokens must be taken for a part of the stated input."""
    is_likely = (cached > 0) & (cached <= stated) & (cached * _WHOLE >= stated * _CACHED)
    return is_likely.fill_null(value=False)


def flags(stated: pl.Expr, cached: pl.Expr, *, shown: pl.Expr) -> dict[str, pl.Expr]:
    """What was assumed about the cached tokens, for `flag_list`; nothing where the row showed it."""
    inside = is_inside(stated, cached)
    return {
        "cache_taken_as_inside_input": ~shown & inside,
        "cache_may_be_inside_input": ~shown & ~inside & (cached > 0) & (cached <= stated),
    }
