"""The page's tables on prompts sent again: why they were not read from cache, when they came again, growing histories.

Belongs here: their columns and rows. Does not belong here: cells (`tables.py`), the figures (`reuse_parts.py`).
"""

from __future__ import annotations

from typing import Any

from reports.document_figures import Document
from reports.reuse_strings import REUSE
from reports.tables import Cell, CellKind, Table, count, cut, share_of, text, usd

_READ_WELL = ("read", "in_flight", "below_minimum", "step")
"""Causes that are no miss: the table has the others first."""


def reuse_tables(document: Document) -> dict[str, Table]:
    """All of them by name."""
    return {
        "causes": _causes(document["waste"]["causes"]["by_cause"]),
        "gaps": _gaps(document["waste"]["reuse_gaps"]["by_gap"]),
        "lifetimes": _lifetimes(document["waste"]["reuse_gaps"]["by_scope"]),
        "histories": _histories(document["waste"]["session_history"]),
    }


def _numbers(*heads: str) -> list[tuple[str, CellKind]]:
    return [(REUSE[head], "number") for head in heads]


def _causes(causes: list[dict[str, Any]]) -> Table:
    in_order = sorted(causes, key=lambda row: row["cause"] in _READ_WELL)
    rows = []
    for row in in_order:
        mark = REUSE["estimated_cause"] if row["is_estimate"] else ""
        block = row["differing_block"]
        where = "" if block is None else REUSE["where"].format(block=block, tokens=row["tokens_before"])
        rows.append(
            [
                text(row["cause"].replace("_", " ")),
                count(row["requests"], "missed-cause"),
                count(row["tokens"], "missed-cause", estimate=mark),
                usd(row["usd"], "missed-cause"),
                text(where),
                text(row["advice"], 300),
            ]
        )
    return cut(
        rows,
        REUSE["causes_table"],
        (REUSE["cause"], "text"),
        *_numbers("requests", "tokens", "usd"),
        (REUSE["parts_at"], "text"),
        (REUSE["change"], "text"),
    )


def _gaps(gaps: list[dict[str, Any]]) -> Table:
    rows = [
        [
            text(
                row["gap_class"]
                if row["gap_class"] == "longer"
                else REUSE["up_to"].format(gap=row["gap_class"])
            ),
            count(row["reuses"], "reuse-gap"),
            count(row["tokens"], "reuse-gap"),
            count(row["missed_tokens"], "reuse-gap"),
        ]
        for row in gaps
    ]
    return cut(
        rows, REUSE["gaps_table"], (REUSE["gap"], "text"), *_numbers("requests", "seen_before", "not_read")
    )


def _lifetimes(scopes: list[dict[str, Any]]) -> Table:
    """Only where there is a longer lifetime to choose."""
    rows: list[list[Cell]] = [
        [
            text(row["scope"]),
            count(row["longer_lifetime_tokens"], "longer-lifetime"),
            usd(row["longer_lifetime_usd"], "longer-lifetime"),
            usd(row["keep_warm_usd"], "longer-lifetime", REUSE["pings"]),
        ]
        for row in scopes
        if row["longer_lifetime_tokens"] is not None
    ]
    heads = _numbers("more_read", "longer_usd", "keep_warm_usd")
    return cut(rows, REUSE["lifetimes_table"], (REUSE["scope"], "text"), *heads)


def _histories(scopes: list[dict[str, Any]]) -> Table:
    rows = []
    for row in scopes:
        what_if = REUSE["what_if"].format(assumed=row["assumed"])
        bound = "" if row["evidence"] == "hash_chain" else REUSE["by_counts"]
        rows.append(
            [
                text(row["scope"]),
                count(row["sessions"], "session-history"),
                count(row["growth_tokens_per_turn"], "session-history"),
                share_of(row["resent_ratio"], "session-history", bound),
                count(row["resent_paid_tokens"], "session-history", estimate=bound),
                count(row["window_tokens"], "session-history", estimate=what_if),
                usd(row["window_usd"], "session-history", what_if),
                count(row["compaction_tokens"], "session-history", estimate=what_if),
                usd(row["compaction_usd"], "session-history", what_if),
                usd(row["caching_usd"], "session-history"),
            ]
        )
    heads = ("sessions", "growth", "resent", "resent_paid", "window", "window_usd")
    more = ("compaction", "compaction_usd", "caching_usd")
    return cut(rows, REUSE["histories_table"], (REUSE["scope"], "text"), *_numbers(*heads, *more))
