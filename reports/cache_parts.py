"""Cache curves in audit.json.

Belongs here: rows of the mart `cache_curve` as plain values. Does not belong here: how they are shown (`cache_curves.py`).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from reports.json_values import json_row

_POINT = (
    "scope", "capacity_tokens", "capacity_blocks", "capacity_bytes", "mark", "block_hit_ratio",
    "block_hit_ratio_error", "token_hit_ratio", "is_sampled", "basis",
)  # fmt: skip
_REPLICAS = (
    *_POINT, "replicas", "routing", "total_capacity_tokens", "total_capacity_bytes", "busiest_replica_ratio",
)  # fmt: skip


def cache_parts(curve: pl.DataFrame) -> dict[str, Any]:
    """Keys `cache_curve` (one replica, each scope) and `cache_curve_replicas` (several) of audit.json's waste."""
    # A mart of an older build does not say how many replicas it is of: it is of one.
    several = pl.col("replicas").fill_null(1) > 1
    alone, together = curve.filter(~several), curve.filter(several)
    return {
        "cache_curve": _points(alone.select(_POINT).sort("scope", "capacity_blocks")),
        "cache_curve_replicas": _points(
            together.select(_REPLICAS).sort("scope", "replicas", "routing", "capacity_blocks")
        ),
    }


def _points(rows: pl.DataFrame) -> list[dict[str, Any]]:
    return [json_row(row) for row in rows.to_dicts()]
