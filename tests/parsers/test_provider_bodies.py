"""Bodies and event streams of provider APIs: what their counts include, wherever a line keeps them.

Ids such as B013 name cases of gateways that got it wrong, with the figures of their reports.
"""

from __future__ import annotations

import json
from dataclasses import replace

import polars as pl
import pytest

from parsers.bodies import body_of
from parsers.event_streams import Answers
from parsers.format import Context, Head
from parsers.hashing import PromptHasher
from parsers.registry import load
from parsers.sources import find_sources

PARTS = ("cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens")


def lines(*items):
    return "".join(json.dumps(item) + "\n" for item in items)


def events(*items):
    return "".join(f"data: {item if isinstance(item, str) else json.dumps(item)}\n\n" for item in items)


def message(usage, name="msg_01"):
    return {"id": name, "type": "message", "role": "assistant", "model": "claude-x", "usage": usage}


def chat(usage, name="chatcmpl-1", **more):
    return {"id": name, "object": "chat.completion", "created": 1770000000, "usage": usage, **more}


def started(usage, name="msg_01"):
    return {"type": "message_start", "message": message(usage, name)}


def delta(usage):
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


def uncached(row):
    return row["input_tokens"] - sum(row[name] or 0 for name in PARTS)


@pytest.fixture
def only(read):
    """The one row of a log."""

    def run(content, **how):
        result = read(content, **how)
        assert result.rejects.is_empty()
        return result.rows.row(0, named=True) if result.rows.height == 1 else pytest.fail(str(result.rows))

    return run


def test_b001_b002_each_token_of_a_cache_write_is_in_one_class(only):
    row = only(
        lines(
            message(
                {
                    "input_tokens": 3,
                    "cache_creation_input_tokens": 12304,
                    "cache_read_input_tokens": 0,
                    "output_tokens": 550,
                }
            )
        )
    )
    assert (uncached(row), row["cache_write_5m_tokens"], row["output_tokens"]) == (3, 12304, 550)
    assert row["input_tokens"] == 12307
    assert round(3 * 3e-6 + 12304 * 3.75e-6 + 550 * 15e-6, 6) == 0.054399


@pytest.mark.parametrize(
    ("split", "five", "hour"),
    [
        ({"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 344139}, 0, 344139),
        ({"ephemeral_1h_input_tokens": 400000}, 344139, None),
        ({"ephemeral_1h_input_tokens": 300000}, 344139, None),
        ({"ephemeral_5m_input_tokens": 44139, "ephemeral_1h_input_tokens": 300000}, 44139, 300000),
        (None, 344139, None),
    ],
)
def test_b022_to_b025_writes_are_split_by_lifetime_and_none_is_lost(only, split, five, hour):
    usage = {
        "input_tokens": 1,
        "cache_creation_input_tokens": 344139,
        "output_tokens": 1,
        "cache_creation": split,
    }
    row = only(lines(message(usage)))
    assert (row["cache_write_5m_tokens"], row["cache_write_1h_tokens"]) == (five, hour)
    assert row["input_tokens"] == 344140


def test_b009_b018_b019_cached_tokens_are_a_part_of_the_input_of_openai(read):
    rows = read(
        lines(
            chat({"prompt_tokens": 1999, "completion_tokens": 0, "total_tokens": 1999}),
            chat(
                {
                    "prompt_tokens": 1999,
                    "completion_tokens": 5,
                    "total_tokens": 2004,
                    "prompt_tokens_details": {"cached_tokens": 1792},
                },
                "chatcmpl-2",
            ),
            chat(
                {
                    "input_tokens": 2746,
                    "output_tokens": 197,
                    "total_tokens": 2943,
                    "input_tokens_details": {"cached_tokens": 2208},
                },
                "resp-3",
            ),
        )
    ).rows.to_dicts()
    assert [(row["input_tokens"], uncached(row), row["cache_read_tokens"]) for row in rows] == [
        (1999, 1999, None),
        (1999, 207, 1792),
        (2746, 538, 2208),
    ]


def test_b014_a_cache_read_above_the_prompt_lies_outside_of_it(only):
    row = only(
        lines(
            chat(
                {
                    "prompt_tokens": 56322,
                    "completion_tokens": 87,
                    "total_tokens": 56409,
                    "prompt_tokens_details": {"cached_tokens": 72960},
                }
            )
        )
    )
    assert (uncached(row), row["cache_read_tokens"], row["output_tokens"]) == (56322, 72960, 87)
    assert row["flags"] == ["cache_outside_input"]


def test_b007_both_dialects_in_one_row_are_one_count(only):
    usage = {
        "prompt_tokens": 1284,
        "completion_tokens": 9,
        "total_tokens": 1293,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 1253},
        "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 1253,
    }
    row = only(lines(chat(usage)))
    assert (row["input_tokens"], uncached(row), row["cache_write_5m_tokens"]) == (1284, 31, 1253)


def test_b013_a_delta_without_the_cache_leaves_that_of_the_start(only):
    start = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    stream = events(
        started({**start, "output_tokens": 1}),
        delta({"input_tokens": 10, "output_tokens": 20}),
        {"type": "message_stop"},
    )
    row = only(stream)
    assert (row["input_tokens"], uncached(row), row["output_tokens"]) == (3210, 10, 20)


def test_b030_usage_of_the_last_chunk_is_the_answers(only):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1770000000, "usage": None}
    body = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
    usage = {"prompt_tokens": 18, "completion_tokens": 26, "total_tokens": 44}
    row = only(events(chunk | body, chunk | body, chunk | {"choices": [], "usage": usage}, "[DONE]"))
    assert (row["input_tokens"], row["output_tokens"], row["status"]) == (18, 26, "ok")


