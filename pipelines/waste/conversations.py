"""Conversations: which calls belong together, and which call each one continues.

Belongs here: sessions by id, else by chain, the turn of each call on its branch, and what a turn sends again. Does not
belong here: what that costs (`session_growth.py`), prompts that changed though they should not (`unstable_prompts.py`).

Calls with exact evidence. A session is what shares a session id; calls without one form a session where a call's prompt
begins with the whole prompt of an earlier call of the same organisation and team. Where blocks are cut by size and the
last one is partial (traces of block ids), the earlier prompt but for its last block is enough, if three blocks or more
remain comparable: an assumption. A call continues the call with the longest such prompt, the latest of equals. Turn 1 begins
a branch: a session, a sub-agent, or what follows a compaction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from pipelines.waste.evidence import exact_calls

if TYPE_CHECKING:
    from pipelines.waste.block_kernels import Array
    from pipelines.waste.blocks import Blocks

_LEAST_BLOCKS = 3
LEFT_SHARE = 0.25
"""Least share of an earlier prompt beyond the common part for a history to count as rewritten."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """Arrays of one entry per call with exact evidence, in order of arrival."""

    session: Array
    """Number of the session."""
    parent: Array
    """Index of the call continued, -1 where a branch begins."""
    turn: Array
    """Turn on its branch, from 1."""
    resent_tokens: Array
    """Tokens of the longest prefix that an earlier call of the session sent."""
    left_behind_tokens: Array
    """Where a session moves on to a rewritten history: tokens of the shorter of both prompts; else 0."""


def found(calls: pl.DataFrame, blocks: Blocks) -> Conversations:
    """Find the conversations.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        blocks: `blocks.exact_blocks` of the same requests.

    """
    from pipelines.waste.block_kernels import number_blocks
    from pipelines.waste.conversation_kernels import continued, turns

    exact = exact_calls(calls)
    key = exact.select(
        "session_id",
        *(
            pl.when(pl.col("session_id").is_null()).then(name).alias(name)
            for name in ("organization", "team")
        ),
    )
    order = key.unique(maintain_order=True).with_row_index("scope")
    scope = key.join(order, on=key.columns, how="left", nulls_equal=True, maintain_order="left")["scope"]
    scopes = scope.cast(pl.Int32).to_numpy(writable=True)
    hashes = blocks.hashes[blocks.numbers] if blocks.numbers.size else np.empty(0, np.uint64)
    numbers, distinct = number_blocks(hashes, scopes, blocks.offsets)
    parent, seen, nearest = continued(numbers, distinct, blocks.offsets, blocks.counts, _spare(exact, blocks))
    named = exact["session_id"].is_not_null().to_numpy(writable=True)
    session, turn = turns(parent, named, scopes)
    resent = np.where(named | (parent >= 0), seen, 0)
    left = _left_behind(exact, parent, seen, nearest, scopes, named)
    return Conversations(session, parent, turn, resent, left)


def _spare(exact: pl.DataFrame, blocks: Blocks) -> Array:
    """1 where the last block may be cut short by the end of the prompt."""
    lengths = np.diff(blocks.offsets)
    if not lengths.size:
        return lengths
    whole = blocks.counts[np.maximum(blocks.offsets[1:] - 1, 0)] >= exact["input_tokens"].to_numpy(
        writable=True
    )
    by_size = (
        exact["prompt_bytes"].is_null().to_numpy(writable=True)
        & (exact["evidence"] == "hash_chain").to_numpy()
    )
    spare: Array = (whole & by_size & (lengths >= _LEAST_BLOCKS)).astype(np.int64)
    return spare


def _left_behind(
    exact: pl.DataFrame, parent: Array, seen: Array, nearest: Array, scopes: Array, named: Array
) -> Array:
    """Tokens at stake where a session's history was rewritten.

    The prompt parts from that of the nearest call in its session, both go on, and from then on the session continues
    none of its earlier calls.
    """
    from pipelines.waste.conversation_kernels import passed_over

    inputs = exact["input_tokens"].to_numpy(writable=True)
    other = inputs[np.maximum(nearest, 0)]
    parted = (
        named & (nearest >= 0) & (parent != nearest) & ((other - seen) > LEFT_SHARE * other) & (inputs > seen)
    )
    bypassed = passed_over(parent, scopes, int(scopes.max()) + 1 if scopes.size else 0)
    return np.where(parted & ~bypassed, np.minimum(inputs, other), 0).astype(np.int64)
