"""TensorRT-LLM's iterations: what a step of the engine's loop makes in ENGINE_SAMPLES, from log or metrics.

Belongs here: columns that both share. Does not belong here: containers (`formats/tensorrt_llm_log.py`,
`formats/trtllm_iteration_stats.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers.metrics import contract_fault
from parsers.records import ENGINE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

VALUES = (
    "window_s",
    "running",
    "waiting",
    "kv_usage_ratio",
    "window_prompt_tokens",
    "window_generation_tokens",
)
FLAGS = {"prompt_rate_excludes_cached": pl.lit(value=True), "generation_tokens_scheduled": pl.lit(value=True)}
TRAPS = (
    "Stamps are local time without a zone: option timezone, else UTC is assumed and flagged.",
    "A window is one iteration: the sum of windows is the time at work, and idle time has no rows.",
    "Prompt tokens are those computed in the iteration; reused blocks are not among them.",
    "Generated tokens are those scheduled: drafts of speculative decoding that were refused count, too.",
)


def server(context: Context) -> pl.Expr:
    """Name of the server that a source is of."""
    file = re.split(r"[/!]", context.source)[-1]
    return pl.coalesce(pl.lit(context.options.get("instance"), pl.String), pl.lit(file))


def per_second(tokens: str) -> pl.Expr:
    """Rate over the iteration."""
    return pl.when(pl.col("window_s") > 0).then((pl.col(tokens) / pl.col("window_s")).round(6))


def fault(names: tuple[str, ...] = VALUES) -> pl.Expr:
    """Why the sample breaks the contract, or null."""
    return contract_fault(ENGINE_SAMPLES, ("at", *names))
