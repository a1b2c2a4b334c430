"""Public traces and outputs of benchmarks: what needs more than one line, and files larger than the head."""

from __future__ import annotations

import json

import polars as pl
import pytest

from parsers.detect import matching
from parsers.format import Context, Head
from parsers.hashing import PromptHasher
from parsers.parse import MAX_CHUNK_ROWS
from parsers.registry import load

HASHER = PromptHasher(b"a key for tests only")


def turn(chat, parent, ids):
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": chat / 10,
        "input_length": 16 * len(ids),
        "output_length": 1,
        "type": "text",
        "turn": 1,
        "hash_ids": ids,
    }


def test_a_conversation_of_qwen_bailian_goes_on_in_the_next_chunk():
    fmt = load("qwen_bailian_trace")
    context = Context("trace.jsonl", HASHER)
    chunks = [
        pl.DataFrame(
            {
                "source_line": [line],
                "chat_id": [chat],
                "parent_chat_id": [parent],
                "timestamp": ["1"],
                "input_length": ["16"],
                "output_length": ["1"],
                "type": ["text"],
                "hash_ids": [["7"]],
            }
        )
        for line, chat, parent in ((1, "10", "-1"), (2, "11", "10"), (3, "12", "11"))
    ]
    found = pl.concat(fmt.map(chunk, context) for chunk in chunks)
    assert found["session_id"].to_list() == ["10"] * 3
    assert found["parent_request_id"].to_list() == [None, "10", "11"]


def test_equal_blocks_of_qwen_bailian_are_equal_prefixes_of_one_file_only(read):
    """The hashes of two turns agree as long as their ids do, and never with those of another file."""
    trace = "".join(json.dumps(turn(*t)) + "\n" for t in ((1, -1, [5, 6, 7]), (2, 1, [5, 6, 8, 9])))
    first, second = read(trace).rows["prefix_hashes"].to_list()
    assert first[:2] == second[:2]
    assert first[2] != second[2]
    other = read(trace.replace('"text"', '"file"')).rows["prefix_hashes"].to_list()
    assert other[0][0] != first[0]


@pytest.mark.parametrize(("name", "model"), [("vllm_bench_result", {"model_id": "m"}), ("sglang_bench", {})])
def test_a_result_larger_than_the_head_is_claimed_and_read(read, name, model):
    count = MAX_CHUNK_ROWS + 5
    result = {
        "backend": "x",
        **model,
        "duration": 1.0,
        "total_input_tokens": 7 * count,
        "input_lens": [7] * count,
        "output_lens": [3] * count,
        "ttfts": [0.5] * count,
        "itls": [[0.25, 0.25]] * count,
        "generated_texts": ["text"] * count,
        "errors": [""] * count,
    }
    text = json.dumps(result)
    assert [fmt.name for fmt in matching(Head("x", text.encode()[: 256 << 10]))] == [name]
    rows = read(text, name="result.json").rows
    assert rows.height == count
    assert rows["input_tokens"].sum() == 7 * count
    assert rows["output_tokens"].sum() == 3 * count
    assert rows["duration_ms"].unique().to_list() == [1000.0]


def test_arrays_of_unequal_length_do_not_shift_requests(read):
    """A short array leaves the last requests without its value."""
    result = {
        "model_id": "m",
        "total_input_tokens": 3,
        "input_lens": [1, 2],
        "output_lens": [3],
        "ttfts": [0.5],
        "itls": [[0.25]],
        "errors": [],
    }
    rows = read(json.dumps(result), name="result.json").rows
    assert rows["input_tokens"].to_list() == [1, 2]
    assert rows["output_tokens"].to_list() == [3, None]
    assert rows["duration_ms"].to_list() == [750.0, None]


def test_a_result_without_details_is_not_claimed():
    summary = {"model_id": "m", "total_input_tokens": 3, "mean_ttft_ms": 4.0}
    assert matching(Head("x", json.dumps(summary).encode())) == ()
