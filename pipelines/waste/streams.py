"""Streams that nobody waited for, and answers that were cut off.

Belongs here: the rules on calls whose output did not reach its end. Does not belong here: failed calls (`retries.py`).

    abandoned_stream: the client went away (status cancelled) after output had begun. Tokens and money are those of the
        output, as far as it is logged: a provider that goes on to the end charges more. Some of it may have been read.
    truncated_output: the output ended at its limit (finish reason `length` and its other spellings). Tokens and money
        are those of the output, an upper bound: part of it may be of use. A limit of at most `INTENDED_TOKENS` is meant
        so (one label, one digit) and does not count. A call whose prompt the application sent again is asked again.
"""

from __future__ import annotations

import polars as pl

from pipelines.costs.exact import times
from pipelines.waste.application_rules import Rule, of_requests, where

ABANDONED_SHARE = 0.05
"""People close pages: up to one stream in twenty is no finding."""
TRUNCATED_SHARE = 0.02
INTENDED_TOKENS = 16
TRUNCATED = ("length", "max_tokens", "max_output_tokens", "max_length", "model_length")

_WRITTEN = pl.col("output_tokens") > 0
_OUTPUT_USD = times(pl.col("output_tokens"), pl.col("list_output"))
_ENDS = ", ".join(f"'{reason}'" for reason in TRUNCATED)

ABANDONED = Rule(
    kind="abandoned_stream",
    basis="exact",
    behind=(pl.col("status") == "cancelled") & _WRITTEN,
    among=pl.col("stream") | pl.col("first_token_at").is_not_null() | (pl.col("status") == "cancelled"),
    rows=where("status = 'cancelled' AND output_tokens > 0"),
    tokens=pl.col("output_tokens"),
    usd=_OUTPUT_USD,
    material=of_requests(ABANDONED_SHARE),
)
TRUNCATION = Rule(
    kind="truncated_output",
    basis="upper_bound",
    behind=(
        pl.col("finish_reason").str.to_lowercase().is_in(TRUNCATED)
        & _WRITTEN
        & (pl.col("max_output_tokens").fill_null(INTENDED_TOKENS + 1) > INTENDED_TOKENS)
    ),
    among=pl.col("finish_reason").is_not_null(),
    rows=where(
        f"lower(finish_reason) IN ({_ENDS}) AND output_tokens > 0 "
        f"AND coalesce(max_output_tokens, {INTENDED_TOKENS + 1:d}) > {INTENDED_TOKENS:d}"
    ),
    tokens=pl.col("output_tokens"),
    usd=_OUTPUT_USD,
    material=of_requests(TRUNCATED_SHARE),
)
