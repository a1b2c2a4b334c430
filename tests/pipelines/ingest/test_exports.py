"""Landing takes off the envelopes of exports: the calls count once, whichever way they were exported."""

from __future__ import annotations

import json

from pipelines.ingest.land import Reading


def record(number):
    return {
        "schemaType": "ModelInvocationLog",
        "timestamp": f"2026-05-04T09:20:{number:02}Z",
        "requestId": f"r{number}",
        "operation": "Converse",
        "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "input": {"inputTokenCount": 20},
        "output": {"outputTokenCount": number},
    }


def lines(items):
    return "".join(json.dumps(item) + "\n" for item in items)


def test_a_log_and_exports_of_it_count_once(tmp_path, ingest):
    logs = tmp_path / "logs"
    logs.mkdir()
    records = [record(number) for number in range(1, 5)]
    (logs / "bare.jsonl").write_text(lines(records))
    (logs / "splunk.json").write_text(
        lines({"preview": False, "result": {"_raw": json.dumps(r)}} for r in records)
    )
    (logs / "elastic.json").write_text(json.dumps({"hits": {"hits": [{"_source": r} for r in records]}}))
    facts = ingest(tmp_path / "home", logs)
    assert sorted(facts.requests["request_id"]) == ["r1", "r2", "r3", "r4"]
    assert facts.files["format"].unique().to_list() == ["bedrock_invocation_log"]
    # The two exports hold the same bytes: one is a copy.
    before, after = facts.accounts()
    assert before == after == 8


def test_a_named_format_is_looked_for_inside(tmp_path, ingest):
    (tmp_path / "export").write_text(lines({"_source": record(number)} for number in range(1, 3)))
    facts = ingest(
        tmp_path / "home", tmp_path / "export", reading=Reading(format_name="bedrock_invocation_log")
    )
    assert facts.requests.height == 2
