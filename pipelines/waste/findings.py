"""Findings of the waste stage: what to change, with its figures, its evidence and the rows behind it.

Belongs here: from which share on something is worth saying, how bad it is, the sentence. Does not belong
here: the measuring (`repetition.py`, `oversize.py`, `retries.py`), advice and the spelling of figures
(`sentences.py`), findings of other stages, the decision.

Only leaves (model and team, for oversize also the application) become findings, so that no token is reported
in two scopes. Kinds:
    missed_cache: cacheable, not read from cache (exact evidence, money).
    cache_unreported: cacheable where the log does not say what was read from cache (no money).
    session_resend: re-sent history, an upper bound from sessions and counts (no money).
    response_cache: whole prompts answered before. Its tokens and money are those of the output (of the input
        where nothing is generated), so that they can be added to missed_cache.
    oversize: the rule with the most excess of each application; excess overlaps with missed_cache, trimming
        comes first.
    failed_attempts: attempts that failed.
Severity is the share of the money spent (high from 5 %, medium from 1 %, low from 0.1 %, else info); where
the money is unknown, the share of input tokens, and then never high.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

from pipelines.waste.evidence import EXACT
from pipelines.waste.oversize import CLIFF_MARGIN_PERCENT
from pipelines.waste.repetition import known_missed_usd
from pipelines.waste.rows_query import Leaf
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
from warehouse.waste_tables import FINDINGS

MISSED_SHARE = 0.01
"""Least share of a leaf's input that was missed."""
UNREPORTED_SHARE = 0.10
"""Least share of a leaf's input that repeats, where reads are unknown or the repetition is an estimate."""
REPEATED_SHARE, REPEATED_CALLS = 0.01, 10
"""Least share and number of a leaf's calls that repeat a whole prompt."""
FAILED_SHARE, FAILED_ATTEMPTS = 0.02, 10
"""Least share and number of a leaf's attempts that failed."""

_SEVERITIES = ((0.05, "high"), (0.01, "medium"), (0.001, "low"))
_LEAF = ["model", "team"]


@dataclass(frozen=True, slots=True)
class _Totals:
    usd: Decimal | None
    input_tokens: int

    def severity(self, usd: Decimal | None, tokens: int | None) -> str:
        if usd is not None and self.usd:
            share = float(usd / self.usd)
            return next((name for least, name in _SEVERITIES if share >= least), "info")
        share = (tokens or 0) / self.input_tokens if self.input_tokens else 0.0
        return next((name for least, name in _SEVERITIES[1:] if share >= least), "info")


def waste_findings(
    leaves: pl.DataFrame, attempts: pl.DataFrame, oversize: pl.DataFrame, total_usd: Decimal | None
) -> pl.DataFrame:
    """Say what is worth changing.

    Args:
        leaves: sums of `repetition_by_leaf`.
        attempts: attempts of `retries.failed_attempts`.
        oversize: what `oversize.oversize` returned.
        total_usd: money spent in the same window; None if unknown.

    Returns:
        Rows of `findings`, the costliest first; none where nothing exceeds its threshold.

    """
    totals = _Totals(total_usd, int(leaves["input_tokens"].sum()))
    rows: list[dict[str, Any]] = []
    for leaf in leaves.iter_rows(named=True):
        rows += _repetition_findings(leaf, totals)
    rows += [_oversize_finding(row, totals) for row in _worst_rules(oversize)]
    rows += _failures(attempts, leaves, totals)
    found = FINDINGS.conform(
        pl.DataFrame(rows, schema_overrides=dict(FINDINGS.schema)) if rows else FINDINGS.empty()
    )
    return found.sort("usd", "tokens", "id", descending=[True, True, False], nulls_last=True)


def repetition_by_leaf(calls: pl.DataFrame) -> pl.DataFrame:
    """What findings say of repetition, for each pair of model and team.

    Args:
        calls: calls of `repetition.repeated_prefixes`.

    """
    exact = pl.col("evidence").is_in(EXACT)
    repeats = pl.col("repeated_prompt").fill_null(value=False)
    saved = pl.when("generating").then("output_tokens").otherwise("input_tokens")
    price = pl.when("generating").then("usd_per_output_token").otherwise("usd_per_input_token")
    missed = pl.col("missed_tokens") > 0
    unreported = exact & pl.col("generating") & pl.col("missed_tokens").is_null()
    at = pl.col("started_at")
    measures: list[pl.Expr] = [
        pl.len().alias("requests"),
        pl.col("input_tokens").sum(),
        (pl.col("cache_scope") == "account").all().alias("account"),
        pl.col("write_multiple").is_not_null().any().alias("writes_charged"),
        known_sum(pl.col("missed_tokens")).alias("missed_tokens"),
        known_missed_usd().alias("missed_usd"),
        (missed & pl.col("missed_usd").is_null()).sum().alias("missed_unpriced"),
        (missed & pl.col("rule_assumed").is_not_null()).sum().alias("missed_assumed"),
        (missed & (pl.col("evidence") == "hash_chain")).any().alias("missed_by_chain"),
        pl.col("cacheable_tokens").filter(unreported).sum().alias("unreported_tokens"),
        unreported.sum().alias("unreported_requests"),
        (unreported & (pl.col("evidence") == "hash_chain")).any().alias("unreported_by_chain"),
        pl.col("upper_bound_tokens").sum(),
        pl.col("prompt_hash").count().alias("hashed_prompts"),
        repeats.sum().alias("repeats"),
        known_sum(saved.filter(repeats)).alias("repeated_tokens"),
        known_sum((saved * price).filter(repeats)).alias("repeated_usd"),
    ]
    whens = {
        "missed": missed,
        "unreported": unreported & (pl.col("cacheable_tokens") > 0),
        "repeated": repeats,
    }
    whens["session"] = pl.col("upper_bound_tokens") > 0
    for name, when in whens.items():
        measures += [
            at.filter(when).min().alias(f"{name}_first"),
            at.filter(when).max().alias(f"{name}_last"),
        ]
    return calls.group_by(_LEAF).agg(*measures).with_columns(leaf_scope()).sort("scope")


