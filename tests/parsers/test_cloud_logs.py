"""Call logs of clouds, and what LiteLLM's rows say about the cache: known faults of accounting come out right."""

from __future__ import annotations

import json

import pytest

SONNET = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def lines(*items):
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def bedrock(number, counts, output, body, operation="ConverseStream"):
    return {
        "schemaType": "ModelInvocationLog",
        "timestamp": f"2026-05-04T09:20:{number:02}Z",
        "requestId": f"r{number}",
        "operation": operation,
        "modelId": SONNET,
        "input": {"inputBodyJson": {"messages": []}, **counts},
        "output": {"outputBodyJson": body, "outputTokenCount": output},
    }


def vertex(number, response, method="generateContent"):
    return {
        "endpoint": "projects/p/locations/us-central1/publishers/google/models/gemini-2.5-pro",
        "logging_time": f"2026-05-04 09:20:{number:02} UTC",
        "request_id": str(98765432101234567 + number),
        "model": "gemini-2.5-pro",
        "api_method": method,
        "full_response": response,
    }


def litellm(usage, prompt, completion, **more):
    return {
        "id": "x",
        "call_type": "acompletion",
        "status": "success",
        "startTime": 1777886446.5,
        "endTime": 1777886447.5,
        "response_cost": 0.0,
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "metadata": {"usage_object": usage},
        **more,
    }


def test_cache_of_a_streamed_bedrock_call_never_underflows(read):
    """B013: the cache is stated once, outside of the input, whatever single chunks repeat."""
    chunks = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 2074}}},
        {"type": "message_delta", "usage": {"input_tokens": 3, "output_tokens": 61}},
    ]
    counts = {"inputTokenCount": 3, "cacheReadInputTokenCount": 2074, "cacheWriteInputTokenCount": 297}
    row = read(lines(bedrock(1, counts, 61, chunks))).rows.row(0, named=True)
    parts = (
        row["input_tokens"],
        row["cache_read_tokens"],
        row["cache_write_5m_tokens"],
        row["output_tokens"],
    )
    assert parts == (2374, 2074, 297, 61)


def test_words_of_a_prompt_are_not_taken_for_counts(read):
    record = bedrock(1, {"inputTokenCount": 20}, 7, {"usage": {}, "text": '"inputTokenCount": 5'})
    record["input"]["inputBodyJson"]["messages"] = [{"content": '{"inputTokenCount": 999999}'}]
    assert read(lines(record)).rows["input_tokens"].to_list() == [20]


@pytest.mark.parametrize("stated", [{"thoughtsTokenCount": 382}, {}])
def test_thoughts_are_output_even_where_only_the_total_shows_them(read, stated):
    """B038."""
    counts = {"promptTokenCount": 20, "candidatesTokenCount": 151, "totalTokenCount": 553}
    row = read(lines(vertex(1, {"usageMetadata": counts | stated}))).rows.row(0, named=True)
    assert (row["input_tokens"], row["output_tokens"], row["reasoning_tokens"]) == (20, 533, 382)
    assert row["input_tokens"] + row["output_tokens"] == 553


def test_the_last_chunk_of_a_stream_counts_even_if_its_prompt_is_smaller(read, shared):
    path = shared / "facts/samples/gemini-cli/generateContentStream_recorded.jsonl"
    if not path.is_file():
        pytest.skip("the recorded stream is not in the shared folder")
    recorded = [json.loads(line)["response"] for line in path.read_text().splitlines()]
    rows = read(
        lines(*(vertex(n, chunks, "streamGenerateContent") for n, chunks in enumerate(recorded)))
    ).rows
    assert rows["input_tokens"].to_list() == [7168, 7187]
    assert rows["output_tokens"].to_list() == [3, 3]


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        # inside of prompt_tokens, as now
        ({"prompt_tokens": 12307, "prompt_tokens_details": {"cache_creation_tokens": 12304}}, 12307),
        # outside: the writes exceed the input; the object has the whole; the object is Anthropic's own
        ({"prompt_tokens": 3, "cache_creation_input_tokens": 12304}, 3),
        ({"prompt_tokens": 12307, "cache_creation_input_tokens": 12304}, 3),
        ({"input_tokens": 3, "output_tokens": 550, "cache_creation_input_tokens": 12304}, 3),
    ],
)
def test_every_token_of_a_litellm_row_is_of_one_class(read, usage, prompt):
    """B001, B002, B007: input 3, 12304 written, none read, output 550, however the row states it."""
    row = read(lines(litellm(usage, prompt, 550))).rows.row(0, named=True)
    assert (row["input_tokens"], row["cache_write_5m_tokens"], row["output_tokens"]) == (12307, 12304, 550)


def test_a_client_that_hung_up_of_litellm_is_a_row(read):
    """B034."""
    error = {"error_class": "ClientDisconnected", "error_code": "499"}
    row = read(lines(litellm({}, 18, 26, error_information=error))).rows.row(0, named=True)
    assert (row["status"], row["input_tokens"], row["output_tokens"]) == ("cancelled", 18, 26)


def test_nesting_that_no_parser_follows_refuses_one_record(read):
    """Python's JSON gives up on what DuckDB still reads."""
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    good = lines(vertex(1, {"usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}}))
    bad = json.dumps(vertex(2, "@")).replace('"@"', f"[{deep}]").encode() + b"\n"
    assert read(good + bad).reasons == {2: "full_response is nested too deep"}
    good = lines(bedrock(1, {"inputTokenCount": 20}, 7, {}))
    bad = json.dumps(bedrock(2, {"inputTokenCount": 20}, 7, {}) | {"requestMetadata": "@"}).replace(
        '"@"', deep
    )
    assert read(good + bad.encode() + b"\n").rows.height == 2
