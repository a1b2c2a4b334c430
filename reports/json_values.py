"""How a value of a mart becomes a value of audit.json: integers, decimal strings, ratios, instants, or null.

Belongs here: the four conversions and the sums that keep null apart from zero. Does not belong here: which
keys the document has (`audit_json.py`).
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import polars as pl


def money_text(value: Decimal | None) -> str | None:
    """Money as a decimal string, every digit kept, trailing zeros dropped: `61300`, `0.000012`."""
    if value is None:
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def instant_text(value: datetime | None) -> str | None:
    """An instant as ISO 8601 in UTC with Z."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def real(value: float | None) -> float | None:
    """A finite number, or null."""
    return None if value is None or not math.isfinite(value) else float(value)


def ratio(value: float | None) -> float | None:
    """A ratio in 0..1; null where it is unknown or lies outside, which only a wrong denominator can cause."""
    known = real(value)
    return known if known is not None and 0 <= known <= 1 else None


def known_sum(column: str) -> pl.Expr:
    """Sum of the known values of a column; null (unknown) where none is known. Polars alone would say 0."""
    value = pl.col(column)
    return pl.when(value.count() > 0).then(value.sum()).otherwise(None).alias(column)


def weighted_mean(column: str, weight: str) -> pl.Expr:
    """Mean of the known values of a column by weight; null where no known value has weight."""
    value, by = pl.col(column), pl.col(weight).filter(pl.col(column).is_not_null())
    return pl.when(by.sum() > 0).then((value * pl.col(weight)).sum() / by.sum()).otherwise(None).alias(column)


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a mart with each value as audit.json writes it, by its type; names are kept.

    Columns named `*_ratio` are held to 0..1; means of tokens, named `*_tokens` as counts are, are rounded to one.
    """

    def value_of(name: str, value: Any) -> Any:
        if name.endswith("_ratio"):
            return ratio(value)
        known = json_value(value)
        return round(known) if name.endswith("_tokens") and isinstance(known, float) else known

    return {name: value_of(name, value) for name, value in row.items()}


def json_value(value: Any) -> Any:
    """A value as JSON holds it: money as a decimal string, instants with Z, days as ISO 8601."""
    match value:
        case Decimal():
            return money_text(value)
        case datetime():
            return instant_text(value)
        case date():
            return value.isoformat()
        case float():
            return real(value)
        case _:
            return value
