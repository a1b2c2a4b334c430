"""Metric names of engines and accelerators, and the column of the contract that each one fills.

Belongs here: one declaration per metric (name on the wire, column, factor to the column's unit) and the
labels that say whose sample it is; shared by every format that carries Prometheus samples. Does not belong
here: how a container holds samples (`parsers/formats/`), arithmetic over counters (efficiency).

Not taken, on purpose: histograms and `_created` stamps; rates that an engine computes over a window it does
not name (`sglang:gen_throughput`, `llamacpp:predicted_tokens_seconds`); hit ratios that are overwritten
between two reads (`sglang:cache_hit_rate`); SGLang's `estimated_*_per_gpu_total`, which charge weights once
per token. Sources: vllm/v1/metrics/loggers.py, docs/usage/metrics.md of vLLM; SGLang's
metrics_collector.py; TGI's router/src/server.rs; llama.cpp's tools/server/README.md; dcgm-exporter's
etc/default-counters.csv and dcgmlib/dcgm_fields.h; mind-cluster's npu-exporter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

MB = 1e6
MIB = float(1 << 20)


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric that fills a column: value on the wire x `factor` / `divisor` = value in the column's unit.

    Series that differ only in `parts` are parts of one quantity and are summed; series that differ in any
    other label that is not part of the identity (rank, pod, replica) repeat it and are counted once.
    `whole_device`: the exporter repeats the value of the whole device for each partition of it (MIG).
    `flag` marks rows whose meaning differs from the column's.
    """

    name: str
    column: str
    factor: float = 1.0
    divisor: float = 1.0
    parts: tuple[str, ...] = ()
    whole_device: bool = False
    flag: str | None = None


ENGINE_METRICS: tuple[Metric, ...] = (
    Metric("vllm:num_requests_running", "running"),
    Metric("vllm:num_requests_waiting", "waiting"),
    Metric("vllm:kv_cache_usage_perc", "kv_usage_ratio"),  # 0..1 in spite of its name
    Metric("vllm:gpu_cache_usage_perc", "kv_usage_ratio"),  # its name until 2025-11
    Metric("vllm:prompt_tokens_total", "prompt_tokens_total"),
    Metric("vllm:prompt_tokens_cached_total", "cached_prompt_tokens_total"),
    Metric("vllm:generation_tokens_total", "generation_tokens_total"),
    Metric("vllm:request_success_total", "requests_total", parts=("finished_reason",)),
    Metric("vllm:prefix_cache_queries_total", "prefix_cache_queries_total"),
    Metric("vllm:prefix_cache_hits_total", "prefix_cache_hits_total"),
    Metric("vllm:gpu_prefix_cache_queries_total", "prefix_cache_queries_total"),
    Metric("vllm:gpu_prefix_cache_hits_total", "prefix_cache_hits_total"),
    Metric("vllm:estimated_flops_per_gpu_total", "flops_per_gpu_total"),
    Metric("vllm:estimated_read_bytes_per_gpu_total", "read_bytes_per_gpu_total"),
    Metric("vllm:estimated_write_bytes_per_gpu_total", "write_bytes_per_gpu_total"),
    Metric("sglang:num_running_reqs", "running"),
    Metric("sglang:num_queue_reqs", "waiting"),
    Metric("sglang:token_usage", "kv_usage_ratio"),
    Metric("sglang:prompt_tokens_total", "prompt_tokens_total", flag="counted_at_finish"),
    Metric("sglang:cached_tokens_total", "cached_prompt_tokens_total", parts=("cache_source",)),
    Metric("sglang:generation_tokens_total", "generation_tokens_total", flag="counted_at_finish"),
    Metric("sglang:num_requests_total", "requests_total"),
    Metric("tgi_batch_current_size", "running"),
    Metric("tgi_queue_size", "waiting"),
    Metric("tgi_request_success", "requests_total", parts=("method",)),
    Metric("tgi_request_input_length_sum", "prompt_tokens_total"),
    Metric("tgi_request_generated_tokens_sum", "generation_tokens_total"),
    Metric("llamacpp:requests_processing", "running"),
    Metric("llamacpp:requests_deferred", "waiting"),
    Metric("llamacpp:kv_cache_usage_ratio", "kv_usage_ratio"),
    Metric("llamacpp:prompt_tokens_total", "prompt_tokens_total", flag="prompt_tokens_exclude_cached"),
    Metric("llamacpp:prompt_tokens_cached_total", "cached_prompt_tokens_total"),
    Metric("llamacpp:tokens_predicted_total", "generation_tokens_total"),
)
"""Metrics that fill `engine_samples`."""

