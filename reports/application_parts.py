"""The parts of audit.json on applications and tasks.

Belongs here: one function per key, from the marts' frames to plain values. Does not belong here: the other parts of waste
(`audit_parts.py`), how they are shown (`application_tables.py`, `application_strings.py`).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from reports.json_values import json_row, known_sum

SHOWN_APPLICATIONS = 100
"""Of lengths, limits and KV cache the document holds the applications with most calls; the marts hold all."""


def application_parts(
    waste: pl.DataFrame, limits: pl.DataFrame, held: pl.DataFrame, ttft: pl.DataFrame
) -> dict[str, Any]:
    """Waste by application, lengths and limits of outputs, KV cache held, and what input costs in TTFT."""
    return {
        "applications": {
            "by_kind": {row.pop("kind"): json_row(row) for row in _by_kind(waste).to_dicts()},
            "by_scope": [json_row(row) for row in waste.sort("kind", "scope").to_dicts()],
        },
        "output_limits": _largest(limits, "requests"),
        "kv_held": _largest(held, "kv_token_seconds"),
        "ttft_by_input": [json_row(row) for row in ttft.sort("model").to_dicts()],
    }


def _by_kind(waste: pl.DataFrame) -> pl.DataFrame:
    """Sums of what passed its threshold, and how many applications did; kinds that never did have zeros."""
    found = pl.col("is_finding")
    amounts = [known_sum(name).alias(name) for name in ("tokens", "usd")]
    passed = waste.filter(found).group_by("kind").agg(pl.col("requests").sum(), *amounts)
    counts = waste.group_by("kind").agg(
        pl.col("basis").first(), pl.len().alias("scopes"), found.sum().alias("findings")
    )
    return (
        counts.join(passed, on="kind", how="left").with_columns(pl.col("requests").fill_null(0)).sort("kind")
    )


def _largest(frame: pl.DataFrame, by: str) -> list[dict[str, Any]]:
    rows = frame.sort([by, "scope"], descending=[True, False], nulls_last=True).head(SHOWN_APPLICATIONS)
    return [json_row(row) for row in rows.to_dicts()]


def tasks_part(tasks: pl.DataFrame) -> dict[str, Any]:
    """Tokens of tasks, and how wrong it is to forecast them by chat turns.

    `forecast` is over all classes of the whole log: the classes of `by_scope` add up to it.
    """
    whole = tasks.filter(pl.col("scope") == "all")
    names = ("tasks", "calls", "tokens", "forecast_tokens")
    sums = whole.select(known_sum(name) for name in names).row(0, named=True)
    real_tokens, forecast = sums["tokens"], sums["forecast_tokens"]
    error = (forecast - real_tokens) / real_tokens if forecast is not None and real_tokens else None
    turn = whole["chat_turn_tokens"].drop_nulls().first() if whole.height else None
    return {
        "forecast": json_row({**sums, "chat_turn_tokens": turn, "forecast_error": error}),
        "by_scope": [json_row(row) for row in tasks.sort("scope", "task_class").to_dicts()],
    }
