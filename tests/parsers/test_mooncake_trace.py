"""Mooncake-style traces: lengths, prefix blocks, look-alikes, the published figures of the real file."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime

import polars as pl
import pytest

from parsers.errors import SiteConfigError
from parsers.format import Context, Head
from parsers.formats.mooncake_trace import FORMAT, block_tokens
from parsers.hashing import PromptHasher

HASHER = PromptHasher(b"key")
FIELDS = ("timestamp", "input_length", "output_length", "hash_ids", "session_id", "model")


def line(timestamp=0, input_length=1_300, output_length=5, hash_ids=(7, 8, 9), **more):
    fields = {"timestamp": timestamp, "input_length": input_length, "output_length": output_length}
    return fields | ({} if hash_ids is None else {"hash_ids": list(hash_ids)}) | more


def mapped(lines, head="", **options):
    as_text = [
        {
            name: [str(i) for i in v]
            if isinstance(v := row.get(name), list)
            else None
            if v is None
            else str(v)
            for name in FIELDS
        }
        for row in lines
    ]
    schema = dict.fromkeys(FIELDS, pl.String) | {"hash_ids": pl.List(pl.String)}
    raw = pl.DataFrame(as_text, schema=schema).with_columns(
        source_line=pl.int_range(1, len(lines) + 1, dtype=pl.Int64)
    )
    return FORMAT.map(raw, Context("trace.jsonl", HASHER, options=options, head=head))


def test_a_line_becomes_a_row():
    row = mapped([line(1_500.25, model="m", session_id="s")]).row(0, named=True)
    assert row["started_at"] == datetime(2000, 1, 1, 0, 0, 1, 500_250, tzinfo=UTC)
    assert (row["input_tokens"], row["output_tokens"], row["session_id"], row["model_requested"]) == (
        1300,
        5,
        "s",
        "m",
    )
    assert row["prefix_token_counts"] == [512, 1024, 1300]
    assert len(set(row["prefix_hashes"])) == 3
    assert row["flags"] == ["relative_clock", "status_assumed"]
    assert (row["_reject"], row["_other"]) == (None, False)


def test_equal_ids_of_one_trace_meet_and_those_of_two_traces_do_not():
    one = mapped([line(), line(hash_ids=(7, 8, 10))], head="one")["prefix_hashes"].to_list()
    other = mapped([line()], head="other")["prefix_hashes"].to_list()
    assert one[0][:2] == one[1][:2]
    assert one[0][2] != one[1][2]
    assert not set(one[0]) & set(other[0])


def test_a_whole_number_of_64_bits_is_an_id():
    hashes = mapped([line(hash_ids=(2**64 - 1, 2**63, 0))])["prefix_hashes"].to_list()[0]
    assert len(set(hashes)) == 3


@pytest.mark.parametrize("ids", [None, []])
def test_without_ids_the_prefix_is_unknown(ids):
    row = mapped([line(hash_ids=ids)]).row(0, named=True)
    assert (row["prefix_hashes"], row["prefix_token_counts"], row["_reject"]) == (None, None, None)
    assert "block_size_mismatch" not in row["flags"]


def test_ids_that_contradict_the_block_size_are_dropped_and_flagged():
    rows = mapped([line(input_length=3_000), line(input_length=1_800), line(input_length=1_537)])
    assert rows["prefix_hashes"].is_null().to_list() == [True, False, False]
    assert ["block_size_mismatch" in flags for flags in rows["flags"]] == [True, False, False]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (line("soon"), "timestamp is not a time since the start in ms"),
        (line(-1), "timestamp is not a time since the start in ms"),
        ({"input_length": 1, "output_length": 1, "hash_ids": [1], "delay": 3}, "timestamp is missing"),
        (line(input_length=1.5), "input_length is not a whole number"),
        (line(output_length=None), "output_length is missing"),
        (line(hash_ids=(1, "x", 3)), "hash_ids holds something that is not a whole number"),
    ],
)
def test_broken_lines_name_the_field(broken, reason):
    assert mapped([broken, line()])["_reject"].to_list() == [reason, None]


def test_recognises_its_own_lines_and_leaves_others_alone():
    def head(*lines):
        return Head("x", "\n".join(json.dumps(row) for row in lines).encode())

    assert FORMAT.recognise(head(line(), line(hash_ids=None)))
    bailian = line(0.0, 502, 1494, range(32)) | {
        "chat_id": 0,
        "parent_chat_id": -1,
        "type": "text",
        "turn": 1,
    }
    assert not FORMAT.recognise(head(bailian))
    assert not FORMAT.recognise(head(line(hash_ids=None)))
    assert not FORMAT.recognise(head({"timestamp": 1, "level": "info"}))
    assert not FORMAT.recognise(Head("x", b""))


def test_block_size_from_option_then_from_the_first_lines_then_512():
    def context(*lines, **options):
        return Context("x", HASHER, options=options, head="\n".join(json.dumps(row) for row in lines))

    small = [line(input_length=100, hash_ids=range(7)), line(input_length=33, hash_ids=range(3))]
    assert block_tokens(context()) == 512
    assert block_tokens(context(line())) == 512
    assert block_tokens(context(*small)) == 16
    assert block_tokens(context(*small, line())) == 512
    assert block_tokens(context(*small, block_size="48")) == 48
    with pytest.raises(SiteConfigError, match="option block_size: 'big'"):
        block_tokens(context(block_size="big"))


def test_published_figures_of_the_conversation_trace(shared):
    """FAST'25, table 2: 12,031 requests, mean input 12,035 and output 343 tokens; 288,500 blocks in all."""
    with gzip.open(shared / "data/mooncake/conversation_trace.jsonl.gz", "rt") as stream:
        text = stream.read()
    rows = mapped([json.loads(row) for row in text.splitlines()], head=text[: 256 << 10])
    assert rows.height == rows["_reject"].null_count() == 12_031
    assert round(rows["input_tokens"].mean()) == 12_035
    assert round(rows["output_tokens"].mean()) == 343
    assert rows["prefix_hashes"].list.len().sum() == 288_500
    assert (rows["prefix_token_counts"].list.last() == rows["input_tokens"]).all()
    assert rows["prefix_hashes"].explode().n_unique() == len(
        {i for row in text.splitlines() for i in json.loads(row)["hash_ids"]}
    )
