"""An architecture from a Hugging Face `config.json`, for models that the catalogue does not know.

Belongs here: the keys that model families use for the same size. Does not belong here: the catalogue's own rows,
downloading anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsers.errors import SiteConfigError
from warehouse.catalogue import Model

_MOST = 10**7
"""No size of an architecture comes near; a larger number is a mistake."""


def read_model_config(path: Path, name: str | None = None) -> Model:
    """Read the text part of an architecture.

    Raises:
        SiteConfigError: the file is no such configuration; names the key.

    """
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise _wrong(path, f"is no JSON ({error})") from None
    if not isinstance(config, dict):
        raise _wrong(path, "is no JSON object")
    text = config.get("text_config")
    merged = {**config, **text} if isinstance(text, dict) else config
    return _model(_Sizes(path, merged), name or str(config.get("_name_or_path") or path.stem), merged)


class _Sizes:
    """Whole numbers of a configuration under any of their names."""

    def __init__(self, path: Path, config: Mapping[str, Any]) -> None:
        self.path, self.config = path, config

    def get(self, *keys: str) -> int | None:
        """The first of the keys that is given."""
        for key in keys:
            value = self.config.get(key)
            if value is None or isinstance(value, bool):
                continue
            if not isinstance(value, int) or not 0 <= value <= _MOST:
                raise _wrong(self.path, f"{key} = {value!r} is no size")
            return value
        return None

    def need(self, *keys: str) -> int:
        """As `get`, where nothing works without it."""
        value = self.get(*keys)
        if not value:
            raise _wrong(self.path, f"has no {' or '.join(keys)}")
        return value


def _wrong(path: Path, what: str) -> SiteConfigError:
    return SiteConfigError(
        f"the model's configuration {what}", where=str(path), remedy="Give the config.json of its checkpoint."
    )


def _model(sizes: _Sizes, name: str, config: Mapping[str, Any]) -> Model:
    layers, hidden = sizes.need("num_hidden_layers", "n_layer"), sizes.need("hidden_size", "n_embd")
    heads = sizes.need("num_attention_heads", "n_head")
    latent = sizes.get("kv_lora_rank")
    experts = sizes.get("num_experts", "n_routed_experts", "num_local_experts")
    sliding, window = _sliding(sizes, config, layers)
    kv_heads = sizes.get("num_key_value_heads") or heads
    attention_layers = layers - _layers_of_type(config, "linear_attention", "mamba")
    expert_size = (
        sizes.get("moe_intermediate_size", "intermediate_size", "ffn_hidden_size") if experts else None
    )
    return Model(
        name=name,
        aliases=(),
        hf_id="",
        published_params_b=0.0,
        published_active_params_b=0.0,
        params_source="computed from config.json",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=sizes.get("head_dim") or hidden // heads,
        intermediate=sizes.get("intermediate_size", "ffn_hidden_size", "n_inner") or 4 * hidden,
        moe_intermediate=expert_size,
        n_experts=experts,
        experts_per_token=sizes.need("num_experts_per_tok", "num_experts_per_token", "moe_topk")
        if experts
        else None,
        shared_experts=_shared_experts(sizes, expert_size) if experts else None,
        moe_layers=_expert_layers(sizes, config, layers) if experts else None,
        vocab=sizes.need("vocab_size"),
        tied_embeddings=config.get("tie_word_embeddings") is True,
        context=sizes.get("max_position_embeddings") or 0,
        attention="MLA" if latent else ("MHA" if kv_heads == heads else "GQA"),
        q_lora_rank=sizes.get("q_lora_rank"),
        kv_lora_rank=latent,
        qk_rope_head_dim=sizes.need("qk_rope_head_dim") if latent else None,
        qk_nope_head_dim=sizes.need("qk_nope_head_dim") if latent else None,
        v_head_dim=sizes.need("v_head_dim") if latent else None,
        sliding_window=window,
        sliding_layers=sliding,
        full_attention_layers=attention_layers - (sliding or 0),
        sparse_top_k=sizes.get("index_topk"),
        native_dtype=_dtype(config),
        source=str(sizes.path),
    )


def _layers_of_type(config: Mapping[str, Any], *kinds: str) -> int:
    types = config.get("layer_types")
    return sum(str(kind) in kinds for kind in types) if isinstance(types, list) else 0


def _sliding(sizes: _Sizes, config: Mapping[str, Any], layers: int) -> tuple[int | None, int | None]:
    """Layers with a sliding window, and its tokens."""
    window = sizes.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return None, None
    listed = _layers_of_type(config, "sliding_attention")
    if not listed and isinstance(config.get("layer_types"), list):
        return None, None
    every = sizes.get("sliding_window_pattern")
    count = listed or (layers - layers // every if every else layers)
    return count, window


def _shared_experts(sizes: _Sizes, expert_size: int | None) -> int | None:
    shared = sizes.get("n_shared_experts", "num_shared_experts")
    wide = sizes.get("shared_expert_intermediate_size")
    if shared is None and wide and expert_size:
        return max(round(wide / expert_size), 1)
    return shared


def _expert_layers(sizes: _Sizes, config: Mapping[str, Any], layers: int) -> int:
    dense = config.get("mlp_only_layers")
    first = sizes.get("first_k_dense_replace") or (len(dense) if isinstance(dense, list) else 0)
    every = sizes.get("decoder_sparse_step", "moe_layer_freq") or 1
    return (layers - first) // every


def _dtype(config: Mapping[str, Any]) -> str:
    quantised = config.get("quantization_config")
    if isinstance(quantised, dict):
        said = " ".join(
            str(quantised.get(key, "")) for key in ("quant_method", "quant_algo", "fmt", "format")
        ).lower()
        for mark, dtype in (
            ("fp4", "fp4"),
            ("fp8", "fp8"),
            ("e4m3", "fp8"),
            ("awq", "int4"),
            ("gptq", "int4"),
        ):
            if mark in said:
                return dtype
        if quantised.get("bits") == 4 or "pack-quantized" in said:  # noqa: PLR2004 - as the key says
            return "int4"
    return str(config.get("torch_dtype") or config.get("dtype") or "bfloat16")
