"""The options: replicas, cost, what is kept and what is chosen, and what can't be told."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

from parsers.records import REQUESTS
from pipelines.fleet import Fleet, Pool, Site, Slo
from pipelines.sizing.api_offers import ApiOffer
from pipelines.sizing.cost import Prices, bought_count, monthly_usd
from pipelines.sizing.load import DemandSummary, demand_summary
from pipelines.sizing.moments import Moment, Observed
from pipelines.sizing.options import fleet_options
from pipelines.sizing.replicas import MAX_UTILISATION, replicas_needed, slot_wait_p95_s
from warehouse.catalogue import accelerators, find_model
from warehouse.tables import COVERAGE, FLEET_OPTIONS

WEEK = 7 * 86_400.0


def pool(count=8, group=4, serving="own", **more):
    known = {"name": "chat", "models": ("llama*",), "architecture": "Llama 3.3 70B", "accelerator": "H100"}
    return Pool(**known, accelerators=count, tensor_parallel=group, serving=serving, **more)


def load(today=None, rate=1.0, model="Llama 3.3 70B", peak=4.0, name="chat", **more):
    calls = int(rate * WEEK)
    known = DemandSummary(
        pool=name, log_models=("llama-3.3-70b",), model=find_model(model) if model else None, today=today,
        requests=calls, requests_input_missing=0, requests_output_missing=0, window_s=WEEK,
        input_tokens=2000.0 * calls, uncached_input_tokens=1200.0 * calls, output_tokens=300.0 * calls,
        uncached_input_p95=4000.0, context_p99=12_000.0, arrival_cv2=1.0, peak_window_s=60.0,
        peak_requests_per_s=rate * peak, peak_uncached_per_s=1200 * rate * peak,
        peak_output_per_s=300 * rate * peak,
    )  # fmt: skip
    return replace(known, **more)


def options(*loads, fleet=None, **more):
    fleet = fleet or Fleet(
        pools=tuple(entry.today for entry in loads if entry.today), slo=Slo(tpot_p95_ms=60)
    )
    out = fleet_options(loads, fleet, "as_is", **more)
    assert FLEET_OPTIONS.problems(out) == {}
    assert out.schema == FLEET_OPTIONS.schema
    return out


def one(frame, flag):
    (row,) = frame.filter(frame[flag]).iter_rows(named=True)
    return row


@pytest.mark.parametrize(("planned", "each"), [(10, 3), (1, 100), (85, 10), (100, 10), (0.1, 1)])
def test_replicas_stay_below_the_limit_and_survive_one_failure(planned, each):
    count = replicas_needed(planned, each)
    assert planned / (count * each) <= MAX_UTILISATION
    assert planned <= (count - 1) * each
    fewer = count - 1
    assert planned / (fewer * each) > MAX_UTILISATION or planned > (fewer - 1) * each


def test_the_wait_for_a_slot_explodes_only_near_saturation():
    assert slot_wait_p95_s(0.5, 64, 10, 1) == 0
    assert slot_wait_p95_s(0.99, 64, 10, 1) > slot_wait_p95_s(0.95, 64, 10, 1) > 0
    assert slot_wait_p95_s(1.0, 64, 10, 1) == math.inf


def test_cost_of_own_hardware_is_amortisation_and_energy():
    site = Site(amortisation_years=4, electricity_usd_per_kwh=Decimal("0.12"))
    had = monthly_usd("own", 8, Prices(Decimal(24_000), None, owned=8), 5.0, site)
    assert had == Decimal(8 * 24_000) / 48 + Decimal(5) * 730 * Decimal("0.12")
    bought = monthly_usd("own", 8, Prices(Decimal(24_000), None), 5.0, site)
    assert bought == Decimal(8 * 24_000) * Decimal("1.58") / 48 + Decimal(438)


def test_rent_is_by_the_hour_and_unknown_prices_stay_unknown():
    assert monthly_usd("cloud", 2, Prices(None, Decimal("1.55")), 1.0, Site()) == Decimal(2263)
    assert monthly_usd("cloud", 2, Prices(Decimal(1), None), 1.0, Site()) is None
    assert monthly_usd("own", 2, Prices(Decimal(1), None), None, Site()) is None


def test_purchases_come_in_whole_servers():
    h100, l40s = accelerators()["H100 SXM5 80GB"], accelerators()["L40S"]
    assert bought_count(h100, 6, 2, owned=0) == 8
    assert bought_count(h100, 6, 2, owned=8) == 6
    assert bought_count(h100, 12, 4, owned=8) == 16
    assert bought_count(l40s, 3, 1, owned=0) == 3


def test_hardware_that_is_paid_for_and_meets_the_slo_is_kept():
    out = options(load(pool()))
    row = one(out, "is_choice")
    assert row["is_today"]
    assert row["meets_slo"]
    assert (row["count"], row["replicas"], row["parallelism"]) == (8, 2, "TP4")
    assert row["tpot_ms_low"] < row["tpot_ms_p95"] < row["tpot_ms_high"]


def test_a_fleet_that_is_too_large_shrinks_to_a_part_of_itself():
    row = one(options(load(pool(count=64), rate=0.5)), "is_choice")
    assert row["accelerator"] == "H100 SXM5 80GB"
    assert row["count"] < 64
    assert "of today's 64 accelerators" in row["reasons"][0]


def test_a_fleet_that_is_too_small_is_told_and_replaced():
    out = options(load(pool(), rate=40.0))
    today, chosen = one(out, "is_today"), one(out, "is_choice")
    assert today["meets_slo"] is False
    assert today["peak_utilisation_ratio"] > MAX_UTILISATION
    assert chosen["meets_slo"]
    assert "does not meet the SLO" in chosen["reasons"][0]


def test_ranks_follow_cost_among_those_that_meet_the_slo():
    out = options(load(pool()))
    able = out.filter(out["meets_slo"].fill_null(value=False) & out["usd_per_month"].is_not_null())
    assert out["rank"].to_list() == list(range(1, out.height + 1))
    assert able["usd_per_month"].is_sorted()
    assert able["rank"].to_list() == list(range(1, able.height + 1))


def test_lower_precision_and_unmeasured_cards_are_listed_but_not_chosen():
    out = options(load(pool()))
    lower = out.filter(out["precision"].is_in(["fp8", "int8", "int4"]))
    assert lower.height > 0
    assert not lower["is_choice"].any()
    chosen = one(options(load(None, model="Qwen3 32B")), "is_choice")
    assert chosen["accelerator"].split()[0] in {"H100", "H200", "B200", "B300"}


def test_an_unknown_architecture_gets_an_api_row_alone():
    row = one(
        options(
            load(None, model=None, name="gpt-4o"), apis={"gpt-4o": ApiOffer(Decimal("99.5"), is_today=True)}
        ),
        "is_choice",
    )
    assert (row["serving"], row["usd_per_month"], row["is_today"]) == ("api", Decimal("99.5"), True)
    (row,) = options(load(None, model=None, name="own-finetune")).iter_rows(named=True)
    assert (row["serving"], row["usd_per_month"], row["is_choice"], row["meets_slo"]) == (
        "api",
        None,
        False,
        None,
    )
    assert any("unknown" in reason for reason in row["reasons"])


def observed(ttft=800.0, tpot=25.0, failed=0):
    return Observed(0, 60.0, 100, failed, ttft_p50_ms=200, ttft_p95_ms=ttft, tpot_p50_ms=20, tpot_p95_ms=tpot)


PEAK = Moment(0, 60.0, requests_per_s=4.0, uncached_per_s=4800.0, output_per_s=1200.0)
HIGH = Moment(0, 60.0, requests_per_s=160.0, uncached_per_s=192_000.0, output_per_s=48_000.0)


def test_a_peak_without_logged_latency_is_judged_by_the_estimate():
    """Nightly batches that are not streamed show no first token: there the estimate stands."""
    for dark, kept in ((PEAK, True), (HIGH, False)):
        out = options(load(pool(), observed=(observed(), None), moments=(PEAK, dark)))
        today = one(out, "is_today")
        assert today["meets_slo"] == kept
        start = "It carried the peak" if kept else "The log shows no latency at another peak"
        assert any(reason.startswith(start) for reason in today["reasons"])


def test_the_worst_of_the_observed_moments_counts():
    slow_start, slow_tokens = observed(ttft=1900.0), observed(tpot=61.0)
    out = options(load(pool(), observed=(slow_start, slow_tokens), moments=(PEAK, PEAK)))
    assert one(out, "is_today")["meets_slo"] is False


def test_a_fleet_that_the_log_shows_carrying_the_peak_is_kept_whatever_the_estimate():
    """The estimate calls it too small by far; the latency that was logged says it is not."""
    out = options(load(pool(), rate=40.0, observed=(observed(),), moments=(HIGH,)))
    today = one(out, "is_today")
    assert today["is_choice"]
    assert today["meets_slo"]
    assert today["reasons"][0].startswith(
        "It carried the peak: observed p95 TTFT 800 ms, TPOT 25 ms over 100 calls"
    )
    assert (today["ttft_ms_p95"], today["ttft_ms_low"], today["ttft_ms_high"]) == (800, 800, 800)
    assert (today["ttft_ms_p50"], today["tpot_ms_p50"], today["tpot_ms_p95"]) == (200, 20, 25)
    assert not any("interval" in reason or "range breaks" in reason for reason in today["reasons"])


@pytest.mark.parametrize(
    "seen", [observed(ttft=2500.0), observed(tpot=61.0), observed(ttft=math.inf, failed=9)]
)
def test_a_fleet_that_the_log_shows_breaking_the_slo_is_not_kept(seen):
    out = options(load(pool(), observed=(seen,), moments=(PEAK,)))
    today = one(out, "is_today")
    assert today["meets_slo"] is False
    assert not today["is_choice"]
    assert today["reasons"][0].startswith("It did not carry the peak: observed")
    assert (today["ttft_ms_p95"] is None) == math.isinf(seen.ttft_p95_ms)


def test_the_hardest_moment_counts_and_peaks_of_different_moments_do_not_add_up():
    """Prompts at night and answers by day need no more than the worse of the two."""
    night = Moment(0, 60.0, requests_per_s=1.0, uncached_per_s=9000.0, output_per_s=300.0)
    noon = Moment(1, 60.0, requests_per_s=5.0, uncached_per_s=300.0, output_per_s=2400.0)
    peaks = {"peak_requests_per_s": 5.0, "peak_uncached_per_s": 9000.0, "peak_output_per_s": 2400.0}

    def load_of(*moments):
        today = one(options(load(pool(), moments=moments, **peaks)), "is_today")
        return today["peak_utilisation_ratio"]

    assert load_of(night, noon) == max(load_of(night), load_of(noon))
    assert load_of() > load_of(night, noon)


def test_growth_that_leads_over_the_limit_is_said():
    fleet = Fleet(pools=(pool(),), site=Site(growth_per_year=2.0), slo=Slo(tpot_p95_ms=60))
    said = one(options(load(pool(), rate=2.0), fleet=fleet), "is_today")
    assert 0.3 < said["peak_utilisation_ratio"] <= MAX_UTILISATION
    assert any("With a year's growth of 200%" in reason for reason in said["reasons"])


def test_measured_power_goes_into_the_cost_of_what_runs_today():
    plain, measured = (
        one(options(load(pool(capex_usd_per_accelerator=24_000)), measured_w=watts), "is_today")
        for watts in ({}, {"chat": 4000.0})
    )
    assert measured["power_kw"] == pytest.approx(4.0 * 1.25 * 1.54)
    assert "Power measured" in measured["reasons"]
    assert any("Power modelled" in reason for reason in plain["reasons"])
    energy = Decimal(repr(round(measured["power_kw"], 6))) * 730 * Decimal("0.12")
    amortised = Decimal(8) * 24_000 / 48
    assert measured["usd_per_month"] == pytest.approx(amortised + energy, abs=Decimal("0.001"))
    assert measured["tokens_per_j"] == pytest.approx(300.0 / 4000)


def test_a_hosted_copy_is_listed_for_comparison_and_never_chosen():
    offer = ApiOffer(Decimal(10), is_today=False, reasons=("List price of the same open weights",))
    out = options(load(pool()), apis={"chat": offer})
    (row,) = out.filter(out["serving"] == "api").iter_rows(named=True)
    assert (row["usd_per_month"], row["is_choice"], row["is_today"], row["meets_slo"]) == (
        10,
        False,
        False,
        None,
    )
    chosen = one(out, "is_choice")
    assert chosen["is_today"]
    assert any(
        reason.startswith("A hosted API of the same weights lists at 10 USD a month")
        for reason in chosen["reasons"]
    )


@pytest.mark.parametrize(("usd", "kept"), [(Decimal(100), True), (Decimal(10_000_000), False)])
def test_an_api_that_serves_an_open_model_today_is_kept_unless_hardware_saves(usd, kept):
    offer = ApiOffer(usd, is_today=True)
    out = options(load(None, model="Qwen3 32B", name="qwen3-32b"), apis={"qwen3-32b": offer})
    chosen, today = one(out, "is_choice"), one(out, "is_today")
    assert today["serving"] == "api"
    assert chosen["is_today"] == kept
    assert ("An API serves it today" if kept else "saves") in chosen["reasons"][0]


def test_every_row_is_consistent_in_itself():
    """Cost per token is cost per month over tokens per month; saturated is never dearer; loads have order."""
    entry = load(pool(), observed=(observed(),), moments=(PEAK,))
    out = options(entry).filter(pl.col("count").is_not_null() & pl.col("usd_per_month").is_not_null())
    for row in out.iter_rows(named=True):
        assert row["usd_per_mtok"] == pytest.approx(
            row["usd_per_month"] / Decimal(repr(entry.month_tokens)) * 1_000_000, abs=Decimal("0.000001")
        )
        assert row["usd_per_mtok_saturated"] <= row["usd_per_mtok"]
        assert 0 < row["utilisation_ratio"] <= row["peak_utilisation_ratio"]
        assert row["replicas"] * int(row["parallelism"].removeprefix("TP")) == row["count"]
        assert row["power_kw"] > 0
        assert row["ttft_ms_p50"] <= row["ttft_ms_p95"]
        if row["meets_slo"] and not row["is_today"]:
            assert row["ttft_ms_p95"] <= 2000
            assert row["tpot_ms_p95"] <= 60
            assert row["peak_utilisation_ratio"] <= MAX_UTILISATION


def test_without_a_peak_nothing_is_recommended():
    out = options(load(pool(), peak_requests_per_s=None, peak_output_per_s=None, peak_uncached_per_s=None))
    (row,) = out.iter_rows(named=True)
    assert (row["is_today"], row["is_choice"], row["meets_slo"], row["peak_utilisation_ratio"]) == (
        True,
        False,
        None,
        None,
    )
    assert "peak of this model is unknown" in row["reasons"][0]


@pytest.mark.parametrize(
    ("unknown", "said"), [(("input", "output"), "input and output"), (("output",), "output")]
)
@pytest.mark.parametrize("rate", [0.01, 40.0])
def test_tokens_that_no_call_tells_are_no_advice(unknown, said, rate):
    """Neither a quiet pool is kept nor a busy one replaced; logged latency proves nothing of a load unknown."""
    entry = load(pool(), rate=rate, observed=(observed(),), moments=(PEAK,))
    gone = {"requests_output_missing": entry.requests, "output_tokens": 0.0, "peak_output_per_s": None}
    if "input" in unknown:
        gone |= {
            "requests_input_missing": entry.requests,
            "input_tokens": 0.0,
            "uncached_input_tokens": 0.0,
            "peak_uncached_per_s": None,
        }
    offer = ApiOffer(Decimal(10), is_today=False)
    out = options(replace(entry, **gone), apis={"chat": offer}, measured_w={"chat": 4000.0})
    assert not out["is_choice"].any()
    assert out["meets_slo"].to_list() == [None, None]
    assert out["usd_per_mtok"].to_list() == [None, None]
    today = one(out, "is_today")
    assert (today["confidence"], today["tpot_ms_p95"], today["utilisation_ratio"]) == ("low", None, None)
    assert today["usd_per_month"] is not None
    (first,) = out.filter(out["rank"] == 1)["reasons"].to_list()
    assert first[0].startswith(
        f"No choice: the {said} token counts of all {entry.requests:,} calls are unknown"
    )
    assert "include_usage" in first[0]


@pytest.mark.parametrize(
    ("share", "confidence"), [(0, "high"), (0.005, "high"), (0.2, "medium"), (0.6, "low")]
)
def test_tokens_that_some_calls_do_not_tell_lower_the_confidence(share, confidence):
    entry = load(pool())
    missing = int(entry.requests * share)
    out = options(
        replace(entry, requests_output_missing=missing, output_tokens=300.0 * (entry.requests - missing))
    )
    today = one(out, "is_today")
    assert today["confidence"] == confidence
    assert today["is_choice"]
    assert today["utilisation_ratio"] == pytest.approx(one(options(entry), "is_today")["utilisation_ratio"])


def test_a_log_without_any_count_is_no_advice_from_end_to_end():
    start = datetime(2026, 11, 16, tzinfo=UTC)
    rows = [
        {
            "source_format": "t", "source_file": "t", "source_line": line, "status": "ok",
            "usage_origin": "missing", "model_served": "llama-3.3-70b",
            "started_at": start + timedelta(seconds=line),
        }
        for line in range(1, 301)
    ]  # fmt: skip
    for given in (None, 4000):
        frame = REQUESTS.conform(pl.DataFrame([row | {"input_tokens": given} for row in rows])).lazy()
        fleet = Fleet(pools=(pool(),))
        out = fleet_options(demand_summary(frame, COVERAGE.empty(), fleet), fleet, "as_is")
        (row,) = out.iter_rows(named=True)
        assert (row["is_today"], row["is_choice"], row["meets_slo"], row["confidence"]) == (
            True,
            False,
            None,
            "low",
        )
        assert "output token counts of all 300 calls are unknown" in row["reasons"][0]


def test_a_pool_that_can_not_hold_its_model_is_told():
    row = one(options(load(pool(count=2, group=2))), "is_today")
    assert (row["meets_slo"], row["breaks_first"]) == (False, "memory")


def test_less_load_never_costs_more():
    full, half = (
        load(None),
        replace(
            load(None), uncached_input_tokens=load(None).uncached_input_tokens / 2, peak_uncached_per_s=2400.0
        ),
    )
    cheapest = [one(options(entry), "is_choice")["usd_per_month"] for entry in (full, half)]
    assert cheapest[1] <= cheapest[0]


def test_no_pools_no_options():
    assert options(fleet=Fleet.default()).is_empty()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"rate": 150.5 / WEEK}, "150 calls in 7 d are too little data to size hardware by"),
        ({"window_s": 3600.0}, "1 h of data does not show the peak of a day"),
        ({"rate": 2000 / WEEK}, "too little to buy or rent hardware for"),
    ],
)
def test_too_little_data_or_load_is_no_advice_on_hardware(more, said):
    """Neither rent nor buy: the reason says to keep what serves it, and what to log."""
    out = options(load(None, **more))
    assert not out["is_choice"].any()
    assert out.height > 1
    first = out.row(0, named=True)["reasons"][0]
    assert first.startswith("No choice: ")
    assert said in first
    assert "keep what serves it today" in first


def test_too_little_data_keeps_the_api_and_a_fleet_that_carries_the_load():
    dear = ApiOffer(Decimal(10_000_000), is_today=True)
    out = options(load(None, model="Qwen3 32B", name="q", rate=150.5 / WEEK), apis={"q": dear})
    assert one(out, "is_choice")["serving"] == "api"
    assert "150 calls in 7 d" in one(out, "is_choice")["reasons"][0]
    small = options(load(pool(16, serving="cloud", usd_per_accelerator_hour=Decimal(9)), window_s=3600.0))
    assert one(small, "is_choice")["is_today"] == one(small, "is_today")["meets_slo"]


def test_a_fleet_that_breaks_under_less_than_a_day_is_still_replaced():
    out = options(load(pool(8), rate=20.0, window_s=3600.0))
    assert one(out, "is_today")["meets_slo"] is False
    assert one(out, "is_choice")["count"] > 8
