"""Rows of one-api and new-api: what counts include, whose time is whose, what is no call; known accounting faults."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.format import Head
from parsers.formats.new_api_logs import CSV_FORMAT, FORMAT, PAGES_FORMAT

END = 1_757_500_000
CLAUDE = {"claude": True, "usage_semantic": "anthropic"}


def entry(other=None, **more):
    fields = {
        "id": 1,
        "created_at": END,
        "type": 2,
        "model_name": "m",
        "quota": 3000,
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "use_time": 3,
        "is_stream": True,
        "channel": 7,
        "request_id": "rq-1",
        "other": json.dumps(other) if other is not None else "",
    }
    return fields | more


def lines(*entries):
    return "".join(json.dumps(item) + "\n" for item in entries)


@pytest.fixture
def rows(read):
    """Canonical rows of entries, as dicts."""
    return lambda *entries: read(lines(*entries), fmt=FORMAT).rows.to_dicts()


def tokens(row):
    names = (
        "input_tokens",
        "cache_read_tokens",
        "cache_write_5m_tokens",
        "cache_write_1h_tokens",
        "output_tokens",
    )
    return tuple(row[name] for name in names)


def test_accounting_b001_b002_claude_cache_is_added_once(rows):
    """B001, B002: {input 3, creation 12304, read 0, output 550}: the input is the sum, each class stands alone."""
    (row,) = rows(
        entry(
            CLAUDE | {"cache_tokens": 0, "cache_write_tokens": 12304}, prompt_tokens=3, completion_tokens=550
        )
    )
    assert tokens(row) == (12307, 0, 12304, None, 550)
    uncached = row["input_tokens"] - row["cache_read_tokens"] - row["cache_write_5m_tokens"]
    assert uncached == 3
    cost = uncached * Decimal("3e-6") + 12304 * Decimal("3.75e-6") + 550 * Decimal("15e-6")
    assert round(cost, 6) == Decimal("0.054399")


def test_accounting_b007_the_mark_decides_not_the_truth_of_a_field(rows):
    """B007: read = 0 with write > 0 means one thing on a marked row and another on an unmarked one."""
    other = {"cache_tokens": 0, "cache_write_tokens": 60}
    marked, plain = rows(entry(CLAUDE | other), entry(other))
    assert tokens(marked) == (160, 0, 60, None, 20)
    assert tokens(plain) == (100, 0, 60, None, 20)


def test_accounting_b014_cache_beyond_the_input_is_outside_it(rows):
    """B014: input 56322, cache read 72960 is the exclusive reading, never a negative input, and flagged."""
    (row,) = rows(entry({"cache_tokens": 72960}, prompt_tokens=56322, completion_tokens=87))
    assert tokens(row) == (129_282, 72960, None, None, 87)
    assert "cache_outside_input" in row["flags"]
    uncached = row["input_tokens"] - row["cache_read_tokens"]
    cost = uncached * Decimal("1e-6") + 72960 * Decimal("1e-7") + 87 * Decimal("5e-6")
    assert cost == Decimal("0.064053")


def test_accounting_b019_reads_and_writes_are_columns_of_their_own(rows):
    """B019: fresh, read and written tokens are three numbers."""
    (row,) = rows(entry(CLAUDE | {"cache_tokens": 500, "cache_write_tokens": 40}))
    assert tokens(row) == (640, 500, 40, None, 20)


@pytest.mark.parametrize(
    ("five", "hour", "expected"),
    [(300, 200, (300, 200)), (500, None, (500, None)), (None, 200, (500, None)), (200, 200, (500, None))],
)
def test_accounting_b025_half_a_split_loses_no_token(rows, five, hour, expected):
    """B025: the split by lifetime holds only where it adds up to the total of 500."""
    parts = {"cache_creation_tokens_5m": five, "cache_creation_tokens_1h": hour}
    (row,) = rows(
        entry(CLAUDE | {"cache_creation_tokens": 500} | {k: v for k, v in parts.items() if v is not None})
    )
    assert tokens(row)[2:4] == expected
    assert row["input_tokens"] == 600


def test_the_true_total_is_preferred(rows):
    """input_tokens_total is whole even where the row is marked exclusive; 31,331 = 99 + 31,232."""
    other = CLAUDE | {"input_tokens_total": 31331, "cache_tokens": 31232}
    (row,) = rows(entry(other, prompt_tokens=99))
    assert tokens(row)[:2] == (31331, 31232)


def test_accounting_b125_b126_failed_calls_cost_nothing_and_have_no_counts(rows):
    """B125, B126: a refused call has quota 0 and zeros that mean unknown; counts it does state are estimates."""
    failed = {"type": 5, "quota": 0, "completion_tokens": 0}
    refused, timed_out = rows(
        entry({"status_code": 429, "error_code": "rate_limit"}, **failed, prompt_tokens=0),
        entry({"status_code": 504}, **failed, prompt_tokens=321, request_id="rq-2"),
    )
    assert (refused["status"], refused["http_status"], refused["error_kind"]) == ("error", 429, "rate_limit")
    assert (refused["input_tokens"], refused["usage_origin"], refused["cost_reported"]) == (
        None,
        "missing",
        0,
    )
    assert (timed_out["input_tokens"], timed_out["usage_origin"]) == (321, "estimated")


def test_accounting_b032_zero_counts_of_a_served_call_are_unknown(rows):
    """B032: this gateway writes 0 and 0 when no usage came, so 0 and 0 is missing; one 0 is a measured 0."""
    none, embedded = rows(
        entry(prompt_tokens=0, completion_tokens=0), entry(completion_tokens=0, request_id="rq-2")
    )
    assert (none["input_tokens"], none["output_tokens"], none["usage_origin"]) == (None, None, "missing")
    assert (embedded["output_tokens"], embedded["usage_origin"]) == (0, "reported")


def test_counts_that_the_gateway_made_up_are_estimates(rows):
    (row,) = rows(entry({"admin_info": {"local_count_tokens": True}}))
    assert (row["input_tokens"], row["usage_origin"]) == (100, "estimated")


def test_attempts_of_a_call_share_call_id_and_follow_each_other(rows):
    """use_time and frt of the served row count from the client's call: the attempt is what is left of them."""
    served = entry({"frt": 6500}, id=12, use_time=44)
    failures = [
        entry({"status_code": 500}, id=number, type=5, created_at=END - before, use_time=0, prompt_tokens=0)
        for number, before in ((11, 40), (10, 42))
    ]
    row, second, first = rows(served, *failures)
    assert {item["call_id"] for item in (row, second, first)} == {"rq-1"}
    assert [item["request_id"] for item in (first, second, row)] == ["rq-1#10", "rq-1#11", "rq-1"]
    assert first["started_at"] <= second["started_at"] <= row["started_at"]
    assert row["started_at"] == datetime.fromtimestamp(END - 40, UTC)
    assert (row["duration_ms"], row["ttft_ms"]) == (40_000.0, 2_500.0)