def _finding(
    kind: str,
    scope: str,
    totals: _Totals,
    *,
    title: str,
    evidence: str,
    tokens: int | None,
    usd: Decimal | None,
    seen: tuple[dt.datetime | None, dt.datetime | None],
    query: str,
    advice: str,
) -> dict[str, Any]:
    return {
        "id": f"{kind}/{scope}",
        "kind": kind,
        "severity": totals.severity(usd, tokens),
        "title": title,
        "scope": scope,
        "evidence_level": evidence,
        "tokens": tokens,
        "usd": usd,
        "first_at": seen[0],
        "last_at": seen[1],
        "rows_query": query,
        "advice": advice,
    }


def _repetition_findings(leaf: dict[str, Any], totals: _Totals) -> list[dict[str, Any]]:
    size = leaf["input_tokens"]
    found = []
    if (leaf["missed_tokens"] or 0) > 0 and leaf["missed_tokens"] >= MISSED_SHARE * size:
        found.append(_missed(leaf, totals))
    if leaf["unreported_tokens"] > 0 and leaf["unreported_tokens"] >= UNREPORTED_SHARE * size:
        found.append(_unreported(leaf, totals))
    if leaf["upper_bound_tokens"] > 0 and leaf["upper_bound_tokens"] >= UNREPORTED_SHARE * size:
        found.append(_resent(leaf, totals))
    if leaf["repeats"] >= max(REPEATED_CALLS, REPEATED_SHARE * leaf["hashed_prompts"]):
        found.append(_repeated(leaf, totals))
    return found


def _query_of(leaf: dict[str, Any]) -> Leaf:
    return Leaf(leaf["model"], leaf["team"], account=leaf.get("account", True))


def _share(leaf: dict[str, Any], tokens: int) -> str:
    return f"{figure(tokens)} input tokens ({percent(tokens, leaf['input_tokens'])} of its input)"


def _missed(leaf: dict[str, Any], totals: _Totals) -> dict[str, Any]:
    tokens, unpriced = leaf["missed_tokens"], leaf["missed_unpriced"]
    partly = (
        f" ({figure(unpriced)} calls without a price)" if unpriced and leaf["missed_usd"] is not None else ""
    )
    kind = "fleet" if not leaf["account"] else "marked" if leaf["writes_charged"] else "automatic"
    advice = ADVICE[f"missed_cache/{kind}"]
    if leaf["missed_assumed"]:
        advice += ADVICE["rule_assumed"]
    return _finding(
        "missed_cache",
        leaf["scope"],
        totals,
        title=(
            f"{who(leaf)}: {_share(leaf, tokens)} had been sent before and were not read from "
            f"cache: {money(leaf['missed_usd'])}{partly}."
        ),
        evidence="hash_chain" if leaf["missed_by_chain"] else "prompt_hash",
        tokens=tokens,
        usd=leaf["missed_usd"],
        seen=(leaf["missed_first"], leaf["missed_last"]),
        query=_query_of(leaf).missed(),
        advice=advice,
    )


def _unreported(leaf: dict[str, Any], totals: _Totals) -> dict[str, Any]:
    tokens = leaf["unreported_tokens"]
    return _finding(
        "cache_unreported",
        leaf["scope"],
        totals,
        title=(
            f"{who(leaf)}: {_share(leaf, tokens)} had been sent before and could be read from "
            f"cache; for {figure(leaf['unreported_requests'])} calls the log does not say what was."
        ),
        evidence="hash_chain" if leaf["unreported_by_chain"] else "prompt_hash",
        tokens=tokens,
        usd=None,
        seen=(leaf["unreported_first"], leaf["unreported_last"]),
        query=_query_of(leaf).repeated_prefixes(),
        advice=ADVICE["cache_unreported"],
    )


