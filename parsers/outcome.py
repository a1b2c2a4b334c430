"""How a call ended, from what logs say of it: HTTP statuses, hang-ups, classes of errors.

Belongs here: the status of a row from an HTTP status, and the class of an error without its message. Does not
belong here: where a log keeps them (`formats/`), one product's own words (`litellm.py`, `new_api.py`).
"""

from __future__ import annotations

import polars as pl

from parsers.fields import CLASS_NAME

HTTP_FAILED = 400
HTTP_CLOSED = 499
"""nginx's and Envoy's code for a client that hung up."""
_UNANSWERED = 0
"""Envoy's and nginx's code where no answer began: the client hung up first."""


def status(
    http_status: pl.Expr, *, failed: pl.Expr | None = None, cancelled: pl.Expr | None = None
) -> pl.Expr:
    """`ok`, `error` or `cancelled`: from the HTTP status (Int), and from what else shows a failure or a hang-up.

    A row about which neither says anything is `ok`: it was logged as an answer.
    """
    no = pl.lit(value=False)
    gone = http_status.is_in([_UNANSWERED, HTTP_CLOSED]) | (no if cancelled is None else cancelled)
    bad = (http_status >= HTTP_FAILED) | (no if failed is None else failed)
    return (
        pl.when(gone.fill_null(value=False))
        .then(pl.lit("cancelled"))
        .when(bad.fill_null(value=False))
        .then(pl.lit("error"))
        .otherwise(pl.lit("ok"))
    )


def error_kind(raw: pl.Expr, keys: tuple[str, ...] = ("type", "code", "status")) -> pl.Expr:
    """Class of an error: its text if that is a name, or the first name among `keys` of a JSON object.

    `unknown` for an error that is only a message: its words may quote a prompt and are not kept.
    """
    text = raw.str.strip_chars()
    is_error = text.is_not_null() & ~text.is_in(["", "null", "false", "{}", '""', "[]"])
    found = pl.when(text.str.starts_with("{") & text.str.ends_with("}")).then(text)
    named = [text.str.strip_chars('"'), *(found.str.json_path_match(f"$.{key}") for key in keys)]
    return pl.when(is_error).then(
        pl.coalesce(
            [*(pl.when(each.str.contains(CLASS_NAME)).then(each) for each in named), pl.lit("unknown")]
        )
    )
