"""The reference catalogue: accelerators and model architectures, with where each figure comes from.

Belongs here: the rows of `reference/accelerators.csv` and `reference/models.csv` as frozen records, what
follows from one record alone (parameter counts, bytes per parameter, KV bytes per token), and finding a
record by the names that logs and site files use. Does not belong here: prices of tokens (`prices.py`), how
fast a model runs on an accelerator (`pipelines/sizing`), measured efficiencies (`reference/step_time.toml`).

Throughputs are dense: a data sheet's figure "with sparsity" is twice what a dense matrix product reaches.
"""

from __future__ import annotations

import csv
import difflib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args

Precision = Literal["fp16", "bf16", "fp8", "int8", "fp4", "int4"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

BITS: Mapping[Precision, int] = MappingProxyType(
    {"fp16": 16, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4, "int4": 4}
)
# fp4, int4: 4 bits plus one scale of 8 bits per 16 weights (NVFP4), also within the range of MXFP4, AWQ and
# GPTQ. fp8: one fp32 scale per 128 x 128 block adds 0.02 %, which is below the error of the
# parameter count.
BYTES_PER_PARAMETER: Mapping[Precision, float] = MappingProxyType(
    {"fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625}
)
KV_BYTES = 2
"""Bytes per element of the KV cache: engines keep it at 16 bits unless told otherwise."""


@dataclass(frozen=True)
class Accelerator:
    """One accelerator as it is bought. Throughputs are dense, in 1e12 operations per second; null is unknown.

    `interconnect_gbs` is one way, per accelerator. `scale_up_size` is the number of accelerators in one such
    domain.
    """

    name: str
    aliases: tuple[str, ...]
    vendor: str
    architecture: str
    kind: Literal["sxm", "oam", "rack", "pcie", "consumer", "edge", "cpu"]
    memory_gb: float
    memory_usable_mib: float | None
    bandwidth_gbs: float
    fp16_tflops_dense: float | None
    bf16_tflops_dense: float | None
    fp8_tflops_dense: float | None
    int8_tops_dense: float | None
    int4_tops_dense: float | None
    fp4_tflops_dense: float | None
    tdp_w: float | None
    interconnect: str
    interconnect_gbs: float | None
    scale_up_size: int
    measured_bf16_matmul_tflops: float | None
    capex_usd_low: float | None
    capex_usd_high: float | None
    capex_source: str | None
    cloud_usd_per_hour_low: float | None
    cloud_usd_per_hour_high: float | None
    cloud_source: str | None
    spec_source: str
    confidence: Literal["high", "medium", "low"]

    @property
    def memory_bytes(self) -> float:
        """Memory that a program can see; the label in GiB where the usable amount was not measured."""
        if self.memory_usable_mib is not None:
            return self.memory_usable_mib * 2**20
        return (
            self.memory_gb * 2**30
            if self.kind in {"sxm", "oam", "pcie", "consumer"}
            else self.memory_gb * 1e9
        )

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Peak memory bandwidth."""
        return self.bandwidth_gbs * 1e9

    def peak_flops(self, precision: Precision) -> float | None:
        """Dense peak in FLOP/s for matrix products at `precision`; None if it is not supported or not known.

        fp4 needs units for 4-bit floats; int4 means weights of 4 bits with activations of 16 bits, so the
        product runs at the 16-bit rate.
        """
        half = self.bf16_tflops_dense if self.bf16_tflops_dense is not None else self.fp16_tflops_dense
        tera = {
            "fp16": self.fp16_tflops_dense if self.fp16_tflops_dense is not None else self.bf16_tflops_dense,
            "bf16": self.bf16_tflops_dense,
            "fp8": self.fp8_tflops_dense,
            "int8": self.int8_tops_dense,
            "fp4": self.fp4_tflops_dense,
            "int4": half,
        }[precision]
        return None if tera is None else tera * 1e12

    @property
    def matmul_ratio(self) -> float | None:
        """What the largest 16-bit matrix products reach of the dense peak; None if it was not measured."""
        if self.measured_bf16_matmul_tflops is None or self.bf16_tflops_dense is None:
            return None
        return self.measured_bf16_matmul_tflops / self.bf16_tflops_dense

    @property
    def capex_usd(self) -> float | None:
        """Middle (geometric mean) of the price range for one accelerator; None if no price is known."""
        return _middle(self.capex_usd_low, self.capex_usd_high)

    @property
    def cloud_usd_per_hour(self) -> float | None:
        """Middle (geometric mean) of the on-demand prices of an accelerator hour; None if none is known."""
        return _middle(self.cloud_usd_per_hour_low, self.cloud_usd_per_hour_high)


@dataclass(frozen=True)
class Model:
    """A decoder-only transformer's architecture, text part.

    `full_attention_layers` see the whole context (or its `sparse_top_k` best tokens), `sliding_layers` the
    last `sliding_window` tokens; other layers, if any, keep a state of constant size.
    """

    name: str
    aliases: tuple[str, ...]
    hf_id: str
    published_params_b: float
    published_active_params_b: float
    params_source: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    moe_intermediate: int | None
    n_experts: int | None
    experts_per_token: int | None
    shared_experts: int | None
    moe_layers: int | None
    vocab: int
    tied_embeddings: bool
    context: int
    attention: Literal["MHA", "GQA", "MQA", "MLA", "GDN hybrid"]
    q_lora_rank: int | None
    kv_lora_rank: int | None
    qk_rope_head_dim: int | None
    qk_nope_head_dim: int | None
    v_head_dim: int | None
    sliding_window: int | None
    sliding_layers: int | None
    full_attention_layers: int
    sparse_top_k: int | None
    native_dtype: str
    source: str

    @property
    def is_moe(self) -> bool:
        """Whether some layers choose among experts."""
        return bool(self.moe_layers)

    @property
    def is_mla(self) -> bool:
        """Whether the KV cache holds one compressed latent per token instead of keys and values per head."""
        return self.attention == "MLA"

    @cached_property
    def attention_params(self) -> int:
        """Parameters of the attention projections of one layer, without biases and norms."""
        if not self.is_mla:
            return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        latent, rope, nope, value = self._mla
        query_width = self.heads * (nope + rope)
        query = (
            self.hidden * query_width
            if self.q_lora_rank is None
            else self.q_lora_rank * (self.hidden + query_width)
        )
        key_value = self.hidden * (latent + rope) + latent * self.heads * (nope + value)
        return query + key_value + self.heads * value * self.hidden

    @cached_property
    def dense_ffn_params(self) -> int:
        """Parameters of the gated feed-forward blocks of all layers without experts."""
        return 3 * self.hidden * self.intermediate * (self.layers - (self.moe_layers or 0))

    @cached_property
    def expert_params(self) -> int:
        """Parameters of one routed expert in every layer that has experts."""
        return 3 * self.hidden * (self.moe_intermediate or 0) * (self.moe_layers or 0)

    @cached_property
    def routed_params(self) -> int:
        """Parameters of all routed experts."""
        return self.expert_params * (self.n_experts or 0)

    @cached_property
    def embedding_params(self) -> int:
        """Parameters of one vocabulary matrix (input embedding or output head)."""
        return self.vocab * self.hidden

    @cached_property
    def always_read_params(self) -> int:
        """Parameters that each decode step reads: all but routed experts and the input embedding."""
        router = self.hidden * (self.n_experts or 0) * (self.moe_layers or 0)
        shared = self.expert_params * (self.shared_experts or 0)
        norms = self.hidden * (2 * self.layers + 1)
        attention = self.attention_params * self.layers
        return attention + self.dense_ffn_params + shared + router + norms + self.embedding_params

    @cached_property
    def params(self) -> int:
        """All parameters, computed from the architecture."""
        embedding = 0 if self.tied_embeddings else self.embedding_params
        return self.always_read_params + self.routed_params + embedding

    def linear_params_per_token(self) -> int:
        """Parameters that every token meets (attention, FFN, chosen experts), without the head."""
        chosen = self.expert_params * ((self.experts_per_token or 0) + (self.shared_experts or 0))
        return self.attention_params * self.layers + self.dense_ffn_params + chosen

    def kv_bytes_per_layer(self) -> int:
        """Bytes that one token adds to the KV cache of one layer that keeps it."""
        if self.is_mla:
            latent, rope, _, _ = self._mla
            return (latent + rope) * KV_BYTES
        return 2 * self.kv_heads * self.head_dim * KV_BYTES

    def kv_bytes_per_token(self) -> int:
        """Bytes that one more token adds to the KV cache beyond any sliding window."""
        return self.full_attention_layers * self.kv_bytes_per_layer()

    @property
    def native_precision(self) -> Precision:
        """Precision that the published weights have."""
        if "fp4" in self.native_dtype:
            return "fp4"
        if "int4" in self.native_dtype:
            return "int4"
        if self.native_dtype.startswith("fp8"):
            return "fp8"
        return "fp16" if self.native_dtype == "float16" else "bf16"

    @property
    def _mla(self) -> tuple[int, int, int, int]:
        """kv_lora_rank, qk_rope_head_dim, qk_nope_head_dim, v_head_dim."""
        sizes = (self.kv_lora_rank, self.qk_rope_head_dim, self.qk_nope_head_dim, self.v_head_dim)
        known = tuple(size for size in sizes if size is not None)
        if len(known) != len(sizes):
            msg = f"models.csv: {self.name} is MLA and lacks a rank or a head size"
            raise ValueError(msg)
        return known  # type: ignore[return-value]


@cache
def accelerators() -> Mapping[str, Accelerator]:
    """All accelerators by name, in the order of the file."""
    rows = (_record(Accelerator, row) for row in _rows("accelerators.csv"))
    return MappingProxyType({row.name: row for row in rows})


@cache
def models() -> Mapping[str, Model]:
    """All model architectures by name, in the order of the file."""
    return MappingProxyType({row.name: row for row in (_record(Model, row) for row in _rows("models.csv"))})


@lru_cache(maxsize=4096)  # names come from logs: bounded
def find_model(name: str) -> Model | None:
    """Find the architecture that a model name of a log stands for; None where it is not certain.

    Understands a vendor's prefix (`meta-llama/`), separators, and the marks of chat tuning and quantisation
    (`-Instruct`, `-it`, `-FP8`). All other parts must be equal, so that `gemma-3-270m` is not taken for Gemma
    3 27B and `Qwen2.5-VL-7B` not for Qwen2.5 7B.
    """
    return _model_index().get(_model_key(name))


@lru_cache(maxsize=4096)
def match_accelerator(name: str) -> Accelerator | None:
    """Find the accelerator that a name or a driver's device name stands for; None where there is none."""
    return _accelerator_index().get(_accelerator_key(name))


def closest(name: str, known: Mapping[str, Accelerator] | Mapping[str, Model]) -> str:
    """Name up to three catalogue entries that are nearest to `name`, for an error's remedy."""
    spellings = {
        alias.casefold(): entry.name for entry in known.values() for alias in (entry.name, *entry.aliases)
    }
    near = difflib.get_close_matches(name.casefold(), spellings, n=8, cutoff=0.3)
    names = list(dict.fromkeys(spellings[spelling] for spelling in near))[:3] or list(known)[:3]
    return ", ".join(repr(entry) for entry in names)


@cache
def parameters(name: str) -> Mapping[str, Any]:
    """Read one of the parameter files `reference/<name>.toml` (step_time, memory, power)."""
    text = resources.files("warehouse").joinpath("reference", f"{name}.toml").read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


# Marks that change neither the architecture nor its size. A mark that may stand for another model (vl, coder,
# distill, dates, latest) is not here: those that are known to share an architecture are aliases in
# models.csv.
_NEUTRAL = frozenset(
    {"instruct", "it", "chat", "hf", "turbo", "free", "meta"}
    | {
        "fp16",
        "bf16",
        "bfloat16",
        "fp8",
        "int8",
        "int4",
        "nvfp4",
        "mxfp4",
        "w8a8",
        "w4a16",
        "w8a16",
        "4bit",
        "8bit",
    }
    | {"dynamic", "awq", "gptq", "gguf", "bnb", "quantized", "kv", "q4", "q5", "q6", "q8"}
)
_PART = re.compile(r"[a-z]+|\d+(?:\.\d+)*[a-z]*\d*[a-z]*")
# Amazon Bedrock wraps names: us.meta.llama3-3-70b-instruct-v1:0.
_BEDROCK = re.compile(r"^(?:(?:us|eu|apac)\.)?(?:meta|mistral|deepseek|qwen|openai)\.|-v1:0$")
_GGUF_MARK = re.compile(r"[-_.:]q[2-8]_(?:k(?:_[sml])?|[01])$")


def _model_key(name: str) -> tuple[str, ...]:
    base = name.casefold().strip().rstrip("/").rsplit("/", 1)[-1]
    base = _BEDROCK.sub("", _GGUF_MARK.sub("", base))
    words = [word for word in re.split(r"[\s\-_:()/]+", base) if word and word not in _NEUTRAL]
    return tuple(part for word in words for part in _parts(word) if part not in _NEUTRAL)


def _parts(word: str) -> list[str]:
    """Split `llama3.3` into `llama`, `3.3`; a word with other characters stays whole: nothing may vanish."""
    parts = _PART.findall(word)
    return parts if "".join(parts) == word else [word]


_VENDOR = re.compile(r"^(?:nvidia|amd|intel|huawei|apple)[\s\-_]+")


def _accelerator_key(name: str) -> str:
    return re.sub(r"[\s\-_]+", " ", _VENDOR.sub("", name.casefold().strip()))


@cache
def _model_index() -> Mapping[tuple[str, ...], Model]:
    index: dict[tuple[str, ...], Model] = {}
    for model in models().values():
        for key in {_model_key(spelling) for spelling in (model.name, model.hf_id, *model.aliases)}:
            if index.setdefault(key, model) is not model:
                msg = f"models.csv: {model.name} and {index[key].name} share the name {' '.join(key)}"
                raise ValueError(msg)
    return MappingProxyType(index)


@cache
def _accelerator_index() -> Mapping[str, Accelerator]:
    index: dict[str, Accelerator] = {}
    for entry in accelerators().values():
        for key in {_accelerator_key(spelling) for spelling in (entry.name, *entry.aliases)}:
            if index.setdefault(key, entry) is not entry:
                msg = f"accelerators.csv: {entry.name} and {index[key].name} share the name {key}"
                raise ValueError(msg)
    return MappingProxyType(index)


def _middle(low: float | None, high: float | None) -> float | None:
    """Geometric mean: price ranges are skewed, a few dear offers would pull an arithmetic mean up."""
    return None if low is None or high is None else math.sqrt(low * high)


def _rows(name: str) -> list[dict[str, str]]:
    text = resources.files("warehouse").joinpath("reference", name).read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


R = TypeVar("R", Accelerator, Model)


def _record(kind: type[R], row: dict[str, str]) -> R:
    return kind(**{field.name: _cell(str(field.type), row[field.name]) for field in fields(kind)})


def _cell(declared: str, text: str) -> Any:
    """Turn a cell into the declared type; an empty cell is unknown."""
    if declared.startswith("tuple"):
        return tuple(part for part in text.split(";") if part)
    if not text:
        return None
    if declared.startswith("bool"):
        return text == "true"
    if declared.startswith("int"):
        return int(text)
    if declared.startswith("float"):
        return float(text)
    return text
