"""What of a log's texts is kept in rows, though its place is: all but credentials and what is no name.

Belongs here: the one rule for text that becomes part of a row. Does not belong here: which fields are kept at all
(`formats/`), what a credential looks like (`credentials.py`), excerpts of rejected lines (`rejects.py`).

Identifiers, names of models, teams, users and keys, tags and addresses are kept: money and waste are told by them. People
put keys there, too: as user, as tag, in an address. What of such a text looks like a credential gives way to `secret-` and
16 digits of its hash under the site's key: equal ones stay equal, different ones stay different, none can be guessed. So
does, as a whole, a text that is too long for a name, or a sentence where a class of error is to be: it may be a prompt. The
row has the flag `secret_withheld`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from parsers.credentials import SIGNS, redacted
from parsers.records import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from parsers.records import Column, Table

WITHHELD: Final = "secret_withheld"
LONGEST_NAME: Final = 512
"""Characters. The longest names seen are LiteLLM's identifiers of responses: 381, and 435 as a key of records."""
_HASH_DIGITS: Final = 16
_UNTOUCHED: Final = frozenset({"source_format", "source_file", "flags"})
"""Written by parsers, not by who wrote the log."""

_WORD: Final = re.compile(r"[\w.:/+-]*")
_SHAPES: Final = {
    "error_kind": _WORD,
    "finish_reason": _WORD,
    "cost_currency": re.compile(r"\w{1,8}"),
}
"""What products write there is a word; a sentence is a message, which may quote a prompt."""


def without_secrets(rows: pl.DataFrame, table: Table, digest: Callable[[str], str]) -> pl.DataFrame:
    """Rows whose kept texts hold nothing that looks like a credential; those that did have the flag `secret_withheld`.

    Args:
        rows: all columns of `table`, in its types.
        table: one of the record tables.
        digest: keyed hash of a text, in hexadecimal.

    """
    for column in table.columns:
        if _is_foreign(column) and rows[column.name].null_count() < rows.height:
            safe = _safe(_flat(rows[column.name]), digest, shape=_SHAPES.get(column.name))
            if safe:
                rows = _replaced(rows, column, safe)
    return rows


def _is_foreign(column: Column) -> bool:
    return column.dtype in (TEXT, pl.List(TEXT)) and column.allowed is None and column.name not in _UNTOUCHED


def _flat(texts: pl.Series) -> pl.Series:
    return texts.explode(empty_as_null=False) if texts.dtype == pl.List else texts


def _safe(texts: pl.Series, digest: Callable[[str], str], *, shape: re.Pattern[str] | None) -> dict[str, str]:
    """What stands in the place of each text that may not be kept. Few have a sign of that; no other is looked at closely."""

    def stand_in(secret: str) -> str:
        return f"secret-{digest(secret)[:_HASH_DIGITS]}"

    def safe(text: str) -> str:
        is_name = len(text) <= LONGEST_NAME and (shape is None or shape.fullmatch(text))
        return redacted(text, stand_in) if is_name else stand_in(text)

    if shape:
        doubtful = texts.unique()
    else:
        has_sign = texts.str.contains_any(SIGNS, ascii_case_insensitive=True)
        doubtful = texts.filter(has_sign | (texts.str.len_bytes() > LONGEST_NAME)).unique()
    return {text: kept for text in doubtful.drop_nulls() if (kept := safe(text)) != text}


def _replaced(rows: pl.DataFrame, column: Column, safe: Mapping[str, str]) -> pl.DataFrame:
    old, new = list(safe), list(safe.values())
    value = pl.col(column.name)
    if isinstance(column.dtype, pl.List):
        holds, kept = (
            value.list.eval(pl.element().is_in(old)).list.any(),
            value.list.eval(pl.element().replace(old, new)),
        )
    else:
        holds, kept = value.is_in(old), value.replace(old, new)
    flags = pl.col("flags").fill_null([])
    marked = pl.when(holds & ~flags.list.contains(WITHHELD)).then(flags.list.concat(pl.lit([WITHHELD])))
    return rows.with_columns(kept, marked.otherwise(pl.col("flags")).alias("flags"))
