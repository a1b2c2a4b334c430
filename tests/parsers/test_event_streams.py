"""Event streams whose events are larger than any log line."""

from __future__ import annotations

import json


def test_the_last_event_of_an_answer_may_be_large(read):
    """An agent's tools are repeated in it: some hundred kilobytes before the usage."""
    usage = {"input_tokens": 900, "output_tokens": 30, "total_tokens": 930}
    tools = [{"type": "function", "name": f"tool_{n}", "description": "x" * 4000} for n in range(120)]
    answer = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1767225600,
        "model": "gpt-5",
        "status": "completed",
    }
    events = [
        {"type": "response.created", "response": answer | {"status": "in_progress", "usage": None}},
        {"type": "response.completed", "response": answer | {"tools": tools, "usage": usage}},
    ]
    text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    result = read(text, "stream.txt")
    assert result.format == "openai_responses_stream"
    assert result.rejects.is_empty()
    assert result.rows.select("input_tokens", "output_tokens", "status").rows() == [(900, 30, "ok")]
