"""Where each call's work is placed in time."""

from __future__ import annotations

import pytest

from pipelines.demand.spread import PUBLISHED_PACE_RATIO, WORK_SCHEMA, work_intervals


def placed(frame, monday):
    """Rows as seconds after Monday."""
    zero = int(monday.timestamp() * 1e6)
    return [
        {
            name.removesuffix("_us"): (value - zero) / 1e6 if name.endswith("_us") else value
            for name, value in row.items()
        }
        for row in work_intervals(frame).iter_rows(named=True)
    ]


def times(row):
    return row["started"], row["work_from"], row["first_token"], row["ended"]


def test_measured_times_are_kept(facts, monday):
    frame = facts({"at": 1, "first": 3, "end": 9, "queue_ms": 500.0, "input_tokens": 10, "output_tokens": 5})
    (row,) = placed(frame, monday)
    assert times(row) == (1, 1.5, 3, 9)
    assert row["assumed_pace_ratio"] is None
    assert row["is_timed"]


def test_durations_stand_in_for_absent_instants(facts, monday):
    frame = facts({"at": 1, "ttft_ms": 2000.0, "duration_ms": 8000.0, "input_tokens": 10, "output_tokens": 5})
    assert times(placed(frame, monday)[0]) == (1, 1, 3, 9)


def test_result_has_the_declared_schema_even_without_demand(facts):
    failed = {"at": 0, "end": 1, "status": "error", "input_tokens": 5}
    from_cache = {"at": 0, "end": 1, "response_cache_hit": True, "input_tokens": 5}
    for frame in (facts(), facts(failed, from_cache)):
        work = work_intervals(frame)
        assert work.is_empty()
        assert work.schema == WORK_SCHEMA


def test_cancelled_calls_are_demand(facts):
    assert work_intervals(facts({"at": 0, "end": 1, "status": "cancelled"})).height == 1


def test_a_missing_first_token_splits_by_the_published_pace(facts, monday):
    frame = facts({"at": 0, "end": 10, "input_tokens": 100, "output_tokens": 2})
    (row,) = placed(frame, monday)
    assert row["first_token"] == pytest.approx(10 * 100 / (100 + PUBLISHED_PACE_RATIO * 2))
    assert row["assumed_pace_ratio"] == PUBLISHED_PACE_RATIO


def test_a_missing_first_token_splits_by_the_models_own_pace_if_enough_calls_are_streamed(facts, monday):
    streamed = [
        {"at": n, "first": n + 1, "end": n + 5, "input_tokens": 100, "output_tokens": 40} for n in range(20)
    ]
    whole = {"at": 100, "end": 108, "input_tokens": 100, "output_tokens": 10}
    *_, row = placed(facts(*streamed, whole), monday)
    # One output token took 0.1 s, one input token 0.01 s: ratio 10, so both halves are equal.
    assert row["assumed_pace_ratio"] == pytest.approx(10)
    assert row["first_token"] == pytest.approx(104)
    *_, other = placed(facts(*streamed[:19], whole), monday)
    assert other["assumed_pace_ratio"] == PUBLISHED_PACE_RATIO
    *_, foreign = placed(facts(*streamed, whole | {"model_served": "n"}), monday)
    assert foreign["assumed_pace_ratio"] == PUBLISHED_PACE_RATIO


def test_cached_input_takes_no_prefill_in_the_split(facts, monday):
    frame = facts({"at": 0, "end": 10, "input_tokens": 1000, "cache_read_tokens": 900, "output_tokens": 2})
    assert placed(frame, monday)[0]["first_token"] == pytest.approx(5)


def test_a_first_token_at_the_end_of_many_is_not_one(facts, monday):
    many = {"at": 0, "first": 10, "end": 10, "input_tokens": 100, "output_tokens": 2}
    (row,) = placed(facts(many), monday)
    assert row["first_token"] == 5
    assert row["assumed_pace_ratio"] is not None
    (single,) = placed(facts(many | {"output_tokens": 1}), monday)
    assert single["first_token"] == 10
    assert single["assumed_pace_ratio"] is None


@pytest.mark.parametrize("output", [0, None])
def test_work_without_output_is_all_prefill_and_assumes_nothing(facts, monday, output):
    frame = facts({"at": 0, "end": 4, "input_tokens": 100, "output_tokens": output, "operation": "embedding"})
    (row,) = placed(frame, monday)
    assert row["first_token"] == 4
    assert row["assumed_pace_ratio"] is None


@pytest.mark.parametrize(
    "row",
    [
        {"at": 5, "input_tokens": 1, "output_tokens": 1},
        {"at": 5, "end": 4, "input_tokens": 1, "output_tokens": 1},
        {"at": 5, "end": 5, "input_tokens": 1, "output_tokens": 1},
        {"at": 5, "first": 6, "input_tokens": 1, "output_tokens": 1},
        {"at": 5, "end": 5 + 49 * 3600, "input_tokens": 1, "output_tokens": 1},
    ],
    ids=["no end", "end before start", "no length", "first token only", "longer than any call"],
)
def test_without_a_usable_end_all_work_stands_at_the_arrival(facts, monday, row):
    (placed_row,) = placed(facts(row), monday)
    assert times(placed_row) == (5, 5, 5, 5)
    assert not placed_row["is_timed"]
    assert placed_row["assumed_pace_ratio"] is None


def test_a_queue_beyond_the_first_token_is_ignored(facts, monday):
    frame = facts({"at": 0, "first": 1, "end": 4, "queue_ms": 2000.0, "input_tokens": 1, "output_tokens": 9})
    assert times(placed(frame, monday)[0]) == (0, 0, 1, 4)


def test_computed_input_keeps_cache_writes_and_unknown_stays_unknown(facts):
    base = {"at": 0, "end": 1, "input_tokens": 100}
    frame = facts(
        base | {"cache_read_tokens": 30, "cache_write_5m_tokens": 20},
        base | {"at": 1},
        base | {"at": 2, "cache_read_tokens": 0},
    )
    assert work_intervals(frame)["uncached_input_tokens"].to_list() == [70, None, 100]


def test_model_is_the_one_that_answered_else_the_one_asked_for(facts):
    frame = facts(
        {"at": 0, "model_served": "b", "model_requested": "x"},
        {"at": 1, "model_served": None, "model_requested": "a"},
        {"at": 2, "model_served": None},
    )
    assert work_intervals(frame)["model"].to_list() == ["a", "b", "unknown"]
