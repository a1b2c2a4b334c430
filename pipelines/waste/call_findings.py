"""Findings about single calls: oversize prompts, and attempts that failed.

Belongs here: their thresholds, their sentences, the calls behind them. Does not belong here: the rules that call a prompt
oversize (`oversize.py`), what an attempt carried (`retries.py`), net savings and ranking.

Kinds:
    oversize: of each application (within a leaf) the rule with the most excess, so that no call counts twice. Trimming
        saves the excess, and past a price step the higher price of what is left.
    failed_attempts: attempts of a leaf that failed; money is what the log says they cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from pipelines.waste.findings import Finding, Found, conformed
from pipelines.waste.net_savings import alone
from pipelines.waste.oversize import summed
from pipelines.waste.scopes import known_sum, leaf_scope
from pipelines.waste.sentences import (
    ADVICE,
    OVERSIZE_REASON,
    figure,
    money,
    percent,
    shown_name,
    who,
)

FAILED_SHARE, FAILED_ATTEMPTS = 0.02, 10
"""Least share and number of a leaf's attempts that failed."""

_LEAF = ["model", "team"]
_Row = Mapping[str, Any]


def oversize_findings(calls: pl.DataFrame, requests: pl.LazyFrame, prices: pl.DataFrame) -> Found:
    """Say which applications send prompts that are too large.

    Args:
        calls: `oversize.oversize_calls`.
        requests: rows of `requests`, the same calls.
        prices: frame of `row_prices.PRICES_SCHEMA`.

    """
    worst = _worst_rules(summed(calls))
    step_usd = pl.when(pl.col("rule") == "price_cliff").then("excess_usd")
    behind = calls.join(worst.select("scope", "rule"), on=["scope", "rule"], how="semi").select(
        pl.concat_str(pl.lit("oversize/"), "scope").alias("finding"),
        *("source_file", "source_line"),
        pl.col("excess_tokens").alias("cut_input_tokens"),
        step_usd.alias("extra_usd"),
    )
    sums = alone(requests, prices, conformed(behind))
    saved = dict(sums.select("id", "usd").iter_rows())
    findings = [_oversize(row, saved[f"oversize/{row['scope']}"]) for row in worst.iter_rows(named=True)]
    return Found.of(findings, behind)


def failure_findings(attempts: pl.DataFrame, leaves: pl.DataFrame) -> Found:
    """Say where attempts fail more than now and then.

    Args:
        attempts: attempts of `retries.failed_attempts`.
        leaves: `model, team, requests` (served).

    """
    sums = ("billed_tokens", "estimated_tokens", "cost_usd")
    main_kind = pl.col("error_kind").mode().sort().first()
    by_leaf = attempts.group_by(_LEAF).agg(
        pl.len().alias("attempts"),
        pl.col("call").n_unique().alias("failed_calls"),
        pl.col("call").filter("recovered").n_unique().alias("recovered_calls"),
        *(known_sum(pl.col(name)).alias(name) for name in sums),
        main_kind.alias("main_kind"),
        (pl.col("error_kind") == main_kind).sum().alias("main_attempts"),
        pl.col("started_at").min().alias("first_at"),
        pl.col("started_at").max().alias("last_at"),
    )
    served = leaves.select(*_LEAF, "requests")
    made = pl.col("attempts") + pl.col("requests").fill_null(0)
    worth_it = (
        by_leaf.join(served, on=_LEAF, how="left", nulls_equal=True)
        .with_columns(leaf_scope(), made=made)
        .filter(pl.col("attempts") >= pl.max_horizontal(FAILED_ATTEMPTS, FAILED_SHARE * pl.col("made")))
        .sort("scope")
    )
    names = worth_it.select(*_LEAF, pl.concat_str(pl.lit("failed_attempts/"), "scope").alias("finding"))
    behind = attempts.join(names, on=_LEAF, nulls_equal=True).select(
        *("finding", "source_file", "source_line"),
        pl.col("billed_tokens").alias("cut_input_tokens"),
        pl.col("cost_usd").alias("extra_usd"),
    )
    return Found.of([_failed(row) for row in worth_it.iter_rows(named=True)], behind)


def _worst_rules(sums: pl.DataFrame) -> pl.DataFrame:
    """Of each application the rule with the most excess."""
    order = ["excess_usd", "excess_tokens", "rule"]
    worst = sums.sort(order, descending=[True, True, False], nulls_last=True)
    return worst.unique("scope", keep="first", maintain_order=True).sort("scope")


def _oversize(row: _Row, usd: Any) -> Finding:
    kind = "project" if row["app_kind"] == "project" else "key"
    named = "" if row["app"] is None else f", {kind} {shown_name(row['app'])}"
    return Finding(
        kind="oversize",
        **{name: row[name] for name in ("scope", "model", "team", "first_at", "last_at")},
        application=row["app"],
        step="trimmed",
        title=(
            f"{who(row)}{named}: {figure(row['requests'])} prompts above {figure(row['threshold_tokens'])} tokens, "
            f"{OVERSIZE_REASON[row['rule']]} (median {figure(row['typical_tokens'])}): "
            f"{figure(row['excess_tokens'])} tokens beyond it, {money(usd)}."
        ),
        evidence_level="counts",
        tokens=row["excess_tokens"],
        usd=usd,
        advice=ADVICE[f"oversize/{row['rule']}"],
    )


def _failed(row: _Row) -> Finding:
    tokens = row["billed_tokens"]
    billed = "" if tokens is None else f" They report {figure(tokens)} tokens used."
    lost = row["failed_calls"] - row["recovered_calls"]
    return Finding(
        kind="failed_attempts",
        **{name: row[name] for name in ("scope", "model", "team", "first_at", "last_at")},
        step="failed",
        title=(
            f"{who(row)}: {figure(row['attempts'])} of {figure(row['made'])} attempts failed "
            f"({percent(row['attempts'], row['made'])}), {percent(row['main_attempts'], row['attempts'])} "
            f"of them {shown_name(row['main_kind'])}; {figure(lost)} calls never came through.{billed}"
        ),
        evidence_level="counts",
        tokens=tokens,
        usd=row["cost_usd"],
        advice=ADVICE["failed_attempts"],
    )
