"""The tables of the page: rows of the document laid out as cells, each number with its definition.

Belongs here: which columns a table has, in which order, how many rows are shown. Does not belong here: HTML
(`templates/`), how a number is written (`numbers.py`), the options (`options_tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from reports.audit_json import NO_TEAM, AuditInputs
from reports.audit_parts import NO_KEY
from reports.document_figures import Document, site_zone
from reports.money_charts import model_name
from reports.numbers import (
    duration,
    exact,
    instant,
    money,
    money_exact,
    percent,
    percent_exact,
    printable,
    short,
    zone_of,
)
from reports.page_strings import ESTIMATE, PAGE
from reports.strings import SUMS, UNKNOWN

SHOWN_ROWS = 50
CellKind = Literal["text", "number"]


@dataclass(frozen=True, slots=True)
class Cell:
    """What a cell shows, its exact value (a tooltip), its definition and, where it is an estimate, why."""

    text: str
    exact: str = ""
    definition: str = ""
    estimate: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table: columns (label, kind), rows of cells, and how many rows are left out."""

    title: str
    columns: tuple[tuple[str, CellKind], ...]
    rows: list[list[Cell]] = field(default_factory=list)
    left: int = 0


def text(value: str | None, limit: int = 80) -> Cell:
    """A cell with words."""
    return Cell(UNKNOWN if value is None else printable(value, limit))


def count(value: float | None, definition: str, unit: str = "", estimate: str = "") -> Cell:
    """A cell with a quantity in three digits."""
    return Cell(short(value, unit), exact(value, unit), definition, estimate if value is not None else "")


def usd(value: str | Decimal | None, definition: str = "cost", estimate: str = "") -> Cell:
    """A cell with money."""
    return Cell(money(value), money_exact(value), definition, estimate if value is not None else "")


def share_of(value: float | None, definition: str, estimate: str = "") -> Cell:
    """A cell with a ratio as per cent."""
    return Cell(percent(value), percent_exact(value), definition, estimate if value is not None else "")


def cut(rows: list[list[Cell]], title: str, *columns: tuple[str, CellKind], limit: int = SHOWN_ROWS) -> Table:
    """A table of the first rows; how many are left out it says."""
    return Table(title, columns, rows[:limit], max(0, len(rows) - limit))


_USAGE = (
    ("input", "input"),
    ("uncached_input", "uncached-input"),
    ("cache_read", "cache-read"),
    ("cache_write", "cache-write"),
    ("output", "output"),
    ("reasoning", "reasoning"),
)


def tokens_table(document: Document) -> Table:
    """Tokens of served calls by class."""
    tokens = document["tokens"]
    partial = ESTIMATE["cache_unknown"] if tokens["requests_cache_unknown"] else ""
    rows = [
        [text(PAGE[key]), count(tokens[key], anchor, estimate=partial if key == "uncached_input" else "")]
        for key, anchor in _USAGE
    ]
    return cut(rows, PAGE["tokens_table"], (PAGE["measure"], "text"), (PAGE["tokens"], "number"))


def peaks_table(document: Document, *, of_all: bool) -> Table:
    """Peaks of all calls, or of each model."""
    zone = zone_of(site_zone(document))
    chosen = [row for row in document["peaks"] if (row["scope"] == "all") == of_all]
    rows = []
    for row in chosen:
        assumed = row["assumed_ratio"]
        mark = ESTIMATE["assumed"].format(share=percent(assumed)) if assumed else ""
        cells = [
            text(row["measure"].replace("_", " ")),
            Cell(duration(row["window_s"])),
            count(row["value"], "peak", estimate=mark),
            count(row["per_s"], "peak") if row["per_s"] is not None else Cell("–"),
            Cell(instant(row["start"], zone)),
        ]
        rows.append(cells if of_all else [text(row["scope"], 60), *cells])
    head: tuple[tuple[str, CellKind], ...] = (
        (PAGE["measure"], "text"),
        (PAGE["window_s"], "number"),
        (PAGE["value"], "number"),
        (PAGE["per_s"], "number"),
        (PAGE["start"], "number"),
    )
    if of_all:
        return cut(rows, PAGE["peaks_table"], *head)
    return cut(rows, PAGE["peaks_other"], (PAGE["scope"], "text"), *head, limit=200)


def sums_table(document: Document) -> Table:
    """What sources sum, by source, provider and model."""
    rows = [
        [text(row["source"], 40), text(row["provider"], 40), text(row["model"], 60), *_sums_cells(row)]
        for row in document["usage_buckets"]["by_model"]
    ]
    head: tuple[tuple[str, CellKind], ...] = (
        (PAGE["stated_by"], "text"),
        (PAGE["provider"], "text"),
        (PAGE["model"], "text"),
    )
    return cut(rows, SUMS["table"], *head, *_SUMS_HEAD)