def test_durations_below_the_clock_are_unknown(rows):
    """use_time 0 says less than a second; frt says how much less."""
    short, measured, one_api = rows(
        entry(use_time=0),
        entry({"frt": 812.5}, use_time=0, request_id="rq-2"),
        entry(use_time=None, elapsed_time=2858, request_id="rq-3"),
    )
    assert (short["ended_at"], short["duration_ms"], short["ttft_ms"]) == (None, None, None)
    assert (measured["duration_ms"], measured["ttft_ms"]) == (812.5, 812.5)
    assert (one_api["gateway"], one_api["duration_ms"], one_api["flags"]) == ("one-api", 2858.0, [])
    assert "whole_second_times" in measured["flags"]


def test_no_first_token_is_minus_a_thousand(rows):
    (row,) = rows(entry({"frt": -1000}))
    assert (row["first_token_at"], row["ttft_ms"], row["duration_ms"]) == (None, None, 3000.0)


@pytest.mark.parametrize("kind", [1, 3, 4, 6, 7, 9])
def test_what_is_no_call_is_counted_as_other(read, kind):
    result = read(lines(entry(type=kind), entry(request_id="rq-2")), fmt=FORMAT)
    assert (result.rows.height, result.other_lines, result.rejects.height) == (1, 1, 0)


@pytest.mark.parametrize("more", [{"quota": -2500}, {"other": {"actual_quota": 5700}}])
def test_refunds_and_settlements_are_no_calls(read, more):
    """Money only moves: a row would be a call that nobody made; accounting row B013 forbids negative cost."""
    result = read(lines(entry(**more), entry(request_id="rq-2")), fmt=FORMAT)
    assert (result.rows.height, result.other_lines) == (1, 1)


def test_a_channel_test_of_one_api_is_a_call_with_a_tag(rows):
    test = {"type": 5, "use_time": None, "elapsed_time": 700, "prompt_tokens": 0, "completion_tokens": 0}
    good, bad = rows(
        entry(**test, content="渠道 a 测试成功，响应：hi"),
        entry(**test, content="渠道 a 测试失败，错误：401"),
    )
    assert [(row["status"], row["tags"]) for row in (good, bad)] == [
        ("ok", ["channel_test"]),
        ("error", ["channel_test"]),
    ]


