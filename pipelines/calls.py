"""What every stage means by the same words about a call: its model, whether it was served, whose money it is.

Belongs here: single-row expressions over `requests` that several stages must agree on. Does not belong here:
when a call was worked on (`demand/spread.py`), what it costs (`costs/`), what of it is waste (`waste/`).
"""

from __future__ import annotations

import polars as pl

from parsers.records import SERVED_STATUSES

UNKNOWN_MODEL = "unknown"
"""Name of the model of a call that names none."""

_OVERLOADED = 529
_MAY_BE_BILLED = (400, 408, 499)
_OVERLOAD_STATUSES = (408, 429)
_SERVER_ERRORS = 500
_NOT_FOR_CAPACITY = (
    r"(?i)invalid|bad.?request|authenti|permission|forbidden|not.?found|unsupported|validation"
    r"|context.?(length|window)|content.?(policy|filter)|budget"
)
_TURNED_AWAY = r"(?i)rate.?limit|too.?many.?requests|overloaded"

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


def was_turned_away() -> pl.Expr:
    """Whether the provider refused a failed call before it worked on it: 401, 403, 429, 529 and the like.

    Without a status, an error named after a rate limit or an overload. Providers charge nothing for these, whatever
    a gateway computed. A time-out, a hang-up and a 400 (Azure bills prompts that its filter refuses) may be billed.
    """
    status = pl.col("http_status")
    by_status = (status.is_between(400, 499) & ~status.is_in(_MAY_BE_BILLED)) | (status == _OVERLOADED)
    refused = pl.coalesce(by_status, pl.col("error_kind").str.contains(_TURNED_AWAY)).fill_null(value=False)
    return (pl.col("status") == "error") & refused


def failed_for_capacity() -> pl.Expr:
    """Whether a call failed because the service could not take it or did not answer: 408, 429, 5xx.

    Without a status, any failure but one whose name says that the call itself was at fault.
    """
    status = pl.col("http_status")
    unnamed = status.is_null() & ~pl.col("error_kind").fill_null("").str.contains(_NOT_FOR_CAPACITY)
    by_status = (status.is_in(_OVERLOAD_STATUSES) | (status >= _SERVER_ERRORS)).fill_null(value=False)
    return (pl.col("status") == "error") & (by_status | unnamed)


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