DEVICE_METRICS: tuple[Metric, ...] = (
    Metric("DCGM_FI_DEV_POWER_USAGE", "power_w", whole_device=True),
    Metric("DCGM_FI_DEV_BOARD_POWER_WATTS", "power_w", whole_device=True),  # its name from DCGM 4.6 on
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "energy_j", divisor=1000, whole_device=True),
    Metric("DCGM_FI_DEV_POWER_MGMT_LIMIT", "power_limit_w", whole_device=True),
    Metric("DCGM_FI_DEV_GPU_UTIL", "utilisation_ratio", divisor=100),
    Metric("DCGM_FI_DEV_GPU_UTIL_RATIO", "utilisation_ratio"),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "memory_utilisation_ratio", divisor=100),
    Metric("DCGM_FI_DEV_FB_USED", "memory_used_bytes", MIB),
    Metric("DCGM_FI_DEV_FB_TOTAL", "memory_total_bytes", MIB),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "tensor_active_ratio"),
    Metric("DCGM_FI_PROF_TENSOR_UTIL_RATIO", "tensor_active_ratio"),
    Metric("DCGM_FI_PROF_DRAM_ACTIVE", "dram_active_ratio"),
    Metric("DCGM_FI_PROF_DRAM_UTIL_RATIO", "dram_active_ratio"),
    Metric("DCGM_FI_DEV_GPU_TEMP", "temperature_c", whole_device=True),
    Metric("npu_chip_info_power", "power_w", whole_device=True),
    Metric("npu_chip_info_utilization", "utilisation_ratio", divisor=100, whole_device=True),
    Metric("npu_chip_info_hbm_used_memory", "memory_used_bytes", MB, whole_device=True),
    Metric("npu_chip_info_hbm_total_memory", "memory_total_bytes", MB, whole_device=True),
)
"""Metrics that fill `device_samples`."""

METRICS: dict[str, tuple[Metric, ...]] = {
    ENGINE_SAMPLES.name: ENGINE_METRICS,
    DEVICE_SAMPLES.name: DEVICE_METRICS,
}

INSTANCE_LABELS = ("exported_instance", "instance", "pod")
"""Labels that name an engine instance, the most telling first (`exported_*`: the target's own, renamed)."""
ENGINE_LABELS = ("engine", "dp_rank")
"""Labels that number the engines of one server (data parallelism)."""
MODEL_LABELS = ("model_name", "model")
DEVICE_LABELS = ("UUID", "uuid", "vdie_id", "gpu", "id")
HOST_LABELS = ("Hostname", "hostname", "node", "instance")
DEVICE_NAME_LABELS = ("modelName", "model_name")
PARTITION_LABEL = "GPU_I_ID"
"""Label that is set on series of a part of a device (MIG instance)."""

# Blank values of DCGM (int32, int64 and double blanks) and of npu-exporter (-1, the highest uint32).
# Source: dcgmlib/dcgm_structs.h, DCGM_INT32_BLANK and its neighbours.
_INT32_BLANKS = (2_147_483_632, 2_147_483_647)
_FLOAT_BLANK = 140_737_488_355_328
_UINT32_BLANK = 4_294_967_295


def unify(name: pl.Expr, table: Table) -> pl.Expr:
    """Name on the wire of a counter that an export lists by its family name, without `_total`."""
    families = {
        metric.name.removesuffix("_total"): metric.name
        for metric in METRICS[table.name]
        if metric.name.endswith("_total")
    }
    return name.replace(families)


def declared(table: Table) -> pl.DataFrame:
    """The metrics of a table: name, column, factor, divisor, whole_device, meaning (a flag, or null)."""
    schema = {
        "name": pl.String,
        "column": pl.String,
        "factor": pl.Float64,
        "divisor": pl.Float64,
        "whole_device": pl.Boolean,
        "meaning": pl.String,
    }
    rows = [(m.name, m.column, m.factor, m.divisor, m.whole_device, m.flag) for m in METRICS[table.name]]
    return pl.DataFrame(rows, schema=schema, orient="row")


def is_blank(value: pl.Expr, column: pl.Expr) -> pl.Expr:
    """Whether a device's sample is the exporter's way to say that it has no value.

    The blanks of 32 bits are blanks only where the quantity can't reach them (an energy counter in mJ can).
    """
    counter = column == "energy_j"
    narrow = value.is_between(*_INT32_BLANKS) | (value == _UINT32_BLANK) | (value < 0)
    return (value >= _FLOAT_BLANK) | (narrow & ~counter)


def contract_fault(table: Table, columns: Iterable[str]) -> pl.Expr:
    """The first rule of the contract that a row breaks in one of the columns, in words; else null."""
    rules = {text: rule for name in columns for text, rule in table[name].broken().items()}
    return pl.coalesce(
        [pl.lit(None, pl.String), *(pl.when(rule).then(pl.lit(text)) for text, rule in rules.items())]
    )


def engine_instance(server: pl.Expr, number: pl.Expr) -> pl.Expr:
    """Name of one engine: its server's name, `/engine-N` after it for all but the first engine of the server.

    A server without a name and its first engine give `engine-0`, so that engines of one source never mix.
    """
    digits = number.str.strip_chars_start("0")
    suffix = pl.when(number.is_null()).then(None).when(digits == "").then(pl.lit("0")).otherwise(digits)
    tail = pl.concat_str(pl.lit("engine-"), suffix)
    return (
        pl.when(server.is_null())
        .then(tail)
        .when(tail.is_null() | (suffix == "0"))
        .then(server)
        .otherwise(pl.concat_str(server, pl.lit("/"), tail))
    )
