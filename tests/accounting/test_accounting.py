"""Accounting faults of other products, by their ids: each record becomes facts and costs, and comes out right.

`<kind>.toml` holds `[[case]]`: `ids`, `says` (what must hold), `files` (name -> content as its system writes it),
where it has any its site's own `prices`, and `right`: of `requests`, `buckets` and `cost_lines` the named columns
of each row, `cost_usd` and other amounts as text, `meters` (tokens), `notes` (what lines say of their prices),
`unpriced` (calls).
"""

from __future__ import annotations

import csv
import re
import tomllib
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from parsers.records import REJECTS, USAGE_BUCKETS
from pipelines.costs.lines import cost_lines
from pipelines.pricing import prices_of
from tests.pipelines.costs.conftest import totals
from tests.pipelines.ingest.conftest import ingest, write
from warehouse.tables import COST_LINES

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/accounting-cases.md"
CASES = [
    case
    for path in sorted(HERE.glob("*.toml"))
    for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
]
NOT_ASKED = "focus-validator"
"""Kind of the faults of a validator of another export format, which this product does not write."""


def plain(value):
    """Amounts as text without trailing zeros, so that the data can state them exactly."""
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return "unknown" if value is None else value


def by(lines: pl.DataFrame, key: str, value: str) -> dict:
    summed = lines.filter(pl.col("unit") == "tokens").group_by(key).agg(pl.col(value).sum())
    return {name: plain(total) for name, total in summed.iter_rows() if total}


def named(frame: pl.DataFrame, wanted: list[dict]) -> list[dict]:
    """Of each row the columns that are asked for."""
    assert frame.height == len(wanted), frame
    return [
        {name: plain(row[name]) for name in part} for row, part in zip(frame.to_dicts(), wanted, strict=True)
    ]


def found(facts, case: dict) -> dict:
    """What came of a case, by the names of its `right`."""
    right, requests = case["right"], facts.requests.lazy()
    lines = cost_lines(requests, prices_of(requests, pl.DataFrame(case.get("prices"))))
    sums = totals(lines)
    assert COST_LINES.problems(lines) == {}
    assert lines.filter(pl.col("cost_usd") < 0).is_empty()
    amounts = [amount or 0 for amount in (*sums.by_team.values(), sums.unattributed)]
    assert sum(amounts) == sum(amount or 0 for amount in sums.by_model.values()) == (sums.total or 0)
    lines_read, lines_kept = facts.accounts()
    assert lines_read == lines_kept

    rejects = facts.tables[REJECTS.name]
    results = {
        "requests": lambda: named(facts.requests, right["requests"]),
        "buckets": lambda: named(facts.tables[USAGE_BUCKETS.name], right["buckets"]),
        "cost_lines": lambda: named(lines, right["cost_lines"]),
        "cost_usd": lambda: plain(sums.total),
        "unpriced": lambda: sums.unpriced_requests,
        "unattributed": lambda: plain(sums.unattributed),
        "by_team": lambda: plain(sums.by_team),
        "by_model": lambda: plain(sums.by_model),
        "meters": lambda: by(lines, "meter", "quantity"),
        "meter_usd": lambda: by(lines, "meter", "cost_usd"),
        "basis": lambda: sorted(lines["basis"].unique()),
        "notes": lambda: [
            note for note in right["notes"] if lines["price_source"].str.contains(note, literal=True).any()
        ],
        "doubles": lambda: facts.doubles,
        "rejects": rejects["reason"].to_list,
    }
    return {name: results[name]() for name in right}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case["ids"]))
def test_case(case, tmp_path):
    """The right values of `right` come out of the whole path, from bytes to lines of cost."""
    for number, (name, content) in enumerate(case["files"].items()):
        write(tmp_path / "logs" / name, [content], modified=number)
    assert found(ingest(tmp_path / "home", tmp_path / "logs"), case) == case["right"], case["says"]


def answers() -> dict[str, str]:
    """Id -> what the page says of where it is proved, or why it can't arise."""
    rows = re.findall(
        r"^\| (B\d{3}) \|[^|]*\|([^|]*)\|$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert len(rows) == len({name for name, _ in rows})
    return dict(rows)


def test_every_id_of_the_data_stands_on_the_page_under_its_file():
    for path in HERE.glob("*.toml"):
        for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]:
            for name in case["ids"]:
                assert f"`{path.name}`" in answers()[name], name


def test_the_page_names_only_tests_and_data_that_exist():
    for name, answer in answers().items():
        for file, test in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", answer):
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or f"def {test}(" in text, f"{name}: {file}::{test}"
        for file in re.findall(r"`(\w+\.toml)`", answer):
            assert name in (HERE / file).read_text(encoding="utf-8"), f"{name}: {file}"


def test_every_collected_fault_is_answered(shared):
    path = shared / "cases/accounting_cases.csv"
    if not path.is_file():
        pytest.skip("the collection of faults is not in the shared folder")
    with path.open(encoding="utf-8", newline="") as file:
        collected = {row["id"] for row in csv.DictReader(file) if row["kind"] != NOT_ASKED}
    assert collected <= answers().keys(), sorted(collected - answers().keys())
