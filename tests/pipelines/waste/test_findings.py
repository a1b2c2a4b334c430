"""Findings: none on clean data, one per leaf on dirty data, with queries that run and list the rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.sizing.freed_capacity import FREED
from pipelines.waste.application_waste import ATTEMPTS, EMBEDDINGS, GENERATING
from pipelines.waste.caching_rules import default_rules
from pipelines.waste.call_findings import failure_findings, oversize_findings
from pipelines.waste.findings import Found, ranked, waste_findings
from pipelines.waste.net_savings import SPENT, net_savings
from pipelines.waste.oversize import oversize_calls
from pipelines.waste.repetition import repeated_prefixes
from pipelines.waste.repetition_findings import repetition_by_leaf, repetition_findings
from pipelines.waste.retries import failed_attempts
from pipelines.waste.reuse_findings import CAUSES_FOUND
from pipelines.waste.rows_query import text_literal
from pipelines.waste.sentences import ADVICE, figure, shown_name
from warehouse.waste_tables import FINDING_CALLS, FINDINGS

RULES = default_rules()


def weighed(
    frame: pl.DataFrame, prices: pl.DataFrame, total_usd: Decimal | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Findings of a log and the calls behind them; each lists as many as it says."""
    requests = frame.lazy()
    calls = repeated_prefixes(requests, prices, RULES)
    leaves = repetition_by_leaf(calls)
    parts = [
        repetition_findings(calls, leaves, requests, prices),
        oversize_findings(oversize_calls(requests, prices), requests, prices),
        failure_findings(failed_attempts(requests), leaves),
    ]
    savings, behind = net_savings(Found.together(parts), requests, prices, SPENT.to_frame())
    findings = waste_findings(savings, FREED.to_frame(), total_usd, leaves["input_tokens"].sum())
    assert FINDINGS.problems(findings) == {}
    assert FINDING_CALLS.problems(behind) == {}
    assert findings.schema == FINDINGS.schema
    for query, count in findings.select("rows_query", "requests").iter_rows():
        assert len(listed(frame, behind, query)) == count
    return findings, behind


def found(frame: pl.DataFrame, prices: pl.DataFrame, total_usd: Decimal | None = None) -> pl.DataFrame:
    """Findings of a log."""
    return weighed(frame, prices, total_usd)[0]


def listed(frame: pl.DataFrame, behind: pl.DataFrame, query: str) -> list[int]:
    """Lines that the query lists when it runs over the rows."""
    con = duckdb.connect()
    con.execute("set timezone = 'UTC'")
    con.register("requests", frame.to_arrow())
    con.register("finding_calls", behind.to_arrow())
    return sorted(row[1] for row in con.execute(query).fetchall())


def fresh(line: int, **what: object) -> dict[str, object]:
    """A call whose prompt nobody sent before."""
    return {
        "prefix_hashes": [line * 1000, line * 1000 + 1],
        "prefix_token_counts": [1024, 2048],
        "prompt_hash": line,
        "input_tokens": 2050 + line % 7,
        "output_tokens": 100,
        "cache_read_tokens": 0,
        **what,
    }


def repeated(**what: object) -> dict[str, object]:
    return {**fresh(5), **what}


def test_a_clean_week_has_no_findings(requests_of, prices_of):
    """No repetition, no odd sizes, one failure in a hundred."""
    rows = [fresh(line, s=line * 60.0) for line in range(1, 300)]
    rows += [{"status": "error", "usage_origin": "missing", "error_kind": "timeout", "s": 70.0}] * 3
    frame = requests_of(rows)
    assert found(frame, prices_of(frame, input="2", cache_read="1", output="8")).is_empty()
    assert found(REQUESTS.empty(), prices_of(frame)).is_empty()


def test_repetition_well_read_from_cache_is_no_finding(requests_of, prices_of):
    frame = requests_of(
        [repeated(prompt_hash=None), *[repeated(prompt_hash=None, cache_read_tokens=2048)] * 50]
    )
    assert found(frame, prices_of(frame, input="2", cache_read="1")).is_empty()


