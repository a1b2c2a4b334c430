"""Findings about repetition: prefixes that were not read from cache, and whole prompts that were answered before.

Belongs here: their thresholds, their sentences, the calls behind them. Does not belong here: what repeats and what was
missed (`repetition.py`), net savings and ranking.

Kinds, of leaves (model and team):
    missed_cache: cacheable, not read from cache (exact evidence, money).
    cache_unreported: cacheable where the log does not say what was read from cache; claims no saving.
    session_resend: history sent again, an upper bound from sessions and counts; claims no saving.
    response_cache: whole prompts that had been answered (calls that generate; embeddings have a kind of their own). The
        call need not be made: its tokens and money are all of the call's, and what it missed in the cache is not saved a
        second time (see the order of application). An upper bound: parameters of sampling are not among the facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from pipelines.waste.cause_sentences import WHAT_TO_CHANGE
from pipelines.waste.evidence import EXACT
from pipelines.waste.findings import Finding, Found, conformed
from pipelines.waste.net_savings import alone
from pipelines.waste.repetition import known_missed_usd
from pipelines.waste.scopes import known_sum, leaf_scope
from pipelines.waste.sentences import ADVICE, figure, money, percent, who

MISSED_SHARE = 0.01
"""Least share of a leaf's input that was missed."""
UNREPORTED_SHARE = 0.10
"""Least share of a leaf's input that repeats, where reads are unknown or the repetition is an estimate."""
REPEATED_SHARE, REPEATED_CALLS = 0.01, 10
"""Least share and number of a leaf's calls that repeat a whole prompt."""

_LEAF = ["model", "team"]
_Row = Mapping[str, Any]


def repetition_findings(
    calls: pl.DataFrame, leaves: pl.DataFrame, requests: pl.LazyFrame, prices: pl.DataFrame
) -> Found:
    """Say which leaves send again what they need not.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        leaves: their sums of `repetition_by_leaf`.
        requests: rows of `requests`, the same calls.
        prices: frame of `row_prices.PRICES_SCHEMA`.

    """
    worth_it = {
        "missed_cache": leaves.filter(_exceeds("missed_tokens", MISSED_SHARE)),
        "cache_unreported": leaves.filter(_exceeds("unreported_tokens", UNREPORTED_SHARE)),
        "session_resend": leaves.filter(_exceeds("upper_bound_tokens", UNREPORTED_SHARE)),
        "response_cache": leaves.filter(
            pl.col("repeats") >= pl.max_horizontal(REPEATED_CALLS, REPEATED_SHARE * pl.col("hashed_prompts"))
        ),
    }
    changes = {"missed_cache": _read_from_cache(), "response_cache": _not_made()}
    behind = {
        kind: _behind(calls.filter(when), kind, worth_it[kind], changes.get(kind, []))
        for kind, when in _whens().items()
    }
    repeated = alone(requests, prices, conformed(behind["response_cache"]))
    saved = {row["id"]: row for row in repeated.iter_rows(named=True)}
    findings = [
        *map(_missed, worth_it["missed_cache"].iter_rows(named=True)),
        *map(_unreported, worth_it["cache_unreported"].iter_rows(named=True)),
        *map(_resent, worth_it["session_resend"].iter_rows(named=True)),
        *_repeated(worth_it["response_cache"].iter_rows(named=True), saved),
    ]
    return Found.of(findings, *behind.values())


def repetition_by_leaf(calls: pl.DataFrame) -> pl.DataFrame:
    """What findings say of repetition, for each pair of model and team.

    Args:
        calls: calls of `repetition.repeated_prefixes`.

    """
    whens = _whens()
    missed, unreported = whens["missed_cache"], whens["cache_unreported"]
    chained = pl.col("evidence") == "hash_chain"
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
        (missed & chained).any().alias("missed_by_chain"),
        pl.col("cacheable_tokens").filter(unreported).sum().alias("unreported_tokens"),
        unreported.sum().alias("unreported_requests"),
        (unreported & chained).any().alias("unreported_by_chain"),
        pl.col("upper_bound_tokens").sum(),
        pl.col("prompt_hash").count().alias("hashed_prompts"),
        whens["response_cache"].sum().alias("repeats"),
    ]
    for kind, when in whens.items():
        measures += [
            at.filter(when).min().alias(f"{kind}_first_at"),
            at.filter(when).max().alias(f"{kind}_last_at"),
        ]
    return calls.group_by(_LEAF).agg(*measures).with_columns(leaf_scope()).sort("scope")


def _whens() -> dict[str, pl.Expr]:
    """By kind, which calls are behind it."""
    exact = pl.col("evidence").is_in(EXACT)
    unknown = exact & pl.col("generating") & pl.col("missed_tokens").is_null()
    return {
        "missed_cache": (pl.col("missed_tokens") > 0).fill_null(value=False),
        "cache_unreported": unknown & (pl.col("cacheable_tokens") > 0).fill_null(value=False),
        "session_resend": (pl.col("upper_bound_tokens") > 0).fill_null(value=False),
        "response_cache": pl.col("generating") & pl.col("repeated_prompt").fill_null(value=False),
    }


