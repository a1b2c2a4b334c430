"""FLOPs and bytes that a model needs for given tokens: the work itself, whatever hardware does it.

Belongs here: closed forms over token counts for dense and MoE models, grouped-query and latent attention,
sliding windows and sparse attention. Does not belong here: time, power, peaks of accelerators
(`pipelines/sizing`), or which requests count (`hourly.py`).

Conventions, after the PaLM paper's appendix B (arXiv 2204.02311) and the counters of inference engines: a
multiply-add is 2 FLOPs; attention is causal, so a token attends to itself and what stands before it; tokens
read from a prefix cache cost attention but no matrix products; the output head is applied to sampled
positions only; norms, the router, activations and the embedding lookup are not counted. The first output
token comes out of prefill, so `output` tokens take `output - 1` decode steps.

Counts may be floats or arrays of float64; NaN is unknown and stays so.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from warehouse.catalogue import BITS, BYTES_PER_PARAMETER, Model, Precision

Array: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = float | Array


def attended_pairs(start: Counts, end: Counts, span: float | None = None) -> Array:
    """Sum over the tokens `start + 1 .. end` of the tokens that each attends to: `min(position, span)`.

    `span` is the sliding window or the number of tokens that sparse attention keeps; None means all.
    """
    return _triangle(end, span) - _triangle(start, span)


def _triangle(length: Counts, span: float | None) -> Array:
    n = np.asarray(length, dtype=np.float64)
    full: Array = n * (n + 1) / 2
    if span is None:
        return full
    return np.where(n <= span, full, span * (span + 1) / 2 + (n - span) * span)


def attention_flops_per_pair(model: Model) -> int:
    """FLOPs of one layer for one query token and one token it attends to (scores and weighted sum)."""
    if not model.is_mla:
        return 4 * model.heads * model.head_dim
    scores = (model.qk_nope_head_dim or 0) + (model.qk_rope_head_dim or 0)
    return 2 * model.heads * (scores + (model.v_head_dim or 0))


def linear_flops_per_token(model: Model) -> int:
    """FLOPs of all matrix products with weights for one token, without the output head."""
    return 2 * model.linear_params_per_token()


def head_flops(model: Model) -> int:
    """FLOPs of the output head for one sampled position."""
    return 2 * model.embedding_params


def _layer_pairs(model: Model, start: Counts, end: Counts) -> Array:
    """Attended pairs summed over the layers that have attention."""
    pairs = model.full_attention_layers * attended_pairs(start, end, model.sparse_top_k)
    if model.sliding_layers:
        pairs = pairs + model.sliding_layers * attended_pairs(start, end, model.sliding_window)
    return pairs


def prefill_flops(model: Model, new: Counts, cached: Counts = 0.0) -> Array:
    """FLOPs to process `new` prompt tokens after `cached` ones that were read from the prefix cache."""
    fresh = np.asarray(new, dtype=np.float64)
    attention = attention_flops_per_pair(model) * _layer_pairs(model, cached, cached + fresh)
    return linear_flops_per_token(model) * fresh + attention + head_flops(model) * (fresh > 0)


def decode_flops(model: Model, context: Counts, output: Counts) -> Array:
    """FLOPs to generate `output` tokens after `context` prompt tokens; the first one is prefill's."""
    steps = decode_steps(output)
    attention = attention_flops_per_pair(model) * _layer_pairs(model, context, context + steps)
    return (linear_flops_per_token(model) + head_flops(model)) * steps + attention


def decode_steps(output: Counts) -> Array:
    """Decode steps that `output` tokens take."""
    steps: Array = np.maximum(np.asarray(output, dtype=np.float64) - 1, 0)
    return steps


def kv_bytes_of(model: Model, context: Counts) -> Array:
    """Bytes that a sequence of `context` tokens holds in the KV cache, windows respected."""
    length = np.asarray(context, dtype=np.float64)
    tokens = model.full_attention_layers * length
    if model.sliding_layers and model.sliding_window:
        tokens = tokens + model.sliding_layers * np.minimum(length, model.sliding_window)
    return model.kv_bytes_per_layer() * tokens


def kv_read_bytes(model: Model, context: Counts) -> Array:
    """Bytes of KV cache that one decode step reads for a sequence of `context` tokens."""
    length = np.asarray(context, dtype=np.float64)
    full = length if model.sparse_top_k is None else np.minimum(length, model.sparse_top_k)
    tokens = model.full_attention_layers * full
    if model.sliding_layers and model.sliding_window:
        tokens = tokens + model.sliding_layers * np.minimum(length, model.sliding_window)
    return model.kv_bytes_per_layer() * tokens


def decode_kv_bytes(model: Model, context: Counts, output: Counts) -> Array:
    """Bytes of KV cache read over all decode steps of a call."""
    return model.kv_bytes_per_layer() * _layer_pairs(model, context, context + decode_steps(output))


def expert_coverage(model: Model, tokens: Counts) -> Array:
    """Share of the routed experts that a step of `tokens` tokens touches, if the router spreads evenly."""
    if not model.is_moe:
        return np.zeros_like(np.asarray(tokens, dtype=np.float64))
    miss = 1 - (model.experts_per_token or 0) / (model.n_experts or 1)
    return 1 - miss ** np.asarray(tokens, dtype=np.float64)


def attention_weight_size(model: Model, precision: Precision) -> float:
    """Bytes per parameter of the attention projections.

    4-bit checkpoints of models with experts (NVFP4, MXFP4, Kimi's int4) quantise the experts and leave
    attention at 16 bits.
    """
    if model.is_moe and BITS[precision] < BITS["fp8"]:
        return BYTES_PER_PARAMETER["bf16"]
    return BYTES_PER_PARAMETER[precision]


def attention_weight_bytes(model: Model, precision: Precision) -> float:
    """Bytes of the attention projections of all layers."""
    return model.attention_params * model.layers * attention_weight_size(model, precision)


def steady_weight_bytes(model: Model, precision: Precision) -> float:
    """Bytes of weights beside attention and routed experts that every step reads.

    The output head stays at 16 bits: quantised checkpoints leave it so.
    """
    rest = model.always_read_params - model.embedding_params - model.attention_params * model.layers
    return rest * BYTES_PER_PARAMETER[precision] + model.embedding_params * BYTES_PER_PARAMETER["bf16"]


def expert_weight_bytes(model: Model, precision: Precision) -> float:
    """Bytes of all routed experts."""
    return model.routed_params * BYTES_PER_PARAMETER[precision]


def streamed_weight_bytes(model: Model, precision: Precision, tokens: Counts) -> Array:
    """Bytes of weights that one step over `tokens` tokens reads: all but untouched experts and input
    embedding.
    """
    always = attention_weight_bytes(model, precision) + steady_weight_bytes(model, precision)
    return always + expert_weight_bytes(model, precision) * expert_coverage(model, tokens)
