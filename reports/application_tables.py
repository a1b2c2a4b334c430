"""The page's tables on applications and tasks.

Belongs here: their columns and rows. Does not belong here: cells (`tables.py`), the figures (`application_parts.py`).
"""

from __future__ import annotations

from typing import Any

from reports.application_strings import APPLICATIONS
from reports.document_figures import Document
from reports.numbers import short
from reports.tables import Cell, CellKind, Table, count, cut, share_of, text, usd


def application_tables(document: Document) -> dict[str, Table]:
    """All of them by name."""
    waste = document["waste"]
    return {
        "applications": _waste(waste["applications"]["by_kind"]),
        "oversize": _oversize(waste["oversize"]["by_rule"]),
        "kv_held": _held(waste["kv_held"]),
        "ttft_by_input": _ttft(waste["ttft_by_input"]),
        "tasks": _tasks(document["tasks"]["by_scope"]),
    }


def tasks_note(document: Document) -> str:
    """What a forecast by chat turns gives for the whole log; empty where none can be made."""
    sums = document["tasks"]["forecast"]
    if sums["forecast_error"] is None:
        return ""
    return APPLICATIONS["tasks_note"].format(
        turn=short(sums["chat_turn_tokens"], "tokens"),
        forecast=short(sums["forecast_tokens"], "tokens"),
        real=short(sums["tokens"], "tokens"),
        error=signed_percent(sums["forecast_error"]),
    )


def signed_percent(ratio: float) -> str:
    """An error as a signed percentage: -99.9 %."""
    return f"{100 * ratio:+.3g} %"


def _numbers(*heads: str) -> list[tuple[str, CellKind]]:
    return [(APPLICATIONS[head], "number") for head in heads]


def _waste(kinds: dict[str, dict[str, Any]]) -> Table:
    rows: list[list[Cell]] = []
    for kind, row in kinds.items():
        mark = APPLICATIONS.get(str(row["basis"]), "")
        rows.append(
            [
                text(kind.replace("_", " ")),
                count(row["scopes"], "application-waste"),
                count(row["findings"], "application-waste"),
                count(row["requests"], "application-waste"),
                count(row["tokens"], "application-waste"),
                usd(row["usd"], "application-waste", mark),
            ]
        )
    heads = _numbers("applications", "findings", "calls", "tokens", "usd")
    return cut(rows, APPLICATIONS["waste_table"], (APPLICATIONS["kind"], "text"), *heads)


def _oversize(by_rule: dict[str, dict[str, Any]]) -> Table:
    rows = [
        [
            text(rule.replace("_", " ")),
            count(row["requests"], "oversize"),
            count(row["input_tokens"], "oversize"),
            count(row["excess_tokens"], "oversize"),
            usd(row["excess_usd"], "oversize"),
            count(row["excess_kv_token_seconds"], "oversize", estimate=APPLICATIONS["oversize_estimate"]),
            count(row["excess_ttft_s"], "oversize", "s", estimate=APPLICATIONS["oversize_estimate"]),
        ]
        for rule, row in by_rule.items()
    ]
    heads = _numbers("calls", "input", "excess", "usd", "excess_kv", "excess_ttft")
    return cut(rows, APPLICATIONS["oversize_table"], (APPLICATIONS["rule"], "text"), *heads)


def _held(held: list[dict[str, Any]]) -> Table:
    mark = APPLICATIONS["held_estimate"]
    rows = [
        [
            text(str(row["scope"])),
            count(row["requests"], "kv-held"),
            share_of(row["requests_share"], "kv-held"),
            share_of(row["kv_share"], "kv-held", mark),
            count(row["mean_kv_tokens"], "kv-held", estimate=mark),
        ]
        for row in held
    ]
    heads = _numbers("calls", "share_of_calls", "share_of_kv", "mean_kv")
    return cut(rows, APPLICATIONS["held_table"], (APPLICATIONS["scope"], "text"), *heads)


def _ttft(lines: list[dict[str, Any]]) -> Table:
    names = ("ms_per_1k_tokens", "ms_per_1k_tokens_low", "ms_per_1k_tokens_high", "intercept_ms")
    rows = [
        [
            text(str(row["model"])),
            count(row["requests"], "ttft-by-input"),
            *(count(row[name], "ttft-by-input", "ms") for name in names),
        ]
        for row in lines
    ]
    heads = _numbers("calls", "slope", "low", "high", "at_none")
    return cut(rows, APPLICATIONS["ttft_table"], (APPLICATIONS["model"], "text"), *heads)


def _tasks(scopes: list[dict[str, Any]]) -> Table:
    """The largest first; a task of one call needs no forecast of tasks."""
    sessions = [row for row in scopes if row["task_class"] != "single"]
    names = ("calls_p50", "tokens_p50", "tokens_p90", "tokens_p99", "tokens_mean", "chat_turn_tokens")
    rows = []
    for row in sorted(sessions, key=lambda row: -row["tokens"]):
        error = row["forecast_error"]
        told = "" if error is None else signed_percent(error)
        rows.append(
            [
                text(str(row["scope"])),
                text(str(row["task_class"])),
                count(row["tasks"], "task-demand"),
                *(count(row[name], "task-demand") for name in names),
                Cell(told, told, "task-demand"),
            ]
        )
    heads = _numbers("tasks", "calls_p50", "p50", "p90", "p99", "mean", "turn", "error")
    columns: list[tuple[str, CellKind]] = [(APPLICATIONS["scope"], "text"), (APPLICATIONS["class"], "text")]
    return cut(rows, APPLICATIONS["tasks_table"], *columns, *heads)
