"""Profiles: one row of counts per table, on which the rules of its suite are checked.

Belongs here: counting, in Polars over any number of rows, what must not occur in a table. Does not belong
here: which count is too high (`suites.py`), the contract's own rules (`Column.broken` in
`parsers/records.py`).

The name of a column says what it counts, in words: it is what the user reads when a check fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.records import FILES, MONEY, REQUESTS, USAGE_BUCKETS
from pipelines.calls import is_served
from pipelines.costs.calls import IN_USD
from pipelines.costs.exact import to_pico
from warehouse.tables import COST_LINES, COVERAGE, DEMAND_PEAKS, EFFICIENCY_HOURLY, FLEET_OPTIONS
from warehouse.waste_tables import REPETITION

if TYPE_CHECKING:
    from parsers.records import Table
    from warehouse.store import Warehouse

SHARED_ORIGIN = "rows whose file and line another row has"
_COUNTS = {
    "rows with more cache reads and writes than input": (
        pl.col("cache_read_tokens").fill_null(0)
        + pl.col("cache_write_5m_tokens").fill_null(0)
        + pl.col("cache_write_1h_tokens").fill_null(0)
        > pl.col("input_tokens")
    ),
    "rows with more reasoning than output": pl.col("reasoning_tokens") > pl.col("output_tokens"),
}
REQUEST_COUNTS = {
    **_COUNTS,
    "rows that end before they start": pl.col("ended_at") < pl.col("started_at"),
    "rows whose first token is outside of the call": (pl.col("first_token_at") < pl.col("started_at"))
    | (pl.col("first_token_at") > pl.col("ended_at")),
    "rows with tokens and no origin of them": (pl.col("usage_origin") == "missing")
    & pl.col("input_tokens").is_not_null(),
}
BUCKET_COUNTS = {
    **_COUNTS,
    "sums that end before they start": pl.col("ended_at") <= pl.col("started_at"),
    "sums with more failed calls than calls": pl.col("failed_requests") > pl.col("requests"),
}
UNKNOWN_USAGE = "share of served rows without token counts"
UNACCOUNTED = "lines that are neither row, reject nor other"
REJECTED, REJECTED_AT_MOST = "share of lines that were rejected", 0.01
WHOLE_MULTIPLES_S = (1.0, 10.0, 60.0, 300.0, 3600.0)
"""Windows of which each is a whole multiple of the one before: the highest rate can't grow from one to the
next.
"""
_SLACK = 1e-9
"""Of sums of floats, relative."""


def contract_counts(table: Table) -> dict[str, pl.Expr]:
    """Rows that break each rule of the contract."""
    return {text: rule.sum() for column in table.columns for text, rule in column.broken().items()}


def facts(table: Table, warehouse: Warehouse) -> pl.DataFrame:
    """A record table against its contract; calls and sums against the domain too."""
    counts = contract_counts(table) | {SHARED_ORIGIN: pl.struct(table.key).is_duplicated().sum()}
    shares: list[pl.Expr] = []
    domain = {REQUESTS.name: REQUEST_COUNTS, USAGE_BUCKETS.name: BUCKET_COUNTS}.get(table.name, {})
    counts |= {text: rule.sum() for text, rule in domain.items()}
    if table is REQUESTS:
        served = is_served()
        unknown = (served & (pl.col("usage_origin") == "missing")).sum() / served.sum()
        shares.append(unknown.fill_nan(0).alias(UNKNOWN_USAGE))
    counted = [value.cast(pl.Int64).alias(text) for text, value in counts.items()]
    return warehouse.scan(table).select(*counted, *shares).collect(engine="streaming")


def manifest(warehouse: Warehouse) -> pl.DataFrame:
    """Whether every line of every file is accounted for, and how many could not be read."""
    rejected = pl.col("rejects").sum() / pl.col("lines").sum()
    apart = (pl.col("lines") - pl.col("rows") - pl.col("rejects") - pl.col("other_lines")).abs().sum()
    return warehouse.read(FILES).select(
        apart.alias(UNACCOUNTED),
        rejected.fill_nan(0).alias(REJECTED),
    )


USAGE_SUMS = {
    "requests": pl.len().cast(pl.Int64),
    "input tokens": pl.col("input_tokens").sum(),
    "output tokens": pl.col("output_tokens").sum(),
    "picodollars of reported cost": to_pico(pl.col("cost_reported").sum()).fill_null(0),
}
"""Over a usage mart or the facts; the marts hold amounts in US dollars only, and so must the facts (`_in_usd`)."""


def _in_usd(warehouse: Warehouse) -> pl.LazyFrame:
    """The facts without amounts in other currencies."""
    return warehouse.scan(REQUESTS).with_columns(pl.when(IN_USD).then("cost_reported").alias("cost_reported"))


def lost(what: str, table: Table) -> str:
    """Name of the count of what a usage mart lacks of, or has beyond, the facts."""
    return f"{what} by which {table.name} differs from the facts"


def usage(table: Table, warehouse: Warehouse) -> pl.DataFrame:
    """Sums of a usage mart against the facts: nothing may be lost or doubled between them."""
    in_facts = _in_usd(warehouse).select(**USAGE_SUMS).collect(engine="streaming").row(0)
    in_mart = warehouse.read(table).select(**{**USAGE_SUMS, "requests": pl.col("requests").sum()}).row(0)
    apart = [float(abs(fact - total)) for fact, total in zip(in_facts, in_mart, strict=True)]
    return pl.DataFrame({lost(what, table): [count] for what, count in zip(USAGE_SUMS, apart, strict=True)})


def coverage(warehouse: Warehouse) -> pl.DataFrame:
    """Whether the stretches follow each other in time."""
    stretches = warehouse.read(COVERAGE).sort("start_at")
    return stretches.select(
        _count(pl.col("end_at") <= pl.col("start_at")).alias("stretches that end before they begin"),
        _count(pl.col("start_at") < pl.col("end_at").shift()).alias("stretches that overlap the one before"),
    )


def peaks(warehouse: Warehouse) -> pl.DataFrame:
    """Whether sums grow and rates shrink with the window, as maxima of one series must."""
    found = warehouse.read(DEMAND_PEAKS).sort("scope", "measure", "window_s")
    sums = found.filter(pl.col("per_s").is_not_null())
    one = ("scope", "measure")
    smaller = pl.col("value") < pl.col("value").shift().over(one) * (1 - _SLACK)
    faster = pl.col("per_s") > pl.col("per_s").shift().over(one) * (1 + _SLACK)
    multiples = sums.filter(pl.col("window_s").is_in(WHOLE_MULTIPLES_S))
    return pl.DataFrame(
        {
            "longer windows with smaller sums": sums.select(_count(smaller)).item(),
            "whole-multiple windows with higher rates": multiples.select(_count(faster)).item(),
        }
    )


def repetition(warehouse: Warehouse) -> pl.DataFrame:
    """Whether waste is part of what was sent, and the evidence levels share out all calls."""
    levels = ("hash_chain", "prompt_hash", "session", "none")
    by_level = pl.sum_horizontal(f"{level}_requests" for level in levels)
    sent = pl.sum_horizontal(f"{level}_input_tokens" for level in levels)
    rules = {
        "scopes whose evidence levels do not add up to their calls": by_level != pl.col("requests"),
        "scopes with more tokens seen before than sent": pl.col("seen_before_tokens") > sent,
        "scopes with more tokens missed than seen before": pl.col("missed_tokens")
        > pl.col("seen_before_tokens"),
    }
    return warehouse.read(REPETITION).select(_count(rule).alias(text) for text, rule in rules.items())


def efficiency(warehouse: Warehouse) -> pl.DataFrame:
    """Whether the hardware did no more than it can, in no more time than there was."""
    rules = {
        "hours with more busy time than time": pl.col("busy_s") > pl.col("wall_s") * (1 + _SLACK),
        "hours with an MFU over busy time above 1": pl.col("mfu_busy_ratio") > 1,
        "hours with an MBU over busy time above 1": pl.col("mbu_busy_ratio") > 1,
    }
    return warehouse.read(EFFICIENCY_HOURLY).select(_count(rule).alias(text) for text, rule in rules.items())


def costs(warehouse: Warehouse) -> pl.DataFrame:
    """Whether money adds up, and each line is what its basis says."""
    lines = warehouse.read(COST_LINES)
    cost, unpriced = pl.col("cost_usd"), pl.col("basis") == "unpriced"
    product = pl.col("quantity").cast(pl.Decimal(38, 0)) * pl.col("unit_price_usd")
    off = (product - cost).abs() > pl.lit("0.000000000001").cast(MONEY)
    rules = {
        "lines without a cost that are not unpriced": cost.is_null() & ~unpriced,
        "unpriced lines with a cost": cost.is_not_null() & unpriced,
        "list-price lines where quantity x price is not the cost": (pl.col("basis") == "list_price") & off,
    }
    sums = {
        f"picodollars that the {by}s' sums miss of the total": abs(_pico(lines) - _pico_of_groups(lines, by))
        for by in ("team", "model")
    }
    stated = _in_usd(warehouse).select(USAGE_SUMS["picodollars of reported cost"]).collect().item()
    beyond = max(0, _pico(lines.filter(pl.col("basis") == "reported")) - stated)
    sums["picodollars of reported cost beyond what the source states"] = beyond
    counts = lines.select(_count(rule).alias(text) for text, rule in rules.items())
    return counts.with_columns(pl.lit(float(amount)).alias(text) for text, amount in sums.items())


def _pico(lines: pl.DataFrame) -> int:
    """Sum of costs in 1e-12 USD; unpriced lines count nothing."""
    return int(lines.select(to_pico(pl.col("cost_usd").sum()).fill_null(0)).item())


def _pico_of_groups(lines: pl.DataFrame, by: str) -> int:
    return _pico(lines.group_by(by).agg(pl.col("cost_usd").sum()))


def options(warehouse: Warehouse) -> pl.DataFrame:
    """Whether what is recommended is one option per pool, exists, and keeps the SLO."""
    found = warehouse.read(FLEET_OPTIONS)
    choice = found.filter("is_choice")
    pools = found.group_by("scenario", "pool").agg(pl.col("is_choice").sum().alias("n"))
    return pl.DataFrame(
        {
            "pools with more than one choice": pools.filter(pl.col("n") > 1).height,
            "choices that miss the SLO": choice.filter(pl.col("meets_slo").eq_missing(other=False)).height,
            "choices without accelerators that are no API": choice.filter(
                (pl.col("serving") != "api") & (pl.col("count").fill_null(0) < 1)
            ).height,
        }
    )


def _count(rule: pl.Expr) -> pl.Expr:
    """Rows for which a rule holds; where it can't be told (null), it does not."""
    return rule.fill_null(value=False).sum().cast(pl.Int64)
