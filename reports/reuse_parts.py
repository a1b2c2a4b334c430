"""The parts of audit.json on prompts sent again: causes of missed reads, gaps between uses, histories of sessions.

Belongs here: one function for all three, from the marts' frames to plain values. Does not belong here: sums of repetition
(`audit_parts.py`), how they are shown (`reuse_tables.py`).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from reports.json_values import json_row

SHOWN_SCOPES = 100
"""Of models and teams the document holds those with most tokens; the marts hold all."""
_NAMES = ("model", "team")


def reuse_parts(causes: pl.DataFrame, gaps: pl.DataFrame, history: pl.DataFrame) -> dict[str, Any]:
    """Causes and gaps of the whole log and by scope, and the histories of sessions by scope.

    Args:
        causes: the mart `missed_causes`.
        gaps: the mart `reuse_gaps`.
        history: the mart `session_history`.

    """
    whole = pl.col("scope") == "all"
    all_gaps = pl.col("gap_class") == "all"
    return {
        "causes": {
            "by_cause": _rows(causes.filter(whole).sort("tokens", "cause", descending=[True, False])),
            "by_scope": _rows(_largest(causes.filter(~whole)).sort("scope", "cause")),
        },
        "reuse_gaps": {
            "by_gap": _rows(gaps.filter(whole & ~all_gaps).sort("gap_order")),
            "by_scope": _rows(_largest(gaps.filter(all_gaps)).sort("scope")),
        },
        "session_history": _rows(_largest(history, "input_tokens").sort("scope", "evidence")),
    }


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [json_row(row) for row in frame.drop(*_NAMES).to_dicts()]


def _largest(frame: pl.DataFrame, by: str = "tokens") -> pl.DataFrame:
    """Rows of the scopes with most tokens."""
    sizes = frame.group_by("scope").agg(pl.col(by).sum().alias("size"))
    kept = sizes.sort("size", "scope", descending=[True, False]).head(SHOWN_SCOPES)
    return frame.join(kept.select("scope"), on="scope", how="semi")
