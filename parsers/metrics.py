"""Metric names of engines and accelerators, and the column of the contract that each one fills.

Belongs here: one declaration per metric (name on the wire, column, factor to the column's unit) and the
labels that say whose sample it is; shared by every format that carries Prometheus samples. Does not belong
here: how a container holds samples (`parsers/formats/`), arithmetic over counters (efficiency).

Not taken, on purpose: histograms and `_created` stamps; rates that an engine computes over a window it does
not name (`sglang:gen_throughput`, `llamacpp:predicted_tokens_seconds`); hit ratios that are overwritten
between two reads (`sglang:cache_hit_rate`), or are of blocks (`trtllm_kv_cache_hit_rate`); SGLang's
`estimated_*_per_gpu_total`, which charge weights once per token; what repeats an engine's own series under
another name (`gpustack:*`, `xinference:*`); a gateway's counters (`litellm_*`), which are sums over calls that
its log holds one by one, and no engine's; energy of parts or wholes of what is taken already (RAPL's core,
uncore and psys, Kepler's containers). Ollama has no metrics.

Sources: vllm/v1/metrics/loggers.py, docs/usage/metrics.md of vLLM; SGLang's metrics_collector.py; TGI's
router/src/server.rs; llama.cpp's tools/server/README.md; LMDeploy's metrics/loggers.py; TensorRT-LLM's
metrics/collector.py and tensorrtllm_backend's README; MindIE's prometheus_metrics.cpp; dcgm-exporter's
etc/default-counters.csv and dcgmlib/dcgm_fields.h; mind-cluster's npu-exporter; node_exporter's
collector/rapl_linux.go; ROCm's device-metrics-exporter (pkg/amdgpu/gpuagent); nvidia_gpu_exporter's
docs/METRICS.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
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
    `flag` marks rows whose meaning differs from the column's. `kind`: only series with this value in one of
    `KIND_LABELS` are this metric. `domain`: the meter is no accelerator but this part of the host; the series
    may number it (`ordinal`). `zero_is_blank`: 0 means that this series does not say.
    """

    name: str
    column: str
    factor: float = 1.0
    divisor: float = 1.0
    parts: tuple[str, ...] = ()
    whole_device: bool = False
    flag: str | None = None
    kind: str | None = None
    domain: str | None = None
    zero_is_blank: bool = False


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
    Metric("trtllm_num_requests_running", "running"),
    Metric("trtllm_num_requests_waiting", "waiting"),
    Metric("trtllm_kv_cache_utilization", "kv_usage_ratio"),
    Metric("trtllm_prompt_tokens_total", "prompt_tokens_total"),
    Metric("trtllm_generation_tokens_total", "generation_tokens_total"),
    Metric("trtllm_request_success_total", "requests_total", parts=("finished_reason",)),
    Metric("lmdeploy:num_requests_running", "running"),
    Metric("lmdeploy:num_requests_waiting", "waiting"),
    Metric("lmdeploy:gpu_cache_usage_perc", "kv_usage_ratio"),  # 0..1
    Metric("lmdeploy:prompt_tokens_total", "prompt_tokens_total"),
    Metric("lmdeploy:cached_tokens_total", "cached_prompt_tokens_total"),
    Metric("lmdeploy:generation_tokens_total", "generation_tokens_total"),
    Metric("lmdeploy:request_success_total", "requests_total", parts=("finished_reason",)),
    Metric("nv_trt_llm_request_metrics", "running", kind="scheduled"),
    Metric("nv_trt_llm_request_metrics", "waiting", kind="waiting"),
    Metric("nv_trt_llm_kv_cache_block_metrics", "kv_usage_ratio", kind="fraction"),
    # MindIE's names have no prefix.
    Metric("num_requests_running", "running"),
    Metric("num_requests_waiting", "waiting"),
    Metric("npu_cache_usage_perc", "kv_usage_ratio"),
    Metric("prompt_tokens_total", "prompt_tokens_total"),
    Metric("generation_tokens_total", "generation_tokens_total"),
    Metric("request_success_total", "requests_total"),
)
"""Metrics that fill `engine_samples`."""

