"""Findings on the causes of missed reads, beyond what `repetition_findings.py` says of the missed tokens themselves.

Belongs here: their thresholds, their sentences, the calls behind them. Does not belong here: deciding on causes
(`causes.py`, `unstable_prompts.py`), measuring lifetimes (`gaps.py`).

Kinds, of leaves (model and team):
    region_switch, account_spread: alive in the cache of another region or account (exact; money at the prices of input and
        cache reads). Together with missed_cache they count no token twice.
    longer_lifetime: expired, and the longer lifetime would have paid for itself (exact, net of its write price, which is
        shared out to the calls that gain by the tokens they gain).
    model_switch: alive at another model; which model answers is a matter of quality, so it claims no saving.
    volatile_head, reordered_tools, changed_history: prompts that should have begun like an earlier one; tokens are an
        estimate, at most; no money, no saving claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.records import MONEY
from pipelines.waste.cause_sentences import WHAT_TO_CHANGE
from pipelines.waste.findings import Finding, Found
from pipelines.waste.repetition import write_price
from pipelines.waste.scopes import known_sum, leaf_scope
from pipelines.waste.sentences import figure, money, percent, who

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pipelines.waste.gaps import Gaps

LEAST_SHARE, LEAST_SHARE_ESTIMATED = 0.01, 0.05
"""Least share of a leaf's input; of estimates."""
LEAST_CALLS = 10
ELSEWHERE = ("region_switch", "account_spread")
_ESTIMATED = ("volatile_head", "reordered_tools", "changed_history")
CAUSES_FOUND = {
    "region_switch": "had been sent before and was warm in another region",
    "account_spread": "had been sent before and was warm at another provider or organisation",
    "model_switch": "had been sent before and was warm at another model",
    "volatile_head": "could be read from cache at most, if prompts did not differ early on",
    "reordered_tools": "could be read from cache at most, if tools came in one order",
    "changed_history": "was history at most that had been rewritten instead of appended to",
}
"""Causes that are findings of their own, in words."""
_LEAF = ["model", "team"]


def reuse_findings(causes: pl.DataFrame, gaps: Gaps, leaves: pl.DataFrame) -> Found:
    """Say which leaves miss reads for a reason of their own.

    Args:
        causes: rows of `causes.CAUSES_SCHEMA`.
        gaps: of `gaps.gaps_of`.
        leaves: `repetition_findings.repetition_by_leaf` of the same calls.

    """
    return Found.together([_by_cause(causes, leaves), _lifetimes(gaps, leaves)])


def with_main_cause(leaves: pl.DataFrame, causes: pl.DataFrame, missed: tuple[str, ...]) -> pl.DataFrame:
    """Leaves with `main_cause`, the one of the `missed` causes with most tokens (null: none), and its tokens."""
    ordered = (
        causes.filter(pl.col("cause").is_in(missed))
        .group_by(*_LEAF, "cause")
        .agg(pl.col("tokens").sum().alias("main_cause_tokens"))
        .sort("main_cause_tokens", "cause", descending=[True, False])
    )
    main = ordered.unique(_LEAF, keep="first", maintain_order=True).rename({"cause": "main_cause"})
    return leaves.join(main, on=_LEAF, how="left", nulls_equal=True, maintain_order="left")


def _by_cause(causes: pl.DataFrame, leaves: pl.DataFrame) -> Found:
    told = causes.filter(pl.col("cause").is_in(list(CAUSES_FOUND)))
    sums = told.group_by(*_LEAF, "cause").agg(
        pl.len().alias("calls"),
        pl.col("tokens").sum(),
        known_sum(pl.col("usd")).alias("usd"),
        pl.col("differing_block").median().round().cast(pl.Int64),
        pl.col("tokens_before").median().round().cast(pl.Int64),
        pl.col("started_at").min().alias("first_at"),
        pl.col("started_at").max().alias("last_at"),
    )
    share = pl.when(pl.col("cause").is_in(_ESTIMATED)).then(LEAST_SHARE_ESTIMATED).otherwise(LEAST_SHARE)
    worth_it = (
        sums.join(leaves.select(*_LEAF, "input_tokens"), on=_LEAF, nulls_equal=True)
        .filter((pl.col("calls") >= LEAST_CALLS) & (pl.col("tokens") >= share * pl.col("input_tokens")))
        .with_columns(leaf_scope())
        .sort("scope", "cause")
    )
    claims = pl.col("cause").is_in(ELSEWHERE)
    calls = told.select(
        pl.format("{}/{}", "cause", leaf_scope()).alias("finding"),
        "source_file",
        "source_line",
        pl.when(claims).then("tokens").alias("read_tokens"),
    )
    return Found.of([_cause(row) for row in worth_it.iter_rows(named=True)], calls)


