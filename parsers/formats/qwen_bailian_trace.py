"""Qwen-Bailian usage traces: JSON lines of chat turns, with the ids of the prompt's prefix blocks.

Belongs here: its keys, and the conversation that its turns make. Does not belong here: Mooncake-style traces
(`mooncake_trace.py`: milliseconds, no chat ids), the chain that ids make (`parsers/block_ids.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.block_ids import MISMATCH, prefixes
from parsers.clock import flag_list
from parsers.format import Format, Head, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.values import present, read_fields, relative_origin, since, whole

if TYPE_CHECKING:
    from parsers.format import Context

KEYS = frozenset({"chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"})
BLOCK_TOKENS = 16
_IDENTITY = ("chat_id", "timestamp", "input_length", "output_length")
_KEPT = (*_IDENTITY, "parent_chat_id", "hash_ids", "type", "root")
_ROOT = ("-1", "", None)
_ROOTS = "qwen_bailian_trace.roots"
TRUE = pl.lit(value=True)


def _recognise(head: Head) -> bool:
    objects = head.objects
    return bool(objects) and mostly(objects, lambda line: line.keys() >= KEYS)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    lines = frame.with_columns(root=_roots(frame, context.carried.setdefault(_ROOTS, {})))
    origin = relative_origin(context)
    read = read_fields(
        lines,
        {
            "started_at": since(pl.col("timestamp"), "timestamp", "s", origin).needed("timestamp"),
            "input_tokens": whole(pl.col("input_length"), "input_length").needed("input_length"),
            "output_tokens": whole(pl.col("output_length"), "output_length").needed("output_length"),
        },
    ).hstack(lines.select("source_line", *_KEPT))
    blocks = prefixes(pl.col("hash_ids"), pl.col("input_tokens"), BLOCK_TOKENS, context)
    parent = pl.col("parent_chat_id")
    return read.select(
        "source_line",
        "started_at",
        "input_tokens",
        "output_tokens",
        request_id=present(pl.col("chat_id")),
        record_key=pl.concat_str([pl.lit("bailian"), *_IDENTITY], separator="|"),
        parent_request_id=pl.when(~parent.is_in(["-1", ""])).then(parent),
        session_id=pl.col("root"),
        tags=pl.when(present(pl.col("type")).is_not_null()).then(pl.concat_list(present(pl.col("type")))),
        operation=pl.lit("chat"),
        status=pl.lit("ok"),
        usage_origin=pl.lit("reported"),
        prefix_hashes=blocks.hashes,
        prefix_token_counts=blocks.token_counts,
        flags=flag_list({"relative_clock": TRUE, "status_assumed": TRUE, MISMATCH: blocks.mismatch}),
        _reject=pl.coalesce("_reject", blocks.fault),
        _other=~TRUE,
    )


def _roots(frame: pl.DataFrame, roots: dict[str, str]) -> pl.Series:
    """The first turn of each line's conversation; a parent that is not in the trace stands for it."""

    def root(chat: Any, parent: Any) -> str | None:
        if chat is None:
            return None
        roots[chat] = chat if parent in _ROOT else roots.get(parent, parent)
        return roots[chat]

    pairs = zip(frame["chat_id"], frame["parent_chat_id"], strict=True)
    return pl.Series([root(chat, parent) for chat, parent in pairs], dtype=pl.String)


FORMAT = Format(
    name="qwen_bailian_trace",
    title="Qwen-Bailian usage traces",
    written_by="alibaba-edu/qwen-bailian-usagetraces-anon: qwen_trace{A,B}_blksz_16.jsonl and others",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON lines with chat_id, parent_chat_id, timestamp, input_length and output_length",
    recognise=_recognise,
    map=_map,
    structure={
        "chat_id": "VARCHAR",
        "parent_chat_id": "VARCHAR",
        "timestamp": "VARCHAR",
        "input_length": "VARCHAR",
        "output_length": "VARCHAR",
        "type": "VARCHAR",
        "hash_ids": ["VARCHAR"],
    },
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="relative"),
    traps=(
        "timestamp is seconds since the start of the trace; there is no wall clock (option `origin`).",
        (
            "Every turn has a chat_id of its own; parent_chat_id is the turn before, -1 for the first. The session is "
            "the first turn's chat_id; a parent outside of the trace stands for it."
        ),
        "Ids are hashes of blocks of 16 tokens, valid in one file; the last block is partial.",
        "type (text, search, image, file) is kept as a tag; image and file prompts count only as tokens.",
        "No model, cache, latency or status: cached tokens are unknown (null), status is assumed.",
    ),
)