@pytest.mark.parametrize(
    ("usage", "counts", "origin"),
    [
        ({"prompt_tokens": 18, "completion_tokens": 26, "total_tokens": 44}, (18, 26), "reported"),
        ({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}, (0, 0), "reported"),
        (None, (None, None), "missing"),
    ],
)
def test_b032_b033_b034_a_hang_up_is_a_row_and_zero_is_no_gap(only, usage, counts, origin):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1770000000, "usage": usage}
    row = only(events({**chunk, "choices": [{"delta": {"content": "a"}, "finish_reason": None}]}))
    assert (row["input_tokens"], row["output_tokens"]) == counts
    assert (row["usage_origin"], row["status"], row["flags"]) == (origin, "cancelled", ["stream_cut_off"])


def test_b038_b041_thoughts_of_gemini_are_output(only):
    usage = {
        "promptTokenCount": 20,
        "candidatesTokenCount": 151,
        "thoughtsTokenCount": 382,
        "totalTokenCount": 553,
    }
    row = only(lines({"responseId": "r", "candidates": [{"finishReason": "STOP"}], "usageMetadata": usage}))
    assert (row["input_tokens"], row["output_tokens"], row["reasoning_tokens"]) == (20, 533, 382)


def test_b052_b056_a_batchs_result_has_its_tier_and_one_key_each_time_it_is_fetched(read):
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    result = {"custom_id": "a", "response": {"status_code": 200, "body": chat(usage)}, "error": None}
    first, again = (read(lines({"id": name, **result})).rows.row(0, named=True) for name in ("x", "y"))
    assert first["service_tier"] == "batch"
    assert first["record_key"] == again["record_key"]


def test_b120_counts_out_of_range_are_unknown(only):
    row = only(lines(chat({"prompt_tokens": 1 << 41, "completion_tokens": -1, "total_tokens": 0})))
    assert (row["input_tokens"], row["output_tokens"]) == (None, None)
    assert "count_out_of_range" in row["flags"]


def test_b125_a_refused_call_has_no_tokens(only):
    refusal = {"type": "error", "error": {"type": "overloaded_error", "message": "not kept"}}
    row = only(lines({"timestamp": "2026-02-02T02:40:00Z", "status_code": 529, "response": refusal}))
    assert (row["status"], row["http_status"], row["error_kind"]) == ("error", 529, "overloaded_error")
    assert (row["input_tokens"], row["usage_origin"]) == (None, "missing")


def stated_total(usage):
    """The total of a usage object, by its own API's rule."""
    return usage.get("total_tokens", usage.get("totalTokenCount", usage.get("totalTokens")))


FORMAT_OF = (
    ("gemini_generate_content", lambda item: "usageMetadata" in item),
    ("cohere_chat", lambda item: "meta" in item or "billed_units" in item["usage"]),
    ("bedrock_converse", lambda item: "inputTokens" in item["usage"]),
    ("openai_usage", lambda item: "total_tokens" in item["usage"]),
    ("anthropic_messages", lambda item: "input_tokens" in item["usage"]),
)


def test_recorded_usage_objects_of_all_apis_add_up(shared, read):
    """75 shapes of 1,577 recorded bodies; where the API states a total, input and output are that total."""
    text = (shared / "facts/samples/usage-objects/usage_shapes.jsonl").read_text(encoding="utf-8")
    items = [json.loads(line) for line in text.splitlines()]
    checked = seen = 0
    for name, is_of in FORMAT_OF:
        found = [item for item in items if is_of(item)]
        items = [item for item in items if item not in found]
        beside = {"type": "message", "role": "assistant"} if name == "anthropic_messages" else {}
        result = read(lines(*({**item, **beside, "timestamp": 1770000000} for item in found)))
        assert (result.format, result.rejects.height) == (name, 0)
        for row in result.rows.to_dicts():
            item = found[row["source_line"] - 1]
            total = stated_total(item.get("usage") or item.get("usageMetadata") or {})
            seen += 1
            if total is not None:
                checked += 1
                assert row["input_tokens"] + row["output_tokens"] == total, item
    assert (items, seen) == ([], 75)
    assert checked > 50


