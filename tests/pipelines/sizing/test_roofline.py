"""Memory, step time and power: bounds that always hold, and measured points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.efficiency.flops import kv_read_bytes, streamed_weight_bytes
from pipelines.sizing.intervals import spreads, tpot_interval, ttft_interval
from pipelines.sizing.memory import kv_copies, max_sequences, weight_bytes
from pipelines.sizing.power import busy_power_w, idle_power_w, mean_power_w
from pipelines.sizing.roofline import Replica, prefill_s, steady_step, step_time
from warehouse.catalogue import accelerators, match_accelerator, models

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
    for low, high in (tpot_interval(replica(), 30.0), ttft_interval(30.0)):
        assert low <= 30 < high


def test_an_interval_is_wider_where_nothing_was_measured():
    known, unknown = (spreads(replica(card=card))["tpot"] for card in ("H100", "MI300X"))
    assert unknown[0] < known[0] < 1 < known[1] < unknown[1]


def test_chunks_of_prompts_are_not_hidden_behind_the_steps_between():
    one = replica()
    plain = float(step_time(one, 16.0, 2000.0).total)
    mean = float(steady_step(one, 16.0, 2000.0, 64.0, 2000.0).total)
    chunk = float(step_time(one, 16.0, 2000.0, 2000.0).total)
    assert plain < mean < chunk
    assert mean == pytest.approx(plain + (chunk - plain) * 64 / 2000, rel=0.02)


def test_attention_data_parallelism_repeats_attention_and_divides_sequences():
    grouped = Replica(models()["DeepSeek-V3"], match_accelerator("H200"), 8, "fp8")
    apart = Replica(models()["DeepSeek-V3"], match_accelerator("H200"), 1, "fp8", attention_dp=8)
    assert grouped.accelerators == apart.accelerators == 8
    assert apart.memory.weight_bytes > grouped.memory.weight_bytes
    # Latents are on every rank of a group, so groups of one hold eight times as many sequences.
    assert apart.memory.kv_pool_bytes / kv_copies(apart.model, 1) > 6 * grouped.memory.kv_pool_bytes / 8
    one, other = (step_time(each, 512.0, 4000.0) for each in (grouped, apart))
    assert float(other.memory) < float(one.memory)


def test_power_grows_with_the_batch_between_idle_and_tdp():
    power = busy_power_w(replica(), np.array([1.0, 8.0, 64.0, 256.0]), 1000.0)
    assert (np.diff(power) > 0).all()
    assert power.min() > idle_power_w(H100) == pytest.approx(105)
    assert power.max() <= 700
    assert mean_power_w(replica(), 8, 1000.0, 0) == idle_power_w(H100)


def test_a_precision_that_is_not_supported_is_refused():
    with pytest.raises(ValueError, match="no known peak"):
        step_time(replica("Qwen3 8B", "A100", 1, "fp8"), 1, 100)