def test_missed_cache_of_each_leaf_once_with_money_and_rows(requests_of, prices_of):
    rows = [fresh(line, s=line) for line in range(20, 40)]
    rows += [
        repeated(s=50.0 + k, team=team, prompt_hash=None) for k, team in enumerate(["a", "a", "b", None] * 5)
    ]
    frame = requests_of(rows)
    prices = prices_of(frame, input="2", cache_read="1")
    findings, behind = weighed(frame, prices, Decimal("0.1"))
    assert set(findings["kind"]) == {"missed_cache"}
    assert set(findings["scope"]) == {f"model:gpt-4o/team:{team}" for team in ("a", "b", "")}
    calls = repeated_prefixes(frame.lazy(), prices, RULES)
    assert findings["usd"].sum() == calls["missed_usd"].sum(), "leaves add up, nothing twice"
    assert set(findings["severity"]) == {"high"}
    for row in findings.iter_rows(named=True):
        team = row["scope"].split("team:")[1] or None
        missed = calls.filter(
            (pl.col("missed_tokens") > 0) & pl.col("team").eq_missing(pl.lit(team, pl.String))
        )
        assert listed(frame, behind, row["rows_query"]) == sorted(missed["source_line"])
        assert row["evidence_level"] == "hash_chain"
        assert row["first_at"] == missed["started_at"].min()


def test_unreported_reads_sessions_and_repeated_prompts(requests_of, prices_of):
    rows = [repeated(team="silent", cache_read_tokens=None, prompt_hash=None)] * 6
    rows += [
        {"team": "talk", "input_tokens": 2000 + 100 * k, "output_tokens": 10, "session_id": "s"}
        for k in range(5)
    ]
    rows += [{"team": "faq", "input_tokens": 300, "output_tokens": 40, "prompt_hash": 9} for _ in range(12)]
    frame = requests_of(rows)
    findings, behind = weighed(frame, prices_of(frame, input="2", cache_read="1", output="10"))
    assert set(findings["id"]) == {
        "cache_unreported/model:gpt-4o/team:silent",
        "session_resend/model:gpt-4o/team:talk",
        "response_cache/model:gpt-4o/team:faq",
    }
    by_kind = {row["kind"]: row for row in findings.iter_rows(named=True)}
    assert by_kind["cache_unreported"]["usd"] is None
    assert by_kind["cache_unreported"]["tokens"] == 5 * 2048
    assert listed(frame, behind, by_kind["cache_unreported"]["rows_query"]) == [2, 3, 4, 5, 6]
    assert by_kind["session_resend"]["evidence_level"] == "session"
    assert "upper bound" in by_kind["session_resend"]["title"]
    assert listed(frame, behind, by_kind["session_resend"]["rows_query"]) == [8, 9, 10, 11]
    assert by_kind["response_cache"]["tokens"] == 11 * (300 + 40), "the whole call need not be made"
    assert by_kind["response_cache"]["usd"] == 11 * Decimal("0.001")
    assert by_kind["response_cache"]["application_order"] == 2
    assert by_kind["session_resend"]["application_order"] is None
    assert listed(frame, behind, by_kind["response_cache"]["rows_query"]) == list(range(13, 24))


def test_oversize_and_failures(requests_of, prices_of):
    rows = [fresh(line) for line in range(1, 201)]
    rows += [
        fresh(line, input_tokens=90_000, prefix_hashes=None, project="p", output_tokens=2)
        for line in range(201, 261)
    ]
    rows += [{"status": "error", "usage_origin": "missing", "error_kind": "timeout", "project": "q"}] * 20
    frame = requests_of(rows)
    findings, behind = weighed(frame, prices_of(frame, input="2", cache_read="1", output="10"))
    by_kind = {row["kind"]: row for row in findings.iter_rows(named=True)}
    assert set(by_kind) == {"oversize", "failed_attempts"}
    assert len(findings) == 2, "the outlier rule on the same calls is not reported beside"
    assert by_kind["oversize"]["scope"] == "model:gpt-4o/team:search/project:p"
    assert listed(frame, behind, by_kind["oversize"]["rows_query"]) == list(range(201, 261))
    assert listed(frame, behind, by_kind["failed_attempts"]["rows_query"]) == list(range(261, 281))
    assert "20 of 280 attempts failed (7.14 %)" in by_kind["failed_attempts"]["title"]


