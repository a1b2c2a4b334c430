"""Causes in front of a cache: prompts that should have begun like an earlier one and did not.

Belongs here: volatile heads, reordered tools, rewritten histories, and where they part from the prompt before. Does not
belong here: prefixes that did come before (`causes.py`). No text is known here: only hashes, sizes and positions.

Calls with a hash chain that generate, each against the call before it in its line: that of the same session, else that
of the same application (project or key, in a model and team) with an input of like size (within 2^(1/4) of it, in
classes). They part at the first block whose hash differs.
    reordered_tools  both have the same set of tools in the same bytes, and part within them.
    volatile_head    they part before half of the input, and from there on the sizes of their blocks agree, block by block,
                     within the rounding of tokens, over at least one end of a message: the same layout with other
                     contents. Counted only in lines where this holds for at least `LEAST_CALLS` calls and half of those
                     that can be compared, so that prompts that are alike by chance make no finding.
    changed_history  in a session: an earlier call held more than a quarter of its prompt (`conversations.LEFT_SHARE`)
                     beyond where they part, the new one goes on beyond it, too, and no call of before is continued later
                     (else it is a branch or a sub-agent).
Tokens are an estimate, at most: what would have been seen if the prompt had not changed there, less what was seen.
    volatile_head: up to where the layouts agree; reordered_tools: the tools; changed_history: the shorter of the two.
They have no money: only exact prefixes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.hashing import BLOCK_BYTES
from pipelines.waste.causes import CAUSES_SCHEMA
from pipelines.waste.conversations import Conversations
from pipelines.waste.evidence import exact_calls

if TYPE_CHECKING:
    from pipelines.waste.block_kernels import Array
    from pipelines.waste.blocks import Blocks

LEAST_CALLS = 5
LEAST_TOKENS = 1024
"""Below the shortest prefix that is commonly cached nothing could be gained."""
_SIZE_CLASSES = 4.0
_ROUNDING_BYTES = 8


def unstable_prompts(calls: pl.DataFrame, blocks: Blocks, conversations: Conversations) -> pl.DataFrame:
    """Find calls whose prompt should have begun like an earlier one.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        blocks: `blocks.exact_blocks` of the same requests.
        conversations: of `conversations.found` for the same.

    Returns:
        Frame of `CAUSES_SCHEMA`, one row per such call; a call has one of the three causes at most.

    """
    exact = exact_calls(calls)
    if exact.is_empty():
        return CAUSES_SCHEMA.to_frame()
    judged = _compared(exact, blocks, conversations)
    seen = pl.max_horizontal("seen_before_tokens", "common_tokens")
    tokens = (
        pl.when(pl.col("cause") == "reordered_tools")
        .then("tools_tokens")
        .when(pl.col("cause") == "volatile_head")
        .then("alike_tokens")
        .otherwise("history_tokens")
    )
    return (
        judged.filter(pl.col("cause").is_not_null() & pl.col("generating"))
        .with_columns(tokens=tokens - seen, tokens_before=pl.col("common_tokens"))
        .filter(pl.col("tokens") >= LEAST_TOKENS)
        .with_columns(
            is_estimate=pl.lit(value=True), usd=pl.lit(None), differing_block=pl.col("common_blocks") + 1
        )
        .select(pl.col(name).cast(dtype) for name, dtype in CAUSES_SCHEMA.items())
    )


def _compared(exact: pl.DataFrame, blocks: Blocks, conversations: Conversations) -> pl.DataFrame:
    from pipelines.waste.conversation_kernels import compared_with

    before, line = _call_before(exact)
    wide, _ = blocks.over_all_caches()
    size, inputs = (
        exact["prompt_bytes"].fill_null(0).to_numpy(),
        np.maximum(exact["input_tokens"].to_numpy(), 1),
    )
    bytes_per_token = size / inputs
    each = np.repeat(bytes_per_token, np.diff(blocks.offsets))
    ends = np.rint(blocks.counts * each).astype(np.int64)
    tolerance = np.ceil(2 * bytes_per_token).astype(np.int64) + _ROUNDING_BYTES
    common, alike, message_ends = compared_with(before, wide, blocks.offsets, ends, tolerance, BLOCK_BYTES)
    judged = exact.with_columns(
        line=pl.Series(line),
        compared=pl.Series(before >= 0)
        & (exact["evidence"] == "hash_chain")
        & exact["prompt_bytes"].is_not_null(),
        common_blocks=pl.Series(common),
        common_tokens=pl.Series(_tokens_at(blocks, common)),
        alike_tokens=pl.Series(_tokens_at(blocks, alike)),
        message_ends=pl.Series(message_ends),
        same_tools=pl.Series(_same(exact, before)),
        history_tokens=pl.Series(conversations.left_behind_tokens),
    )
    return judged.with_columns(
        tools_tokens=(pl.col("tools_bytes") * pl.col("input_tokens") / pl.col("prompt_bytes")).cast(pl.Int64)
    ).with_columns(cause=_cause())


def _cause() -> pl.Expr:
    parted = pl.col("compared") & (pl.col("common_tokens") < pl.col("alike_tokens"))
    early = pl.col("common_tokens") * 2 < pl.col("input_tokens")
    alike = parted & early & (pl.col("message_ends") > 0)
    enough = (alike.sum() >= LEAST_CALLS) & (2 * alike.sum() >= pl.col("compared").sum())
    reordered = (
        pl.col("compared") & pl.col("same_tools") & (pl.col("common_tokens") < pl.col("tools_tokens") - 1)
    )
    return (
        pl.when(reordered.fill_null(value=False))
        .then(pl.lit("reordered_tools"))
        .when(alike & enough.over("line"))
        .then(pl.lit("volatile_head"))
        .when(pl.col("history_tokens") > 0)
        .then(pl.lit("changed_history"))
    )


def _call_before(exact: pl.DataFrame) -> tuple[Array, Array]:
    """Index of the call before in the same line (-1: none), and the line's number."""
    size = (pl.col("input_tokens").clip(1).log(2) * _SIZE_CLASSES).round()
    alone = pl.col("session_id").is_null()
    key = pl.struct(
        "session_id",
        *(
            pl.when(alone).then(name).alias(name)
            for name in ("provider", "model", "team", "project", "api_key_alias", "api_key_hash")
        ),
        pl.when(alone).then(size).alias("size"),
    )
    lines = exact.select(key.alias("line")).with_row_index("row")
    numbered = lines.with_columns(
        before=pl.col("row").cast(pl.Int64).shift(1).over("line").fill_null(-1),
        first=pl.col("row").first().over("line"),
    )
    return numbered["before"].to_numpy(), numbered["first"].to_numpy()


def _tokens_at(blocks: Blocks, length: Array) -> Array:
    """Cumulative tokens of the first `length` blocks of each call."""
    if not blocks.counts.size:
        return np.zeros(length.size, np.int64)
    index = np.maximum(blocks.offsets[:-1] + length - 1, 0)
    return np.where(length > 0, blocks.counts[index], 0).astype(np.int64)


def _same(exact: pl.DataFrame, before: Array) -> Array:
    """Whether the call before had the same set of tools in as many bytes; False where either is unknown."""
    other = exact.select("tools_hash", "tools_bytes")[np.maximum(before, 0)]
    equal = (exact["tools_hash"] == other["tools_hash"]) & (exact["tools_bytes"] == other["tools_bytes"])
    return equal.fill_null(value=False).to_numpy() & (before >= 0)
