"""MFU, MBU and tokens per joule by hour: plain sums, gaps, duplicates, unknowns and quiet hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from parsers.records import DEVICE_SAMPLES, REQUESTS
from pipelines.efficiency.energy import hourly_energy
from pipelines.efficiency.flops import (
    decode_flops,
    decode_kv_bytes,
    kv_read_bytes,
    prefill_flops,
    streamed_weight_bytes,
)
from pipelines.efficiency.hourly import efficiency_hourly
from pipelines.fleet import Fleet, Pool
from warehouse.tables import COVERAGE, EFFICIENCY_HOURLY

T0 = datetime(2026, 11, 16, 10, tzinfo=UTC)
POOL = Pool(
    name="small",
    models=("qwen3-8b",),
    architecture="Qwen3 8B",
    accelerator="L40S",
    accelerators=2,
    devices=("GPU-a", "GPU-b"),
)
FLEET = Fleet(pools=(POOL,))
MODEL, CARD = POOL.model, POOL.card


def call(at_s, seconds, **more):
    start = T0 + timedelta(seconds=at_s)
    known = {"started_at": start, "model_served": "qwen3-8b", "status": "ok", "usage_origin": "reported"}
    if seconds is not None:
        known["first_token_at"] = start + timedelta(seconds=min(1, seconds))
        known["ended_at"] = start + timedelta(seconds=seconds)
    return known | {"input_tokens": 1000, "cache_read_tokens": 200, "output_tokens": 100} | more


def table(kind, rows):
    numbered = [
        {"source_format": "t", "source_file": "t", "source_line": line} | row
        for line, row in enumerate(rows, 1)
    ]
    return kind.conform(pl.DataFrame(numbered, infer_schema_length=None)) if rows else kind.empty()


def covered(*stretches):
    rows = [
        {"start_at": T0 + timedelta(hours=a), "end_at": T0 + timedelta(hours=b), "is_gap": gap}
        for a, b, gap in stretches
    ]
    return COVERAGE.conform(pl.DataFrame(rows))


def power(device, at_s, watts, **more):
    return {
        "device": device,
        "host": "h",
        "device_name": "NVIDIA L40S",
        "at": T0 + timedelta(seconds=at_s),
        "power_w": watts,
    } | more


def run(calls, samples=(), coverage=None, fleet=FLEET):
    coverage = covered((0, 2, False)) if coverage is None else coverage
    out = efficiency_hourly(
        table(REQUESTS, calls).lazy(), table(DEVICE_SAMPLES, list(samples)).lazy(), fleet, coverage
    )
    assert EFFICIENCY_HOURLY.problems(out) == {}
    assert out.schema == EFFICIENCY_HOURLY.schema
    return out


def test_work_time_and_ratios_of_an_hour():
    calls = [call(0, 11), call(5, 11), call(100, 11)]
    row = run(calls).row(0, named=True)
    flops = 3 * float(prefill_flops(MODEL, 800, 200) + decode_flops(MODEL, 1000, 100))
    busy, flight = 16 + 11, 33
    batch = max(flight / busy / 2, 1)
    moved = 3 * 99 / batch * float(streamed_weight_bytes(MODEL, "bf16", batch))
    moved += 3 * float(kv_read_bytes(MODEL, 200) + decode_kv_bytes(MODEL, 1000, 100))
    assert (row["input_tokens"], row["uncached_input_tokens"], row["output_tokens"]) == (3000, 2400, 300)
    assert row["flops"] == pytest.approx(flops)
    assert (row["busy_s"], row["wall_s"]) == (27, 3600)
    assert row["mfu_busy_ratio"] == pytest.approx(flops / (27 * 2 * 362e12))
    assert row["mfu_wall_ratio"] == pytest.approx(flops / (3600 * 2 * 362e12))
    assert row["bytes"] == pytest.approx(moved)
    assert row["mbu_busy_ratio"] == pytest.approx(moved / (27 * 2 * 864e9))


def test_a_quiet_hour_has_zeros_and_a_gap_has_no_row():
    out = run([call(0, 10)], coverage=covered((0, 2, False), (2, 4, True), (4, 4.5, False)))
    assert out["hour_at"].to_list() == [T0, T0 + timedelta(hours=1), T0 + timedelta(hours=4)]
    quiet = out.row(1, named=True)
    assert (quiet["output_tokens"], quiet["flops"], quiet["bytes"], quiet["busy_s"]) == (0, 0, 0, 0)
    assert quiet["mfu_busy_ratio"] is None
    assert quiet["mfu_wall_ratio"] == 0
    assert out["wall_s"].to_list() == [3600, 3600, 1800]


def test_a_call_across_the_hour_is_divided_by_time():
    out = run([call(3599, 11, output_tokens=101)])
    assert out["output_tokens"].to_list() == [0, 101]
    assert out["input_tokens"].to_list() == [1000, 0]
    assert out["busy_s"].to_list() == [1, 10]


def test_failed_calls_other_models_and_the_gateways_own_cache_are_no_work():
    calls = [
        call(0, 10, status="error"),
        call(0, 10, response_cache_hit=True),
        call(0, 10, model_served="gpt-4o"),
    ]
    assert run(calls)["flops"].to_list() == [0, 0]


def test_unknown_ends_leave_busy_time_unknown_and_unknown_tokens_leave_work_unknown():
    row = run([call(0, None)]).row(0, named=True)
    assert row["flops"] > 0
    assert (row["busy_s"], row["mfu_busy_ratio"], row["bytes"], row["power_source"]) == (
        None,
        None,
        None,
        None,
    )
    assert row["mfu_wall_ratio"] > 0
    row = run([call(0, 10, input_tokens=None, output_tokens=None, cache_read_tokens=None)]).row(0, named=True)
    assert (row["flops"], row["output_tokens"], row["tokens_per_j"]) == (None, None, None)
    assert row["busy_s"] == 10
    assert "unknown tokens" in row["basis"]


def test_an_end_that_no_call_can_have_is_unknown():
    """An end ten years on, or before the arrival, is the demand's unknown end: no hours are made of it."""
    for end in (T0 + timedelta(days=3653), T0 - timedelta(hours=30)):
        calls = [call(0, None, ended_at=end), call(10, 20)]
        out = run(calls, coverage=covered((0, 1, False)))
        assert out["hour_at"].to_list() == [T0]
        row = out.row(0, named=True)
        assert (row["busy_s"], row["input_tokens"], row["output_tokens"]) == (20, 2000, 200)
        assert "1 calls without a believable end" in row["basis"]
        assert run(calls, coverage=COVERAGE.empty())["hour_at"].to_list() == [T0]


