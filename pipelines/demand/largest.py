"""Which models have curves, peaks and sizing of their own.

Belongs here: the rule, and the name of all the others together. Does not belong here: the curves (`scopes.py`), the
sizing.

A log may hold any number of model names (one per fine-tune, per prompt, or made up), and each would have a row for every
minute. Those with little load decide nothing; together nothing of them is lost.
"""

from __future__ import annotations

import polars as pl

MOST_MODELS = 64
OTHER_MODELS = "other models"
"""Scope and pool of all beyond these."""


def largest_models(calls: pl.LazyFrame) -> list[str]:
    """The models with most tokens, or all where they are few; among equals those with most calls, then by name.

    Args:
        calls: `model`, `input_tokens`, `output_tokens`.

    """
    tokens = pl.col("input_tokens").sum() + pl.col("output_tokens").sum()
    sums = calls.group_by("model").agg(tokens=tokens, calls=pl.len())
    ranked = sums.sort("tokens", "calls", "model", descending=[True, True, False])
    return ranked.head(MOST_MODELS).collect()["model"].to_list()