def test_a_repeated_prompt_that_was_missed_too_is_saved_once(requests_of, prices_of):
    rows = [repeated(s=float(k)) for k in range(21)]
    frame = requests_of(rows)
    findings = found(frame, prices_of(frame, input="2", cache_read="1", output="10"), Decimal(1))
    by_kind = {row["kind"]: row for row in findings.iter_rows(named=True)}
    assert by_kind["missed_cache"]["usd"] > 0
    assert (by_kind["missed_cache"]["tokens_net"], by_kind["missed_cache"]["usd_net"]) == (0, 0)
    assert by_kind["missed_cache"]["severity"] == "info", "severity is that of the net share"
    assert by_kind["response_cache"]["usd_net"] == by_kind["response_cache"]["usd"]
    assert findings["kind"].to_list() == ["response_cache", "missed_cache"]


def test_findings_are_ranked_by_net_money_then_tokens_and_those_without_money_stay():
    rows = [
        ("much", None, None, 900),
        ("dear", Decimal(5), 10, 10),
        ("as dear", Decimal(5), 40, 40),
        ("overlapped", Decimal(0), 0, 10_000),
        ("more", None, 1000, 5000),
    ]
    frame = FINDINGS.conform(
        pl.DataFrame(rows, schema=["id", "usd_net", "tokens_net", "tokens"], orient="row")
    )
    assert ranked(frame)["id"].to_list() == ["as dear", "dear", "overlapped", "more", "much"]


HOSTILE = [
    "'; DROP VIEW requests; --",
    "a'b\"c",
    "x\ny",
    "<script>alert(1)</script>",
    "%s{}\\'",
    "团队",
    "a\x00b",
    "  ",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_literals_in_sql_and_one_line_in_titles(requests_of, prices_of, name):
    rows = [repeated(team=name, model_served=name, prompt_hash=None)] * 3
    rows += [
        {"status": "error", "usage_origin": "missing", "team": name, "model_served": name, "error_kind": name}
    ] * 10
    frame = requests_of(rows)
    findings, behind = weighed(frame, prices_of(frame))
    assert set(findings["kind"]) == {"missed_cache", "failed_attempts"}
    for row in findings.iter_rows(named=True):
        expected = [2, 3] if row["kind"] == "missed_cache" else list(range(4, 14))
        assert listed(frame, behind, row["rows_query"]) == expected
        assert row["title"].isprintable()


@given(st.text())
@settings(max_examples=50, deadline=None)
def test_any_text_survives_as_a_literal(text):
    assert duckdb.execute(f"SELECT {text_literal(text)}").fetchall() == [(text,)]


def test_figures_have_three_digits_and_names_are_cut():
    values = [0, 7, 999, 1000, 1049, 99_950, 999_499, 999_999, 1_240_000, 9_800_000_000]
    assert [figure(v) for v in values] == [
        "0", "7", "999", "1.00 k", "1.05 k", "100 k", "999 k", "1.00 M", "1.24 M", "9.80 G"
    ]  # fmt: skip
    assert len(shown_name("x" * 500)) == 80
    assert shown_name("a\nb\u202ec") == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"


@pytest.mark.parametrize("name", ["", "plain", "it's", "a\x1b[31mred", "\u202e\x00", "'\n'", "日本\u200b"])
def test_a_literal_of_any_name_is_printable_and_means_the_name(name: str) -> None:
    literal = text_literal(name)
    assert literal.isprintable()
    assert duckdb.sql(f"SELECT {literal}").fetchall() == [(name,)]


def test_every_kind_is_explained_to_its_reader():
    page = (Path(__file__).parents[3] / "docs" / "waste.md").read_text(encoding="utf-8")
    rules = (*GENERATING, *ATTEMPTS, *EMBEDDINGS)
    kinds = {rule.kind for rule in rules} | set(CAUSES_FOUND) | {kind.partition("/")[0] for kind in ADVICE}
    table = page.partition("## Kinds of findings")[2].partition("\n## ")[0]
    rows = "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    assert {kind for kind in kinds if f"`{kind}`" not in rows} == {"rule_assumed"}
