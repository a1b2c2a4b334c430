"""One call is one row, however many logs, files and copies tell it."""

from __future__ import annotations

import json

import pytest

AT = "2026-05-04T09:00:{:02}.000Z"
MESSAGES = [f"msg_01{number:022}" for number in range(6)]


def block(message, second, output, request="req_0123456789abcdef"):
    """One line of a Claude Code transcript: a content block of a message, with the usage known by then."""
    usage = {"input_tokens": 36, "cache_read_input_tokens": 2000, "output_tokens": output}
    return (
        json.dumps(
            {
                "type": "assistant",
                "sessionId": "s",
                "uuid": f"{message}-{second}",
                "isSidechain": False,
                "timestamp": AT.format(second),
                "requestId": request,
                "message": {"id": message, "model": "claude-sonnet-4-5", "role": "assistant", "usage": usage},
            }
        )
        + "\n"
    )


@pytest.mark.parametrize("per_file", [1, 2, 40])
def test_a_bridged_call_counts_once_in_however_many_files(tmp_path, payload, write, ingest, per_file):
    """B071: LiteLLM logs /v1/responses at both ends of its bridge; equal counts of another call are another call."""
    lines = []
    for n in range(20):
        lines += [
            payload(n, id=f"chatcmpl-{n}"),
            payload(n, id=f"resp_{n}", call_type="aresponses"),
        ]
    lines.append(payload(3, id="resp_alone", call_type="aresponses", litellm_call_id="call-alone"))
    for number, start in enumerate(range(0, len(lines), per_file)):
        write(tmp_path / "logs" / f"{number:03}.jsonl", lines[start : start + per_file])
    facts = ingest(tmp_path / "home", tmp_path / "logs")
    served = facts.requests["request_id"].to_list()
    assert sorted(served) == sorted([*(f"chatcmpl-{n}" for n in range(20)), "resp_alone"])
    before, after = facts.accounts()
    assert before == after == 41


def test_the_copy_that_holds_the_whole_answer_is_kept(tmp_path, write, ingest):
    """Monday's copy of a session ends inside of a message; Tuesday's has all of it."""
    whole = [block(MESSAGES[0], 1, 50), block(MESSAGES[1], 5, 1), block(MESSAGES[1], 9, 900)]
    write(tmp_path / "logs" / "monday.jsonl", whole[:2], modified=0)
    write(tmp_path / "logs" / "tuesday.jsonl", whole, modified=60)
    facts = ingest(tmp_path / "home", tmp_path / "logs")
    assert facts.requests["output_tokens"].to_list() == [50, 900]


def test_a_gateways_call_and_its_message_in_a_transcript_are_one(tmp_path, payload, write, ingest):
    """The transcript states when a block came, the gateway when the call began and ended: the message's id joins them."""
    start = 1777885200.0
    gateway = [
        payload(
            n,
            id=message,
            startTime=start + n,
            endTime=start + n + 30,
            completionStartTime=start + n + 1,
            call_type="anthropic_messages",
        )
        for n, message in enumerate(MESSAGES[:4])
    ]
    transcript = [block(message, 4 + n, 60 + n) for n, message in enumerate(MESSAGES)]
    write(tmp_path / "logs" / "gateway.jsonl", gateway)
    write(tmp_path / "logs" / "session.jsonl", transcript)
    facts = ingest(tmp_path / "home", tmp_path / "logs")
    by_format = facts.requests.group_by("source_format").len().sort("source_format")
    assert by_format.rows() == [("claude_code_transcript", 2), ("litellm_payload", 4)]
    assert facts.doubles == {"claude_code_transcript": 4}
