"""What an agent printed of a session is not added to the calls that its own files state."""

from __future__ import annotations

import json

import pytest

from tests.pipelines.ingest.conftest import NOON

STAMP = NOON.isoformat()
USAGE = {
    "input_tokens": 7,
    "output_tokens": 5,
    "cache_creation_input_tokens": 0,
    "cache_read_input_tokens": 10,
}
THREE_DAYS_S = 3 * 86_400


def call(session: str, number: int) -> str:
    message = {"id": f"msg_{number}", "role": "assistant", "model": "claude-sonnet-4-5", "usage": USAGE}
    line = {"type": "assistant", "sessionId": session, "uuid": f"u{number}", "requestId": f"r{number}"}
    return json.dumps({**line, "isSidechain": False, "timestamp": STAMP, "message": message}) + "\n"


def result(session: str) -> str:
    line = {"type": "result", "subtype": "success", "session_id": session, "uuid": f"done-{session}"}
    times = {"duration_ms": 3952, "duration_api_ms": 2000, "num_turns": 2, "total_cost_usd": 0.01}
    return json.dumps({**line, **times, "usage": {**USAGE, "input_tokens": 14, "output_tokens": 10}}) + "\n"


@pytest.mark.parametrize("printed_after_s", [0, THREE_DAYS_S], ids=["that day", "a copy made later"])
def test_a_session_that_is_there_call_by_call_is_not_counted_by_its_sum_too(
    tmp_path, ingest, write, printed_after_s
):
    write(tmp_path / "sessions" / "a.jsonl", [call("a", 1), call("a", 2)])
    write(tmp_path / "printed" / "runs.jsonl", [result("a"), result("b")], modified=printed_after_s)
    both = ingest(tmp_path / "both", tmp_path / "sessions", tmp_path / "printed")
    assert sorted(both.requests["request_id"].to_list()) == ["done-b", "r1", "r2"]
    assert sum(both.doubles.values()) == 1
    alone = ingest(tmp_path / "alone", tmp_path / "printed")
    assert sorted(alone.requests["request_id"].to_list()) == ["done-a", "done-b"]
