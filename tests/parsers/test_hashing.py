"""The hash chain against a slow SipHash-1-3 written from its paper; equal prefixes and nothing else have equal hashes."""

from __future__ import annotations

import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.hashing import BLOCK_BYTES, PromptHasher

MASK = (1 << 64) - 1
HASHER = PromptHasher(b"first key")


class SlowSip:
    """SipHash-1-3 word by word (Aumasson, Bernstein: SipHash, a fast short-input PRF, 2012)."""

    def __init__(self, key):
        first, second = key
        self.v = [
            first ^ 0x736F6D6570736575,
            second ^ 0x646F72616E646F6D,
            first ^ 0x6C7967656E657261,
            second ^ 0x7465646279746573,
        ]

    @staticmethod
    def rotated(x, by):
        return ((x << by) | (x >> (64 - by))) & MASK

    def round(self):
        a, b, c, d = self.v
        a = (a + b) & MASK
        b = self.rotated(b, 13) ^ a
        a = self.rotated(a, 32)
        c = (c + d) & MASK
        d = self.rotated(d, 16) ^ c
        a = (a + d) & MASK
        d = self.rotated(d, 21) ^ a
        c = (c + b) & MASK
        b = self.rotated(b, 17) ^ c
        c = self.rotated(c, 32)
        self.v = [a, b, c, d]

    def absorb(self, word):
        self.v[3] ^= word
        self.round()
        self.v[0] ^= word

    def digest(self):
        kept = list(self.v)
        self.v[2] ^= 0xFF
        for _ in range(3):
            self.round()
        a, b, c, d = self.v
        self.v = kept
        return a ^ b ^ c ^ d


def slow_chain(messages, key):
    """(hashes, bytes of the prompt at each block's end)."""
    sip, hashes, ends, offset = SlowSip(key), [], [], 0
    for message in messages:
        data = message.encode()
        blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)] or [b""]
        for number, block in enumerate(blocks, 1):
            words = len(block) // 8
            for word in range(words):
                sip.absorb(int.from_bytes(block[8 * word : 8 * word + 8], "little"))
            sip.absorb(
                int.from_bytes(block[8 * words :].ljust(7, b"\0") + bytes([len(block) % 256]), "little")
            )
            if number == len(blocks):
                sip.absorb(0x656E64)
            hashes.append(sip.digest())
            offset += len(block)
            ends.append(offset)
    return hashes, ends


def chained(prompts, tokens=None, hasher=HASHER):
    tokens = tokens or [None] * len(prompts)
    return hasher.chain(pl.Series(prompts, dtype=pl.List(pl.String)), pl.Series(tokens, dtype=pl.Int64))


@pytest.mark.skipif(sys.hash_info.algorithm != "siphash13", reason="this Python hashes bytes in another way")
def test_the_reference_is_siphash_1_3():
    """Python's own hash of bytes is SipHash-1-3, under a key of zeros if randomisation is off."""
    texts = [bytes(range(1, 1 + size)) for size in range(1, 25)]
    code = f"print(*[hash(text) for text in {texts!r}])"
    run = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONHASHSEED": "0"}, capture_output=True, check=True
    )
    for text, wanted in zip(texts, map(int, run.stdout.split()), strict=True):
        sip = SlowSip((0, 0))
        whole = len(text) // 8 * 8
        for at in range(0, whole, 8):
            sip.absorb(int.from_bytes(text[at : at + 8], "little"))
        sip.absorb(int.from_bytes(text[whole:].ljust(7, b"\0") + bytes([len(text)]), "little"))
        assert sip.digest() == wanted & MASK


MESSAGE = st.one_of(
    st.text(max_size=12),
    st.integers(1000, 3100).map(lambda n: "ab" * (n // 2)),
    st.sampled_from(["", "x" * 1023, "x" * 1024, "x" * 1025, "é" * 512, "😀" * 300, "\0", "\0\0"]),
)
PROMPT = st.lists(MESSAGE, min_size=1, max_size=4)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.just([]), PROMPT), min_size=1, max_size=4), st.data())
def test_chain_equals_the_slow_reference_and_tokens_sum_to_the_input(prompts, data):
    tokens = [data.draw(st.one_of(st.none(), st.integers(0, 1 << 40))) for _ in prompts]
    found = chained(prompts, tokens)
    key = tuple(int(word) for word in HASHER._key)
    for row, (prompt, count) in enumerate(zip(prompts, tokens, strict=True)):
        if not prompt:
            assert [series[row] for series in found] == [None] * 4
            continue
        hashes, ends = slow_chain(prompt, key)
        assert found.prefix_hashes[row].to_list() == hashes
        assert found.prompt_hash[row] == hashes[-1]
        assert found.prompt_bytes[row] == ends[-1]
        counts = found.prefix_token_counts[row]
        if count is None:
            assert counts is None
        else:
            assert counts.to_list() == sorted(counts.to_list())
            assert (len(counts), counts[-1]) == (len(hashes), count)
            assert all(
                abs(c - count * e / max(1, ends[-1])) <= 1 for c, e in zip(counts[:-1], ends, strict=False)
            )


