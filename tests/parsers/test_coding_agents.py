"""Transcripts of coding agents: what is stated again, in one file or in several, counts once."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from parsers.format import Context
from parsers.hashing import PromptHasher
from parsers.json_reader import read_json_lines
from parsers.registry import load
from parsers.sources import find_sources, lay_down

CASES = Path(__file__).parent / "cases"
AGENTS = {
    "claude_code_transcript": CASES / "claude_code_transcript/blocks/input.jsonl",
    "codex_rollout": CASES / "codex_rollout/totals/input.jsonl",
    "gemini_cli_chat_jsonl": CASES / "gemini_cli_chat_jsonl/lines/input.jsonl",
}
COUNTS = ("input_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens")


def lines(*items):
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def kept(*rows):
    """Rows of several files as landing keeps them: of one record_key the first."""
    return pl.concat(rows).unique("record_key", keep="first", maintain_order=True)


def assistant(message, request, output, *, session="s", at="2026-05-04T09:20:46Z", uuid="u", **more):
    usage = {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": output}
    body = {
        "id": message,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "usage": usage,
    }
    return {
        "isSidechain": False,
        "sessionId": session,
        "type": "assistant",
        "uuid": uuid,
        "timestamp": at,
        "requestId": request,
        "message": body,
        **more,
    }


def rollout(session, *totals, parent=None, day=13, turn=None, parent_lines=()):
    meta = {"id": session, "cwd": "/w"} | ({"forked_from_id": parent} if parent else {})
    context = {"model": "gpt-5.3-codex"} | ({"turn_id": turn} if turn else {})
    own = [
        {"type": "session_meta", "payload": meta},
        *parent_lines,
        {"type": "turn_context", "payload": context},
    ]
    before = 0
    for total in totals:
        last = {"input_tokens": total - before, "output_tokens": 1}
        counts = {"input_tokens": total, "output_tokens": len(own)}
        info = {"total_token_usage": counts, "last_token_usage": last}
        own.append({"type": "event_msg", "payload": {"type": "token_count", "info": info}})
        before = total
    return [{"timestamp": f"2026-05-{day}T09:00:{2 * n:02}Z", **item} for n, item in enumerate(own)]


def at_once(child, count):
    """The first lines of a fork are written in one go when it begins."""
    return [{**line, "timestamp": child[0]["timestamp"]} for line in child[:count]] + child[count:]


@pytest.mark.parametrize("name", AGENTS)
def test_rows_do_not_depend_on_where_chunks_end(name, tmp_path):
    """Each line a chunk of its own gives what the whole file gives."""
    fmt = load(name)
    laid = lay_down(find_sources([AGENTS[name]])[0], tmp_path)
    raw = pl.concat([raw.frame for raw in read_json_lines(fmt, laid, tmp_path) if not raw.frame.is_empty()])

    def rows(chunks):
        context = Context("x", PromptHasher(b"a key for tests only"))
        mapped = [fmt.map(chunk, context) for chunk in chunks]
        mapped = [frame.filter(~pl.col("_other") & pl.col("_reject").is_null()) for frame in mapped]
        last = [fmt.finish(context)] if fmt.finish else []
        found = pl.concat([*mapped, *last], how="vertical_relaxed").sort("source_line")
        return found.select("source_line", "record_key", "started_at", "model_served", *COUNTS).to_dicts()

    assert rows(raw.iter_slices(1)) == rows([raw])
    assert len(rows([raw])) >= 2


def test_a_continued_session_repeats_its_parent_and_counts_once(read):
    """B068."""
    long = "msg_01XFDUDYJgAACzvnptvVoYEL"
    parent = [assistant(long, "r1", 50), assistant("kimi-1", None, 5, uuid="u2")]
    copy = [{**line, "sessionId": "t"} for line in parent]
    # A sub-agent's replay of a message has another requestId.
    child = [*copy, assistant(long, "r9", 50, session="t"), assistant("msg_2", "r2", 7, session="t")]
    both = kept(read(lines(*parent)).rows, read(lines(*child)).rows)
    assert both["output_tokens"].to_list() == [50, 5, 7]
    assert both["input_tokens"].sum() == 330


def test_equal_turns_of_a_transcript_are_two(read):
    equal = [assistant("msg_1", "r1", 5), assistant("msg_2", "r2", 5), assistant("msg_1", "r3", 5)]
    assert read(lines(*equal)).rows.height == 3


@pytest.mark.parametrize("history", ["at once", "slowly", "none"])
def test_a_fork_counts_what_it_added(read, history):
    """B069: A has 100 tokens, its fork B goes on to 150 in sum: 150, whether B repeats A's events or inherits totals.

    Landing looks for doubles of a day only; a history that was written at once is no record of the fork at all.
    """
    parent = rollout("a", 100)
    child = rollout("b", 100, 150, parent="a", day=14)
    if history == "none":
        child = [line for n, line in enumerate(child) if n != 2]
    if history == "at once":
        child = at_once(child, 3)
    rows = read(lines(*child)).rows
    assert rows["input_tokens"].to_list() == ([100, 50] if history == "slowly" else [50])
    assert kept(read(lines(*parent)).rows, rows)["input_tokens"].to_list() == [100, 50]


def test_children_that_replay_a_parent_add_only_their_own(read):
    """B070: cumulative counters of many children; equal turns of one session stay two."""
    parent = rollout("a", 1000, 2000, 3000)
    files = [read(lines(*parent)).rows]
    assert files[0]["input_tokens"].to_list() == [1000, 1000, 1000]
    for n in range(20):
        replayed = [{"type": "session_meta", "payload": {"id": "a", "cwd": "/w"}}]
        child = rollout(f"c{n}", 1000, 2000, 3000, 3000 + n + 1, parent="a", day=14, parent_lines=replayed)
        # The parent's own line shifts the synthetic outputs: replays repeat the parent's events as they were.
        for line, own in zip(child[3:6], parent[2:5], strict=True):
            line["payload"] = own["payload"]
        files.append(read(lines(*(at_once(child, 6) if n % 2 else child))).rows)
    assert kept(*files)["input_tokens"].sum() == 3000 + sum(range(1, 21))


def test_turns_tell_forks_of_forks_apart(read):
    """Where turns have ids, replays are known however deep the forks are."""
    parent = rollout("a", 100, turn="t1")
    grandchild = rollout("c", 100, parent="b", day=15, turn="t1")
    assert kept(read(lines(*parent)).rows, read(lines(*grandchild)).rows).height == 1


def test_samples_add_up(shared, read_source, tmp_path):
    """The samples beside the facts; total_tokens of the rollout is not a source of semantics."""
    expected = {
        "claude-code/ccusage_session_alpha.jsonl": ("claude_code_transcript", 3, 745, 250),
        "codex/ccusage_session_alpha.jsonl": ("codex_rollout", 2, 3500, 425),
    }
    for name, (fmt, rows, given, generated) in expected.items():
        path = shared / "facts/samples" / name
        if not path.is_file():
            pytest.skip(f"{name} is not in the shared folder")
        result = read_source(find_sources([path])[0], tmp_path, name="input")
        assert (result.format, result.rows.height) == (fmt, rows)
        assert result.rows.select(pl.sum("input_tokens", "output_tokens")).row(0) == (given, generated)


def test_writes_of_both_lifetimes_are_told_apart(read):
    """B024: those of an hour cost more."""
    line = assistant("msg_1", "r1", 5)
    lifetimes = {"ephemeral_5m_input_tokens": 300, "ephemeral_1h_input_tokens": 700}
    line["message"]["usage"] |= {"cache_creation_input_tokens": 1000, "cache_creation": lifetimes}
    row = read(lines(line)).rows.row(0, named=True)
    assert (row["cache_write_5m_tokens"], row["cache_write_1h_tokens"]) == (300, 700)
    assert row["input_tokens"] == 1110
