"""Sums of sources: twice, overlapping or still growing, they make the same facts, and never requests."""

from __future__ import annotations

import json

import polars as pl
import pytest

DAY_S = 86_400
MONDAY_S = 1_777_852_800


def page(*days: tuple[int, int], model: str = "gpt-5") -> list[str]:
    """A page of the usage API: (day, calls), 100 input and 10 output tokens each."""
    made = [
        {
            "object": "bucket",
            "start_time": MONDAY_S + day * DAY_S,
            "end_time": MONDAY_S + (day + 1) * DAY_S,
            "results": [
                {
                    "object": "organization.usage.completions.result",
                    "input_tokens": 100 * calls,
                    "output_tokens": 10 * calls,
                    "num_model_requests": calls,
                    "model": model,
                }
            ],
        }
        for day, calls in days
    ]
    return [json.dumps({"object": "page", "data": made, "has_more": False}) + "\n"]


def calls_by_day(facts) -> list[tuple[int, int]]:
    rows = facts.tables["usage_buckets"].sort("started_at")
    return [
        (int((at.timestamp() - MONDAY_S) // DAY_S), calls)
        for at, calls in rows.select("started_at", "requests").iter_rows()
    ]


def test_sums_are_no_requests_and_a_copy_adds_nothing(tmp_path, ingest, write):
    logs = tmp_path / "logs"
    write(logs / "a.json", page((0, 5), (1, 7)))
    once = ingest(tmp_path / "home", logs)
    assert once.requests.is_empty()
    assert calls_by_day(once) == [(0, 5), (1, 7)]
    write(logs / "copy.json", page((0, 5), (1, 7)), modified=5)
    twice = ingest(tmp_path / "home", logs)
    assert calls_by_day(twice) == [(0, 5), (1, 7)]
    assert twice.accounts() == (2, 2)


def test_of_a_sum_that_grew_the_later_export_counts(tmp_path, ingest, write):
    """B084: an export of an open day holds part of it; the next one holds it whole."""
    logs = tmp_path / "logs"
    write(logs / "z-monday.json", page((0, 5), (1, 2)))
    write(logs / "a-tuesday.json", page((1, 9), (2, 1)), modified=60)
    facts = ingest(tmp_path / "home", logs)
    assert calls_by_day(facts) == [(0, 5), (1, 9), (2, 1)]
    assert facts.doubles == {"openai_usage_buckets": 1}
    assert facts.accounts() == (4, 4)
    again = ingest(tmp_path / "home", logs)
    assert calls_by_day(again) == calls_by_day(facts)


def test_a_day_whose_later_export_is_gone_falls_back_to_the_one_before(tmp_path, ingest, write):
    logs = tmp_path / "logs"
    write(logs / "a.json", page((0, 5)))
    later = write(logs / "b.json", page((0, 6)), modified=60)
    assert calls_by_day(ingest(tmp_path / "home", logs)) == [(0, 6)]
    later.unlink()
    assert calls_by_day(ingest(tmp_path / "home", logs)) == [(0, 5)]


def test_overlapping_pages_in_one_file_count_once(tmp_path, ingest, write):
    """B096, B097: all pages count, each of their buckets once."""
    logs = tmp_path / "logs"
    write(logs / "pages.jsonl", [*page((0, 5), (1, 2)), *page((1, 3), (2, 4))])
    assert calls_by_day(ingest(tmp_path / "home", logs)) == [(0, 5), (1, 3), (2, 4)]


def test_a_table_as_json_and_as_csv_is_one_table(tmp_path, ingest, write):
    row = {
        "user_id": "ann",
        "date": "2026-05-04",
        "api_key": "88dc" * 16,
        "model": "gpt-5",
        "custom_llm_provider": "openai",
        "prompt_tokens": 100,
        "completion_tokens": 10,
        "spend": 0.25,
        "api_requests": 3,
        "successful_requests": 3,
        "failed_requests": 0,
    }
    logs = tmp_path / "logs"
    write(logs / "a.jsonl", [json.dumps(row) + "\n"])
    write(logs / "b.csv", [",".join(row) + "\n", ",".join(map(str, row.values())) + "\n"], modified=9)
    facts = ingest(tmp_path / "home", logs)
    assert calls_by_day(facts) == [(0, 3)]
    assert facts.doubles == {"litellm_daily_spend": 1}


@pytest.mark.parametrize("order", [0, 60])
def test_sums_beside_calls_change_no_request(tmp_path, ingest, write, payload, order):
    logs = tmp_path / "logs"
    write(logs / "calls.jsonl", [payload(n) for n in range(5)])
    before = ingest(tmp_path / "home", logs).requests
    write(logs / "sums.json", page((196, 5)), modified=order)
    after = ingest(tmp_path / "home", logs)
    assert after.requests.equals(before)
    assert after.tables["usage_buckets"].select(pl.col("requests").sum()).item() == 5