RECORDED = {
    "anthropic_messages_cache_read": (1169, 1165, 221),
    "anthropic_messages_thinking_delta_repeats_input": (50, 0, 93),
    "deepseek_chat_include_usage": (12, 0, 89),
    "openai_responses": (18, 0, 80),
}


def test_recorded_streams_are_one_row_each(shared, read_source, tmp_path):
    for name, counts in RECORDED.items():
        source = find_sources([shared / f"facts/samples/sse-streams/{name}.sse.txt"])[0]
        rows = read_source(source, tmp_path).rows
        shown = rows.select("input_tokens", "cache_read_tokens", "output_tokens").rows()
        assert (shown, rows["status"].to_list()) == ([counts], ["ok"])


def test_a_stream_goes_on_in_the_next_chunk_of_the_file():
    fmt = load("anthropic_stream")
    context = Context("x", PromptHasher(b"key"), None)
    usage = {"input_tokens": 5, "output_tokens": 1}
    whole = events({"timestamp": 1}, started(usage), delta({"output_tokens": 7}), {"type": "message_stop"})
    frame = pl.DataFrame({"source_line": range(1, 9), "line": whole.splitlines()})
    for part in (frame.head(4), frame.tail(4)):
        mapped = fmt.map(part, context)
        assert mapped["_other"].all()
        assert mapped.height == part.height
    row = fmt.finish(context).row(0, named=True)
    assert (row["source_line"], row["output_tokens"], row["status"]) == (7, 7, "ok")
    # No file's time is known, so nothing says when it was.
    assert row["_reject"] == "timestamp is missing"
    assert fmt.finish(context).is_empty()


def test_an_event_that_is_too_long_is_refused_and_its_answer_has_no_usage(read):
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1770000000,
        "status": "in_progress",
        "usage": None,
    }
    ended = {**response, "status": "completed", "output": "x" * (9 << 20), "usage": {"input_tokens": 1}}
    result = read(
        events(
            {"type": "response.created", "response": response},
            {"type": "response.completed", "response": ended},
        )
    )
    assert result.reasons == {3: "the event is longer than 8,388,608 bytes"}
    assert result.rows["usage_origin"].to_list() == ["missing"]


def test_an_id_that_comes_again_after_the_end_of_its_stream_is_another_answer():
    answers = Answers()
    first = answers.latest = answers.of("chatcmpl-123")
    assert answers.of("chatcmpl-123") is first
    answers.close()
    assert first.is_whole
    assert answers.of("chatcmpl-123") is not first
    assert answers.of(["no", "id"]) is answers.begun[-1]


def test_bodies_are_found_where_lines_keep_them():
    body = {"usage": {}}
    held = json.dumps(body)
    for line in (
        body,
        {"body": body},
        {"response": body},
        {"response": {"status_code": 200, "body": body}},
        {"response": held},
        {"response_body": held},
        {"response": {"body": held}},
    ):
        assert body_of(line) == body
    for line in ({"response": "{not JSON"}, {"response": None}, {"body": [1]}, {"response": "text"}):
        assert body_of(line) is line


@pytest.mark.parametrize("key", ["call_type", "sessionId", "spend"])
def test_bodies_inside_of_other_logs_are_left_to_those(key):
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    line = {key: "x", "timestamp": 1770000000, "response": chat(usage)}
    assert not load("openai_usage").recognise(Head("x", lines(line).encode()))
    del line[key]
    assert load("openai_usage").recognise(Head("x", lines(line).encode()))


def test_nothing_of_a_prompt_an_answer_or_a_key_is_kept(read):
    private = "sk-private"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    line = {
        "timestamp": 1770000000,
        "url": f"https://{private}:{private}@example.com/v1/chat/completions?key={private}",
        "headers": {"authorization": private},
        "request": {"model": "m", "messages": [{"content": private}], "api_key": private},
        "response": chat(usage, error={"message": private}, choices=[{"message": {"content": private}}]),
    }
    result = read(lines(line))
    assert result.rows["endpoint"].to_list() == ["https://example.com/v1/chat/completions"]
    assert private not in str(result.rows.to_dicts())


def test_stream_formats_are_their_bodies_formats_in_another_container():
    for name, bodies in (
        ("anthropic_stream", "anthropic_messages"),
        ("gemini_stream", "gemini_generate_content"),
    ):
        assert load(name).semantics == replace(load(bodies)).semantics
        assert (load(name).container, load(name).target) == ("text", load(bodies).target)
