"""Lines of the example week against lines that LiteLLM wrote: no other field, no other type."""

from __future__ import annotations

import gzip
import json

# The recorded gateway did not redact answers.
NOT_RECORDED = {"/response/text"}


def paths(value, at=""):
    yield at, type(value).__name__
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from paths(inner, f"{at}/{name}")
    if isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{at}[]")


def types_of(rows):
    found = {}
    for row in rows:
        for path, name in paths(row):
            found.setdefault(path, set()).add(name)
    return found


def test_fields_and_types_are_those_of_recorded_lines(shared, records):
    path = shared / "data/real/litellm/standard_logging_payload.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        recorded = types_of(json.loads(line) for line in file)
    made = types_of(records)
    assert not set(made) - set(recorded) - NOT_RECORDED
    for name, types in made.items():
        if name in NOT_RECORDED:
            continue
        known = recorded[name] | {"NoneType"}
        assert types <= known, name


def test_lines_hold_what_identifies_and_counts_a_call(records):
    needed = {
        "id",
        "litellm_call_id",
        "call_type",
        "startTime",
        "endTime",
        "model",
        "model_group",
        "messages",
    }
    needed |= {"prompt_tokens", "completion_tokens", "response_cost", "metadata", "hidden_params", "status"}
    for row in records:
        assert needed <= row.keys()
        assert row["startTime"] <= row["completionStartTime"] <= row["endTime"]
        assert row["total_tokens"] == row["prompt_tokens"] + row["completion_tokens"]


def test_ids_of_answers_are_unique(records):
    ids = [row["id"] for row in records]
    assert len(ids) == len(set(ids))


def test_lines_are_in_the_order_in_which_calls_ended(lines):
    for rows in lines.values():
        ends = [row["endTime"] for row in rows]
        overlap = sum(end < ends[-1] - 86_400 for end in ends)
        assert ends[overlap:] == sorted(ends[overlap:])


def test_redacted_lines_hold_no_text(records):
    for row in records:
        if (
            row["metadata"]["user_api_key_alias"] in {"agent-cli", "agent-ci", "portal-web"}
            and row["response"]
        ):
            assert row["response"] == {"text": "redacted-by-litellm"}
