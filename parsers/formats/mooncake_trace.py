"""Mooncake-style traces: JSON lines with arrival, two lengths and the ids of the prompt's prefix blocks.

Covers the traces of Mooncake (FAST'25: conversation, tool and agent, synthetic) and others written with the
same keys. Lines with `chat_id` (Qwen-Bailian usage traces: seconds, blocks of 16) look alike and mean
something else: not claimed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.clock import flag_list
from parsers.errors import SiteConfigError
from parsers.format import Format, Head, TokenSemantics
from parsers.records import REQUESTS
from parsers.values import content_scope, cumulative_tokens, read_fields, relative_origin, since, whole

if TYPE_CHECKING:
    from parsers.format import Context

KEYS = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
DEFAULT_BLOCK_TOKENS = 512
BLOCK_TOKENS_SEEN = (512, 16, 32, 64, 128, 256, 1024)
TRUE = pl.lit(value=True)
_OTHER_TRACES = frozenset({"chat_id", "parent_chat_id"})


def _recognise(head: Head) -> bool:
    objects = head.objects
    return (
        bool(objects)
        and all({"input_length", "output_length"} <= line.keys() for line in objects)
        and any(line.keys() >= KEYS for line in objects)
        and not any(line.keys() & _OTHER_TRACES for line in objects)
    )


def block_tokens(context: Context) -> int:
    """Tokens of a prefix block: the option `block_size`, else the size that fits the first lines, else 512.

    Raises:
        SiteConfigError: the option is not a positive whole number.

    """
    given = context.options.get("block_size")
    if given is not None:
        if not given.isdecimal() or int(given) == 0:
            raise SiteConfigError(
                f"{given!r} is not a number of tokens", where="option block_size", remedy="Write it like 512."
            )
        return int(given)
    lengths = [
        (line["input_length"], len(line["hash_ids"]))
        for line in Head(context.source, context.head.encode()).objects
        if isinstance(line.get("input_length"), int)
        and isinstance(line.get("hash_ids"), list)
        and line["hash_ids"]
    ]
    fitting = [
        size for size in BLOCK_TOKENS_SEEN if all(-(-tokens // size) == blocks for tokens, blocks in lengths)
    ]
    return fitting[0] if fitting else DEFAULT_BLOCK_TOKENS


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    block = block_tokens(context)
    origin = relative_origin(context)
    read = read_fields(
        frame,
        {
            "started_at": since(pl.col("timestamp"), "timestamp", "ms", origin).needed("timestamp"),
            "input_tokens": whole(pl.col("input_length"), "input_length").needed("input_length"),
            "output_tokens": whole(pl.col("output_length"), "output_length").needed("output_length"),
        },
    )
    rows = read.drop("_flags").hstack(
        frame.select(
            "source_line",
            "session_id",
            model_requested=pl.col("model"),
            ids=pl.col("hash_ids").cast(pl.List(pl.UInt64), strict=False),
        )
    )
    blocks = pl.col("ids").list.len().cast(pl.Int64)
    unread = pl.col("ids").list.eval(pl.element().is_null()).list.any()
    # The last block may be partial (counted up) or left out (counted down). Any other count contradicts the
    # block size, and wrong prefixes would reach money: they are dropped, and the row says so.
    fits = (blocks * block - pl.col("input_tokens")).is_between(-block, block, closed="none")
    return (
        rows.with_columns(
            ids=pl.when(blocks > 0, fits, ~unread).then(
                pl.col("ids").list.eval(pl.element().reinterpret(signed=True))
            ),
            flags=flag_list(
                {"relative_clock": TRUE, "status_assumed": TRUE, "block_size_mismatch": (blocks > 0) & ~fits}
            ),
            _reject=pl.coalesce(
                "_reject", pl.when(unread).then(pl.lit("hash_ids holds something that is not a whole number"))
            ),
            _other=~TRUE,
            status=pl.lit("ok"),
            usage_origin=pl.lit("reported"),
        )
        .with_columns(
            prefix_token_counts=cumulative_tokens(pl.col("ids").list.len(), block, pl.col("input_tokens")),
            prefix_hashes=pl.col("ids").map_batches(
                lambda ids: context.hasher.chain_ids(ids, content_scope(context)),
                return_dtype=pl.List(pl.UInt64),
            ),
        )
        .drop("ids")
    )


FORMAT = Format(
    name="mooncake_trace",
    title="Mooncake-style request traces",
    written_by="kvcache-ai/Mooncake (FAST'25 release, Apache-2.0): conversation, toolagent and synthetic "
    "traces; benchmark tools that write the same keys",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON lines with timestamp, input_length, output_length and hash_ids, and without chat_id",
    recognise=_recognise,
    map=_map,
    structure={
        "timestamp": "VARCHAR",
        "input_length": "VARCHAR",
        "output_length": "VARCHAR",
        "hash_ids": ["VARCHAR"],
        "session_id": "VARCHAR",
        "model": "VARCHAR",
    },
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "timestamp is milliseconds since the start of the trace; there is no wall clock (option `origin`).",
        "Arrivals come in batches of about 3 s: many rows share one instant, and the order of lines decides.",
        "Ids are chained hashes of blocks of 512 tokens, valid in one file; the last block is partial.",
        "Other block sizes exist: the option `block_size`, else the one that fits the first lines, else 512.",
        "Ids whose number contradicts the block size are dropped and flagged `block_size_mismatch`.",
        "No model, cache, latency or status: cached tokens are unknown (null), status is assumed.",
        "Lines of a session that give only a delay to the turn before have no arrival and are rejected.",
    ),
)
