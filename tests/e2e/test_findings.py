"""Findings of the example week as they are published: their queries, their ranking, and what may be added up."""

from __future__ import annotations

from decimal import Decimal

import duckdb
import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.waste.net_savings import spent_by_leaf

pytestmark = pytest.mark.slow


@pytest.fixture
def published(audited):
    """The published file as a reader opens it, with the facts beside it as the page says."""
    with duckdb.connect(str(audited.warehouse.published), read_only=True) as connection:
        facts = audited.warehouse.home / "facts" / REQUESTS.name / "**" / "*.parquet"
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TEMP VIEW requests AS SELECT * FROM read_parquet('{facts}')")
        yield connection


def test_each_query_lists_as_many_calls_as_its_finding_says(published):
    findings = published.sql("SELECT id, requests, rows_query FROM findings").fetchall()
    assert findings
    for name, requests, query in findings:
        rows = published.sql(query).fetchall()
        assert len(rows) == requests, name
        assert len({row[:2] for row in rows}) == requests, name


def test_net_figures_add_up_call_by_call(published):
    by_call = """
        SELECT f.id, f.tokens_net, f.usd_net, sum(c.tokens_net), sum(c.usd_net) FROM findings AS f
        JOIN finding_calls AS c ON c.finding = f.id WHERE f.net_basis = 'calls' GROUP BY ALL
    """
    rows = published.sql(by_call).fetchall()
    assert rows
    for name, tokens, usd, tokens_of_calls, usd_of_calls in rows:
        assert (tokens, usd) == (tokens_of_calls, usd_of_calls), name


def test_a_leaf_saves_no_more_than_was_spent_in_it_nor_a_finding_more_than_alone(audited):
    findings = audited.mart("findings")
    saved = findings.group_by("model", "team").agg(pl.col("usd_net").sum())
    spent = spent_by_leaf(audited.mart("cost_lines"))
    both = saved.join(spent, on=["model", "team"], nulls_equal=True)
    assert both.height
    assert (both["usd_net"] <= both["usd"]).all()
    assert (findings["usd_net"] <= findings["usd"]).all()
    assert (findings["tokens_net"] <= findings["tokens"]).all()


def test_findings_stand_by_net_money_and_those_without_behind_by_tokens(audited):
    found = audited.document["findings"]
    money = [None if row["usd_net"] is None else Decimal(row["usd_net"]) for row in found]
    known = [usd for usd in money if usd is not None]
    assert money == [*sorted(known, reverse=True), *[None] * (len(money) - len(known))]
    sizes = [row["tokens_net"] or row["tokens"] or 0 for row in found if row["usd_net"] is None]
    assert sizes == sorted(sizes, reverse=True)
    assert Decimal(audited.document["waste"]["savings"]["usd_net"]) == sum(known)


def test_what_an_api_costs_with_the_waste_removed_is_less_by_the_net_savings(audited):
    """One way, not two: the options are priced by the same figures as the findings."""
    today, later = (
        {row["pool"]: row for row in audited.document["sizing"][scenario]["options"] if row["is_today"]}
        for scenario in ("as_is", "waste_removed")
    )
    lines = audited.mart("cost_lines").filter(pl.col("basis").is_in(["list_price", "reported"]))
    spent = dict(lines.group_by("model").agg(pl.col("cost_usd").sum()).iter_rows())
    saved = dict(audited.mart("findings").group_by("model").agg(pl.col("usd_net").sum()).iter_rows())
    checked = 0
    for pool, before in today.items():
        if before["serving"] != "api" or pool not in saved:
            continue
        share = saved[pool] / spent[pool]
        expected = Decimal(before["usd_per_month"]) * (1 - share)
        assert Decimal(later[pool]["usd_per_month"]) == pytest.approx(expected, abs=Decimal("2e-4"))
        checked += share > 0
    assert checked
