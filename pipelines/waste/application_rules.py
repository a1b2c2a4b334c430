"""Rules over the calls of applications: which calls they concern, what these carried, and from when on it matters.

Belongs here: the shape of a rule, and one pass over the calls that measures any number of them. Does not belong here:
the rules themselves, each in a module named after what it finds (`streams.py`, `routing_candidates.py` ...), and their
words (`application_sentences.py`).

A rule says of one call whether it is concerned, and of one application whether that is worth a word: by a least number
of calls, a least share of them, and where it compares, by the same of others. What lies below is measured all the same
and stands in the mart with `is_finding` false.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from parsers.records import MONEY
from pipelines.waste.applications import APP, app_scope, rows_of
from pipelines.waste.findings import Step
from pipelines.waste.scopes import known_sum

LEAST_CALLS = 10
"""Fewer calls than these are no habit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What to look for in the calls of an application.

    Expressions over calls (`applications.judged_calls` with the columns of their prices):
        behind: whether the rule concerns the call; null counts as no.
        tokens, usd: what of it, null if unknown.
        among: the calls that could have been concerned.
        change: what acting on it does to the call, by column of `findings.BEHIND`; with `step`, its place in the order
            of application. Without one, no saving is claimed.
    `further` are aggregations over the calls of an application; `derive` turns the sums of all applications (columns
    `requests`, `requests_judged`, `tokens`, `usd` and those of `further`) into the same with more columns, where
    applications are held against each other; `material` says of a row of these whether it is a finding.
    `rows` gives SQL over `requests` that lists the calls behind, for a row of the sums (not needed with a step: then the
    calls themselves are kept); `basis` says what the money is:
    exact, estimate (of what would be saved), upper_bound, what_if, or none.
    """

    kind: str
    basis: str
    behind: pl.Expr
    material: pl.Expr
    rows: Callable[[dict[str, Any]], str] | None = None
    tokens: pl.Expr = field(default_factory=lambda: pl.col("input_tokens") + pl.col("output_tokens"))
    usd: pl.Expr = field(default_factory=lambda: pl.lit(None, MONEY))
    among: pl.Expr = field(default_factory=lambda: pl.col("started_at").is_not_null())
    evidence: str = "counts"
    step: Step | None = None
    change: Mapping[str, pl.Expr] = field(default_factory=dict)
    further: tuple[pl.Expr, ...] = ()
    derive: Callable[[pl.DataFrame], pl.DataFrame] = lambda sums: sums


def where(condition: str) -> Callable[[dict[str, Any]], str]:
    """The judged calls of an application for which `condition` holds; `{column}` in it is one of the sums."""
    return lambda sums: rows_of(sums, condition.format_map(sums))


def of_requests(share: float, least: int = LEAST_CALLS) -> pl.Expr:
    """Whether the calls behind are at least so many, and at least such a share of those that could be."""
    requests = pl.col("requests")
    return (requests >= least) & (requests >= share * pl.col("requests_judged"))


def measured(calls: pl.LazyFrame, rules: Sequence[Rule]) -> list[pl.DataFrame]:
    """Sums per application, one frame per rule, in one pass that holds sums and no calls.

    Args:
        calls: what the rules' expressions read; APP, `started_at`.
        rules: with kinds of their own.

    Returns:
        per rule APP, `scope, kind, basis, requests_judged, requests, input_tokens, output_tokens, tokens, usd,
        requests_unpriced, first_at, last_at, is_finding`, and the columns of `further` and `derive`; applications
        without a call behind are left out.

    """
    # What is a plain column by then is summed without a look at the calls of an application one by one.
    marked = calls.with_columns(expression for rule in rules for expression in _marks(rule))
    sums = (
        marked.group_by(APP)
        .agg(expression for rule in rules for expression in _sums(rule))
        .collect(engine="streaming")
    )
    return [_judged(sums, rule) for rule in rules]


def _marks(rule: Rule) -> list[pl.Expr]:
    """Per call, whether the rule concerns it, and what of it; tokens and money are null where it does not."""
    behind = rule.behind.fill_null(value=False)
    marks = {
        "behind": behind,
        "tokens": pl.when(behind).then(rule.tokens),
        "usd": pl.when(behind).then(rule.usd),
    }
    return [expression.alias(f"{rule.kind}:{name}") for name, expression in marks.items()]


def _sums(rule: Rule) -> list[pl.Expr]:
    behind, tokens, usd = (pl.col(f"{rule.kind}:{name}") for name in ("behind", "tokens", "usd"))

    def of_them(name: str) -> pl.Expr:
        return pl.when(behind).then(name)

    named = {
        "requests_judged": rule.among.fill_null(value=False).sum().cast(pl.Int64),
        "requests": behind.sum().cast(pl.Int64),
        "input_tokens": of_them("input_tokens").sum(),
        "output_tokens": known_sum(of_them("output_tokens")),
        "tokens": known_sum(tokens),
        "usd": known_sum(usd),
        "requests_unpriced": (behind & usd.is_null()).sum().cast(pl.Int64),
        "first_at": of_them("started_at").min(),
        "last_at": of_them("started_at").max(),
    }
    own = [expression.alias(name) for name, expression in named.items()]
    return [expression.name.prefix(f"{rule.kind}:") for expression in (*own, *rule.further)]


def _judged(sums: pl.DataFrame, rule: Rule) -> pl.DataFrame:
    prefix = f"{rule.kind}:"
    own = [name for name in sums.columns if name.startswith(prefix)]
    frame = sums.select(*APP, *(pl.col(name).alias(name.removeprefix(prefix)) for name in own))
    return (
        rule.derive(frame)
        .with_columns(
            app_scope(),
            pl.lit(rule.kind).alias("kind"),
            pl.lit(rule.basis).alias("basis"),
            is_finding=rule.material.fill_null(value=False),
        )
        .filter(pl.col("requests") > 0)
        .sort("scope")
    )


def calls_behind(calls: pl.LazyFrame, rule: Rule, found: pl.DataFrame) -> pl.DataFrame:
    """The calls behind the findings of a rule, and what acting on it does to each.

    Args:
        calls: as for `measured`, with `source_file, source_line`.
        rule: one with a step.
        found: its applications, of `measured`.

    Returns:
        columns of `findings.BEHIND`: one row per call.

    """
    names = found.select(*APP, finding=pl.format("{}/{}", "kind", "scope"))
    return (
        calls.filter(rule.behind)
        .join(names.lazy(), on=APP, how="inner", nulls_equal=True)
        .select(
            pl.col("finding").cast(pl.Categorical),
            pl.col("source_file").cast(pl.Categorical),
            "source_line",
            *(change.alias(name) for name, change in rule.change.items()),
        )
        .collect(engine="streaming")
        .sort("finding", "source_file", "source_line")
    )
