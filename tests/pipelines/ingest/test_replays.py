"""An agent's session that a fork tells again counts once, however late and under whatever times."""

from __future__ import annotations

import json

import polars as pl
import pytest

PARENT, CHILD = "0196a000-0000-7000-8000-00000000000a", "0196b000-0000-7000-8000-00000000000b"


def line(at: str, kind: str, payload: dict) -> str:
    return json.dumps({"timestamp": f"2026-05-{at}.000Z", "type": kind, "payload": payload}) + "\n"


def start(at: str, session: str, **more: str) -> str:
    return line(at, "session_meta", {"id": session, "cwd": "/home/dev/shop", "cli_version": "0.98.0", **more})


def count(at: str, total: int, last: int) -> str:
    """A token_count event: input tokens in all and of the call, a tenth of each as output."""
    usage = {
        name: {"input_tokens": tokens, "cached_input_tokens": 0, "output_tokens": tokens // 10}
        for name, tokens in (("total_token_usage", total), ("last_token_usage", last))
    }
    return line(at, "event_msg", {"type": "token_count", "info": usage})


PARENTS_LINES = [
    start("11T09:00:00", PARENT),
    count("11T09:01:00", 1000, 1000),
    count("11T09:02:00", 3000, 2000),
]
CHILDS_LINES = [
    start("14T10:00:00", CHILD, forked_from_id=PARENT),
    start("14T10:00:00", PARENT),
    count("14T10:00:05", 1000, 1000),
    count("14T10:00:06", 3000, 2000),
    count("14T10:09:00", 7000, 4000),
]


@pytest.mark.parametrize("parent_grew_later", [False, True], ids=["parent older", "parent newer"])
def test_a_forks_history_counts_once_days_later(write, ingest, tmp_path, parent_grew_later):
    """The earliest telling stays, whichever file was written last; every line is accounted for."""
    write(tmp_path / "logs/parent.jsonl", PARENTS_LINES, modified=100 if parent_grew_later else 0)
    write(tmp_path / "logs/child.jsonl", CHILDS_LINES, modified=50)
    facts = ingest(tmp_path / "home", tmp_path / "logs")
    rows = facts.requests.sort("started_at").select("session_id", "input_tokens", "output_tokens").rows()
    assert rows == [(PARENT, 1000, 100), (PARENT, 2000, 200), (CHILD, 4000, 400)]
    assert facts.doubles == {"codex_rollout": 2}
    assert facts.accounts()[0] == facts.accounts()[1]


def test_equal_calls_of_one_session_are_calls(write, ingest, tmp_path):
    """Two calls of the same size are told by their totals."""
    lines = [start("11T09:00:00", PARENT), *(count(f"11T09:0{n}:00", 500 * n, 500) for n in range(1, 5))]
    facts = ingest(tmp_path / "home", write(tmp_path / "one.jsonl", lines))
    assert facts.requests.select(pl.col("input_tokens").sum(), pl.len()).row(0) == (2000, 4)
