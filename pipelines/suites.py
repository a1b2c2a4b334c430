"""What must hold of the tables, as data, and its validation with Great Expectations.

Belongs here: the rules (from the contract where it has them, by hand where the domain does), and one
`validate`. Does not belong here: the counts that they are checked on (`profiles.py`), Dagster (`checks.py`),
what a reader is told (`quality.py`).

Great Expectations has no engine for DuckDB, and its pandas engine would hold a whole week in memory: so it
sees a profile, one row of counts. Its import takes many seconds, so it happens inside `validate`. Why it is
so: docs/decisions/0004-checks-on-profiles.md.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from parsers.records import FILES, RECORD_TABLES, REQUESTS, USAGE_BUCKETS
from pipelines import profiles
from warehouse.tables import (
    COST_LINES,
    COVERAGE,
    DEMAND_PEAKS,
    EFFICIENCY_HOURLY,
    FLEET_OPTIONS,
    USAGE_DAILY,
    USAGE_HOURLY,
)
from warehouse.waste_tables import REPETITION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from parsers.records import Table
    from warehouse.store import Warehouse

Severity = Literal["critical", "warning"]
_ONE_AT_A_TIME = threading.Lock()
"""Great Expectations keeps its present context for the whole process."""


@dataclass(frozen=True)
class Rule:
    """A column of a profile whose value lies between two bounds.

    A critical one stops what depends on the table.
    """

    column: str
    low: float
    high: float
    severity: Severity = "critical"


@dataclass(frozen=True)
class Suite:
    """The rules of one table, and the profile (one row) they are checked on."""

    table: Table
    rules: tuple[Rule, ...]
    profile: Callable[[Warehouse], pl.DataFrame]


@dataclass(frozen=True)
class Outcome:
    """What became of one rule.

    `raised` says that it could not be evaluated: that is a failure, of whatever severity.
    """

    check: str
    severity: Severity
    passed: bool
    detail: str
    raised: bool = False

    @property
    def blocks(self) -> bool:
        """Whether what depends on the table must not be built."""
        return not self.passed and (self.raised or self.severity == "critical")


def _none_of(*columns: str) -> tuple[Rule, ...]:
    return tuple(Rule(column, 0, 0) for column in columns)


def _of_facts(table: Table) -> Suite:
    rules = _none_of(*profiles.contract_counts(table), profiles.SHARED_ORIGIN)
    if table is REQUESTS:
        rules += (*_none_of(*profiles.REQUEST_COUNTS), Rule(profiles.UNKNOWN_USAGE, 0, 0.05, "warning"))
    if table is USAGE_BUCKETS:
        # A source that contradicts itself is told; its sums still stand as they are stated.
        rules += tuple(Rule(text, 0, 0, "warning") for text in profiles.BUCKET_COUNTS)
    return Suite(table, rules, partial(profiles.facts, table))


def _of_usage(table: Table) -> Suite:
    return Suite(
        table,
        _none_of(*(profiles.lost(what, table) for what in profiles.USAGE_SUMS)),
        partial(profiles.usage, table),
    )


SUITES = (
    *(_of_facts(table) for table in RECORD_TABLES),
    Suite(
        FILES,
        (*_none_of(profiles.UNACCOUNTED), Rule(profiles.REJECTED, 0, profiles.REJECTED_AT_MOST, "warning")),
        profiles.manifest,
    ),
    _of_usage(USAGE_DAILY),
    _of_usage(USAGE_HOURLY),
    Suite(
        COVERAGE,
        _none_of("stretches that end before they begin", "stretches that overlap the one before"),
        profiles.coverage,
    ),
    Suite(
        DEMAND_PEAKS,
        _none_of("longer windows with smaller sums", "whole-multiple windows with higher rates"),
        profiles.peaks,
    ),
    Suite(
        REPETITION,
        _none_of(
            "scopes whose evidence levels do not add up to their calls",
            "scopes with more tokens seen before than sent",
            "scopes with more tokens missed than seen before",
        ),
        profiles.repetition,
    ),
    Suite(
        EFFICIENCY_HOURLY,
        (
            *_none_of("hours with more busy time than time"),
            # Above 1 the fleet file names less hardware than there is, or the times are assumed: a warning.
            Rule("hours with an MFU over busy time above 1", 0, 0, "warning"),
            Rule("hours with an MBU over busy time above 1", 0, 0, "warning"),
        ),
        profiles.efficiency,
    ),
    Suite(
        COST_LINES,
        _none_of(
            "lines without a cost that are not unpriced",
            "unpriced lines with a cost",
            "list-price lines where quantity x price is not the cost",
            "picodollars that the teams' sums miss of the total",
            "picodollars that the models' sums miss of the total",
            "picodollars of reported cost beyond what the source states",
        ),
        profiles.costs,
    ),
    Suite(
        FLEET_OPTIONS,
        _none_of(
            "pools with more than one choice",
            "choices that miss the SLO",
            "choices without accelerators that are no API",
        ),
        profiles.options,
    ),
)


def validate(profile: pl.DataFrame, suite: Suite) -> list[Outcome]:
    """Run a suite's rules over a profile with Great Expectations; one outcome per rule, in their order."""
    import great_expectations as gx
    import great_expectations.expectations as gxe

    with _ONE_AT_A_TIME:
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}
        asset = context.data_sources.add_pandas(suite.table.name).add_dataframe_asset(suite.table.name)
        batch = asset.add_batch_definition_whole_dataframe("profile").get_batch(
            {"dataframe": profile.to_pandas()}
        )
        expectations: list[Any] = [
            gxe.ExpectColumnValuesToBeBetween(
                column=rule.column, min_value=rule.low, max_value=rule.high, severity=rule.severity
            )
            for rule in suite.rules
        ]
        result = batch.validate(gx.ExpectationSuite(name=suite.table.name, expectations=expectations))
    by_column = {item.expectation_config.kwargs["column"]: item for item in result.results}
    return [_outcome(rule, by_column[rule.column], profile, suite) for rule in suite.rules]


def _outcome(rule: Rule, result: Any, profile: pl.DataFrame, suite: Suite) -> Outcome:
    value = profile[rule.column][0] if rule.column in profile.columns and profile.height else None
    # Great Expectations takes an expectation over nothing but nulls for met.
    raised = value is None or any(_raised(result.exception_info or {}))
    found = "what can't be evaluated" if raised else f"{value:,}" if isinstance(value, int) else f"{value:g}"
    wanted = f"{rule.low:g}" if rule.low == rule.high else f"{rule.low:g} to {rule.high:g}"
    return Outcome(
        f"{suite.table.name}: {rule.column}",
        rule.severity,
        bool(result.success) and not raised,
        f"found {found}, allowed {wanted}",
        raised,
    )


def _raised(info: dict[str, Any]) -> Iterator[bool]:
    """Whether something was raised: the record of one expectation is flat, or nested by the metric that
    raised.
    """
    yield bool(info.get("raised_exception"))
    for inner in info.values():
        if isinstance(inner, dict):
            yield from _raised(inner)
