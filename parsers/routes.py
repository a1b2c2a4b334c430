"""Routes of the common APIs: which operation a path stands for, and how an address may be shown.

Belongs here: readings of paths and addresses that logs share. Does not belong here: where a log keeps them.
"""

from __future__ import annotations

import polars as pl

_OPERATIONS = (
    (r"/chat/completions|/messages\b|:(?:streamG|g)enerateContent|/converse(?:-stream)?\b", "chat"),
    (r"/responses\b", "responses"),
    (r"/embeddings\b|:(?:batchE|e)mbedContents?", "embedding"),
    (r"/rerank\b", "rerank"),
    (r"/images/|/mj/|/edits\b", "image"),
    (r"/audio/|/realtime\b|/speech\b", "audio"),
    (r"/moderations\b", "moderation"),
    (r"/batches\b", "batch"),
    (r"/completions\b", "completion"),
)
_QUERY_OR_FRAGMENT = r"(?s)[?#].*"
_CREDENTIALS = r"^([^/?#]*//)?[^/?#]*@"
"""To the last @ of the host: passwords have some of their own."""


def operation(path: pl.Expr) -> pl.Expr:
    """The operation (of REQUESTS) of a path; `other` for one that is not known, null for none."""
    result: pl.Expr = pl.when(path.is_not_null()).then(pl.lit("other"))
    for pattern, name in reversed(_OPERATIONS):
        result = pl.when(path.str.contains(pattern)).then(pl.lit(name)).otherwise(result)
    return result


def endpoint(address: pl.Expr) -> pl.Expr:
    """A path or address without credentials, query and fragment: those may hold keys."""
    return address.str.replace(_CREDENTIALS, "${1}").str.replace(_QUERY_OR_FRAGMENT, "")
