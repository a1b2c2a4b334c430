"""The table of findings: what each saves net of those before it, and for whom.

Belongs here: its columns and cells. Does not belong here: the findings in words (`templates/waste.html.j2`), their sums
(`finding_parts.py`).
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reports.finding_parts import net_usd
from reports.numbers import money
from reports.page_strings import PAGE
from reports.tables import Cell, CellKind, Table, count, cut, text, usd

if TYPE_CHECKING:
    from reports.document_figures import Document

_DEFINITION = "net-savings"
_WORDS = ("kind", "model", "team", "application")
_OPTIONAL = ("application", "gpu_seconds", "replicas")
COLUMNS = MappingProxyType(
    {
        "rank": "#",
        "kind": "finding",
        "model": "model",
        "team": "team",
        "application": "application",
        "requests": "calls",
        "tokens_net": "tokens, net",
        "usd_net": "USD, net",
        "usd": "USD alone",
        "gpu_seconds": "GPU-seconds",
        "replicas": "replicas",
        "application_order": "step",
    }
)
"""Columns of the table, in order."""


def savings_table(document: Document) -> Table:
    """Findings with their net savings; columns of which nothing is known (no hardware of one's own) are left out."""
    findings = document["findings"]
    shown = [
        name
        for name in COLUMNS
        if name not in _OPTIONAL or any(found[name] is not None for found in findings)
    ]
    rows = []
    for rank, found in enumerate(findings, start=1):
        cells = _cells(rank, found)
        rows.append([cells[name] for name in shown])
    columns: list[tuple[str, CellKind]] = [
        (COLUMNS[name], "text" if name in _WORDS else "number") for name in shown
    ]
    return cut(rows, PAGE["savings_table"], *columns)


def savings_note(document: Document) -> str:
    """How to read net figures, with their sum."""
    unknown = document["waste"]["savings"]["findings_usd_unknown"]
    left = PAGE["savings_left"].format(count=unknown) if unknown else ""
    return PAGE["savings_note"].format(usd=money(net_usd(document)), left=left)


def _cells(rank: int, found: dict[str, Any]) -> dict[str, Cell]:
    modelled = "" if found["capacity_basis"] is None else PAGE["savings_modelled"]
    return {
        "rank": count(rank, ""),
        "kind": text(found["kind"].replace("_", " ")),
        **{name: text(found[name] or "", 40) for name in ("model", "team", "application")},
        "requests": count(found["requests"], "finding"),
        "tokens_net": count(found["tokens_net"], _DEFINITION),
        "usd_net": usd(found["usd_net"], _DEFINITION),
        "usd": usd(found["usd"], "finding"),
        "gpu_seconds": count(found["gpu_seconds"], "gpu-seconds", estimate=modelled),
        "replicas": count(found["replicas"], "replicas-freed", estimate=modelled),
        "application_order": count(found["application_order"], _DEFINITION),
    }