def test_records_that_all_lack_their_instant_are_refused(read):
    found = read(lines(*(entry(created_at=None, type=kind) for kind in (2, 5))), fmt=FORMAT)
    assert found.reasons == {1: "created_at is missing", 2: "created_at is missing"}


def test_quota_is_exact_money(rows):
    (row,) = rows(entry(quota=154726))
    assert (row["cost_reported"], row["cost_currency"]) == (Decimal("0.309452"), "USD")


def test_names_of_the_upstream_are_kept_beside_the_alias(rows):
    other = {
        "is_model_mapped": True,
        "upstream_model_name": "real",
        "request_path": "/v1/messages?key=secret",
    }
    mapped, plain = rows(entry(other), entry({"upstream_model_name": "real"}, request_id="rq-2"))
    assert (mapped["model_requested"], mapped["model_served"]) == ("m", "real")
    assert (mapped["operation"], mapped["endpoint"]) == ("chat", "/v1/messages")
    assert (plain["model_served"], plain["operation"]) == (None, None)


@given(
    prompt=st.integers(0, 10**6),
    read_tokens=st.integers(0, 10**6),
    written=st.integers(0, 10**6),
    is_claude=st.booleans(),
)
@settings(max_examples=10, deadline=None)
def test_the_input_is_the_sum_of_its_parts(
    prompt, read_tokens, written, is_claude, tmp_path_factory, read_source
):
    """Against the rule in plain Python: marked rows add, others include and are cut or shown to be exclusive."""
    from parsers.sources import find_sources

    other = {"cache_tokens": read_tokens, "cache_write_tokens": written} | (CLAUDE if is_claude else {})
    folder = tmp_path_factory.mktemp("rows")
    (folder / "input.jsonl").write_text(lines(entry(other, prompt_tokens=prompt, completion_tokens=1)))
    row = read_source(find_sources([folder / "input.jsonl"])[0], folder, fmt=FORMAT).rows.to_dicts()[0]
    outside = is_claude or read_tokens > prompt or written > prompt
    total = prompt + read_tokens + written if outside else prompt
    assert row["input_tokens"] == total
    assert row["cache_read_tokens"] == min(read_tokens, total)
    assert row["cache_write_5m_tokens"] == min(written, total - row["cache_read_tokens"])


def test_csv_and_pages_give_the_rows_of_json_lines(read):
    """One table, three exports: the same calls come out of each."""
    entries = [
        entry(CLAUDE | {"cache_tokens": 5, "cache_write_tokens": 2, "frt": 100}),
        entry({"status_code": 500}, id=2, type=5, request_id="rq-2", content='said "no",\nand left'),
        entry(id=3, type=6, request_id="rq-3"),
    ]
    header = [*entries[0], "content"]
    cell = lambda value: '"' + str(value).replace('"', '""') + '"'  # noqa: E731
    csv_text = "\n".join(",".join(cell(item.get(name, "")) for name in header) for item in entries)
    one_api_page = json.dumps({"success": True, "message": "", "data": entries})
    new_api_page = json.dumps(
        {"success": True, "message": "", "data": {"page": 1, "total": 3, "items": entries}}
    )
    results = [
        read(lines(*entries), fmt=FORMAT),
        read(",".join(header) + "\n" + csv_text + "\n", fmt=CSV_FORMAT),
        read(one_api_page, fmt=PAGES_FORMAT),
        read(new_api_page, fmt=PAGES_FORMAT),
    ]
    first = results[0].rows.drop("source_format", "source_line", "source_file")
    assert first.height == 2
    for result in results[1:]:
        assert result.rows.drop("source_format", "source_line", "source_file").equals(first)
        assert (result.rejects.height, result.other_lines - (result.format == "new_api_logs_csv")) == (0, 1)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (lines(entry()), "new_api_logs"),
        (json.dumps([entry()]), "new_api_logs"),
        (json.dumps({"success": True, "data": [entry()]}, indent=2), "new_api_log_pages"),
        (json.dumps({"success": True, "data": {"items": [entry()]}})[:-30], "new_api_log_pages"),
        ("id,created_at,type,model_name,quota,prompt_tokens,completion_tokens,other\n", "new_api_logs_csv"),
        (json.dumps({"success": True, "data": []}), None),
    ],
)
def test_each_container_is_claimed_by_one_format(text, claims):
    head = Head("x", text.encode())
    assert [fmt.name for fmt in (FORMAT, CSV_FORMAT, PAGES_FORMAT) if fmt.recognise(head)] == (
        [claims] if claims else []
    )
