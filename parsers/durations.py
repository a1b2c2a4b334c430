"""Durations: as Go and Rust print them (`1.207305s`, `566.1µs`, `4m54s`, `1h2m3.5s`), and as spans between instants.

Belongs here: reading such text as milliseconds, and the one way from milliseconds to a Duration. Does not belong
here: numbers whose unit is in the field's name (`fields.py`).
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl

PATTERN = r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|µs|μs|us|ns))+"
"""A duration, for use in other patterns."""
MAX_SPAN_MS = 366 * 86_400_000
"""No call lasts longer; a longer span is a wrong number, and overflows instants."""
_NONE = pl.lit(timedelta(0), pl.Duration("us"))
_MS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1_000.0, "ms": 1.0, "(?:µ|μ|u)s": 1e-3, "ns": 1e-6}


def milliseconds(text: pl.Expr) -> pl.Expr:
    """Milliseconds (Float64) of a duration; null for any other text."""
    parts = [
        text.str.extract(rf"(\d+(?:\.\d+)?){unit}(?:\d|$)", 1).cast(pl.Float64, strict=False) * factor
        for unit, factor in _MS.items()
    ]
    return pl.when(text.str.contains(rf"^{PATTERN}$")).then(pl.sum_horizontal(parts).round(6))


def span(ms: pl.Expr) -> pl.Expr:
    """Milliseconds (any number) as a Duration, to the microsecond; null where they are no span, see MAX_SPAN_MS."""
    usable = pl.when(ms.is_between(-MAX_SPAN_MS, MAX_SPAN_MS)).then(ms.cast(pl.Float64))
    return (usable * 1000).round().cast(pl.Int64).cast(pl.Duration("us"))


def before(ended: pl.Expr, ms: pl.Expr) -> pl.Expr:
    """The instant at which what ended after so many milliseconds began: the end itself where they are unknown."""
    return ended - span(ms.clip(lower_bound=0)).fill_null(_NONE)
