"""TensorRT-LLM's iteration statistics: the JSON of GET /metrics (`enable_iter_perf_stats`), arrays or lines.

Belongs here: one object per iteration. Does not belong here: Prometheus series (`parsers/metrics.py`), the
text log (`tensorrt_llm_log.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import clock, trtllm
from parsers.fields import Fields
from parsers.format import Format
from parsers.json_heads import mostly
from parsers.records import ENGINE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context, Head

_BLOCKS = ("maxNumBlocks", "usedNumBlocks", "reusedBlocks", "missedBlocks", "tokensPerBlock", "cacheHitRate")
STRUCTURE = {
    **dict.fromkeys(
        ("iter", "iterLatencyMS", "timestamp", "numActiveRequests", "numQueuedRequests"), "VARCHAR"
    ),
    "kvCacheStats": dict.fromkeys(_BLOCKS, "VARCHAR"),
    "inflightBatchingStats": dict.fromkeys(
        ("numCtxTokens", "numGenRequests", "avgNumDecodedTokensPerIter"), "VARCHAR"
    ),
}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: {"iter", "iterLatencyMS", "numActiveRequests"} <= item.keys())


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    number, local = fields.number, clock.LocalClock.of(context)
    latency, active, queued = (
        number("iterLatencyMS").needed("iterLatencyMS"),
        number("numActiveRequests"),
        number("numQueuedRequests"),
    )
    prompt = number("inflightBatchingStats.numCtxTokens")
    generating = number("inflightBatchingStats.numGenRequests")
    decoded = number("inflightBatchingStats.avgNumDecodedTokensPerIter")
    most, used, reused, missed, size, hit = (number(f"kvCacheStats.{name}") for name in _BLOCKS)
    # Without speculative decoding the average is 0 and each request decodes one token.
    per_request = pl.when(decoded.value > 1).then(decoded.value).otherwise(1.0)
    naive = fields.text("timestamp").str.to_datetime("%m-%d-%Y %H:%M:%S%.f", time_unit="us", strict=False)
    fields.frame = fields.frame.with_columns(
        naive=naive,
        window_s=latency.value / 1000,
        window_prompt_tokens=prompt.value,
        window_generation_tokens=(generating.value * per_request).round(6),
    ).with_columns(at=local.at(pl.col("naive")))
    samples = fields.rows(
        at=pl.col("at"),
        instance=trtllm.server(context),
        window_s=pl.col("window_s"),
        running=active,
        waiting=queued,
        kv_usage_ratio=pl.when(most.value > 0).then((used.value / most.value).round(8)),
        window_prompt_tokens=pl.col("window_prompt_tokens"),
        window_generation_tokens=pl.col("window_generation_tokens"),
        prompt_tokens_per_s=trtllm.per_second("window_prompt_tokens"),
        generation_tokens_per_s=trtllm.per_second("window_generation_tokens"),
        prefix_cache_queries_total=(reused.value + missed.value) * size.value,
        prefix_cache_hits_total=reused.value * size.value,
        prefix_cache_hit_ratio=hit.value,
        flags=clock.flag_list(local.flags(pl.col("naive")) | trtllm.FLAGS),
    )
    timeless = pl.when(pl.col("at").is_null()).then(pl.lit("timestamp is not an instant"))
    return samples.with_columns(_reject=pl.coalesce("_reject", timeless, trtllm.fault()))


FORMAT = Format(
    name="trtllm_iteration_stats",
    title="TensorRT-LLM iteration statistics",
    written_by="trtllm-serve with enable_iter_perf_stats: answers of GET /metrics, as arrays or lines",
    target=ENGINE_SAMPLES,
    container="json_lines",
    recognised_by="JSON objects with iter, iterLatencyMS and numActiveRequests",
    recognise=_recognise,
    map=_map,
    structure=STRUCTURE,
    traps=(
        *trtllm.TRAPS,
        "timestamp has the month first.",
        "A read of /metrics drains it: what another reader took is missing here, and nothing says so.",
        "numCompletedRequests is of the iteration: it fills no counter.",
        "Hits and queries of the prefix cache count blocks since the start, here in tokens of whole blocks.",
    ),
)
