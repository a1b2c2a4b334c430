"""The catalogue: dense figures, exact KV bytes, parameter totals, and names that match strictly."""

from __future__ import annotations

import pytest

from warehouse.catalogue import (
    accelerators,
    closest,
    find_model,
    match_accelerator,
    models,
    parameters,
)

# Dense figures that catalogues print doubled ("with sparsity") or wrong: bf16, fp8, bandwidth, memory, TDP.
TRAPS = {
    "H100": (989, 1979, 3350, 80, 700),
    "L4": (121, 242, 300, 24, 72),
    "L40S": (362, 733, 864, 48, 350),
    "RTX 4090": (165.2, 330.3, 1008, 24, 450),
    "RTX 5090": (209.5, 419, 1792, 32, 575),
    "MI300X": (1307, 2615, 5300, 192, 750),
    "MI325X": (1307, 2615, 6000, 256, 1000),
    "MI355X": (2516, 5033, 8000, 288, 1400),
    "Gaudi 3": (1677, 1677, 3700, 128, 900),
    "B200": (2250, 4500, 8000, 180, 1000),
    "GB200": (2500, 5000, 8000, 186, 1200),
    "A10": (125, None, 600, 24, 150),
    "V100 16GB": (None, None, 900, 16, 300),
}
KV_BYTES = {
    "Llama 3 8B": 131_072,
    "Llama 3 70B": 327_680,
    "Llama 3.1 405B": 516_096,
    "Qwen2.5 7B": 57_344,
    "Qwen3 32B": 262_144,
    "Qwen3 30B-A3B": 98_304,
    "DeepSeek-V3": 70_272,
    "Kimi K2": 70_272,
    "gpt-oss-120b": 36_864,
    "Gemma 3 27B": 81_920,
    "GLM-4 32B (0414)": 62_464,
}
# Published totals that hold a vision tower, linear-attention layers or rounding beyond 0.25 %.
KNOWN_GAPS_PERCENT = {
    "Llama 3.2 1B": 0.4,
    "Llama 4 Scout 17B-16E": 1.2,
    "Qwen3 0.6B": 0.7,
    "Gemma 3 4B": 9.8,
    "Gemma 3 12B": 3.6,
    "Gemma 3 27B": 1.5,
    "GLM-4.5 / 4.6 (355B-A32B)": 0.7,
    "GLM-4.5-Air (106B-A12B)": 0.9,
    "MiniMax-M2.5": 0.6,
    "Qwen3.5 27B": 9.9,
    "Qwen3.5 397B-A17B": 0.9,
}


@pytest.mark.parametrize("name", TRAPS)
def test_figures_are_dense_and_right_where_others_are_wrong(name):
    card = match_accelerator(name)
    assert card is not None
    found = (card.bf16_tflops_dense, card.fp8_tflops_dense, card.bandwidth_gbs, card.memory_gb, card.tdp_w)
    assert found == TRAPS[name]


def test_measured_matmul_stays_below_the_dense_peak():
    for card in accelerators().values():
        if card.measured_bf16_matmul_tflops is not None and card.bf16_tflops_dense is not None:
            assert card.measured_bf16_matmul_tflops < card.bf16_tflops_dense, card.name


def test_eight_bits_run_at_most_at_twice_the_sixteen_bit_rate():
    # 4 x would be a sparse figure beside a dense one.
    for card in accelerators().values():
        if card.fp8_tflops_dense and card.bf16_tflops_dense:
            assert card.fp8_tflops_dense <= 2.05 * card.bf16_tflops_dense, card.name


def test_every_row_names_its_source_and_every_price_too():
    assert all(
        card.spec_source and card.confidence in {"high", "medium", "low"} for card in accelerators().values()
    )
    for card in accelerators().values():
        assert (card.capex_usd_low is None) == (card.capex_source is None), card.name
        assert (card.cloud_usd_per_hour_low is None) == (card.cloud_source is None), card.name
    assert all(model.source and model.params_source for model in models().values())


@pytest.mark.parametrize("name", KV_BYTES)
def test_kv_bytes_per_token_are_exact(name):
    assert models()[name].kv_bytes_per_token() == KV_BYTES[name]


@pytest.mark.parametrize("name", list(models()))
def test_parameter_total_matches_the_published_one(name):
    model = models()[name]
    gap = abs(model.params / 1e9 / model.published_params_b - 1) * 100
    assert gap <= KNOWN_GAPS_PERCENT.get(name, 0.25)


def test_layers_add_up():
    for model in models().values():
        assert model.full_attention_layers + (model.sliding_layers or 0) <= model.layers
        assert (model.sliding_layers is None) == (model.sliding_window is None), model.name


@pytest.mark.parametrize(
    ("log_name", "architecture"),
    [
        ("llama-3.3-70b", "Llama 3.3 70B"),
        ("meta-llama/Llama-3.3-70B-Instruct", "Llama 3.3 70B"),
        ("hosted_vllm/llama-3.3-70b", "Llama 3.3 70B"),
        ("us.meta.llama3-3-70b-instruct-v1:0", "Llama 3.3 70B"),
        ("llama3.3:70b-instruct-q4_K_M", "Llama 3.3 70B"),
        ("unsloth/Meta-Llama-3.1-8B-Instruct-bnb-4bit", "Llama 3.1 8B"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "Qwen3 235B-A22B"),
        ("nvidia/Qwen3-32B-NVFP4", "Qwen3 32B"),
        ("google/gemma-3-27b-it", "Gemma 3 27B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "Llama 3.3 70B"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_names_of_logs_are_found(log_name, architecture):
    found = find_model(log_name)
    assert found is not None
    assert found.name == architecture


@pytest.mark.parametrize(
    "log_name",
    [
        "openai/gemma-3-270m",
        "gemma-3n-4b",
        "Qwen/Qwen2.5-VL-7B-Instruct",
        "mistral-large-2512",
        "mistral-large-latest",
        "llama-3.3",
        "deepseek-chat",
        "gpt-4o",
        "claude-sonnet-4-5",
        "Llama-3.1-8B-Instruct-é",
        "",
        "///",
    ],
)
def test_a_name_that_is_not_certain_is_not_matched(log_name):
    assert find_model(log_name) is None


def test_drivers_device_names_are_matched():
    assert match_accelerator("NVIDIA H100 80GB HBM3") is accelerators()["H100 SXM5 80GB"]
    assert match_accelerator("NVIDIA L40S") is accelerators()["L40S"]
    assert match_accelerator("NVIDIA H1000") is None


def test_the_closest_names_of_an_unknown_accelerator_are_told():
    assert match_accelerator("H1O0") is None
    assert "'H100 SXM5 80GB'" in closest("H1O0", accelerators())


def test_parameter_files_name_accelerators_of_the_catalogue():
    assert set(parameters("step_time")["measured_on"]) <= accelerators().keys()
    assert set(parameters("power")["measured_on"]) <= accelerators().keys()
