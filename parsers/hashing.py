"""Keyed hashes of prompts: the chain that shows repetition without keeping a word of the text.

Belongs here: `PromptHasher` and its kernel. Does not belong here: what is repeated (`pipelines/waste/`).

The chain is SipHash-1-3 (Aumasson, Bernstein 2012) run over the prompt's bytes; at the end of every block the
state is finalised into that block's hash, so the n-th hash depends on the key and on all bytes up to there. A
block ends every 1,024 bytes of a message and at the end of each message.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from parsers.normalise import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

BLOCK_BYTES = 1024


class PromptHashes(NamedTuple):
    """Columns of the `requests` table that describe a prompt's content; all null where there is no prompt."""

    prompt_hash: pl.Series
    prefix_hashes: pl.Series
    prefix_token_counts: pl.Series
    prompt_bytes: pl.Series


class ToolHashes(NamedTuple):
    """Columns of the `requests` table that describe the tools of a prompt; null where there are none."""

    tools_hash: pl.Series
    tools_bytes: pl.Series


class PromptHasher:
    """Hashes prompts under one secret key of 16 bytes; equal prompts have equal hashes only under one key."""

    def __init__(self, key: bytes) -> None:
        """Take the key; any length is accepted and stretched to 16 bytes."""
        digest = hashlib.blake2b(key, digest_size=16, person=b"tokenworks-chain").digest()
        self._key = np.frombuffer(digest, dtype="<u8").astype(np.uint64)

    @classmethod
    def from_file(cls, path: Path) -> PromptHasher:
        """Read the key from `path`, making a random one (mode 600) if there is none.

        The key is linked into place whole, so that two processes that begin together agree on one key.
        """
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
            fresh.touch(mode=0o600)
            fresh.write_bytes(secrets.token_bytes(32))
            try:
                path.hardlink_to(fresh)
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        return cls(path.read_bytes())

    def chain(self, messages: pl.Series, input_tokens: pl.Series) -> PromptHashes:
        """Hash prompts block by block.

        Args:
            messages: List(String); the messages of each prompt, as text, in the order they were sent (tools
                first).
            input_tokens: Int64; tokens of each prompt, apportioned to the blocks by bytes (an estimate inside
                a prompt, exact at its end). Null leaves prefix_token_counts null.

        """
        rows = len(messages)
        lengths = messages.list.len().fill_null(0).to_numpy()
        blob, byte_ends = _bytes(messages.explode(empty_as_null=False, keep_nulls=False).fill_null(""))
        sizes = np.diff(byte_ends)
        message_ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        blocks = np.maximum(1, -(-sizes // BLOCK_BYTES))
        block_ends = np.concatenate(([0], np.cumsum(blocks))).astype(np.int64)
        hashes = np.empty(int(block_ends[-1]), dtype=np.uint64)
        offsets = np.empty(int(block_ends[-1]), dtype=np.int64)
        _kernels()[0](blob, byte_ends, message_ends, self._key, hashes, offsets)
        row_ends = block_ends[message_ends]
        prompt_bytes = byte_ends[message_ends[1:]] - byte_ends[message_ends[:-1]]
        has_prompt = pl.Series(np.diff(row_ends) > 0)
        tokens = _apportion(offsets, row_ends, prompt_bytes, input_tokens)
        last = np.zeros(rows, dtype=np.uint64)
        filled = np.diff(row_ends) > 0
        last[filled] = hashes[row_ends[1:][filled] - 1]
        counted = has_prompt & input_tokens.is_not_null()
        return PromptHashes(
            _masked(pl.Series("prompt_hash", last), has_prompt),
            _masked(_lists(hashes, row_ends).alias("prefix_hashes"), has_prompt),
            _masked(_lists(tokens, row_ends).alias("prefix_token_counts"), counted),
            _masked(pl.Series("prompt_bytes", prompt_bytes), has_prompt),
        )

    def tools(self, tools: pl.Series) -> ToolHashes:
        """Hash the set of tools of each prompt, whatever their order: two orders of one set have equal hashes.

        The hash of a set is the sum of its members' keyed hashes modulo 2^64. Null and empty lists give null:
        a log that names no tools does not say that there were none.

        Args:
            tools: List(String); the tools of each prompt as text, the same that `chain` was given.

        """
        lengths = tools.list.len().fill_null(0).to_numpy()
        blob, byte_ends = _bytes(tools.explode(empty_as_null=False, keep_nulls=False).fill_null(""))
        sizes = np.diff(byte_ends)
        blocks = np.maximum(1, -(-sizes // BLOCK_BYTES))
        block_ends = np.concatenate(([0], np.cumsum(blocks))).astype(np.int64)
        hashes = np.empty(int(block_ends[-1]), dtype=np.uint64)
        offsets = np.empty(int(block_ends[-1]), dtype=np.int64)
        each = np.arange(len(sizes) + 1, dtype=np.int64)
        _kernels()[0](blob, byte_ends, each, self._key, hashes, offsets)
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(hashes[block_ends[1:] - 1])))
        ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        present = pl.Series(lengths > 0)
        return ToolHashes(
            _masked(pl.Series("tools_hash", sums[ends[1:]] - sums[ends[:-1]]), present),
            _masked(pl.Series("tools_bytes", byte_ends[ends[1:]] - byte_ends[ends[:-1]]), present),
        )

    def chain_ids(self, ids: pl.Series, scope: pl.Series | str) -> pl.Series:
        """Hash block ids that are chained already, so that ids of two scopes never meet.

        Args:
            ids: List(Int64 or UInt64); equal ids of one scope mean equal prefixes. A null in a list
                counts as 0: refuse such a row before.
            scope: where the ids are valid (a session, a file); one per row or one for all.

        Returns:
            List(UInt64), as long as `ids`; null where `ids` is null.

        """
        names = scope if isinstance(scope, pl.Series) else pl.Series([scope]).new_from_index(0, len(ids))
        unique = names.unique()
        salts = [self._salt(str(name)) for name in unique]
        salt = names.replace_strict(
            unique, pl.Series(salts, dtype=pl.UInt64), return_dtype=pl.UInt64
        ).to_numpy()
        lengths = ids.list.len().fill_null(0).to_numpy().astype(np.int64)
        flat = ids.explode(empty_as_null=False, keep_nulls=False)
        bits = flat if flat.dtype == pl.UInt64 else flat.cast(pl.Int64).reinterpret(signed=False)
        known = bits.fill_null(0).to_numpy()
        hashes = np.empty(len(known), dtype=np.uint64)
        _kernels()[1](known, np.repeat(salt.astype(np.uint64), lengths), self._key, hashes)
        ends = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        return _masked(_lists(hashes, ends).alias(ids.name), ids.is_not_null())

    def digest(self, text: str) -> str:
        """Hash a name that must not be kept (a raw key, an address) into 32 hexadecimal digits."""
        return hashlib.blake2b(text.encode(), key=self._key.tobytes(), digest_size=16).hexdigest()

    def _salt(self, scope: str) -> int:
        digest = hashlib.blake2b(scope.encode(), key=self._key.tobytes(), digest_size=8).digest()
        return int.from_bytes(digest, "little")


def _bytes(texts: pl.Series) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The UTF-8 bytes of all texts on end, and where each one ends (with a leading 0)."""
    import pyarrow as pa

    array = texts.cast(pl.String).to_arrow(compat_level=pl.CompatLevel.oldest()).cast(pa.large_binary())
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    ends = np.frombuffer(memoryview(offsets), dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    return np.frombuffer(memoryview(data), dtype=np.uint8) if data else np.empty(0, np.uint8), ends


def _masked(values: pl.Series, keep: pl.Series) -> pl.Series:
    return pl.select(pl.when(keep).then(values).otherwise(None).alias(values.name)).to_series()


def _lists(values: NDArray[Any], ends: NDArray[np.int64]) -> pl.Series:
    """Lists of the values up to each end (with a leading 0)."""
    import pyarrow as pa

    # From buffers, as `pa.array` imports pandas, which takes longer than reading a small log.
    kind = pa.uint64() if values.dtype == np.uint64 else pa.int64()
    flat = pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values).data)])
    lists = pa.Array.from_buffers(
        pa.large_list(kind),
        len(ends) - 1,
        [None, pa.py_buffer(np.ascontiguousarray(ends).data)],
        children=[flat],
    )
    return pl.Series(pl.from_arrow(lists))


def _apportion(
    offsets: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    prompt_bytes: NDArray[np.int64],
    input_tokens: pl.Series,
) -> NDArray[np.int64]:
    counts = np.diff(row_ends)
    # A count out of range is dropped later, and these with it; here it must only fit.
    stated = input_tokens.fill_null(0).clip(0, MAX_COUNT)
    tokens = np.repeat(stated.to_numpy().astype(np.float64), counts)
    total = np.repeat(np.maximum(prompt_bytes, 1).astype(np.float64), counts)
    share = np.rint(tokens * offsets / total).astype(np.int64)
    ends = row_ends[1:][counts > 0] - 1
    share[ends] = tokens[ends].astype(np.int64)
    return share


def import_kernels_ahead() -> None:
    """Import the kernels in a thread, for a caller that will hash and leaves the interpreter idle until then."""
    threading.Thread(target=_kernels, daemon=True).start()


@lru_cache(maxsize=1)
def _kernels() -> tuple[Callable[..., None], Callable[..., None]]:
    """Compile the kernels at first use: importing numba costs more than reading a small log."""
    from parsers.siphash import hash_blocks, hash_ids

    return hash_blocks, hash_ids