def sums_by_day_table(document: Document) -> Table:
    """What sources sum, by source and UTC day."""
    rows = [
        [text(row["source"], 40), Cell(row["day"]), *_sums_cells(row)]
        for row in document["usage_buckets"]["by_day"]
    ]
    return cut(rows, SUMS["days_table"], (PAGE["stated_by"], "text"), (PAGE["day"], "number"), *_SUMS_HEAD)


_SUMS_HEAD: tuple[tuple[str, CellKind], ...] = (
    (PAGE["requests"], "number"),
    (PAGE["input"], "number"),
    (PAGE["cache_read"], "number"),
    (PAGE["output"], "number"),
    (PAGE["costs"], "number"),
)


def _sums_cells(row: Mapping[str, Any]) -> list[Cell]:
    costs = ", ".join(money_exact(amount, printable(name, 10)) for name, amount in row["costs"].items())
    return [
        count(row["requests"], "requests"),
        count(row["input"], "input"),
        count(row["cache_read"], "cache-read"),
        count(row["output"], "output"),
        Cell(costs or UNKNOWN),
    ]


def against_sums_table(document: Document) -> Table:
    """What calls say beside what sources sum: calls, sums, difference, for each measure that both know."""
    rows = []
    for row in document["reconciliation"]:
        source = SUMS["from_engines"] if row["source"] == "engines" else row["source"]
        model = SUMS["all_models"] if row["model"] is None else row["model"]
        for measure in ("requests", "input", "output", "cost_usd"):
            compared = row[measure]
            if compared["difference"] is None:
                continue
            is_money = measure == "cost_usd"
            values = [compared[key] for key in ("calls", "sums", "difference")]
            rows.append(
                [
                    text(source, 40),
                    text(model, 60),
                    Cell(PAGE["money"] if is_money else PAGE[measure]),
                    *(Cell(money_exact(value) if is_money else exact(value)) for value in values),
                    Cell(percent(compared["ratio"])),
                    Cell(f"{exact(row['hours_with_calls'])} / {exact(row['hours'])}"),
                ]
            )
    return cut(
        rows,
        SUMS["against_table"],
        (PAGE["stated_by"], "text"),
        (PAGE["model"], "text"),
        (PAGE["measure"], "text"),
        (PAGE["calls"], "number"),
        (PAGE["sums"], "number"),
        (PAGE["difference"], "number"),
        (PAGE["covered"], "number"),
        (PAGE["hours_with_calls"], "number"),
    )


def evidence_table(document: Document) -> Table:
    """Calls and input by the evidence there is on what was sent before."""
    rows = [
        [text(level), count(row["requests"], "evidence"), count(row["input_tokens"], "evidence")]
        for level, row in document["waste"]["prefix"]["evidence"].items()
    ]
    return cut(
        rows,
        PAGE["evidence_table"],
        (PAGE["evidence"], "text"),
        (PAGE["calls"], "number"),
        (PAGE["input"], "number"),
    )


def prefix_figures(document: Document) -> list[tuple[str, Cell]]:
    """The figures on repeated prefixes, each with its name."""
    prefix = document["waste"]["prefix"]
    return [
        ("seen before", count(prefix["seen_before_tokens"], "seen-before", "tokens")),
        ("read from cache", count(prefix["cache_read_tokens"], "cache-read", "tokens")),
        ("missed", count(prefix["missed_tokens"], "missed", "tokens")),
        ("missed", usd(prefix["missed_usd"], "missed")),
        ("token hit ratio", share_of(prefix["token_hit_ratio"], "seen-before")),
        ("block hit ratio", share_of(prefix["block_hit_ratio"], "cache-curve")),
        ("from sessions", count(prefix["upper_bound_tokens"], "evidence", "tokens", ESTIMATE["bound"])),
    ]


def retries_table(document: Document) -> Table:
    """Failed attempts by kind of error."""
    rows = [
        [
            text(kind),
            *(
                count(row[key], "retries")
                for key in ("attempts", "calls", "recovered_calls", "billed_tokens")
            ),
            count(row["estimated_tokens"], "failed-estimated", estimate=ESTIMATE["failed"]),
            usd(row["cost_usd"], "retries"),
        ]
        for kind, row in document["waste"]["retries"]["by_error_kind"].items()
    ]
    heads = ("attempts", "calls", "recovered", "billed", "estimated", "money")
    numbers: list[tuple[str, CellKind]] = [(PAGE[head], "number") for head in heads]
    return cut(rows, PAGE["retries_table"], (PAGE["error_kind"], "text"), *numbers)


