"""What the report says of sums: beside calls, with the difference, and never added to them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import polars as pl

from reports.audit_json import AuditInputs, audit_document
from reports.decision import decision
from reports.page import render
from reports.sums import SUMS_SCHEMA, sums_sentences
from tests.reports.conftest import HOSTILE, START
from warehouse import tables


def sums(*rows: dict) -> pl.DataFrame:
    base = {
        "source": "openai",
        "provider": "openai",
        "model": "gpt-5",
        "day": START.date(),
        "first_at": START,
        "last_at": START + timedelta(days=1),
        "provisional_from": START,
        "sums": 1,
        "sums_not_counted": 0,
    }
    return pl.DataFrame([base | row for row in rows], schema=SUMS_SCHEMA)


def usage(*rows: dict) -> pl.DataFrame:
    base = {
        "hour_at": START,
        "gateway": "litellm",
        "provider": "openai",
        "model": "gpt-5",
        "status": "ok",
        "usage_origin": "reported",
        "requests": 1,
        "requests_usage_missing": 0,
        "requests_cache_unknown": 0,
    }
    return tables.USAGE_HOURLY.conform(pl.DataFrame([base | row for row in rows], infer_schema_length=None))


def entries(told, calls) -> dict:
    document = audit_document(AuditInputs(title="x", sums=told, usage_hourly=calls))
    return {(row["source"], row["model"]): row for row in document["reconciliation"]}


def test_a_provider_that_shows_nine_calls_stands_beside_a_log_with_eight():
    """B029: the count by the provider, by the log, and how much of it the log covers."""
    told = sums({"requests": 9, "input_tokens": 900, "output_tokens": 90})
    calls = usage(
        {"requests": 5, "input_tokens": 500, "output_tokens": 50},
        {"requests": 3, "input_tokens": 300, "output_tokens": 30, "hour_at": START + timedelta(hours=3)},
        {"requests": 70, "provider": "azure"},
        {"requests": 60, "status": "error"},
        {"requests": 50, "response_cache_hit": True},
        {"requests": 40, "hour_at": START + timedelta(days=1)},
    )
    found = entries(told, calls)
    assert set(found) == {("openai", None), ("openai", "gpt-5")}
    for row in found.values():
        assert row["requests"] == {"calls": 8, "sums": 9, "difference": 1, "ratio": 8 / 9}
        assert row["input"] == {"calls": 800, "sums": 900, "difference": 100, "ratio": 8 / 9}
        assert row["hours_with_calls"] == 2


def test_a_gateways_own_sums_hold_failed_calls_where_it_says_so():
    told = sums(
        {
            "source": "litellm",
            "requests": 3,
            "failed_requests": 1,
            "cost_reported": Decimal("0.3"),
            "cost_currency": "USD",
        }
    )
    calls = usage({"requests": 2, "cost_reported": Decimal("0.1")}, {"requests": 1, "status": "error"})
    row = entries(told, calls)["litellm", None]
    assert row["requests"]["difference"] == 0
    assert row["cost_usd"] == {"calls": "0.1", "sums": "0.3", "difference": "0.2", "ratio": 1 / 3}
    assert row["output"] == {"calls": None, "sums": None, "difference": None, "ratio": None}


def test_sums_of_a_source_that_no_call_names_have_no_counterpart():
    assert entries(sums({"source": "anthropic", "provider": "anthropic"}), usage({})) == {}


def test_an_audit_of_sums_alone_says_what_they_tell_and_what_they_can_not():
    """Tokens by model and day, money as stated, and that peaks and sizing need calls."""
    told = sums(
        {"requests": 9, "input_tokens": 900, "cost_reported": Decimal("1.25"), "cost_currency": "USD"},
        {
            "model": f"m{HOSTILE}",
            "requests": 1,
            "day": date(2026, 11, 17),
            "first_at": START + timedelta(days=1),
        },
        {"model": "view", "sums": 2, "sums_not_counted": 2},
    )
    inputs = AuditInputs(title="x", sums=told)
    document = audit_document(inputs)
    part = document["usage_buckets"]
    assert [(row["model"], row["requests"], row["costs"]) for row in part["by_model"]] == [
        ("gpt-5", 9, {"USD": "1.25"}),
        (f"m{HOSTILE}", 1, {}),
    ]
    assert [(row["day"], row["requests"]) for row in part["by_day"]] == [("2026-11-16", 9), ("2026-11-17", 1)]
    assert (part["sources"][0]["sums"], part["sources"][0]["sums_not_counted"]) == (4, 2)
    assert document["tokens"]["input"] is None
    assert document["window"]["end"] == "2026-11-17T00:00:00Z"
    decided = decision(document)
    assert "no calls. Peaks and sizing need logs of calls" in decided.headline
    assert "openai 1.25 USD" in decided.money_line
    assert len(sums_sentences(document)) == 3
    page = render(document, inputs, decided)
    assert "What sources state in sums" in page
    assert HOSTILE not in page


def test_a_sum_of_an_open_day_is_told_to_be_provisional():
    """B084: no alarm on the day that was still growing; the page says from when on."""
    since = datetime(2026, 11, 18, tzinfo=UTC)
    document = audit_document(AuditInputs(title="x", sums=sums({"provisional_from": since})))
    assert document["usage_buckets"]["sources"][0]["provisional_from"] == "2026-11-18T00:00:00Z"
    assert any("2026-11-18" in line for line in sums_sentences(document))


def test_engines_counters_are_in_the_same_table():
    from tests.reports.test_engines import engines
    from tests.reports.test_engines import usage as engine_usage

    document = audit_document(
        AuditInputs(
            title="x",
            engines=engines({"instance": "a", "generated_tokens": 70.0}),
            usage_hourly=engine_usage((0, 60, False)),
        )
    )
    [row] = document["reconciliation"]
    assert (row["source"], row["model"], row["output"]["difference"]) == ("engines", "M", 10)
    assert document["engines_against_gateway"][0]["difference_tokens"] == 10
