"""The tables of the options and of what flips the choice.

Belongs here: their columns, the order and number of rows, the reasons. Does not belong here: what a cell is
(`tables.py`), ranking (the sizing stage).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from reports.document_figures import Document
from reports.numbers import exact, latency, printable
from reports.options_charts import full_name, yes_no
from reports.page_strings import ESTIMATE, PAGE
from reports.sensitivity import flips
from reports.strings import UNKNOWN
from reports.tables import Cell, CellKind, Table, count, cut, share_of, text, usd

SHOWN_OPTIONS = 12


def options_table(document: Document, scenario: Literal["as_is", "waste_removed"]) -> Table:
    """Options by pool and rank: the best of each pool, and what runs today."""
    options = document["sizing"][scenario]["options"]
    pools = len({option["pool"] for option in options})
    shown = [o for o in options if o["rank"] <= SHOWN_OPTIONS or o["is_today"] or o["is_choice"]]
    mark = ESTIMATE["option"]
    rows = []
    for option in shown:
        marks = ", ".join(PAGE[name] for name in ("choice", "today") if option[f"is_{name}"])
        name = full_name(option, pools)
        rows.append(
            [
                Cell(f"{name} ({marks})" if marks else name),
                usd(option["usd_per_month"], "option-cost"),
                usd(option["usd_per_mtok"], "option-cost"),
                Cell(yes_no(option["meets_slo"]) or UNKNOWN, definition="slo"),
                count(option["power_kw"], "option-cost", estimate=mark),
                share_of(option["peak_utilisation"], "utilisation", mark),
                _interval(option["ttft_ms"], mark),
                _interval(option["tpot_ms"], mark),
            ]
        )
    heads = ("kw", "load", "ttft", "tpot")
    numbers: list[tuple[str, CellKind]] = [(PAGE[head], "number") for head in heads]
    table = cut(
        rows,
        PAGE[f"{scenario}_table"],
        ("option", "text"),
        ("USD/month", "number"),
        ("USD/Mtok", "number"),
        (PAGE["slo"], "number"),
        *numbers,
        limit=200,
    )
    return Table(table.title, table.columns, table.rows, len(options) - len(table.rows))


def option_reasons(document: Document, *, marked: bool) -> list[tuple[str, list[str]]]:
    """Reasons of the options of the load as it is: of the recommended ones and today's, or of the others."""
    options = document["sizing"]["as_is"]["options"]
    pools = len({option["pool"] for option in options})
    shown = [
        option
        for option in options
        if (option["is_today"] or option["is_choice"]) == marked
        and (marked or option["rank"] <= SHOWN_OPTIONS)
    ]
    return [
        (full_name(option, pools), [printable(reason, 400) for reason in option["reasons"]])
        for option in shown
        if option["reasons"]
    ]


def _interval(figures: Mapping[str, float | None], mark: str) -> Cell:
    if figures["p95"] is None:
        return Cell(UNKNOWN, definition="latency")
    low, high, expected = (latency(figures[key]) for key in ("low", "high", "p95"))
    told = exact(figures["p95"], "ms")
    if figures["low"] == figures["high"]:
        # No interval: it was observed.
        return Cell(expected, told, "latency")
    unit = expected.rpartition(" ")[2]
    if unit == low.rpartition(" ")[2] == high.rpartition(" ")[2]:
        bare = [part.removesuffix(f" {unit}") for part in (expected, low, high)]
        return Cell(f"{bare[0]} ({bare[1]} .. {bare[2]}) {unit}", told, "latency", mark)
    return Cell(f"{expected} ({low} .. {high})", told, "latency", mark)


def flips_table(document: Document) -> Table:
    """What flips the choice."""
    rows = [
        [
            text(flip.what),
            share_of(flip.size, "utilisation") if flip.size is not None else Cell("–"),
            text(flip.then, 200),
        ]
        for flip in flips(document)
    ]
    return cut(
        rows,
        PAGE["flips_table"],
        (PAGE["lever"], "text"),
        (PAGE["flips_at"], "number"),
        (PAGE["consequence"], "text"),
    )