def pools_table(document: Document) -> Table:
    """Efficiency by pool."""
    rows = []
    for entry in document["efficiency"]:
        mark = "" if entry["power_source"] == "measured" else ESTIMATE["modelled_power"]
        rows.append(
            [
                text(entry["scope"].removeprefix("pool:")),
                count(entry["accelerators"], "mfu"),
                share_of(entry["mfu_busy"], "mfu"),
                share_of(entry["mfu_wall"], "mfu"),
                share_of(entry["mbu_busy"], "mbu"),
                share_of(entry["mbu_wall"], "mbu"),
                share_of(entry["busy_ratio"], "mfu"),
                count(entry["tokens_per_s"], "rate"),
                count(entry["tokens_per_j"], "tokens-per-joule", estimate=mark),
                count(entry["power_w_mean"], "power", "W", mark),
            ]
        )
    numbers: list[tuple[str, CellKind]] = [
        (label, "number")
        for label in (
            PAGE["accelerators"],
            "MFU busy",
            "MFU wall",
            "MBU busy",
            "MBU wall",
            PAGE["busy"],
            PAGE["output_rate"],
            "output tok/J",
            PAGE["power"],
        )
    ]
    return cut(rows, PAGE["pools_table"], (PAGE["scope"], "text"), *numbers)


def who_table(document: Document, who: Literal["team", "model"]) -> Table:
    """Tokens and money by team or by model, the dearest first."""
    usage, costs = document["tokens"][f"by_{who}"], dict(document["costs"][f"by_{who}"])
    if who == "team":
        from_nobody = document["costs"]["unattributed"] if document["costs"]["total"] is not None else None
        costs[NO_TEAM] = from_nobody
    nothing: Mapping[str, Any] = {}
    names = sorted(
        {*usage, *costs},
        key=lambda name: (-float(costs.get(name) or 0), -(usage.get(name, nothing).get("input") or 0), name),
    )
    rows = []
    for name in names:
        row = usage.get(name)
        figures = (
            [Cell("–")] * 4
            if row is None
            else [
                count(row["requests"], "requests"),
                count(row["input"], "input"),
                count(row["cache_read"], "cache-read"),
                count(row["output"], "output"),
            ]
        )
        rows.append(
            [
                text(_who(document, name, who)),
                *figures,
                usd(costs[name]) if name in costs else Cell(UNKNOWN),
            ]
        )
    title = PAGE["teams_table" if who == "team" else "models_table"]
    numbers: list[tuple[str, CellKind]] = [
        (PAGE[head], "number") for head in ("calls", "input", "cache_read", "output", "money")
    ]
    return cut(rows, title, (who, "text"), *numbers)


def keys_table(document: Document) -> Table:
    """Money by API key, the dearest first."""
    idle = bool(float(document["costs"]["idle"]))
    nobody = PAGE["no_key_idle" if idle else "no_key"]
    rows = [
        [text(nobody if name == NO_KEY else name), usd(cost)]
        for name, cost in document["costs"]["by_key"].items()
    ]
    return cut(rows, PAGE["keys_table"], (PAGE["key"], "text"), (PAGE["money"], "number"))


def _who(document: Document, name: str, who: str) -> str:
    if who == "model":
        return model_name(name)
    if name == NO_TEAM:
        return PAGE["nobody_idle" if float(document["costs"]["idle"]) else "nobody"]
    return name


def checks_table(document: Document) -> Table:
    """Checks of the data, the failed ones first."""
    order = {"error": 0, "warning": 1, "info": 2}
    checks: Sequence[Mapping[str, Any]] = sorted(
        document["data_quality"], key=lambda row: (row["passed"], order.get(row["severity"], 3), row["check"])
    )
    rows = [
        [
            text(row["check"], 120),
            text(row["severity"]),
            Cell(PAGE["passed" if row["passed"] else "failed"]),
            text(row["detail"], 400),
        ]
        for row in checks
    ]
    return cut(
        rows,
        PAGE["checks_table"],
        (PAGE["check"], "text"),
        (PAGE["severity"], "text"),
        (PAGE["passed"], "text"),
        (PAGE["detail"], "text"),
        limit=200,
    )


def files_table(inputs: AuditInputs) -> Table:
    """Files that could not be read to their end, or at all."""
    bad = inputs.files.filter(inputs.files["problem"].is_not_null()).select("path", "problem")
    rows = [[text(path, 160), text(problem, 300)] for path, problem in bad.iter_rows()]
    return cut(rows, PAGE["files_table"], (PAGE["path"], "text"), (PAGE["problem"], "text"))
