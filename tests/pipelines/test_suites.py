"""Every rule of every suite can fail, and one that can't be evaluated is told apart from one that is broken.

The profiles run on real tables; the rules on profiles that are made to break them, with Great Expectations.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

import polars as pl
import pytest

from parsers.records import RECORD_TABLES, REQUESTS
from pipelines.suites import SUITES, Outcome, Rule, Suite, validate
from warehouse.store import Warehouse
from warehouse.tables import COST_LINES, USAGE_DAILY, USAGE_HOURLY

OF_TABLE = {suite.table.name: suite for suite in SUITES}
RULES = [
    pytest.param(suite, rule, id=f"{suite.table.name}-{rule.column}")
    for suite in SUITES
    for rule in suite.rules
]


def kept(suite: Suite) -> pl.DataFrame:
    """A profile that every rule allows."""
    return pl.DataFrame({rule.column: [float(rule.high)] for rule in suite.rules})


def breaking(rule: Rule, profile: pl.DataFrame) -> pl.DataFrame:
    return profile.with_columns(pl.lit(rule.high + 1.0).alias(rule.column))


@pytest.mark.parametrize("suite", SUITES, ids=OF_TABLE)
def test_a_profile_has_one_row_and_a_number_for_every_rule(suite, tmp_path):
    """Of an empty data folder too: nothing there breaks no rule."""
    profile = suite.profile(Warehouse(tmp_path))
    assert profile.height == 1
    assert set(profile.columns) == {rule.column for rule in suite.rules}
    for rule in suite.rules:
        value = profile[rule.column][0]
        assert value is not None, rule.column
        assert rule.low <= value <= rule.high, rule.column


def test_a_cost_in_another_currency_is_no_difference_between_usage_and_facts(tmp_path):
    warehouse, at = Warehouse(tmp_path), datetime(2026, 11, 20, 12, tzinfo=UTC)
    known = {
        "source_format": "t",
        "source_file": "f",
        "status": "ok",
        "usage_origin": "reported",
        "started_at": at,
    }
    costs = ((Decimal("1.5"), "EUR"), (Decimal(1), "usd"), (Decimal(2), None))
    rows = [
        known | {"source_line": line, "cost_reported": cost, "cost_currency": currency}
        for line, (cost, currency) in enumerate(costs, start=1)
    ]
    path = warehouse.day_file(REQUESTS, at.date())
    path.parent.mkdir(parents=True)
    REQUESTS.conform(pl.DataFrame(rows)).write_parquet(path)
    for table in (USAGE_DAILY, USAGE_HOURLY):
        mart = warehouse.write_mart(table, warehouse.run_sql(table))
        assert mart["cost_reported"].sum() == Decimal(3)
        assert set(OF_TABLE[table.name].profile(warehouse).row(0)) == {0}


def test_no_two_rules_of_a_suite_are_on_one_column():
    for suite in SUITES:
        columns = [rule.column for rule in suite.rules]
        assert len(columns) == len(set(columns)), suite.table.name


def test_facts_and_money_are_covered():
    assert {*(table.name for table in RECORD_TABLES), "usage_daily", "cost_lines", "fleet_options"} <= set(
        OF_TABLE
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestWithGreatExpectations:
    """Its import takes from ten to twenty seconds."""

    @pytest.mark.parametrize(("suite", "rule"), RULES)
    def test_every_rule_can_fail(self, suite, rule):
        alone = replace(suite, rules=(rule,))
        (failed,) = validate(breaking(rule, kept(alone)), alone)
        assert failed.check == f"{suite.table.name}: {rule.column}"
        assert (failed.passed, failed.raised, failed.severity) == (False, False, rule.severity)
        assert f"found {rule.high + 1:g}" in failed.detail

    def test_a_broken_rule_leaves_the_others_of_its_suite_alone(self):
        suite = OF_TABLE["cost_lines"]
        for rule in suite.rules:
            outcomes = validate(breaking(rule, kept(suite)), suite)
            assert [item.passed for item in outcomes] == [other != rule for other in suite.rules]

    @pytest.mark.parametrize("suite", SUITES, ids=OF_TABLE)
    def test_a_suite_that_holds_passes(self, suite):
        assert all(item.passed and not item.raised for item in validate(kept(suite), suite))

    @pytest.mark.parametrize(
        "spoiled", [pl.lit(None, pl.Float64), pl.lit("text")], ids=["unknown", "not a number"]
    )
    def test_a_rule_that_cannot_be_evaluated_is_raised_and_blocks(self, spoiled):
        suite = OF_TABLE["files"]
        rule = next(rule for rule in suite.rules if rule.severity == "warning")
        outcomes = validate(kept(suite).with_columns(spoiled.alias(rule.column)), suite)
        item = next(item for item in outcomes if item.check.endswith(rule.column))
        assert (item.passed, item.raised, item.blocks) == (False, True, True)
        assert "can't be evaluated" in item.detail

    def test_a_column_that_the_profile_lacks_is_raised(self):
        suite = OF_TABLE["coverage"]
        outcomes = validate(kept(suite).drop(suite.rules[0].column), suite)
        assert [(item.passed, item.raised) for item in outcomes] == [(False, True), (True, False)]


def test_only_critical_or_raised_failures_block():
    def outcome(severity, *, passed, raised=False):
        return Outcome("check", severity, passed, "", raised)

    assert outcome("critical", passed=False).blocks
    assert outcome("warning", passed=False, raised=True).blocks
    assert not outcome("warning", passed=False).blocks
    assert not outcome("critical", passed=True).blocks


def cost_profile(tmp_path, **changes) -> dict[str, float]:
    """Counts for one line of cost that is right but for the changes."""
    line = {
        "charge_day": date(2026, 11, 16),
        "team": "data",
        "model": "m",
        "meter": "input",
        "requests": 1,
        "quantity": 1000,
        "unit": "tokens",
        "unit_price_usd": "0.000002",
        "cost_usd": "0.002",
        "basis": "list_price",
        **changes,
    }
    warehouse = Warehouse(tmp_path)
    warehouse.write_mart(COST_LINES, pl.DataFrame([line]))
    return {
        name: count
        for name, count in OF_TABLE["cost_lines"].profile(warehouse).row(0, named=True).items()
        if count
    }


def test_a_right_line_of_cost_breaks_no_rule(tmp_path):
    assert cost_profile(tmp_path) == {}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"cost_usd": "0.003"}, {"list-price lines where quantity x price is not the cost": 1}),
        ({"cost_usd": None}, {"lines without a cost that are not unpriced": 1}),
        ({"basis": "own_hardware", "cost_usd": None}, {"lines without a cost that are not unpriced": 1}),
        ({"basis": "unpriced"}, {"unpriced lines with a cost": 1}),
        ({"basis": "unpriced", "cost_usd": None}, {}),
        ({"basis": "reported"}, {"picodollars of reported cost beyond what the source states": 2e9}),
    ],
)
def test_each_fault_of_a_line_of_cost_is_counted(tmp_path, changes, broken):
    """Hardware hours that no call carries are idle lines, and calls without hours are unpriced ones."""
    assert cost_profile(tmp_path, **changes) == broken
