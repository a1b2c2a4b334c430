"""FLOPs and bytes: published test vectors, and closed forms against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.efficiency.flops import (
    attended_pairs,
    attention_flops_per_pair,
    decode_flops,
    decode_kv_bytes,
    decode_steps,
    expert_coverage,
    head_flops,
    kv_bytes_of,
    kv_read_bytes,
    linear_flops_per_token,
    prefill_flops,
    streamed_weight_bytes,
)
from warehouse.catalogue import find_model, models

LLAMA, QWEN_MOE = models()["Llama 3.1 8B"], models()["Qwen3 30B-A3B"]
ALL = st.sampled_from(list(models().values()))


def test_flops_per_token_of_a_dense_model():
    assert linear_flops_per_token(LLAMA) == pytest.approx(1.395864e10, rel=1e-6)
    assert head_flops(LLAMA) == pytest.approx(1.050673e9, rel=1e-6)
    assert attention_flops_per_pair(LLAMA) * LLAMA.layers == 524_288


def test_flops_per_token_of_a_moe_model():
    routed = 2 * QWEN_MOE.expert_params * QWEN_MOE.experts_per_token
    assert linear_flops_per_token(QWEN_MOE) == pytest.approx(5.435818e9, rel=1e-6)
    assert routed == pytest.approx(3.623879e9, rel=1e-6)
    assert head_flops(QWEN_MOE) == pytest.approx(6.223299e8, rel=1e-6)
    assert attention_flops_per_pair(QWEN_MOE) * QWEN_MOE.layers == 786_432


def test_a_full_prefill_counts_the_causal_half():
    assert float(prefill_flops(LLAMA, 2048)) == pytest.approx(2.968840e13, rel=1e-6)


def test_bytes_of_a_decode_step_and_its_mbu():
    weights = float(streamed_weight_bytes(LLAMA, "bf16", 32))
    cache = 32 * float(kv_read_bytes(LLAMA, 2048))
    assert weights == pytest.approx(15.009e9, rel=1e-4)
    assert cache == pytest.approx(8.590e9, rel=1e-4)
    assert (weights + cache) / 0.012 / 3.35e12 == pytest.approx(0.587, abs=5e-4)


def test_latent_attention_has_its_own_sizes():
    deepseek = models()["DeepSeek-V3"]
    assert attention_flops_per_pair(deepseek) == 2 * 128 * (128 + 64 + 128)
    assert float(kv_bytes_of(deepseek, 1000)) == 70_272_000


def slow_layer_pairs(model, start, end):
    total = 0
    for position in range(start + 1, end + 1):
        total += model.full_attention_layers * min(position, model.sparse_top_k or position)
        total += (model.sliding_layers or 0) * min(position, model.sliding_window or position)
    return total


@settings(max_examples=60, deadline=None)
@given(ALL, st.integers(0, 3000), st.integers(0, 200), st.integers(0, 200))
def test_closed_forms_equal_loops_over_tokens(model, cached, new, output):
    context, steps = cached + new, max(output - 1, 0)
    pair = attention_flops_per_pair(model)
    slow_prefill = linear_flops_per_token(model) * new + pair * slow_layer_pairs(model, cached, context)
    slow_prefill += head_flops(model) if new else 0
    slow_decode = (linear_flops_per_token(model) + head_flops(model)) * steps
    slow_decode += pair * slow_layer_pairs(model, context, context + steps)
    slow_bytes = sum(
        float(kv_read_bytes(model, position)) for position in range(context + 1, context + steps + 1)
    )
    assert float(prefill_flops(model, new, cached)) == pytest.approx(slow_prefill, rel=1e-9)
    assert float(decode_flops(model, context, output)) == pytest.approx(slow_decode, rel=1e-9)
    assert float(decode_kv_bytes(model, context, output)) == pytest.approx(slow_bytes, rel=1e-9)


def test_cached_tokens_cost_attention_only():
    saved = float(prefill_flops(LLAMA, 1000)) - float(prefill_flops(LLAMA, 400, 600))
    attention = attention_flops_per_pair(LLAMA) * LLAMA.layers * float(attended_pairs(0, 600))
    assert saved == pytest.approx(600 * linear_flops_per_token(LLAMA) + attention, rel=1e-12)


def test_experts_are_covered_as_the_batch_grows():
    share = expert_coverage(QWEN_MOE, np.array([1.0, 8.0, 4096.0]))
    assert share[0] == pytest.approx(8 / 128)
    assert share[1] == pytest.approx(1 - (1 - 8 / 128) ** 8)
    assert share[2] == pytest.approx(1)


def test_unknown_counts_stay_unknown_and_no_output_takes_no_step():
    assert np.isnan(prefill_flops(LLAMA, np.array([np.nan]))).all()
    assert np.isnan(decode_flops(LLAMA, np.array([np.nan]), np.array([5.0]))).all()
    assert decode_steps(np.array([0.0, 1.0, 2.0])).tolist() == [0, 0, 1]


def vllm_decode_flops(context: int, steps: int) -> float:
    """FLOPs that vLLM's `estimated_flops_per_gpu_total` grows by for one sequence of Llama 3.1 8B on one accelerator.

    Its components (vllm-project/vllm, vllm/v1/metrics/perf.py), step by step: projections, scores and weighted sums
    over the context so far, the gated feed-forward, the output head.
    """
    hidden, heads, kv_heads, width, layers, inner, words = 4096, 32, 8, 128, 32, 14336, 128256
    total = 0
    for step in range(steps):
        seen = context + step + 1
        projections = 2 * hidden * (heads + 2 * kv_heads) * width + 2 * heads * width * hidden
        attention = 2 * (2 * heads * width * seen)
        total += layers * (projections + attention + 2 * hidden * 3 * inner) + 2 * hidden * words
    return float(total)


@pytest.mark.parametrize("context", [64, 2048, 32_768])
def test_decode_flops_are_those_of_vllms_own_counter(context):
    model = find_model("meta-llama/Llama-3.1-8B-Instruct")
    steps = 300
    assert float(decode_flops(model, context, steps + 1)) == pytest.approx(
        vllm_decode_flops(context, steps), rel=0.02
    )
