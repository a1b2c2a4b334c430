"""Detection: at most one format claims any file; hostile heads are answered, not crashed on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.detect import detect, matching
from parsers.errors import UnknownFormatError
from parsers.format import Head
from parsers.sources import find_sources, read_head

CASES = sorted(path for path in (Path(__file__).parent / "cases").glob("*/*/input.*"))

FIRST_RECORDS = [objects[0] for path in CASES if (objects := read_head(find_sources([path])[0]).objects)]

KNOWN = {
    "data/real/litellm/standard_logging_payload.jsonl.gz": "litellm_payload",
    "data/real/litellm/LiteLLM_SpendLogs.csv.gz": "litellm_spend_logs_csv",
    "data/azure2023": "azure_llm_trace",
    "data/mooncake": "mooncake_trace",
    "data/weka/traces_237.tar.xz": "weka_sessions",
    "data/real/vllm/server.stdout.log.gz": "vllm_log",
    "data/real/prometheus": "prometheus_query_range",
    "facts/samples/vllm/v0_engine_lines.shape.log": "vllm_log",
    "facts/samples/vllm/v1_engine_lines.shape.log": "vllm_log",
}


def test_no_recorded_file_is_claimed_twice_and_the_known_ones_by_theirs(shared):
    """Samples of formats that have no parser are claimed by none, or by one that a person must then doubt."""
    doubled = {}
    sources = find_sources([shared / "facts/samples", shared / "data"])
    members = [source for source in sources if source.member]
    for source in [source for source in sources if not source.member] + members[::30]:
        relative = Path(source.name).relative_to(shared).as_posix()
        names = [fmt.name for fmt in matching(read_head(source))]
        if len(names) > 1:
            doubled[relative] = names
        for known, name in KNOWN.items():
            if relative.startswith(known) and Path(relative).name not in {"LICENSE", "README.md"}:
                assert names == [name], relative
    assert doubled == {}


HEADS = [
    b"",
    b"\0" * 1000,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"{" + b'"' * 10_000,
    b'"' * 300_000,
    b"x" * 300_000,
    b"\xff\xfe" * 1000,
    b"1" * 10_000,
    b'{"usage": {"prompt_tokens": ' + b"9" * 5000 + b"}}",
    b'{"usage": [], "timestamp": {}, "hash_ids": "x"}\n' * 3,
    b"[null, 1, [], {}]",
    b",,,,\n,,,,",
    b'a,"b\nc',
    b"\r\r\r\r",
    b'{"data": {"result": null, "resultType": 5}, "status": []}',
    b"<html></html>",
]


@pytest.mark.parametrize("data", HEADS, ids=range(len(HEADS)))
def test_hostile_heads_are_claimed_by_nobody(data):
    assert matching(Head("x", data)) == ()
    with pytest.raises(UnknownFormatError):
        detect(Head("x", data))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(CASES), st.integers(0, 3000), st.binary(max_size=5))
def test_a_damaged_head_never_crashes_and_never_has_two_claims(path, at, noise):
    data = path.read_bytes()
    assert len(matching(Head("x", data[:at] + noise + data[at + len(noise) :]))) <= 1


def test_errors_say_what_was_tried_and_what_to_do(monkeypatch):
    with pytest.raises(UnknownFormatError, match="the file is empty"):
        detect(Head("log", b" \n"))
    with pytest.raises(UnknownFormatError, match=r"looks like binary data.*--format.*--mapping"):
        detect(Head("log", b"PK\0\0"))
    with pytest.raises(UnknownFormatError, match=r"formats were tried.*--format"):
        detect(Head("log", b"hello"))
    assert detect(Head("log", b"hello"), "vllm_log").because == "named with --format"
    two = [detect(Head("x", b"a"), name).format for name in ("vllm_log", "openai_usage")]
    monkeypatch.setattr("parsers.detect.matching", lambda _: two)
    with pytest.raises(UnknownFormatError, match="may be any of vllm_log, openai_usage"):
        detect(Head("log", b"hello"))


def test_some_other_lines_between_records_do_not_hide_a_format():
    case = next(path for path in CASES if path.parts[-3] == "litellm_payload" and path.suffix == ".jsonl")
    record = case.read_bytes().splitlines()[0]
    other = b'{"message": "server started", "level": "info"}'
    for lines, wanted in (
        ([other, record, record], ["litellm_payload"]),
        ([record, b"not JSON", record], ["litellm_payload"]),
        ([other, other, record], []),
    ):
        assert [fmt.name for fmt in matching(Head("x", b"\n".join(lines)))] == wanted


def test_lines_of_heads_end_at_line_feeds_only():
    """JSON strings may hold the other characters that Python splits lines at."""
    head = Head("x", '{"a": "x\u2028y\x85z"}\r\n{"b": 1}\n'.encode())
    assert [list(item) for item in head.objects] == [["a"], ["b"]]


def test_heads_of_csv_are_split_by_the_delimiter_that_they_use():
    for delimiter in ",;\t|":
        assert Head("x", f"\ufeffa{delimiter} b\r\n1{delimiter}2".encode()).csv_header == ("a", "b")


@pytest.mark.parametrize("odd", [[], {}, None, 7, "x", [{}], {"a": []}, True], ids=repr)
def test_recognising_survives_values_of_any_type(odd):
    """One field of a record at a time, and a field within a field, holds what no format has there."""
    for record in FIRST_RECORDS:
        changed = [record | {key: odd} for key in record]
        for key, inner in record.items():
            if isinstance(inner, dict):
                changed += [record | {key: inner | {name: odd}} for name in inner]
        matching(Head("x", "".join(json.dumps(item) + "\n" for item in changed).encode()))
        for item in changed[:12]:
            matching(Head("x", json.dumps(item).encode()))
