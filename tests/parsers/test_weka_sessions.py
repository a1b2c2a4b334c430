"""Coding-agent sessions: nesting, clocks, ids, copies, and the totals that every real document holds."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime

import duckdb
import polars as pl
import pytest

from parsers.format import Context, Head
from parsers.formats.weka_sessions import FORMAT
from parsers.hashing import PromptHasher
from parsers.readers import duckdb_structure

HASHER = PromptHasher(b"key")


def request(t=0.0, tokens=200, out=5, ids=(1, 2, 3), **more):
    fields = {
        "t": t,
        "type": "n",
        "model": "m",
        "in": tokens,
        "out": out,
        "hash_ids": list(ids),
        "stop": "tool_use",
    }
    return fields | more


def agent(t, *requests, **more):
    return {
        "t": t,
        "type": "subagent",
        "agent_id": "agent_001",
        "requests": list(requests),
        "duration_ms": 9,
    } | more


def session(*requests, name="trace_0001", **more):
    fields = {"id": name, "block_size": 64, "hash_id_scope": "local", "tool_tokens": 1, "system_tokens": 1}
    return fields | {"requests": list(requests)} | more


def mapped(tmp_path, *sessions, head=None):
    """Read documents as the reader does, then map them."""
    path = tmp_path / "sessions.json"
    text = "\n".join(doc if isinstance(doc, str) else json.dumps(doc) for doc in sessions)
    path.write_text(text)
    columns = {name: duckdb_structure(kind) for name, kind in FORMAT.structure.items()}
    read = (
        f"read_json('{path}', format = 'unstructured', columns = {columns}, maximum_object_size = {64 << 20})"
    )
    raw = duckdb.connect().sql(f"WITH document AS (SELECT * FROM {read}) {FORMAT.records}").pl()
    raw = raw.with_columns(source_line=pl.int_range(1, raw.height + 1, dtype=pl.Int64))
    return FORMAT.map(raw, Context(str(path), HASHER, head=text[: 256 << 10] if head is None else head))


def test_a_request_becomes_a_row(tmp_path):
    row = mapped(tmp_path, session(request(12.5, type="s", api_time=4.31, ttft=0.25, stop=""))).row(
        0, named=True
    )
    assert row["started_at"] == datetime(2000, 1, 1, 0, 0, 12, 500_000, tzinfo=UTC)
    assert (row["trace_id"], row["session_id"], row["model_served"]) == ("trace_0001", "trace_0001", "m")
    assert (row["input_tokens"], row["output_tokens"]) == (200, 5)
    assert (row["duration_ms"], row["ttft_ms"], row["stream"]) == (4310.0, 250.0, True)
    assert row["finish_reason"] is None
    assert row["prefix_token_counts"] == [64, 128, 192]
    assert row["flags"] == ["relative_clock", "status_assumed"]
    assert (row["_reject"], row["_other"]) == (None, False)


def test_a_sub_agent_has_its_own_clock_and_session_and_shares_ids(tmp_path):
    rows = mapped(
        tmp_path, session(request(0), agent(100.5, request(0), request(2, ids=(1, 2, 9))), request(300))
    )
    assert rows["_other"].to_list() == [False, True, False, False, False]
    assert rows["source_line"].to_list() == [1, 2, 3, 4, 5]
    rows = rows.filter(~pl.col("_other"))
    assert rows["session_id"].to_list() == ["trace_0001", *["trace_0001/agent_001"] * 2, "trace_0001"]
    assert rows["trace_id"].unique().to_list() == ["trace_0001"]
    seconds = (rows["started_at"] - rows["started_at"][0]).dt.total_microseconds() / 1e6
    assert seconds.to_list() == [0, 100.5, 102.5, 300]
    hashes = rows["prefix_hashes"].to_list()
    assert hashes[0] == hashes[1]
    assert hashes[1][:2] == hashes[2][:2]
    assert rows["_reject"].null_count() == rows.height


def test_ids_are_local_to_a_document_unless_it_says_global(tmp_path):
    def hashes(name, scope, head):
        document = session(request(), name=name, hash_id_scope=scope)
        return set(mapped(tmp_path, document, head=head)["prefix_hashes"].to_list()[0])

    assert not hashes("a", "local", "one") & hashes("b", "local", "one")
    assert not hashes("a", "local", "one") & hashes("a", "local", "two")
    assert hashes("a", "global", "one") == hashes("b", "global", "two")


def test_copies_of_a_session_share_their_record_keys(tmp_path):
    requests = [request(0), agent(3, request(0)), request(9, api_time=1.5)]
    rows = mapped(tmp_path, session(*requests), session(*requests, request(20), name="trace_0002"))
    keys = (
        rows.filter(~pl.col("_other"))
        .group_by("trace_id", maintain_order=True)
        .agg("record_key")["record_key"]
        .to_list()
    )
    assert keys[0] == keys[1][:3]
    assert len(set(keys[1])) == 4


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (request("later"), "t is not a number"),
        (request(None), "t is missing"),
        (request(-5), "t is not a time since the start in s"),
        (request(tokens=None), "in is missing"),
        (request(out="many"), "out is not a whole number"),
        (request(api_time="slow"), "api_time is not a number"),
        (request(ids=(1, "x", 3)), "hash_ids holds something that is not a whole number"),
        (agent(None, request()), "t of the sub-agent is missing"),
        (agent(0, agent(1, request())), "a sub-agent inside a sub-agent is not read"),
    ],
)
def test_broken_records_name_the_field(tmp_path, broken, reason):
    rows = mapped(tmp_path, session(broken, request()))
    assert rows.filter(~pl.col("_other"))["_reject"].to_list() == [reason, None]


def test_ids_that_contradict_the_block_size_are_dropped_and_flagged(tmp_path):
    row = mapped(tmp_path, session(request(tokens=1_000))).row(0, named=True)
    assert (row["prefix_hashes"], row["prefix_token_counts"], row["_reject"]) == (None, None, None)
    assert "block_size_mismatch" in row["flags"]


def test_absent_times_and_empty_answers_are_unknown_and_zero(tmp_path):
    row = mapped(tmp_path, session(request(out=0, api_time=None))).row(0, named=True)
    assert (row["duration_ms"], row["ttft_ms"], row["output_tokens"]) == (None, None, 0)


def test_recognised_though_the_head_is_cut():
    text = json.dumps(session(*[request(n) for n in range(50)]))
    assert FORMAT.recognise(Head("x", text.encode()[:600]))
    assert not FORMAT.recognise(Head("x", b'{"id": "x", "requests": []}'))
    assert not FORMAT.recognise(Head("x", b"[" + text.encode()))


def assert_totals(document, rows):
    """`totals` of a document equals the sums of its rows, parent and combined, input and output."""
    rows = rows.filter(~pl.col("_other"))
    assert rows["_reject"].null_count() == rows.height, document["id"]
    parent = rows.filter(pl.col("session_id") == pl.col("trace_id"))
    for name, part in (("parent_tokens", parent), ("combined_tokens", rows)):
        sums = {"input": part["input_tokens"].sum(), "output": part["output_tokens"].sum()}
        assert sums == document["totals"][name], (document["id"], name)
    assert not rows["flags"].list.contains("block_size_mismatch").any()


def real_sessions(shared, limit=None):
    with tarfile.open(shared / "data/weka/traces_237.tar.xz") as archive:
        for number, member in enumerate(archive):
            if number == limit:
                return
            yield archive.extractfile(member).read().decode()


def test_totals_of_ten_real_sessions(shared, tmp_path):
    for text in real_sessions(shared, 10):
        assert FORMAT.recognise(Head("x", text.encode()[: 256 << 10]))
        assert_totals(json.loads(text), mapped(tmp_path, text))


@pytest.mark.slow
def test_totals_of_all_real_sessions(shared, tmp_path):
    """237 sessions, 17,274 requests, 12 sub-agents; 1,578 requests are copies, told by their record_key."""
    sessions, keys, agents = 0, [], 0
    for text in real_sessions(shared):
        rows = mapped(tmp_path, text)
        assert_totals(json.loads(text), rows)
        sessions += 1
        agents += rows["_other"].sum()
        keys += rows.filter(~pl.col("_other"))["record_key"].to_list()
    assert (sessions, len(keys), agents) == (237, 17_274, 12)
    assert len(keys) - len(set(keys)) == 1_578