_AMD: tuple[Metric, ...] = tuple(
    # Operators of Kubernetes put the prefix before the names. Of a partitioned device the first partition states
    # the power, the others 0. MI300 states the package's power, older and desktop cards its average.
    Metric(
        prefix + name,
        column,
        factor,
        divisor,
        whole_device=True,
        zero_is_blank=column in {"power_w", "energy_j"},
    )
    for prefix in ("", "amd_")
    for name, column, factor, divisor in (
        ("gpu_package_power", "power_w", 1.0, 1.0),
        ("gpu_average_package_power", "power_w", 1.0, 1.0),
        ("gpu_energy_consumed", "energy_j", 1.0, 1e6),
        ("gpu_gfx_activity", "utilisation_ratio", 1.0, 100.0),
        ("gpu_umc_activity", "memory_utilisation_ratio", 1.0, 100.0),
        ("gpu_used_vram", "memory_used_bytes", MIB, 1.0),
        ("gpu_total_vram", "memory_total_bytes", MIB, 1.0),
    )
)
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
    Metric(
        "npu_chip_info_hbm_bandwidth_utilization", "memory_utilisation_ratio", divisor=100, whole_device=True
    ),
    Metric("npu_chip_info_hbm_used_memory", "memory_used_bytes", MB, whole_device=True),
    Metric("npu_chip_info_hbm_total_memory", "memory_total_bytes", MB, whole_device=True),
    *_AMD,
    Metric("nvidia_smi_power_draw_watts", "power_w"),
    Metric("nvidia_smi_energy_joules_total", "energy_j"),
    Metric("nvidia_smi_power_limit_watts", "power_limit_w"),
    Metric("nvidia_smi_utilization_gpu_ratio", "utilisation_ratio"),
    Metric("nvidia_smi_utilization_memory_ratio", "memory_utilisation_ratio"),
    Metric("nvidia_smi_memory_used_bytes", "memory_used_bytes"),
    Metric("nvidia_smi_memory_total_bytes", "memory_total_bytes"),
    Metric("nvidia_smi_temperature_gpu", "temperature_c"),
    Metric("nv_gpu_power_usage", "power_w"),
    Metric("nv_energy_consumption", "energy_j"),
    Metric("nv_gpu_power_limit", "power_limit_w"),
    Metric("nv_gpu_utilization", "utilisation_ratio"),
    Metric("nv_gpu_memory_used_bytes", "memory_used_bytes"),
    Metric("nv_gpu_memory_total_bytes", "memory_total_bytes"),
    Metric("node_rapl_package_joules_total", "energy_j", domain="cpu package"),
    Metric("node_rapl_dram_joules_total", "energy_j", domain="cpu dram"),
    Metric("kepler_node_cpu_joules_total", "energy_j", kind="package", domain="cpu package"),
    Metric("kepler_node_cpu_joules_total", "energy_j", kind="dram", domain="cpu dram"),
    Metric("scaph_host_power_microwatts", "power_w", divisor=1e6, domain="host"),
    Metric("ipmi_dcmi_power_consumption_watts", "power_w", domain="board"),
    Metric("ipmi_dcmi_power_consumption_current_watts", "power_w", domain="board"),
)
"""Metrics that fill `device_samples`."""

METRICS: dict[str, tuple[Metric, ...]] = {
    ENGINE_SAMPLES.name: ENGINE_METRICS,
    DEVICE_SAMPLES.name: DEVICE_METRICS,
}