def _resent(leaf: dict[str, Any], totals: _Totals) -> dict[str, Any]:
    tokens = leaf["upper_bound_tokens"]
    return _finding(
        "session_resend",
        leaf["scope"],
        totals,
        title=(
            f"{who(leaf)}: up to {_share(leaf, tokens)} may be history sent again within sessions and "
            "not read from cache (estimate, upper bound)."
        ),
        evidence="session",
        tokens=tokens,
        usd=None,
        seen=(leaf["session_first"], leaf["session_last"]),
        query=_query_of(leaf).later_in_session(),
        advice=ADVICE["session_resend"],
    )


def _repeated(leaf: dict[str, Any], totals: _Totals) -> dict[str, Any]:
    tokens = leaf["repeated_tokens"]
    saved = "an unknown number of tokens" if tokens is None else f"{figure(tokens)} tokens"
    return _finding(
        "response_cache",
        leaf["scope"],
        totals,
        title=(
            f"{who(leaf)}: {figure(leaf['repeats'])} calls ({percent(leaf['repeats'], leaf['requests'])}) "
            f"repeat a whole prompt that had been answered; a response cache would save {saved}, "
            f"{money(leaf['repeated_usd'])}, besides what prefix caching saves."
        ),
        evidence="prompt_hash",
        tokens=tokens,
        usd=leaf["repeated_usd"],
        seen=(leaf["repeated_first"], leaf["repeated_last"]),
        query=_query_of(leaf).repeated_prompts(),
        advice=ADVICE["response_cache"],
    )


def _worst_rules(oversize: pl.DataFrame) -> list[dict[str, Any]]:
    """Of each application the rule with the most excess, so that no call counts twice."""
    order = ["excess_usd", "excess_tokens", "rule"]
    worst = oversize.sort(order, descending=[True, True, False], nulls_last=True)
    return list(worst.unique("scope", keep="first", maintain_order=True).sort("scope").iter_rows(named=True))


def _oversize_finding(row: dict[str, Any], totals: _Totals) -> dict[str, Any]:
    usd, threshold = row["excess_usd"], row["threshold_tokens"]
    highest = threshold * (100 + CLIFF_MARGIN_PERCENT) // 100 if row["rule"] == "price_cliff" else None
    kind = "project" if row["app_kind"] == "project" else "key"
    named = "" if row["app"] is None else f", {kind} {shown_name(row['app'])}"
    why = OVERSIZE_REASON[row["rule"]]
    advice = ADVICE[f"oversize/{row['rule']}"]
    return _finding(
        "oversize",
        row["scope"],
        totals,
        title=(
            f"{who(row)}{named}: {figure(row['requests'])} prompts above {figure(threshold)} tokens, {why} "
            f"(median {figure(row['typical_tokens'])}): {figure(row['excess_tokens'])} tokens beyond it, "
            f"{money(usd)}."
        ),
        evidence="counts",
        tokens=row["excess_tokens"],
        usd=usd,
        seen=(row["first_at"], row["last_at"]),
        query=Leaf(row["model"], row["team"]).larger_than(threshold, highest, row["app_kind"], row["app"]),
        advice=advice,
    )


def _failures(attempts: pl.DataFrame, leaves: pl.DataFrame, totals: _Totals) -> list[dict[str, Any]]:
    sums = ("billed_tokens", "estimated_tokens", "cost_usd")
    by_leaf = attempts.group_by(_LEAF).agg(
        pl.len().alias("attempts"),
        pl.col("call").n_unique().alias("failed_calls"),
        pl.col("call").filter("recovered").n_unique().alias("recovered_calls"),
        *(known_sum(pl.col(name)).alias(name) for name in sums),
        pl.col("error_kind").mode().sort().first().alias("main_kind"),
        (pl.col("error_kind") == pl.col("error_kind").mode().sort().first()).sum().alias("main_attempts"),
        pl.col("started_at").min().alias("first_at"),
        pl.col("started_at").max().alias("last_at"),
    )
    served = leaves.select(*_LEAF, "requests")
    joined = (
        by_leaf.join(served, on=_LEAF, how="left", nulls_equal=True).with_columns(leaf_scope()).sort("scope")
    )
    found = []
    for row in joined.iter_rows(named=True):
        made = row["attempts"] + (row["requests"] or 0)
        if row["attempts"] < FAILED_ATTEMPTS or row["attempts"] < FAILED_SHARE * made:
            continue
        found.append(_failed(row, made, totals))
    return found


def _failed(row: dict[str, Any], made: int, totals: _Totals) -> dict[str, Any]:
    tokens = row["billed_tokens"]
    billed = "" if tokens is None else f" They report {figure(tokens)} tokens used."
    lost = row["failed_calls"] - row["recovered_calls"]
    return _finding(
        "failed_attempts",
        row["scope"],
        totals,
        title=(
            f"{who(row)}: {figure(row['attempts'])} of {figure(made)} attempts failed "
            f"({percent(row['attempts'], made)}), {percent(row['main_attempts'], row['attempts'])} "
            f"of them {shown_name(row['main_kind'])}; {figure(lost)} calls never came through.{billed}"
        ),
        evidence="counts",
        tokens=tokens,
        usd=row["cost_usd"],
        seen=(row["first_at"], row["last_at"]),
        query=Leaf(row["model"], row["team"]).failed(),
        advice=ADVICE["failed_attempts"],
    )
