"""Prefix blocks of a prompt that a trace numbers itself: ids of blocks of a fixed size, as they follow each other.

Belongs here: the chain of hashes and the token counts that such ids give, and what is wrong with them. Does not
belong here: where a trace keeps the ids (`formats/`), hashing (`hashing.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers.values import content_scope, cumulative_tokens

if TYPE_CHECKING:
    from parsers.format import Context

MISMATCH = "block_size_mismatch"
"""The number of ids contradicts the size of the blocks: wrong prefixes would reach money, so they are dropped."""


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Columns of REQUESTS, why a row is refused, and whether ids were dropped."""

    hashes: pl.Expr
    token_counts: pl.Expr
    fault: pl.Expr
    mismatch: pl.Expr


def prefixes(ids: pl.Expr, input_tokens: pl.Expr, block_tokens: int, context: Context) -> Prefixes:
    """Read ids (List(String)) that hold in this source; the last block may be partial, or left out."""
    whole = ids.cast(pl.List(pl.UInt64), strict=False)
    blocks = whole.list.len().cast(pl.Int64)
    unread = whole.list.eval(pl.element().is_null()).list.any()
    fits = (blocks * block_tokens - input_tokens).is_between(-block_tokens, block_tokens, closed="none")
    usable = pl.when(blocks > 0, fits, ~unread).then(whole.list.eval(pl.element().reinterpret(signed=True)))
    return Prefixes(
        hashes=usable.map_batches(
            lambda chains: context.hasher.chain_ids(chains, content_scope(context)),
            return_dtype=pl.List(pl.UInt64),
        ),
        token_counts=cumulative_tokens(usable.list.len(), block_tokens, input_tokens),
        fault=pl.when(unread).then(pl.lit("hash_ids holds something that is not a whole number")),
        mismatch=(blocks > 0) & ~fits,
    )