SUBJECT_LABELS: dict[str, dict[str, tuple[str, ...]]] = {
    ENGINE_SAMPLES.name: {
        "server": ("exported_instance", "instance", "pod"),
        "engine": ("engine", "dp_rank"),  # numbers the engines of one server (data parallelism)
        "model": ("model_name", "model"),
    },
    DEVICE_SAMPLES.name: {
        "host": ("Hostname", "hostname", "node_name", "node", "instance"),
        "device": ("UUID", "uuid", "gpu_uuid", "vdie_id", "serial_number", "gpu", "gpu_id", "id"),
        "device_name": ("modelName", "model_name", "card_series", "card_model"),
        "ordinal": ("index",),
    },
}
"""Labels that say whose sample it is, the most telling first (`exported_*`: the target's own, renamed)."""
ENGINE_TRAPS = (
    "vllm:prompt_tokens_total includes cached tokens; llamacpp's excludes them (flagged).",
    "SGLang counts tokens when a request ends (flagged): long generations shift by minutes.",
    "llama.cpp prints six significant digits: beyond a million tokens its counters move in steps.",
    "Triton has no token counters; MindIE's coordinator repeats its engines' counters under the same names.",
    "MindIE's names have no prefix: another program's prompt_tokens_total would be taken for an engine's.",
)
DEVICE_TRAPS = (
    "MIG and time slicing repeat the device's power per partition or pod: it is counted once.",
    "dcgm-exporter collects every 30 s by default; a faster scrape repeats values.",
    "Utilisation is the share of time that any kernel ran: near 1 in memory-bound decode, no MFU.",
    "DCGM's energy is in mJ since the driver was loaded. Blank values of exporters are not samples.",
    "The host's meters (RAPL, IPMI) are devices of their own: the board's power includes all others.",
)
KIND_LABELS = ("request_type", "kv_cache_block_type", "zone")
PART_LABELS = tuple(sorted({label for metric in ENGINE_METRICS for label in metric.parts}))
PARTITION_LABEL = "GPU_I_ID"
"""Label that is set on series of a part of a device (MIG instance)."""

# Blank values of DCGM (int32, int64 and double blanks) and of npu-exporter (-1, the highest uint32).
# Source: dcgmlib/dcgm_structs.h, DCGM_INT32_BLANK and its neighbours.
_INT32_BLANKS = (2_147_483_632, 2_147_483_647)
_FLOAT_BLANK = 140_737_488_355_328
_INT64_BLANK = 9_223_372_036_854_775_792
_UINT32_BLANK = 4_294_967_295


def spellings(metric: Metric) -> set[str]:
    """Names on the wire: exports list a counter by its family, without `_total`; OTel knows no colon."""
    names = {metric.name, metric.name.removesuffix("_total")}
    return names | {name.replace(":", "_") for name in names}


@cache
def tables_by_name() -> dict[str, str]:
    """Name of the table that a metric fills, by every spelling of its name."""
    return {name: table for table, known in METRICS.items() for metric in known for name in spellings(metric)}


@cache
def declared(table: str) -> pl.DataFrame:
    """The metrics of a table by `name` (on the wire) and `kind`, as columns named like their fields.

    `metric` is the one name of all spellings, `summed` says that the metric comes in parts.
    """
    rows = [
        (
            name,
            m.kind or "",
            m.name,
            m.column,
            m.factor,
            m.divisor,
            m.whole_device,
            m.flag,
            m.domain,
            bool(m.parts),
            m.zero_is_blank,
        )
        for m in METRICS[table]
        for name in spellings(m)
    ]
    schema = {
        "name": pl.String,
        "kind": pl.String,
        "metric": pl.String,
        "column": pl.String,
        "factor": pl.Float64,
        "divisor": pl.Float64,
        "whole_device": pl.Boolean,
        "meaning": pl.String,
        "domain": pl.String,
        "summed": pl.Boolean,
        "zero_is_blank": pl.Boolean,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def kinds_told_apart(table: str) -> list[str]:
    """Names whose series are a metric only by their kind."""
    return [name for metric in METRICS[table] if metric.kind for name in spellings(metric)]


def is_blank(value: pl.Expr, column: pl.Expr, zero_is_blank: pl.Expr) -> pl.Expr:
    """Whether a device's sample is the exporter's way to say that it has no value.

    Blanks are blanks only where the quantity can't reach them: an energy counter in mJ reaches those of 32 bits, one
    in uJ also passes the blank of doubles.
    """
    counter = column == "energy_j"
    narrow = (
        value.is_between(*_INT32_BLANKS) | (value == _UINT32_BLANK) | (value < 0) | (value >= _FLOAT_BLANK)
    )
    zero = zero_is_blank & (value == 0)
    return zero | (value == _FLOAT_BLANK) | (value >= _INT64_BLANK) | (narrow & ~counter)


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
