"""Access logs of gateways and proxies: what their case folders don't show, and logs that were recorded."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import polars as pl
import pytest

from parsers.registry import FORMAT_NAMES, load

CASES = Path(__file__).parent / "cases"
FORMATS = (
    "envoy_ai_gateway",
    "kong_ai_proxy",
    "apisix_ai_proxy",
    "apisix_access_log",
    "higress_ai_statistics",
    "cloudflare_ai_gateway",
    "cloudflare_ai_gateway_logpush",
    "nginx_json_access",
    "nginx_access_log",
    "traefik_json_access",
)
LINES = [
    (name, path)
    for name in FORMATS
    for path in sorted((CASES / name).glob("*/input.*"))
    if path.suffix in {".log", ".jsonl"}
]


def jsonl(*records):
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def envoy(**fields):
    line = {
        "start_time": "2026-03-02T08:00:00.125Z",
        "method": "POST",
        "x-envoy-origin-path": "/v1/chat/completions",
        "response_code": 200,
        "response_flags": "-",
        "duration": 1526,
        "x-request-id": "r-1",
        "gen_ai.usage.input_tokens": 18,
        "gen_ai.usage.output_tokens": 26,
    }
    return line | fields


def apisix(uri="/v1/messages", **summary):
    return {
        "start_time": 1772438400000,
        "route_id": "1",
        "request": {"uri": uri},
        "response": {"status": 200},
        "latency": 900.0,
        "llm_summary": {"request_model": "m", "model": "m", "stream": False} | summary,
    }


def cloudflare(**fields):
    row = {
        "id": "01J",
        "created_at": "2026-03-02T08:00:00Z",
        "provider": "openai",
        "model": "gpt-4o",
        "path": "chat/completions",
        "tokens_in": 25,
        "tokens_out": 12,
        "cost": 0.001,
        "cached": False,
        "success": True,
        "status_code": 200,
    }
    return row | fields


@pytest.mark.parametrize(
    ("name", "path"), LINES, ids=lambda value: getattr(value, "parent", Path(str(value))).name
)
def test_a_row_does_not_depend_on_its_neighbours(name, path, read):
    """A column that is empty in one chunk and filled in another means the same in both."""
    data = path.read_bytes()
    whole = read(data, format_name=name, name="input")
    lines = data.splitlines(keepends=True)
    for row in whole.rows.to_dicts():
        alone = read(lines[row["source_line"] - 1], format_name=name, name="input")
        assert alone.rows.to_dicts() == [{**row, "source_line": 1}]


@pytest.mark.parametrize("name", FORMATS)
def test_no_secret_and_no_prompt_is_kept(name):
    """Inputs of the cases hold keys and words of prompts; neither rows nor reasons do."""
    for path in CASES.glob(f"{name}*/*/r*.jsonl"):
        text = path.read_text(encoding="utf-8")
        assert "sk-not-to-be-kept" not in text
        assert "secret" not in text


def test_a_client_that_hung_up_leaves_a_row_with_what_was_used(read):
    """Case B034: the provider billed 18 and 26 tokens of a call whose client was gone."""
    gone = read(jsonl(envoy(response_flags="DC", response_code_details="downstream_remote_disconnect")))
    row = gone.rows.to_dicts()[0]
    assert (row["status"], row["input_tokens"], row["output_tokens"]) == ("cancelled", 18, 26)


def test_a_measured_zero_stays_zero_and_nothing_stays_unknown(read):
    """Case B032."""
    zero, none = read(
        jsonl(
            envoy(**{"gen_ai.usage.output_tokens": 0}),
            envoy(**{"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None}),
        )
    ).rows.to_dicts()
    assert (zero["output_tokens"], zero["usage_origin"]) == (0, "reported")
    assert (none["output_tokens"], none["usage_origin"]) == (None, "missing")


def test_counts_that_no_model_can_have_are_unknown(read):
    """Case B120."""
    row = read(jsonl(envoy(**{"gen_ai.usage.input_tokens": 2**62}))).rows.to_dicts()[0]
    assert row["input_tokens"] is None
    assert row["flags"] == ["count_out_of_range"]


def test_a_call_that_was_turned_away_has_no_usage_and_no_cost(read):
    """Cases B125 and B126: a failure is a row; nothing is made up for it."""
    failed = cloudflare(success=False, status_code=429, tokens_in=0, tokens_out=0, cost=0)
    row = read(jsonl(failed)).rows.to_dicts()[0]
    assert (row["status"], row["usage_origin"], row["cost_reported"]) == ("error", "missing", 0)


@pytest.mark.parametrize(
    ("line", "hit"),
    [
        (cloudflare(cached=True), True),
        (cloudflare(cached=False), False),
        (envoy(**{"gen_ai.usage.cached_input_tokens": 18}), None),
    ],
)
def test_the_gateways_cache_is_not_the_providers(line, hit, read):
    """Cases B128, B130, B131: an answer from the gateway's cache is marked; prompt caching is a count."""
    row = read(jsonl(line)).rows.to_dicts()[0]
    assert row["response_cache_hit"] is hit
    assert row["cache_read_tokens"] == (18 if hit is None else None)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        # B001: every token in one class. B002: cached tokens are part of the input.
        (
            apisix(
                prompt_tokens=3,
                completion_tokens=550,
                total_tokens=553,
                cache_creation_input_tokens=12304,
                model="claude",
            ),
            (12307, 0, 12304, 550),
        ),
        (
            apisix(
                prompt_tokens=100,
                completion_tokens=5,
                total_tokens=105,
                cache_read_input_tokens=40,
                model="claude-x",
            ),
            (140, 40, 0, 5),
        ),
        # B009: OpenAI's input has the cached part already.
        (
            apisix(
                "/v1/chat/completions",
                prompt_tokens=1999,
                completion_tokens=9,
                total_tokens=2008,
                cache_read_input_tokens=1792,
                model="gpt-4o",
            ),
            (1999, 1792, 0, 9),
        ),
        # B014: reads above the input show that they are outside.
        (
            apisix(
                "/v1/chat/completions",
                prompt_tokens=56322,
                completion_tokens=87,
                cache_read_input_tokens=72960,
                model="m",
            ),
            (129282, 72960, 0, 87),
        ),
    ],
)
def test_input_has_all_tokens_once_whatever_the_dialect(record, expected, read):
    """Cases B001, B002, B009, B014."""
    row = read(jsonl(record)).rows.to_dicts()[0]
    counts = ("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "output_tokens")
    assert tuple(row[name] or 0 for name in counts) == expected


def test_a_log_that_begins_with_a_message_of_the_proxy_is_recognised(read):
    """A line that begins with a bracket does not make an array of the file."""
    result = read(b"[2026-03-02 07:59:59.000][1][info][main] starting\n" + jsonl(envoy(), envoy()))
    assert (result.format, result.rows.height, result.rejects.height) == ("envoy_ai_gateway", 2, 1)


def test_a_member_of_ai_log_that_is_no_text_costs_no_line(read):
    """Members that are objects make the reading slower, not different."""

    def line(number, **ai_log):
        return {
            "ai_log": json.dumps(
                {"api": "a", "model": "m", "input_token": number, "output_token": 1} | ai_log
            ),
            "start_time": "2026-03-02T08:00:00Z",
        }

    plain, odd = line(1), line(2, consumer={"name": "x"}, messages=[{"input_token": 9}])
    rows = read(jsonl(plain, odd), format_name="higress_ai_statistics").rows
    assert rows["input_tokens"].to_list() == [1, 2]
    assert rows.row(0) == read(jsonl(plain), format_name="higress_ai_statistics").rows.row(0)


@pytest.mark.parametrize("name", [name for name in FORMAT_NAMES if name.endswith("_container_log")])
def test_container_logs_without_any_record_and_with_odd_ones(name, read):
    """Messages alone are other lines; a member of another kind than expected costs its value or its line only."""
    messages = b"app-1  | starting\napp-1  | [note] {ready}\n"
    assert read(messages, format_name=name).other_lines == 2
    odd = {
        "usage": 5,
        "ai": "x",
        "llm_summary": [1],
        "request": "GET / HTTP/1.1",
        "latencies": 7,
        "ai_log": {"a": 1},
    }
    line = b"app-1  | " + jsonl(odd)
    result = read(line + messages + line, format_name=name)
    assert (result.lines, result.rows.height) == (4, 0)


def test_recorded_nginx_logs(shared, read):
    """105 calls of 110 requests; the text log says the same but for times and names."""
    folder = shared / "data" / "real" / "nginx"
    as_json = read((folder / "access.json.log").read_bytes())
    as_text = read((folder / "access.combined.log").read_bytes())
    for result in (as_json, as_text):
        assert (result.rows.height, result.rejects.height, result.other_lines) == (105, 0, 5)
        assert result.rows["http_status"].to_list().count(500) == 1
    assert as_json.rows["ended_at"].dt.truncate("1s").to_list() == as_text.rows["started_at"].to_list()


def test_calls_of_litellm_before_nginx_are_known_by_its_id(shared, read):
    """A blank request_completion is no failure: LiteLLM counts those calls as served."""
    rows = read((shared / "data" / "real" / "nginx" / "access.json.log").read_bytes()).rows
    with gzip.open(
        shared / "data" / "real" / "litellm" / "standard_logging_payload.jsonl.gz", "rb"
    ) as stream:
        attempts = read(stream.read()).rows
    last = attempts.sort("ended_at").group_by("gateway", "call_id").agg(last_status=pl.col("status").last())
    both = rows.join(last, on=["gateway", "call_id"])
    assert both.height == 101
    assert both.filter(pl.col("status") != pl.col("last_status")).height == 0


@pytest.mark.parametrize(
    ("path", "name", "sums"),
    [
        ("envoy-ai-gateway/access_log.jsonl", "envoy_ai_gateway", (1, 15, 7)),
        ("apisix/access.log", "apisix_access_log", (2, 46, 16)),
        ("higress/test_access.log", "higress_ai_statistics", (4, 1000, 590)),
        ("higress/test_access_v2.log", "higress_ai_statistics", (4, 750, 530)),
    ],
)
def test_samples_of_the_documentation(path, name, sums, shared, read):
    """Calls, input and output tokens as the documentation of each product has them."""
    result = read((shared / "facts" / "samples" / path).read_bytes())
    assert result.format == name
    rows = result.rows
    assert (rows.height, rows["input_tokens"].sum(), rows["output_tokens"].sum()) == sums


@pytest.mark.parametrize("name", FORMATS)
def test_traps_are_stated(name):
    """Each format says what its counts and times do not tell."""
    assert len(load(name).traps) >= 3
