"""Memory, step time and power: bounds that always hold, and measured points."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.efficiency.flops import kv_read_bytes, streamed_weight_bytes
from pipelines.sizing.memory import kv_copies, max_sequences, weight_bytes
from pipelines.sizing.power import busy_power_w, idle_power_w, mean_power_w
from pipelines.sizing.roofline import Replica, prefill_s, step_time, tpot_interval, ttft_interval
from warehouse.catalogue import accelerators, find_model, match_accelerator, models

H100 = accelerators()["H100 SXM5 80GB"]


def replica(model="Llama 3.3 70B", card="H100", group=4, precision="bf16"):
    return Replica(models()[model], match_accelerator(card), group, precision)


def test_weights_match_measured_checkpoints():
    # Measured in vLLM: 13.47 GiB and 64.38 GiB; the estimate is at bf16 attention and 4.5-bit experts.
    assert weight_bytes(models()["gpt-oss-20b"], "int4") / 2**30 == pytest.approx(13.47, rel=0.12)
    assert weight_bytes(models()["gpt-oss-120b"], "int4") / 2**30 == pytest.approx(64.38, rel=0.05)
    assert weight_bytes(models()["Llama 3.1 8B"], "bf16") == 2 * models()["Llama 3.1 8B"].params


def test_seventy_billion_at_sixteen_bits_need_more_than_two_h100():
    assert not replica(group=1).memory.fits
    assert not replica(group=2).memory.fits
    assert replica(group=4).memory.fits
    assert max_sequences(replica(group=2).model, replica(group=2).memory, 2, 1000) == 0


def test_latent_kv_is_stored_on_every_rank():
    assert kv_copies(models()["DeepSeek-V3"], 8) == 8
    assert kv_copies(models()["Llama 3.3 70B"], 8) == 1
    assert kv_copies(models()["Qwen3 30B-A3B"], 8) == 2


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 512),
    st.integers(16, 20_000),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["bf16", "fp8"]),
)
def test_a_step_is_never_faster_than_the_roofline(batch, context, group, precision):
    one = replica("Qwen3 8B", group=group, precision=precision)
    bound = float(streamed_weight_bytes(one.model, precision, batch)) + batch * float(
        kv_read_bytes(one.model, context)
    )
    assert float(step_time(one, batch, context).total) > bound / one.bandwidth_bytes_per_s


def test_more_work_takes_longer_and_throughput_grows_with_the_batch():
    one, batch = replica(), np.arange(1.0, 257.0)
    step = step_time(one, batch, 2000.0).total
    assert (np.diff(step) > 0).all()
    assert (np.diff(batch / step) > 0).all()
    assert (step_time(one, batch, 2000.0, 500.0).total > step).all()


def test_a_long_prompt_is_prefilled_in_chunks():
    one = replica()
    assert prefill_s(one, 16_000, 8, 1000) > 1.9 * prefill_s(one, 8_000, 8, 1000)


def test_intervals_hold_their_estimate():
    for low, high in (tpot_interval(30.0), ttft_interval(30.0)):
        assert low <= 30 < high


def test_power_grows_with_the_batch_between_idle_and_tdp():
    power = busy_power_w(H100, np.array([1.0, 8.0, 256.0, 4096.0]))
    assert power is not None
    assert power.tolist() == pytest.approx([700 * 0.46, 700 * (0.46 + 0.38 * 3 / 8), 700 * 0.84, 700 * 0.84])
    assert mean_power_w(H100, 8, 0) == idle_power_w(H100) == pytest.approx(105)


def test_a_precision_that_is_not_supported_is_refused():
    with pytest.raises(ValueError, match="no known peak"):
        step_time(replica("Qwen3 8B", "A100", 1, "fp8"), 1, 100)


def test_step_time_on_measured_chat_runs(shared):
    """ML.ENERGY chat, H100 and B200: error of batch / output rate below that of every published baseline."""
    points = pl.read_csv(shared / "facts" / "energy_points.csv", infer_schema_length=None)
    errors, inside = [], []
    for row in points.filter(pl.col("task") == "lm-arena-chat").iter_rows(named=True):
        model = find_model(row["model"])
        if model is None:
            continue
        precision = {"bfloat16": "bf16", "fp8": "fp8"}[row["precision"]]
        one = Replica(model, match_accelerator(row["gpu"]), row["num_gpus"], precision)
        batch, output, prompt = row["max_num_seqs"], row["avg_out_len"], 300
        estimate = float(step_time(one, batch, prompt + output / 2, batch * prompt / output).total)
        measured = batch / row["out_tok_s"]
        errors.append(abs(estimate / measured - 1))
        low, high = tpot_interval(estimate)
        inside.append(low <= measured <= high)
    assert len(errors) == 164
    assert np.mean(errors) < 0.16
    assert np.median(errors) < 0.12
    assert np.mean(inside) >= 0.85
