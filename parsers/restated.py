"""Records that a log states several times while they grow: a transcript's message, the parts of one log entry.

Belongs here: holding the statements of a source until its end, and keeping one of them for each record. Does not
belong here: which field counts as the record's key, and rows that are whole when they are read (`formats/`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from parsers.format import Context

_HELD = "statements"


def hold(rows: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Keep a chunk's statements (rows that are neither refused nor other) for the end; here they are other."""
    is_statement = pl.col("_reject").is_null() & ~pl.col("_other").fill_null(value=False)
    statements = rows.filter(is_statement)
    if not statements.is_empty():
        context.carried.setdefault(_HELD, []).append(statements)
    return rows.with_columns(_other=pl.col("_other").fill_null(value=False) | is_statement)


def fullest(context: Context) -> pl.DataFrame:
    """`Format.finish`: of each record_key the statement of most output tokens, begun when the first was.

    Of equal ones, one that says how the answer ended, and then the first: later ones are repeats.
    """
    ended = pl.col("finish_reason").is_not_null()
    return _one_per_key(context, [pl.col("output_tokens"), ended, -pl.col("source_line")])


def latest(context: Context) -> pl.DataFrame:
    """`Format.finish`: of each record_key the last statement, begun when the first was."""
    return _one_per_key(context, [pl.col("source_line")])


def _one_per_key(context: Context, order: list[pl.Expr]) -> pl.DataFrame:
    held: list[pl.DataFrame] = context.carried.pop(_HELD, [])
    if not held:
        return pl.DataFrame()
    # Statements without a key are records of their own.
    key = pl.coalesce("record_key", pl.format("line {}", "source_line"))
    statements = pl.concat(held, how="vertical_relaxed").sort(order, nulls_last=False)
    return (
        statements.with_columns(started_at=pl.col("started_at").min().over(key))
        .filter(key.is_last_distinct())
        .sort("source_line")
    )
