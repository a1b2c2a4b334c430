"""What must hold of the tables, as data, and its validation with Great Expectations.

Belongs here: the rules (from the contract where it has them, by hand where the domain does), the profiles they are checked
on, and one `validate`. Does not belong here: Dagster (`checks.py`), what a reader is told (`quality.py`).

A profile is a small frame computed in Polars over any number of rows: Great Expectations has no engine for DuckDB, and
would hold a whole week in memory. Its import takes many seconds, so it happens inside `validate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from parsers.records import REQUESTS
from warehouse.tables import COST_LINES, DEMAND_PEAKS, FLEET_OPTIONS, USAGE_DAILY, USAGE_HOURLY

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.records import Table
    from warehouse.store import Warehouse

Severity = Literal["critical", "warning"]


@dataclass(frozen=True)
class Rule:
    """A column of a profile whose values lie between two bounds in every row."""

    column: str
    low: float
    high: float
    severity: Severity = "critical"


@dataclass(frozen=True)
class Suite:
    """The rules of one table, and the profile they are checked on."""

    table: Table
    rules: tuple[Rule, ...]
    profile: Callable[[Warehouse], pl.DataFrame]


@dataclass(frozen=True)
class Outcome:
    """What became of one rule. `raised` says that the rule could not be evaluated, which is a failure too."""

    check: str
    severity: Severity
    passed: bool
    detail: str
    raised: bool = False


def _nothing_broken(table: Table) -> tuple[Rule, ...]:
    return tuple(Rule(text, 0, 0) for column in table.columns for text in column.broken())


_DOMAIN = {
    "rows whose file and line another row has": pl.struct("source_file", "source_line").is_duplicated().sum(),
    "rows with more cache reads and writes than input": (
        pl.col("cache_read_tokens").fill_null(0)
        + pl.col("cache_write_5m_tokens").fill_null(0)
        + pl.col("cache_write_1h_tokens").fill_null(0)
        > pl.col("input_tokens")
    ).sum(),
    "rows with more reasoning than output": (pl.col("reasoning_tokens") > pl.col("output_tokens")).sum(),
    "rows that end before they start": (pl.col("ended_at") < pl.col("started_at")).sum(),
    "rows whose first token is outside of the call": (
        (pl.col("first_token_at") < pl.col("started_at")) | (pl.col("first_token_at") > pl.col("ended_at"))
    ).sum(),
    "rows with tokens and no origin of them": (
        (pl.col("usage_origin") == "missing") & pl.col("input_tokens").is_not_null()
    ).sum(),
}
_UNKNOWN = "share of served rows without token counts"


def _requests_profile(warehouse: Warehouse) -> pl.DataFrame:
    broken = {text: rule.sum() for column in REQUESTS.columns for text, rule in column.broken().items()}
    served = pl.col("status").is_in(["ok", "cancelled"])
    unknown = (served & (pl.col("usage_origin") == "missing")).sum() / served.sum()
    counted = [value.cast(pl.Int64).alias(text) for text, value in {**broken, **_DOMAIN}.items()]
    profile = warehouse.scan(REQUESTS).select(*counted, unknown.fill_nan(0).alias(_UNKNOWN))
    return profile.collect(engine="streaming")


def _costs_profile(warehouse: Warehouse) -> pl.DataFrame:
    lines = warehouse.read(COST_LINES)
    by_meter = lines.filter(pl.col("basis") == "list_price")
    product = pl.col("quantity").cast(pl.Decimal(38, 0)) * pl.col("unit_price_usd")
    off = (product - pl.col("cost_usd")).abs() > pl.lit("0.000000000001").cast(pl.Decimal(38, 12))
    return pl.DataFrame(
        {
            "lines without a cost that are not unpriced": lines.filter(
                pl.col("cost_usd").is_null() & ~pl.col("basis").is_in(["unpriced", "own_hardware"])
            ).height,
            "lines with a negative cost": lines.filter(pl.col("cost_usd") < 0).height,
            "list-price lines where quantity x price is not the cost": by_meter.filter(off).height,
            "picodollars that the teams' sums miss of the total": _missed(lines, "team"),
            "picodollars that the models' sums miss of the total": _missed(lines, "model"),
        }
    )


def _missed(lines: pl.DataFrame, by: str) -> int:
    total = lines["cost_usd"].sum() or 0
    parts = lines.group_by(by).agg(pl.col("cost_usd").sum())["cost_usd"].sum() or 0
    return int(abs(total - parts) * 10**12)


def _usage_profile(warehouse: Warehouse) -> pl.DataFrame:
    """Sums of the marts against the facts: nothing may be lost or doubled between them."""
    counts = {
        "requests": pl.len().cast(pl.Int64),
        "input tokens": pl.col("input_tokens").sum(),
        "output tokens": pl.col("output_tokens").sum(),
    }
    facts = warehouse.scan(REQUESTS).select(**counts).collect(engine="streaming").row(0)
    found = {}
    for table in (USAGE_DAILY, USAGE_HOURLY):
        mart = warehouse.read(table)
        sums = (int(mart["requests"].sum()), int(mart["input_tokens"].sum()), int(mart["output_tokens"].sum()))
        for name, fact, total in zip(counts, facts, sums, strict=True):
            found[f"{name} that {table.name} misses"] = abs(int(fact or 0) - total)
    return pl.DataFrame(found)


def _peaks_profile(warehouse: Warehouse) -> pl.DataFrame:
    peaks = warehouse.read(DEMAND_PEAKS).sort("scope", "measure", "window_s")
    sums = peaks.filter(pl.col("per_s").is_not_null())
    shrinking = (pl.col("value") < pl.col("value").shift().over("scope", "measure") * (1 - 1e-9)).sum()
    over_rate = (pl.col("per_s") > pl.col("per_s").shift().over("scope", "measure") * (1 + 1e-9)).sum()
    return pl.DataFrame(
        {
            "longer windows with smaller sums": int(sums.select(shrinking).item() or 0),
            "whole-multiple windows with higher rates": int(
                sums.filter(pl.col("window_s").is_in([1.0, 10.0, 60.0, 300.0, 3600.0])).select(over_rate).item() or 0
            ),
        }
    )


def _options_profile(warehouse: Warehouse) -> pl.DataFrame:
    options = warehouse.read(FLEET_OPTIONS)
    chosen = options.group_by("scenario", "pool").agg(pl.col("is_choice").sum().alias("n"))
    choice = options.filter("is_choice")
    return pl.DataFrame(
        {
            "pools with more than one choice": chosen.filter(pl.col("n") > 1).height,
            "choices that miss the SLO": choice.filter(pl.col("meets_slo").eq_missing(other=False)).height,
            "choices without accelerators that are no API": choice.filter(
                (pl.col("serving") != "api") & (pl.col("count").fill_null(0) < 1)
            ).height,
        }
    )


def _all_zero(*columns: str) -> tuple[Rule, ...]:
    return tuple(Rule(column, 0, 0) for column in columns)


SUITES = (
    Suite(
        REQUESTS,
        (*_nothing_broken(REQUESTS), *_all_zero(*_DOMAIN), Rule(_UNKNOWN, 0, 0.05, "warning")),
        _requests_profile,
    ),
    Suite(
        USAGE_DAILY,
        _all_zero(
            *(
                f"{what} that {table} misses"
                for table in (USAGE_DAILY.name, USAGE_HOURLY.name)
                for what in ("requests", "input tokens", "output tokens")
            )
        ),
        _usage_profile,
    ),
    Suite(
        DEMAND_PEAKS,
        _all_zero("longer windows with smaller sums", "whole-multiple windows with higher rates"),
        _peaks_profile,
    ),
    Suite(
        COST_LINES,
        _all_zero(
            "lines without a cost that are not unpriced",
            "lines with a negative cost",
            "list-price lines where quantity x price is not the cost",
            "picodollars that the teams' sums miss of the total",
            "picodollars that the models' sums miss of the total",
        ),
        _costs_profile,
    ),
    Suite(
        FLEET_OPTIONS,
        _all_zero(
            "pools with more than one choice",
            "choices that miss the SLO",
            "choices without accelerators that are no API",
        ),
        _options_profile,
    ),
)


def validate(profile: pl.DataFrame, suite: Suite) -> list[Outcome]:
    """Run a suite's rules over a profile with Great Expectations."""
    import great_expectations as gx
    import great_expectations.expectations as gxe

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    asset = context.data_sources.add_pandas(suite.table.name).add_dataframe_asset(suite.table.name)
    batch = asset.add_batch_definition_whole_dataframe("profile").get_batch({"dataframe": profile.to_pandas()})
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
    raised = bool((result.exception_info or {}).get("raised_exception"))
    value = profile[rule.column][0] if rule.column in profile.columns else None
    found = "can't be evaluated" if raised or value is None else f"{value:g}"
    wanted = f"{rule.low:g}" if rule.low == rule.high else f"{rule.low:g} to {rule.high:g}"
    return Outcome(
        f"{suite.table.name}: {rule.column}",
        rule.severity,
        bool(result.success) and not raised,
        f"found {found}, allowed {wanted}",
        raised,
    )
