"""Which of several views of the same usage counts: tokens and money once, by source, model and day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl

from parsers.records import USAGE_BUCKETS
from pipelines.demand.sums import counted_sums

DAY = datetime(2026, 5, 4, tzinfo=UTC)


def buckets(*rows: dict) -> pl.LazyFrame:
    base = {
        "source_format": "f",
        "source_file": "a",
        "report": "openai usage completions",
        "provider": "openai",
        "operation": "chat",
        "started_at": DAY,
        "ended_at": DAY + timedelta(days=1),
        "flags": [],
    }
    made = [{"source_line": n, **base, **row} for n, row in enumerate(rows, 1)]
    return USAGE_BUCKETS.conform(pl.DataFrame(made, infer_schema_length=None)).lazy()


def test_pages_grouped_in_two_ways_are_one_usage():
    """By model and by project: the one that names models counts, whole."""
    told = counted_sums(
        buckets(
            {"model": "m1", "input_tokens": 60, "output_tokens": 6, "requests": 6},
            {"model": "m2", "input_tokens": 40, "output_tokens": 4, "requests": 4},
            {"source_file": "b", "project": "p", "input_tokens": 99, "output_tokens": 9, "requests": 9},
            {"source_file": "b", "project": "q", "input_tokens": 1, "output_tokens": 1, "requests": 1},
        )
    )
    assert told["input_tokens"].sum() == 100
    assert dict(told.select("model", "sums_not_counted").iter_rows()) == {"m1": 0, "m2": 0, "unknown": 2}


def test_a_default_workspace_is_part_of_its_report():
    """Null in one row of a grouped report is a group of its own, not another view."""
    told = counted_sums(buckets({"model": "m", "project": "p", "requests": 3}, {"model": "m", "requests": 4}))
    assert told["requests"].to_list() == [7]


def test_tokens_and_money_of_two_reports_and_of_two_operations_stand_together():
    told = counted_sums(
        buckets(
            {"model": "m", "input_tokens": 10, "requests": 1},
            {"model": "e", "operation": "embedding", "report": "openai usage embeddings", "input_tokens": 5},
            {
                "source_file": "c",
                "report": "openai costs",
                "operation": None,
                "model": "m",
                "line_item": "m, input",
                "cost_reported": Decimal("1.5"),
                "cost_currency": "USD",
            },
        )
    )
    assert told["input_tokens"].sum() == 15
    assert told["cost_reported"].sum() == Decimal("1.5")
    assert told["sums_not_counted"].sum() == 0


def test_a_table_by_tag_never_counts_beside_another():
    """A call with two tags is in two rows: 2 x 100 tokens by tag are 100 by user."""
    litellm = {"gateway": "litellm", "operation": None, "model": "m", "api_key_hash": "k"}
    told = counted_sums(
        buckets(
            {**litellm, "report": "litellm daily user", "user": "u", "input_tokens": 100, "requests": 1},
            {**litellm, "report": "litellm daily tag", "tags": ["a"], "input_tokens": 100, "requests": 1},
            {**litellm, "report": "litellm daily tag", "tags": ["b"], "input_tokens": 100, "requests": 1},
        )
    )
    assert told.select("source", "input_tokens", "requests", "sums_not_counted").rows() == [
        ("litellm", 100, 1, 2)
    ]


def test_hours_and_the_day_of_the_same_usage_count_once():
    hours = [
        {
            "source_file": "h",
            "model": "m",
            "requests": 1,
            "input_tokens": 10,
            "started_at": DAY + timedelta(hours=n),
            "ended_at": DAY + timedelta(hours=n + 1),
        }
        for n in range(3)
    ]
    told = counted_sums(buckets({"model": "m", "requests": 3, "input_tokens": 30}, *hours))
    assert told["requests"].to_list() == [3]
    assert told["provisional_from"].to_list() == [DAY + timedelta(hours=2)]


def test_no_bucket_gives_no_row_and_unknown_stays_unknown():
    assert counted_sums(USAGE_BUCKETS.empty().lazy()).is_empty()
    told = counted_sums(buckets({"model": "m", "input_tokens": 0}))
    assert told.select("requests", "input_tokens", "output_tokens").row(0) == (None, 0, None)
