"""Mart `application_waste` and the findings of its rules.

Belongs here: which rules there are, the columns that they read, and the order of the passes. Does not belong here: any
rule, its words (`application_sentences.py`).

Passes over the facts hold sums of applications, not calls; what each rule's own measures hold besides stands in its
module. The calls behind the findings that claim a saving are kept: about 40 bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.costs.calls import price_keys
from pipelines.pricing import base_prices
from pipelines.waste.application_rules import Rule, calls_behind, measured
from pipelines.waste.application_sentences import ADVICE, TITLES
from pipelines.waste.applications import APP, judged_calls
from pipelines.waste.attempts import REPEATED, TIMEOUT, attempts
from pipelines.waste.batchable import BATCHABLE, night_hours, regular_applications
from pipelines.waste.call_prices import call_usd, price_columns, with_list_prices
from pipelines.waste.embeddings import DUPLICATES, embedding_calls
from pipelines.waste.findings import Finding, Found
from pipelines.waste.limits import LIMIT, NEAR, UNBOUNDED
from pipelines.waste.reasoning import REASONING
from pipelines.waste.routing_candidates import ROUTING, listed_models, small_model_prices
from pipelines.waste.row_prices import PRICE_KEY, PRICES_SCHEMA
from pipelines.waste.streams import ABANDONED, TRUNCATION
from warehouse.application_tables import APPLICATION_WASTE
from warehouse.prices import unit_prices

GENERATING = (ABANDONED, TRUNCATION, ROUTING, REASONING, BATCHABLE, NEAR, LIMIT, UNBOUNDED)
ATTEMPTS = (REPEATED, TIMEOUT)
EMBEDDINGS = (DUPLICATES,)


@dataclass(frozen=True, slots=True)
class Prices:
    """Price lists that rules compare (`PRICES_SCHEMA`), and per key what they call the model (`listed_models`)."""

    standard: pl.DataFrame
    batch: pl.DataFrame
    small: pl.DataFrame
    listed: pl.DataFrame


def price_lists(requests: pl.LazyFrame, prices: pl.DataFrame, overrides: pl.DataFrame | None) -> Prices:
    """The lists for what occurs in the log.

    Args:
        requests: rows of `requests`.
        prices: its UNIT_PRICES.
        overrides: a site's own prices.

    """
    keys = price_keys(requests).select("provider", "model", "day").unique(maintain_order=True)
    batch = unit_prices(keys.with_columns(processing=pl.lit("batch")), overrides=overrides)
    below_steps = batch.filter(pl.col("context_tier_start") == 0).select(PRICES_SCHEMA.names())
    listed = listed_models(keys)
    small = small_model_prices(keys, listed, overrides)
    by_key = keys.join(listed, on=["provider", "model"], how="left", nulls_equal=True)
    return Prices(base_prices(prices), below_steps, small, by_key)


def application_waste(
    requests: pl.LazyFrame, prices: Prices, lengths: pl.DataFrame
) -> tuple[pl.DataFrame, Found]:
    """Measure every rule on every application.

    Args:
        requests: rows of `requests`.
        prices: the lists that rules compare.
        lengths: of `limits.application_lengths`.

    Returns:
        The mart `application_waste`, and its findings.

    """
    calls = _with_what_rules_read(judged_calls(requests), requests, lengths, prices)
    others = [
        with_list_prices(part(requests), prices.standard, "list") for part in (attempts, embedding_calls)
    ]
    rows, found = [], []
    for population, rules in zip((calls, *others), (GENERATING, ATTEMPTS, EMBEDDINGS), strict=True):
        for rule, sums in zip(rules, measured(population, rules), strict=True):
            rows.append(sums.with_columns(application=pl.col("app")).select(APPLICATION_WASTE.names))
            found.append(_found(population, rule, sums.filter("is_finding")))
    return APPLICATION_WASTE.conform(pl.concat(rows).sort("scope", "kind")), Found.together(found)


def _with_what_rules_read(
    calls: pl.LazyFrame, requests: pl.LazyFrame, lengths: pl.DataFrame, prices: Prices
) -> pl.LazyFrame:
    """Adds prices, what the log's format states, marks of the application, and whether it is night."""
    formats = requests.group_by("source_format").agg(
        states_stream=pl.col("stream").any(),
        states_limit=pl.col("max_output_tokens").count() > 0,
    )
    night = night_hours(calls)
    lists = {"list": prices.standard, "batch": prices.batch, "small": prices.small}
    # A join of many calls is dear, one of their keys is not: so what has the same key comes in one.
    of_model = prices.listed.join(price_columns(lists), on=list(PRICE_KEY), how="left", nulls_equal=True)
    marks = lengths.select(*APP, "near_tokens", "context_tokens", "runaway_tokens", "output_p99").join(
        regular_applications(calls), on=APP, how="left", nulls_equal=True
    )
    return (
        calls.join(formats, on="source_format", how="left")
        .join(of_model.lazy(), on=list(PRICE_KEY), how="left", nulls_equal=True)
        .join(marks.lazy(), on=APP, how="left", nulls_equal=True)
        .with_columns(
            *(call_usd(name).alias(f"{name}_usd") for name in lists),
            is_night=pl.col("started_at").dt.hour().cast(pl.Int64).is_in(night),
        )
    )


def _found(calls: pl.LazyFrame, rule: Rule, sums: pl.DataFrame) -> Found:
    findings = [_finding(rule, row) for row in sums.iter_rows(named=True)]
    if rule.step is None or not findings:
        return Found.of(findings)
    return Found.of(findings, calls_behind(calls, rule, sums))


def _finding(rule: Rule, sums: dict[str, Any]) -> Finding:
    return Finding(
        kind=rule.kind,
        scope=sums["scope"],
        model=sums["model"],
        team=sums["team"],
        application=sums["app"],
        step=rule.step,
        title=TITLES[rule.kind](sums),
        evidence_level=rule.evidence,
        advice=ADVICE[rule.kind],
        tokens=sums["tokens"],
        usd=sums["usd"],
        first_at=sums["first_at"],
        last_at=sums["last_at"],
        requests=sums["requests"],
        query=None if rule.rows is None else rule.rows(sums),
    )
