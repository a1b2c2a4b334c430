"""Durations as Go and Rust print them: `1.207305s`, `566.1µs`, `4m54s`, `1h2m3.5s`.

Belongs here: reading them as milliseconds. Does not belong here: numbers whose unit is in the field's name.
"""

from __future__ import annotations

import polars as pl

PATTERN = r"(?:\d+(?:\.\d+)?(?:h|ms|m|s|µs|μs|us|ns))+"
"""A duration, for use in other patterns."""
_MS = {"h": 3_600_000.0, "m": 60_000.0, "s": 1_000.0, "ms": 1.0, "(?:µ|μ|u)s": 1e-3, "ns": 1e-6}


def milliseconds(text: pl.Expr) -> pl.Expr:
    """Milliseconds (Float64) of a duration; null for any other text."""
    parts = [
        text.str.extract(rf"(\d+(?:\.\d+)?){unit}(?:\d|$)", 1).cast(pl.Float64, strict=False) * factor
        for unit, factor in _MS.items()
    ]
    return pl.when(text.str.contains(rf"^{PATTERN}$")).then(pl.sum_horizontal(parts).round(6))


def span(ms: pl.Expr) -> pl.Expr:
    """Milliseconds as a Duration, to the microsecond."""
    return (ms * 1000).round().cast(pl.Int64, strict=False).cast(pl.Duration("us"))
