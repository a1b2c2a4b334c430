"""APIs beside hardware: what is paid today, and what a hosted copy of the same open weights lists at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.api_offers import _hosts, hosted_offers, paid_offers
from pipelines.sizing.load import demand_summary
from pipelines.sizing.scenarios import _measured_w, _removable_share
from pipelines.sizing.waste_removed import Removed, all_without_waste
from warehouse.catalogue import models
from warehouse.prices import unit_prices
from warehouse.tables import COST_LINES, COVERAGE, EFFICIENCY_HOURLY

T0 = datetime(2026, 11, 16, tzinfo=UTC)
DAY = COVERAGE.conform(pl.DataFrame([{"start_at": T0, "end_at": T0 + timedelta(days=1), "is_gap": False}]))
POOL = Pool(
    name="chat",
    models=("*llama-3.3-70b",),
    architecture="Llama 3.3 70B",
    accelerator="H100",
    accelerators=2,
    tensor_parallel=2,
    precision="fp8",
)
BASE = {"source_format": "t", "source_file": "t", "status": "ok", "usage_origin": "reported", "provider": "x"}
DAYS_PER_MONTH = Decimal(730) / 24


def facts(*rows):
    full = [BASE | {"source_line": line, "started_at": T0} | row for line, row in enumerate(rows, 1)]
    return REQUESTS.conform(pl.DataFrame(full, infer_schema_length=None)).lazy()


OWN = {"model_served": "hosted_vllm/llama-3.3-70b", "input_tokens": 1_000_000, "cache_read_tokens": 200_000}
OWN |= {"output_tokens": 100_000}


def test_the_hosts_of_a_model_serve_its_own_weights():
    hosts = _hosts("Llama 3.3 70B")
    assert ("groq", "llama-3.3-70b-versatile") in hosts
    names = " ".join(name.casefold() for _, name in hosts)
    assert "distill" not in names
    assert "swallow" not in names


def test_a_hosted_copy_costs_its_list_price_for_the_tokens_of_the_pool():
    rows = facts(OWN, OWN | {"status": "error"}, OWN | {"response_cache_hit": True})
    loads = demand_summary(rows, DAY, Fleet(pools=(POOL,)))
    offer = hosted_offers(rows, loads)["chat"]
    costs = {}
    for provider, model in _hosts("Llama 3.3 70B"):
        key = pl.DataFrame({"provider": [provider], "model": [model], "day": [T0.date()]})
        price = dict(unit_prices(key).select("meter", "usd_per_token").iter_rows())
        if price:
            costs[f"{provider} {model}"] = (
                800_000 * price["input"] + 200_000 * price["cache_read"] + 100_000 * price["output"]
            )
    cheapest = min(costs, key=costs.get)
    assert offer.usd_per_month == pytest.approx(costs[cheapest] * DAYS_PER_MONTH, abs=Decimal("0.001"))
    assert not offer.is_today
    assert cheapest in offer.reasons[0]
    assert f"the cheapest of {len(costs)}:" in offer.reasons[0]
    assert "prompts would leave the site" in offer.reasons[1]


def test_unknown_cache_reads_make_the_price_an_upper_bound():
    rows = facts(OWN | {"cache_read_tokens": None})
    offer = hosted_offers(rows, demand_summary(rows, DAY, Fleet(pools=(POOL,))))["chat"]
    assert any("whole input is priced" in reason for reason in offer.reasons)


def test_tokens_that_are_no_longer_sent_are_no_longer_priced():
    rows = facts(OWN)
    loads = demand_summary(rows, DAY, Fleet(pools=(POOL,)))
    fewer = all_without_waste(loads, {OWN["model_served"]: Removed(input_tokens=550_000)})
    whole, half = (hosted_offers(rows, part)["chat"] for part in (loads, fewer))
    assert half.usd_per_month == pytest.approx(whole.usd_per_month / 2, abs=Decimal("0.001"))


def test_models_without_a_pool_or_without_a_host_have_no_hosted_copy():
    rare = next(name for name in models() if not _hosts(name))
    other = Pool(name="own", models=("tuned",), architecture=rare, accelerator="H100", accelerators=1)
    rows = facts(OWN, OWN | {"model_served": "tuned"})
    assert hosted_offers(rows, demand_summary(rows, DAY, Fleet())) == {}
    assert hosted_offers(rows, demand_summary(rows, DAY, Fleet(pools=(other,)))) == {}


def test_what_is_paid_is_made_a_month_and_the_waste_comes_off():
    lines = COST_LINES.conform(
        pl.DataFrame(
            {
                "charge_day": [T0.date()] * 4,
                "model": ["gpt-5", "gpt-5", "hosted_vllm/llama-3.3-70b", "free"],
                "meter": ["input", "output", "input", "input"],
                "requests": [1] * 4,
                "unit": ["tokens"] * 4,
                "cost_usd": [Decimal(3), Decimal(1), Decimal(9), Decimal(0)],
                "basis": ["list_price", "reported", "own_hardware", "reported"],
            }
        )
    )
    rows = facts(OWN, OWN | {"model_served": "gpt-5"}, OWN | {"model_served": "free"})
    loads = demand_summary(rows, DAY, Fleet(pools=(POOL,)))
    offers = paid_offers(loads, lines, {})
    assert offers.keys() == {"gpt-5"}
    assert offers["gpt-5"].is_today
    assert offers["gpt-5"].usd_per_month == pytest.approx(4 * DAYS_PER_MONTH, abs=Decimal("0.001"))
    less = paid_offers(loads, lines, {"gpt-5": Decimal("0.25")})["gpt-5"].usd_per_month
    assert less == pytest.approx(3 * DAYS_PER_MONTH, abs=Decimal("0.001"))


def test_a_priced_engine_of_ones_own_is_no_api():
    line = {"charge_day": T0.date(), "model": "hosted_vllm/tiny", "provider": "hosted_vllm", "meter": "input"}
    line |= {"requests": 1, "unit": "tokens", "cost_usd": Decimal(3), "basis": "reported"}
    rows = facts(OWN | {"model_served": "hosted_vllm/tiny", "provider": "hosted_vllm"})
    loads = demand_summary(rows, DAY, Fleet())
    offer = paid_offers(loads, COST_LINES.conform(pl.DataFrame([line])), {})["hosted_vllm/tiny"]
    assert (offer.usd_per_month, offer.is_today) == (None, False)
    assert "engine of one's own" in offer.reasons[0]


def test_power_counts_as_measured_where_every_hour_was():
    hours = [
        ("pool:a", 100.0, 3600.0, "measured"),
        ("pool:a", 400.0, 1800.0, "measured"),
        ("pool:a", None, 0.0, None),
        ("pool:b", 100.0, 3600.0, "measured"),
        ("pool:b", 100.0, 3600.0, "modelled"),
        ("pool:c", None, 3600.0, None),
    ]
    frame = pl.DataFrame(hours, schema=["scope", "power_w_mean", "wall_s", "power_source"], orient="row")
    found = _measured_w(EFFICIENCY_HOURLY.conform(frame.with_columns(hour_at=pl.lit(T0))))
    assert found == {"a": pytest.approx(200.0)}


@pytest.mark.parametrize(("saved", "share"), [("70", "0.7"), ("400", "1"), ("0", "0"), (None, "0")])
def test_what_findings_save_net_of_each_other_is_the_share_that_comes_off(saved, share):
    by_model = pl.DataFrame(
        {"model": ["m"], "usd": [None if saved is None else Decimal(saved)]},
        schema={"model": pl.String, "usd": pl.Decimal(38, 12)},
    )
    lines = _mart(COST_LINES, cost_usd=Decimal(100))
    assert _removable_share(by_model, lines) == {"m": Decimal(share)}
    assert _removable_share(by_model.clear(), lines) == {"m": 0}


def _mart(table, **values):
    return table.conform(pl.DataFrame([{"model": "m"} | values]))


def test_less_than_a_day_is_made_no_month():
    hour = COVERAGE.conform(
        pl.DataFrame([{"start_at": T0, "end_at": T0 + timedelta(hours=1), "is_gap": False}])
    )
    rows = facts(OWN | {"model_served": "gpt-x"})
    paid = {"charge_day": T0.date(), "provider": "x", "model": "gpt-x", "meter": "input", "requests": 1}
    paid |= {"quantity": 1, "unit": "tokens", "cost_usd": Decimal(1), "basis": "list_price"}
    lines = COST_LINES.conform(pl.DataFrame([paid]))
    short = paid_offers(demand_summary(rows, hour, Fleet()), lines, {})["gpt-x"]
    assert (short.usd_per_month, short.is_today) == (None, True)
    assert "too short to speak of a month" in short.reasons[0]
    whole = paid_offers(demand_summary(rows, DAY, Fleet()), lines, {})["gpt-x"]
    assert whole.usd_per_month == pytest.approx(DAYS_PER_MONTH, abs=Decimal("0.0001"))
    own = demand_summary(facts(OWN), hour, Fleet(pools=(POOL,)))
    assert hosted_offers(facts(OWN), own) == {}