@settings(max_examples=60, deadline=None)
@given(PROMPT, PROMPT, PROMPT)
def test_first_n_hashes_are_equal_exactly_where_the_first_n_blocks_are(shared, one, other):
    """A block is its bytes and whether its message ends with it."""
    prompts = [shared + one, shared + other]
    chains = [series.to_list() for series in chained(prompts).prefix_hashes]
    blocks = [
        [
            (m[at : at + BLOCK_BYTES], at + BLOCK_BYTES >= len(m))
            for m in (x.encode() for x in prompt)
            for at in (range(0, len(m), BLOCK_BYTES) if m else [0])
        ]
        for prompt in prompts
    ]
    for n in range(1, min(map(len, blocks)) + 1):
        assert (chains[0][:n] == chains[1][:n]) == (blocks[0][:n] == blocks[1][:n])
        assert (chains[0][n - 1] == chains[1][n - 1]) == (blocks[0][:n] == blocks[1][:n])


def test_the_division_into_messages_matters():
    prompts = [["ab"], ["a", "b"], ["ab", ""], ["", "ab"], ["x" * 2048], ["x" * 1024, "x" * 1024]]
    assert chained(prompts).prompt_hash.n_unique() == len(prompts)


def test_only_one_key_gives_the_same_hashes():
    prompts = [["same text"]]
    assert (
        chained(prompts).prompt_hash[0] == chained(prompts, hasher=PromptHasher(b"first key")).prompt_hash[0]
    )
    assert (
        chained(prompts).prompt_hash[0] != chained(prompts, hasher=PromptHasher(b"second key")).prompt_hash[0]
    )
    assert HASHER.digest("sk-1") != PromptHasher(b"second key").digest("sk-1")


def test_frames_without_rows_prompts_or_bytes():
    assert [len(series) for series in chained([])] == [0] * 4
    assert [series.to_list() for series in chained([None, []])] == [[None, None]] * 4
    empty = chained([[""], [None, ""]], [3, 0])
    assert empty.prompt_bytes.to_list() == [0, 0]
    assert empty.prefix_token_counts.to_list() == [[3], [0, 0]]


def test_a_slice_hashes_like_its_rows():
    """The buffers of a slice begin before its first row."""
    prompts = pl.Series([["one", "two"], ["three"], None, ["four"]], dtype=pl.List(pl.String))
    tokens = pl.Series([5, 6, 7, 8])
    whole, part = HASHER.chain(prompts, tokens), HASHER.chain(prompts[1:], tokens[1:])
    for all_rows, some in zip(whole, part, strict=True):
        assert all_rows[1:].to_list() == some.to_list()


def test_ids_of_two_scopes_never_meet_and_ids_of_one_keep_their_equality():
    ids = pl.Series("prefix_hashes", [[1, 2], [1, 2, 3], None, [], [1, -1]])
    one, other = HASHER.chain_ids(ids, "file one"), HASHER.chain_ids(ids, "file two")
    assert one.name == "prefix_hashes"
    assert one.list.len().to_list() == [2, 3, None, 0, 2]
    assert one[0].to_list() == one[1].to_list()[:2]
    assert one[0][0] == one[4][0]
    assert not set(one.explode().drop_nulls()) & set(other.explode().drop_nulls())
    by_row = HASHER.chain_ids(ids, pl.Series(["file one", "file two", "x", "x", "file one"]))
    assert by_row[0].to_list() == one[0].to_list()
    assert by_row[1].to_list() == other[1].to_list()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, MASK), max_size=4), max_size=5))
def test_ids_equal_the_slow_reference(ids):
    """Ids are any 64 bits: what a trace numbers itself, or hashes of another system."""
    found = HASHER.chain_ids(pl.Series(ids, dtype=pl.List(pl.UInt64)), "scope")
    key, salt = tuple(int(word) for word in HASHER._key), HASHER._salt("scope")

    def slow(one):
        sip = SlowSip(key)
        sip.absorb(salt)
        sip.absorb(one)
        return sip.digest()

    assert found.to_list() == [[slow(one) for one in row] for row in ids]


def test_the_key_file_is_made_once_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "data" / "key"
    with ThreadPoolExecutor(4) as pool:
        hashers = list(pool.map(lambda _: PromptHasher.from_file(path), range(4)))
    assert len({hasher.digest("x") for hasher in hashers}) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32
    assert [p.name for p in path.parent.iterdir()] == ["key"]


TOOL = st.sampled_from(["", "a", "b", "ab", "x" * 1024, "x" * 1025, "y" * 2500])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.lists(TOOL, max_size=5)), min_size=1, max_size=5), st.randoms())
def test_tools_have_one_hash_in_any_order_and_another_in_any_other_set(rows, random):
    """Reference: the sum of each tool's own chain. Repeated tools count."""
    key = tuple(int(word) for word in HASHER._key)
    shuffled = [None if row is None else random.sample(row, len(row)) for row in rows]
    found = HASHER.tools(pl.Series(rows, dtype=pl.List(pl.String)))
    again = HASHER.tools(pl.Series(shuffled, dtype=pl.List(pl.String)))
    assert found.tools_hash.to_list() == again.tools_hash.to_list()
    assert found.tools_bytes.to_list() == [sum(map(len, row)) if row else None for row in rows]
    assert found.tools_hash.to_list() == [
        sum(slow_chain([tool], key)[0][-1] for tool in row) & MASK if row else None for row in rows
    ]
