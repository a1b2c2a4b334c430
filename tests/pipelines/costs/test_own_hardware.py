"""The cost of pools: what calls carry, what is idle, and that both add up to what the pool cost."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.costs.calls import price_keys
from pipelines.costs.lines import cost_lines
from pipelines.costs.own_hardware import PoolDay, pool_days
from tests.pipelines.costs.conftest import totals
from warehouse.prices import unit_prices
from warehouse.tables import COST_LINES

D = Decimal
DAY = dt.date(2026, 11, 20)
OWN = {"provider": "hosted_vllm", "model_served": "Qwen2.5-7B"}


def pool(**changes):
    base = {
        "pool": "big",
        "models": ("qwen*",),
        "charge_day": DAY,
        "usd_per_hour": D("2.5"),
        "hours": D(24),
        "busy_hours": D(6),
    }
    return PoolDay(**(base | changes))


def lines_of(requests, *pools):
    lines = cost_lines(requests, unit_prices(price_keys(requests)), pool_days(pools))
    assert COST_LINES.problems(lines) == {}
    return lines


def cost(lines, basis):
    return lines.filter(pl.col("basis") == basis)["cost_usd"].sum()


def test_calls_carry_the_busy_hours_by_tokens_and_idle_is_its_own_line(make_requests):
    requests = make_requests(
        OWN | {"team": "red", "input_tokens": 300, "cache_read_tokens": 200, "output_tokens": 100},
        OWN | {"team": "blue", "input_tokens": 50, "output_tokens": 50},
    )
    lines = lines_of(requests, pool())
    found = totals(lines)
    assert found.by_team == {"red": D(10), "blue": D(5)}
    assert found.idle == D(45)
    assert found.unattributed == D(45)
    assert found.total == D(60)
    assert lines.filter(pl.col("meter") == "cache_read").select("quantity", "cost_usd").rows() == [
        (200, D(0))
    ]


def test_weights_say_how_much_an_output_token_counts(make_requests):
    requests = make_requests(OWN | {"input_tokens": 100, "output_tokens": 50})
    lines = lines_of(requests, pool(output_weight=D(4)))
    assert dict(lines.filter(pl.col("basis") == "own_hardware").select("meter", "cost_usd").iter_rows()) == {
        "input": D(5),
        "output": D(10),
    }
    assert "weights 1 in : 4 out" in lines.filter(pl.col("meter") == "output")["price_source"][0]


def test_unknown_busy_hours_leave_no_idle_line_and_the_lines_say_so(make_requests):
    lines = lines_of(make_requests(OWN | {"input_tokens": 100, "output_tokens": 50}), pool(busy_hours=None))
    assert cost(lines, "own_hardware") == D(60)
    assert cost(lines, "idle") == 0
    assert all("idle time is included" in text for text in lines["price_source"])


def test_a_day_without_calls_is_all_idle(make_requests):
    lines = lines_of(make_requests(), pool(busy_hours=None))
    assert lines.select("basis", "model", "cost_usd").rows() == [("idle", "pool:big", D(60))]


def test_what_the_gateway_charges_for_own_hardware_is_not_added(make_requests):
    """The pool's hours are the cost; an internal price per token would count it twice."""
    requests = make_requests(
        OWN | {"input_tokens": 100, "output_tokens": 50, "cost_reported": D(7)},
        OWN | {"status": "error", "cost_reported": D(7)},
    )
    assert totals(lines_of(requests, pool())).total == D(60)


def test_a_vendor_with_a_list_price_is_not_taken_for_a_pool(make_requests):
    requests = make_requests({"input_tokens": 10_000, "output_tokens": 0})
    lines = lines_of(requests, pool(models=("gpt-*",)))
    assert cost(lines, "list_price") == D("0.025")
    assert cost(lines, "idle") == D(60)


def test_a_pool_whose_cost_is_unknown_prices_nothing(make_requests):
    requests = make_requests(OWN | {"input_tokens": 1, "output_tokens": 1, "cost_reported": D("0.5")})
    own = pool_days([pool()]).with_columns(pl.lit(None, pl.Decimal(38, 12)).alias("usd_per_hour"))
    lines = cost_lines(requests, unit_prices(price_keys(requests)), own)
    assert lines.select("basis", "cost_usd").rows() == [("reported", D("0.5"))]


def test_calls_on_a_day_without_hours_and_calls_without_counts_are_unpriced(make_requests):
    requests = make_requests(
        OWN | {"input_tokens": 1, "output_tokens": 1, "started_at": dt.datetime(2026, 11, 21, tzinfo=dt.UTC)},
        OWN | {"input_tokens": None},
    )
    lines = lines_of(requests, pool())
    assert totals(lines).unpriced_requests == 2
    assert totals(lines).total == D(60)


@pytest.mark.parametrize("bad", [[pool(), pool()], [pool(busy_hours=D(25))]])
def test_pools_that_contradict_themselves_are_refused(bad):
    with pytest.raises(ValueError, match="pool big"):
        pool_days(bad)


@settings(max_examples=40, deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**5), st.sampled_from(["a", "b", None])), max_size=8
    ),
    rate=st.decimals(0, 500, places=6),
    busy=st.one_of(st.none(), st.decimals(0, 24, places=4)),
    weight=st.decimals(0, 50, places=3),
)
def test_lines_and_idle_add_up_to_what_the_pool_cost(make_requests, calls, rate, busy, weight):
    requests = make_requests(*(OWN | {"input_tokens": i, "output_tokens": o, "team": t} for i, o, t in calls))
    lines = lines_of(requests, pool(usd_per_hour=rate, busy_hours=busy, output_weight=weight))
    assert (totals(lines).total or 0) == rate * 24