def _exceeds(tokens: str, share: float) -> pl.Expr:
    return (pl.col(tokens) > 0) & (pl.col(tokens) >= share * pl.col("input_tokens"))


def _read_from_cache() -> list[pl.Expr]:
    missed = pl.col("missed_tokens")
    at_prices = missed * (pl.col("usd_per_input_token") - pl.col("usd_per_cache_read_token"))
    # What is not in these two prices is what writing costs.
    return [missed.alias("read_tokens"), (pl.col("missed_usd") - at_prices).alias("extra_usd")]


def _not_made() -> list[pl.Expr]:
    return [
        pl.col("input_tokens").alias("cut_input_tokens"),
        pl.col("output_tokens").alias("cut_output_tokens"),
    ]


def _behind(calls: pl.DataFrame, kind: str, leaves: pl.DataFrame, change: list[pl.Expr]) -> pl.DataFrame:
    names = leaves.select(*_LEAF, pl.concat_str(pl.lit(f"{kind}/"), "scope").alias("finding"))
    own = calls.select(*_LEAF, "source_file", "source_line", *change)
    return own.join(names, on=_LEAF, nulls_equal=True).drop(_LEAF)


def _share(leaf: _Row, tokens: int) -> str:
    return f"{figure(tokens)} input tokens ({percent(tokens, leaf['input_tokens'])} of its input)"


def _stated(leaf: _Row, kind: str) -> dict[str, Any]:
    """What every finding of a leaf says alike."""
    return {
        "kind": kind,
        **{name: leaf[name] for name in ("scope", "model", "team")},
        "first_at": leaf[f"{kind}_first_at"],
        "last_at": leaf[f"{kind}_last_at"],
    }


def _missed(leaf: _Row) -> Finding:
    tokens, unpriced = leaf["missed_tokens"], leaf["missed_unpriced"]
    partly = (
        f" ({figure(unpriced)} calls without a price)" if unpriced and leaf["missed_usd"] is not None else ""
    )
    kind = "fleet" if not leaf["account"] else "marked" if leaf["writes_charged"] else "automatic"
    assumed = ADVICE["rule_assumed"] if leaf["missed_assumed"] else ""
    why, advice = _why(leaf, ADVICE[f"missed_cache/{kind}"])
    return Finding(
        **_stated(leaf, "missed_cache"),
        step="read",
        title=(
            f"{who(leaf)}: {_share(leaf, tokens)} had been sent before and were not read from "
            f"cache: {money(leaf['missed_usd'])}{partly}.{why}"
        ),
        evidence_level="hash_chain" if leaf["missed_by_chain"] else "prompt_hash",
        tokens=tokens,
        usd=leaf["missed_usd"],
        advice=advice + assumed,
    )


def _why(leaf: _Row, otherwise: str) -> tuple[str, str]:
    """The main cause in words and what to change about it; without one, the advice that holds for any."""
    cause = leaf.get("main_cause")
    if cause is None or cause == "unexplained":
        return "", otherwise
    share = percent(leaf["main_cause_tokens"], leaf["missed_tokens"])
    return f" Main cause: {cause.replace('_', ' ')} ({share} of it).", WHAT_TO_CHANGE[cause]


def _unreported(leaf: _Row) -> Finding:
    tokens = leaf["unreported_tokens"]
    return Finding(
        **_stated(leaf, "cache_unreported"),
        step=None,
        title=(
            f"{who(leaf)}: {_share(leaf, tokens)} had been sent before and could be read from "
            f"cache; for {figure(leaf['unreported_requests'])} calls the log does not say what was."
        ),
        evidence_level="hash_chain" if leaf["unreported_by_chain"] else "prompt_hash",
        tokens=tokens,
        usd=None,
        advice=ADVICE["cache_unreported"],
    )


def _resent(leaf: _Row) -> Finding:
    tokens = leaf["upper_bound_tokens"]
    return Finding(
        **_stated(leaf, "session_resend"),
        step=None,
        title=(
            f"{who(leaf)}: up to {_share(leaf, tokens)} may be history sent again within sessions and "
            "not read from cache (estimate, upper bound)."
        ),
        evidence_level="session",
        tokens=tokens,
        usd=None,
        advice=ADVICE["session_resend"],
    )


def _repeated(leaves: Iterator[_Row], saved: Mapping[str, _Row]) -> Iterator[Finding]:
    for leaf in leaves:
        alone_saved = saved[f"response_cache/{leaf['scope']}"]
        yield Finding(
            **_stated(leaf, "response_cache"),
            step="repeated",
            title=(
                f"{who(leaf)}: {figure(leaf['repeats'])} calls ({percent(leaf['repeats'], leaf['requests'])}) "
                f"repeat a whole prompt that had been answered; a response cache would save at most "
                f"{figure(alone_saved['tokens'])} tokens, {money(alone_saved['usd'])} (upper bound: temperature and other "
                "parameters are not compared)."
            ),
            evidence_level="prompt_hash",
            tokens=alone_saved["tokens"],
            usd=alone_saved["usd"],
            advice=ADVICE["response_cache"],
        )