def _cause(row: Mapping[str, Any]) -> Finding:
    cause, claims = row["cause"], row["cause"] in ELSEWHERE
    size = (
        f"{figure(row['tokens'])} input tokens ({percent(row['tokens'], row['input_tokens'])} of its input)"
    )
    where = ""
    if row["differing_block"] is not None:
        where = (
            f" Half of the {figure(row['calls'])} prompts part from the one before by block {row['differing_block']}, "
            f"after {figure(row['tokens_before'])} tokens."
        )
    amount = f": {money(row['usd'])}" if claims else ""
    return Finding(
        kind=cause,
        scope=row["scope"],
        model=row["model"],
        team=row["team"],
        step="read" if claims else None,
        title=f"{who(row)}: {size} {CAUSES_FOUND[cause]}{amount}.{where}",
        evidence_level="hash_chain",
        advice=WHAT_TO_CHANGE[cause],
        tokens=row["tokens"],
        usd=row["usd"] if claims else None,
        first_at=row["first_at"],
        last_at=row["last_at"],
    )


def _lifetimes(gaps: Gaps, leaves: pl.DataFrame) -> Found:
    """Leaves whose prefixes should be kept longer."""
    sums = gaps.net.group_by(_LEAF).agg(
        known_sum(pl.col("longer_lifetime_tokens")).alias("tokens"),
        pl.when(pl.col("longer_lifetime_usd").is_not_null().all())
        .then(known_sum(pl.col("longer_lifetime_usd")))
        .alias("usd"),
        known_sum(pl.col("surcharge_usd")).alias("surcharge_usd"),
        pl.col("longer_lifetime_s").max(),
    )
    worth_it = (
        sums.join(leaves.select(*_LEAF, "input_tokens"), on=_LEAF, nulls_equal=True)
        .filter((pl.col("usd") > 0) & (pl.col("tokens") >= LEAST_SHARE * pl.col("input_tokens")))
        .with_columns(leaf_scope())
        .sort("scope")
    )
    gained = gaps.calls.join(
        worth_it.select(*_LEAF, "scope", "tokens", "surcharge_usd"), on=_LEAF, nulls_equal=True
    )
    rewritten = pl.col("rewritten") * (write_price() - pl.col("usd_per_input_token"))
    surcharge = pl.col("surcharge_usd") * pl.col("extended") / pl.col("tokens").cast(MONEY)
    calls = gained.select(
        "scope",
        pl.concat_str(pl.lit("longer_lifetime/"), "scope").alias("finding"),
        "source_file",
        "source_line",
        "started_at",
        pl.col("extended").alias("read_tokens"),
        (rewritten - surcharge).cast(MONEY).alias("extra_usd"),
    )
    seen = calls.group_by("scope").agg(
        pl.col("started_at").min().alias("first_at"), pl.col("started_at").max().alias("last_at")
    )
    rows = worth_it.join(seen, on="scope").sort("scope")
    return Found.of([_lifetime(row) for row in rows.iter_rows(named=True)], calls.drop("scope", "started_at"))


def _lifetime(row: Mapping[str, Any]) -> Finding:
    hours = row["longer_lifetime_s"] // 3600
    return Finding(
        kind="longer_lifetime",
        scope=row["scope"],
        model=row["model"],
        team=row["team"],
        step="kept_longer",
        title=(
            f"{who(row)}: {figure(row['tokens'])} input tokens ({percent(row['tokens'], row['input_tokens'])} of its "
            f"input) came again after their lifetime; kept for {hours} h, they save {money(row['usd'])} net."
        ),
        evidence_level="hash_chain",
        advice=(
            f"Ask for the lifetime of {hours} h for the stable part of these prompts: the figure is net of its write price, "
            "for all that is written."
        ),
        tokens=row["tokens"],
        usd=row["usd"],
        first_at=row["first_at"],
        last_at=row["last_at"],
    )
