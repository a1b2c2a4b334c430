"""A field that counts tokens and that no format reads is named; limits, rates and prices are not."""

from __future__ import annotations

import json

import pytest

from parsers.format import Head
from parsers.registry import load
from parsers.unused import MOST_NAMES, unused_token_fields

BODY = {
    "id": "r1",
    "object": "chat.completion",
    "created": 1767225600,
    "model": "m",
    "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
}


def of(record, name="openai_usage"):
    return unused_token_fields(Head("x", (json.dumps(record) + "\n").encode()), load(name))


def with_usage(**more):
    return BODY | {"usage": BODY["usage"] | more}


def test_a_body_whose_counts_are_all_read_has_none():
    assert of(BODY) == ()


@pytest.mark.parametrize(
    "name", ["thought_tokens", "citation_tokens_total", "videoTokenCount", "frame_token_count"]
)
def test_a_new_count_is_named_by_its_path(name):
    assert of(with_usage(**{name: 7})) == (f"usage.{name}",)


def test_a_count_inside_a_new_object_is_named():
    assert of(with_usage(video_details={"frame_tokens": 3})) == ("usage.video_details.frame_tokens",)


@pytest.mark.parametrize(
    "name",
    [
        "max_new_tokens",
        "cost_per_1k_tokens",
        "tokens_limit",
        "token_rate",
        "tokens_per_s",
        "remaining_tokens",
    ],
)
def test_what_is_no_count_is_not_named(name):
    assert of(with_usage(**{name: 7})) == ()


@pytest.mark.parametrize("value", ["seven", True, None, [], 1.5])
def test_only_whole_numbers_count(value):
    assert of(with_usage(thought_tokens=value)) == ()


def test_a_csv_column_is_named():
    header = "request_id,call_type,spend,prompt_tokens,completion_tokens,startTime,video_tokens\n"
    assert unused_token_fields(Head("x", header.encode()), load("litellm_spend_logs_csv")) == (
        "video_tokens",
    )


def test_a_hostile_record_gives_few_short_names():
    many = {f"a{n}_tokens": 1 for n in range(99)} | {"b" * 5000 + "_tokens": 1}
    found = of(with_usage(**many))
    assert len(found) == MOST_NAMES
    assert all(len(name) < 40 for name in found)
