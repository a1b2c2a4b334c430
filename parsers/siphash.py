"""numba kernels of the prompt hash chain (SipHash-1-3).

Belongs here: the compiled loops only. Their use, and what a block is, stand in `parsers/hashing.py`.
"""
# numba compiles these functions from their bytecode: no annotations, plain loops.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: ANN001, ANN201, ANN202

import numba
import numpy as np

from parsers.hashing import BLOCK_BYTES


@numba.njit(cache=True, inline="always")
def _rotl(x, b):
    return (x << np.uint64(b)) | (x >> np.uint64(64 - b))


@numba.njit(cache=True)
def _round(v0, v1, v2, v3):
    v0 += v1
    v1 = _rotl(v1, 13) ^ v0
    v0 = _rotl(v0, 32)
    v2 += v3
    v3 = _rotl(v3, 16) ^ v2
    v0 += v3
    v3 = _rotl(v3, 21) ^ v0
    v2 += v1
    v1 = _rotl(v1, 17) ^ v2
    v2 = _rotl(v2, 32)
    return v0, v1, v2, v3


@numba.njit(cache=True)
def _absorb(v0, v1, v2, v3, word):
    v3 ^= word
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@numba.njit(cache=True)
def _finish(v0, v1, v2, v3):
    v2 ^= np.uint64(0xFF)
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@numba.njit(cache=True)
def _start(key):
    return (
        key[0] ^ np.uint64(0x736F6D6570736575),
        key[1] ^ np.uint64(0x646F72616E646F6D),
        key[0] ^ np.uint64(0x6C7967656E657261),
        key[1] ^ np.uint64(0x7465646279746573),
    )


@numba.njit(cache=True)
def _word(blob, at, size):
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(blob[at + i]) << np.uint64(8 * i)
    return word


@numba.njit(cache=True, inline="always")
def _word8(blob, at):
    # Written out, so that the compiler sees one unaligned load.
    return (
        np.uint64(blob[at])
        | np.uint64(blob[at + 1]) << np.uint64(8)
        | np.uint64(blob[at + 2]) << np.uint64(16)
        | np.uint64(blob[at + 3]) << np.uint64(24)
        | np.uint64(blob[at + 4]) << np.uint64(32)
        | np.uint64(blob[at + 5]) << np.uint64(40)
        | np.uint64(blob[at + 6]) << np.uint64(48)
        | np.uint64(blob[at + 7]) << np.uint64(56)
    )


@numba.njit(cache=True, nogil=True)
def hash_blocks(blob, byte_ends, message_ends, key, hashes, offsets):
    """Fill `hashes` (one per block) and `offsets` (bytes of the prompt up to the block's end).

    `byte_ends` bounds messages in `blob`; `message_ends` bounds rows in messages. Every message has at least
    one block.
    """
    block = 0
    for row in range(len(message_ends) - 1):
        v0, v1, v2, v3 = _start(key)
        row_start = byte_ends[message_ends[row]]
        for message in range(message_ends[row], message_ends[row + 1]):
            at, end = byte_ends[message], byte_ends[message + 1]
            first = True
            while first or at < end:
                first = False
                stop = min(at + BLOCK_BYTES, end)
                size = stop - at
                while at + 8 <= stop:
                    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, _word8(blob, at))
                    at += 8
                # The last word of a block holds its odd bytes, its size and whether the message ends there,
                # so that no two divisions of the same bytes into messages hash alike.
                tail = _word(blob, at, stop - at) | (np.uint64(size % 256) << np.uint64(56))
                v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, tail)
                if stop == end:
                    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, np.uint64(0x656E64))
                at = stop
                hashes[block] = _finish(v0, v1, v2, v3)
                offsets[block] = stop - row_start
                block += 1


@numba.njit(cache=True, nogil=True)
def hash_ids(ids, salts, key, hashes):
    """Fill `hashes` with the keyed hash of each (salt, id)."""
    for i in range(len(ids)):
        v0, v1, v2, v3 = _start(key)
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, salts[i])
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, ids[i])
        hashes[i] = _finish(v0, v1, v2, v3)
