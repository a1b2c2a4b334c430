"""What every stage means by the same words about a call: its model, whether it was served, whose money it is.

Belongs here: single-row expressions over `requests` that several stages must agree on. Does not belong here:
when a call was worked on (`demand/spread.py`), what it costs (`costs/`), what of it is waste (`waste/`).
"""

from __future__ import annotations

import polars as pl

from parsers.records import SERVED_STATUSES

UNKNOWN_MODEL = "unknown"
"""Name of the model of a call that names none."""

NO_OUTPUT = ("embedding", "rerank", "moderation")
"""Operations that write no tokens: an absent count of output is none, not unknown."""


def model_name() -> pl.Expr:
    """Model of a call: the one that answered, else the one asked for, else `unknown`."""
    return pl.coalesce("model_served", "model_requested", pl.lit(UNKNOWN_MODEL)).alias("model")


def is_served() -> pl.Expr:
    """Whether the call came to an end that the client got something from."""
    return pl.col("status").is_in(SERVED_STATUSES)


def reached_a_model() -> pl.Expr:
    """Whether the gateway passed the call on instead of answering from its own response cache."""
    return ~pl.col("response_cache_hit").fill_null(value=False)


def is_demand() -> pl.Expr:
    """Whether an engine or a provider worked on the call to an end that the client got something from."""
    return is_served() & reached_a_model()


def output_tokens() -> pl.Expr:
    """Output tokens; zero for an operation that writes none, null where the count is unknown."""
    writes_none = pl.col("operation").is_in(NO_OUTPUT).fill_null(value=False)
    return (
        pl.when(pl.col("output_tokens").is_null() & writes_none)
        .then(0)
        .otherwise("output_tokens")
        .alias("output_tokens")
    )


def is_in_usd() -> pl.Expr:
    """Whether the reported cost is in USD, as it is where no currency is stated."""
    return pl.col("cost_currency").fill_null("USD").str.to_uppercase() == "USD"