def test_a_first_token_or_queue_that_contradicts_the_end_is_ignored():
    late = call(3590, 20, first_token_at=T0 + timedelta(days=400), queue_ms=1e9)
    out = run([late])
    assert out["busy_s"].to_list() == [10, 10]
    assert out["input_tokens"].to_list() == [500, 500]


def test_without_a_first_token_a_call_is_in_flight_once():
    with_split, without = run([call(0, 10)]), run([call(0, 10, first_token_at=None)])
    assert with_split["busy_s"].to_list() == without["busy_s"].to_list()
    assert without["bytes"][0] == pytest.approx(with_split["bytes"][0])


def test_measured_power_is_integrated_and_duplicates_count_once():
    samples = [power(device, at, 200) for device in ("GPU-a", "GPU-b") for at in range(0, 3601, 30)]
    row = run([call(0, 10)], [*samples, *samples]).row(0, named=True)
    assert row["power_source"] == "measured"
    assert row["energy_j"] == pytest.approx(2 * 200 * 3600)
    assert row["power_w_mean"] == pytest.approx(400)
    assert row["tokens_per_j"] == pytest.approx(100 / (2 * 200 * 3600))


def test_too_few_samples_give_modelled_power():
    row = run([call(0, 10)], [power("GPU-a", at, 200) for at in range(0, 600, 30)]).row(0, named=True)
    assert row["power_source"] == "modelled"
    # Idle most of the time: between the idle power and the TDP of two cards.
    assert 2 * 0.15 * 350 < row["power_w_mean"] < 2 * 350
    assert "modelled" in row["basis"]


def test_devices_of_other_pools_are_not_counted():
    samples = [power("GPU-z", at, 999) for at in range(0, 3601, 30)]
    assert run([call(0, 10)], samples)["power_source"][0] == "modelled"


def test_devices_are_found_by_product_name_where_none_are_listed():
    pool = POOL.model_copy(update={"devices": ()})
    samples = [power(device, at, 200) for device in ("x", "y") for at in range(0, 3601, 30)]
    other = [power("h100", at, 600, device_name="NVIDIA H100 80GB HBM3") for at in range(0, 3601, 30)]
    row = run([call(0, 10)], [*samples, *other], fleet=Fleet(pools=(pool,))).row(0, named=True)
    assert row["power_w_mean"] == pytest.approx(400)


def test_a_long_gap_is_not_bridged_but_a_counter_spans_it():
    gap = [power("GPU-a", at, 100) for at in (*range(0, 600, 10), *range(3000, 3600, 10))]
    out = hourly_energy(table(DEVICE_SAMPLES, gap).lazy(), ["GPU-a"])
    assert out["time_s"][0] == pytest.approx(590 + 590)
    assert out["energy_j"][0] == pytest.approx(100 * 1180)
    counter = [
        power("GPU-a", at, None, energy_j=at * 100.0) for at in (*range(0, 600, 10), *range(3000, 3600, 10))
    ]
    out = hourly_energy(table(DEVICE_SAMPLES, counter).lazy(), ["GPU-a"])
    assert out["energy_j"][0] == pytest.approx(359_000)


def test_a_counter_that_was_reset_falls_back_on_power():
    rows = [
        power("GPU-a", at, 100, energy_j=energy)
        for at, energy in ((0, 5e6), (10, 5.001e6), (20, 10.0), (30, 1010.0))
    ]
    assert hourly_energy(table(DEVICE_SAMPLES, rows).lazy(), ["GPU-a"])["energy_j"][0] == pytest.approx(3000)


def test_no_pools_no_rows():
    assert run([call(0, 10)], fleet=Fleet.default()).is_empty()
