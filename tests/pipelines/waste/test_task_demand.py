"""Tasks: agents told from chats, sizes and concurrency against a plain count, and the error of a forecast by chat."""

from __future__ import annotations

import datetime as dt

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.waste.task_demand import task_demand
from reports.application_parts import tasks_part
from warehouse.application_tables import TASK_DEMAND

START = dt.datetime(2026, 9, 1, 12, 0, tzinfo=dt.UTC)


def session(name: str, calls: int, every: float, grows: int, **what: object) -> list[dict[str, object]]:
    """Calls of five seconds each, `every` seconds from start to start."""
    return [
        {
            "s": k * every,
            "ended_at": START + dt.timedelta(seconds=k * every + 5),
            "session_id": name,
            "input_tokens": 1_000 + grows * k,
            "output_tokens": 100,
            **what,
        }
        for k in range(calls)
    ]


def classes(frame: pl.DataFrame) -> dict[str, int]:
    mart = task_demand(frame.lazy()).filter(pl.col("scope") == "all")
    assert TASK_DEMAND.problems(mart) == {}
    return dict(mart.select("task_class", "tasks").iter_rows())


def test_agents_are_told_by_tools_or_by_pace_and_growth(requests_of):
    assert classes(requests_of(session("a", 12, 15, 500))) == {"agent": 1}
    assert classes(requests_of(session("a", 12, 15, 0, finish_reason="tool_calls"))) == {"agent": 1}
    assert classes(requests_of(session("a", 12, 120, 500))) == {"chat": 1}, "at the pace of a person"
    assert classes(requests_of(session("a", 12, 15, 0))) == {"chat": 1}, "no history"
    assert classes(requests_of(session("a", 5, 15, 500))) == {"chat": 1}, "too short"
    assert classes(requests_of(session("", 3, 15, 500))) == {"single": 3}, "a name of no characters is none"
    assert classes(REQUESTS.empty()) == {}


def test_a_forecast_by_chat_turns_misses_what_agents_take(requests_of):
    chat = [row for k in range(20) for row in session(f"chat{k}", 3, 120, 0)]
    agents = [row for k in range(4) for row in session(f"agent{k}", 20, 10, 1_000)]
    mart = task_demand(requests_of(chat + agents).lazy())
    row = mart.filter((pl.col("scope") == "all") & (pl.col("task_class") == "agent")).row(0, named=True)
    tokens = sum(1_100 + 1_000 * k for k in range(20))
    assert (row["tasks"], row["calls"], row["tokens_p50"], row["tokens_max"]) == (4, 80, tokens, tokens)
    assert row["chat_turn_tokens"] == 1_100
    assert row["forecast_error"] == pytest.approx((4 * 1_100 - 4 * tokens) / (4 * tokens))
    whole = tasks_part(mart)["forecast"]
    assert whole["tokens"] == 60 * 1_100 + 4 * tokens
    assert whole["forecast_error"] == pytest.approx(24 * 1_100 / whole["tokens"] - 1)
    few = task_demand(requests_of(session("agent", 20, 10, 1_000)).lazy())
    assert few["chat_turn_tokens"].to_list() == [None] * few.height, "no chat to forecast by"
    assert tasks_part(few)["forecast"]["forecast_error"] is None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 60),
            st.integers(0, 20),
            st.integers(0, 500),
            st.sampled_from("ab"),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_sizes_and_concurrency_equal_a_plain_count(requests_of, drawn):
    rows = [
        {
            "s": float(start),
            "ended_at": START + dt.timedelta(seconds=start + length),
            "session_id": f"s{task}",
            "input_tokens": tokens,
            "output_tokens": 1,
            "team": team,
        }
        for task, start, length, tokens, team in drawn
    ]
    mart = task_demand(requests_of(rows).lazy())
    for scope, own in (
        ("all", drawn),
        *((f"team:{team}", [d for d in drawn if d[4] == team]) for team in "ab"),
    ):
        part = mart.filter(pl.col("scope") == scope)
        assert part["tasks"].sum() == len({row[0] for row in own})
        assert part["tokens"].sum() == sum(row[3] + 1 for row in own)
        most = 0
        for task, at, *_ in own:
            running = sum(1 for t, s, length, *_ in own if t == task and s <= at < s + max(length, 0))
            most = max(most, running, 1)
        at_most = part["concurrency_max"].max() or 0
        instants = sum(1 for row in own if row[2] == 0)
        assert (most if own else 0) <= at_most + instants
        if not instants and own:
            assert at_most == most
