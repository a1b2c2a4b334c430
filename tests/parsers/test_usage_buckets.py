"""Reports that state sums: one meaning in every shape they are kept in, claimed by their own format only."""

from __future__ import annotations

import json

import pytest
from polars.testing import assert_frame_equal

from parsers.detect import matching
from parsers.format import Head
from parsers.sources import find_sources


def bucket(day: int, calls: int = 1) -> dict:
    start = 1_777_852_800 + 86_400 * day
    result = {
        "object": "organization.usage.completions.result",
        "input_tokens": 1000 * calls,
        "input_cached_tokens": 400 * calls,
        "output_tokens": 500 * calls,
        "num_model_requests": calls,
        "model": "gpt-5",
    }
    return {"object": "bucket", "start_time": start, "end_time": start + 86_400, "results": [result]}


def page(*buckets: dict) -> dict:
    return {"object": "page", "data": list(buckets), "has_more": False, "next_page": None}


SHAPES = {
    "pages one per line": "\n".join(json.dumps(page(bucket(n))) for n in range(3)),
    "pretty pages one after another": "\n".join(json.dumps(page(bucket(n)), indent=1) for n in range(3)),
    "an array of pages": json.dumps([page(bucket(0), bucket(1)), page(bucket(2))]),
    "an array of buckets": json.dumps([bucket(n) for n in range(3)], indent=2),
    "buckets one per line": "\n".join(json.dumps(bucket(n)) for n in range(3)),
    "one page": "\ufeff" + json.dumps(page(*(bucket(n) for n in range(3)))),
    "as the specification names it": json.dumps(page(*(bucket(n) for n in range(3)))).replace(
        "results", "result"
    ),
    "keys in order of the alphabet": json.dumps(page(*(bucket(n) for n in range(3))), sort_keys=True),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_pages_mean_the_same_however_they_are_kept(read, shape):
    found = read(SHAPES[shape], name="usage.json")
    whole = read(SHAPES["one page"], name="usage.json")
    assert found.format == "openai_usage_buckets"
    assert_frame_equal(found.rows, whole.rows)
    assert found.rows["input_tokens"].to_list() == [1000, 1000, 1000]
    assert found.rejects.is_empty()


def test_a_page_that_is_larger_than_the_head_is_known_and_read_whole(read):
    text = json.dumps(page(*(bucket(n % 900, n + 1) for n in range(3000))), indent=1)
    assert len(text) > 3 * 262_144
    found = read(text, name="usage.json")
    assert found.rows.height == 3000
    assert found.rows["requests"].sum() == 3000 * 3001 // 2


def test_a_report_inside_of_a_prompt_is_no_report():
    record = {"data": "x", "messages": [{"role": "user", "content": json.dumps(page(bucket(0)))}]}
    assert matching(Head("x", json.dumps(record).encode())) == ()


def test_the_recorded_page_of_the_api_adds_up(shared, read_source, tmp_path):
    """1000 input = 500 uncached + 400 cached + 100 written; parts by modality are not added to it."""
    source = find_sources([shared / "facts/samples/openai-usage-api/completions_page.json"])[0]
    row = read_source(source, tmp_path).rows.row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["cache_write_5m_tokens"]) == (1000, 400, 100)
    assert (row["output_tokens"], row["requests"], row["model"]) == (500, 5, None)
    assert (row["ended_at"] - row["started_at"]).total_seconds() == 86_400


def test_the_header_of_openrouters_activity_is_known(shared, read_source, tmp_path):
    source = find_sources([shared / "facts/samples/openrouter/activity_header_synthetic_rows.csv"])[0]
    found = read_source(source, tmp_path)
    assert found.format == "openrouter_activity_csv"
    assert found.rows["status"].to_list() == ["ok", "cancelled"]
    assert [str(cost.normalize()) for cost in found.rows["cost_reported"]] == ["0.0021", "0.0043"]


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({"cache_read_input_tokens": 30, "cache_creation_input_tokens": 0}, (100, 30, [])),
        ({"cache_read_input_tokens": 300}, (400, 300, ["cache_outside_input"])),
        ({"cache_read_input_tokens": 80, "cache_creation_input_tokens": 40}, (100, 80, ["cache_clamped"])),
        ({"cache_read_input_tokens": -1}, (100, None, ["count_out_of_range"])),
    ],
)
def test_sums_follow_the_rules_of_counts(read, counts, wanted):
    record = {
        "date": "2026-05-04",
        "api_key": "k",
        "user_id": "u",
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "spend": 0,
        "api_requests": 1,
        **counts,
    }
    row = read(json.dumps(record) + "\n").rows.row(0, named=True)
    assert (row["input_tokens"], row["cache_read_tokens"], row["flags"]) == wanted


def test_a_utc_day_ends_when_the_next_begins(read):
    """B075, B077: a day of a daily table is 24 hours of UTC, whoever asked for it, and is not widened."""
    common = {"api_key": "", "spend": 1, "api_requests": 1, "prompt_tokens": 1, "completion_tokens": 1}
    lines = [json.dumps({"date": date, **common}) for date in ("2026-03-28", "2026-03-29")]
    rows = read("\n".join(lines)).rows.select("started_at", "ended_at").rows()
    assert rows[0][1] == rows[1][0]
    assert {(end - start).total_seconds() for start, end in rows} == {86_400.0}
