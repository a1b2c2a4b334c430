"""Spans of model calls: names of all dialects, which spans of a trace are calls, and known accounting faults."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.format import Head
from parsers.formats.otlp_spans import FORMAT
from parsers.sources import find_sources
from parsers.span_names import NAMES, READ

START = 1_767_000_000
OPENAI = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}
AGENT = {"gen_ai.operation.name": "invoke_agent"}


def value(raw):
    if isinstance(raw, dict):
        return raw
    if isinstance(raw, list):
        return {"arrayValue": {"values": [value(item) for item in raw]}}
    kinds = {bool: "boolValue", int: "intValue", float: "doubleValue", str: "stringValue"}
    return {kinds[type(raw)]: str(raw) if type(raw) is int else raw}


def span(number=1, attributes=None, parent=None, at=0, **more):
    start = (START + at) * 10**9
    fields = {
        "traceId": "ABCDEF",
        "spanId": f"{number:x}",
        "parentSpanId": "" if parent is None else f"{parent:X}",
        "name": "chat",
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "attributes": [{"key": key, "value": value(raw)} for key, raw in (attributes or {}).items()],
        "status": {},
    }
    return fields | more


def used(tokens_in, tokens_out, **more):
    usage = {"gen_ai.usage.input_tokens": tokens_in, "gen_ai.usage.output_tokens": tokens_out}
    return OPENAI | usage | more


def document(*spans):
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": list(spans)}]}]}


def lines(*documents):
    return "".join(json.dumps(item) + "\n" for item in documents)


@pytest.fixture
def result(read):
    """What is read of spans, each on a line of its own."""
    return lambda *spans: read(lines(*(document(item) for item in spans)), fmt=FORMAT)


@pytest.fixture
def rows(result):
    """Canonical rows of spans, as dicts."""
    return lambda *spans: result(*spans).rows.to_dicts()


def tokens(row):
    names = (
        "input_tokens",
        "cache_read_tokens",
        "cache_write_5m_tokens",
        "output_tokens",
        "reasoning_tokens",
    )
    return tuple(row[name] for name in names)


# ---- the tree


def test_accounting_b141_the_root_agents_sum_is_not_added(rows):
    """B141: a root AGENT span carries 59,798 = 2 x 29,899; the leaves are counted."""
    kind = "openinference.span.kind"
    leaf = {kind: "LLM", "llm.token_count.prompt": 29_000, "llm.token_count.completion": 899}
    total = {kind: "AGENT", "llm.token_count.prompt": 58_000, "llm.token_count.completion": 1_798}
    found = rows(span(3, leaf, 2), span(4, leaf, 2), span(2, {kind: "CHAIN"}, 1), span(1, total))
    assert sum(row["input_tokens"] + row["output_tokens"] for row in found) == 59_798
    assert [row["source_line"] for row in found] == [1, 2]


def test_accounting_b142_invoke_agent_is_dropped(rows):
    """B142: an invoke_agent span and its generation both priced gave $0.19052; one of them is $0.09526."""
    usage = {"gen_ai.usage.input_tokens": 300, "gen_ai.usage.output_tokens": 20, "gen_ai.usage.cost": 0.09526}
    found = rows(span(1, AGENT | usage), span(2, OPENAI | usage, 1))
    assert [row["cost_reported"] for row in found] == [Decimal("0.09526")]


def test_accounting_b143_a_copy_goes_and_a_different_parent_stays(rows):
    """B143: a parent whose counts are its children's sum is a copy; one whose counts both differ is kept, flagged."""
    children = (span(2, used(10, 2), 1), span(3, used(30, 5), 1))
    assert len(rows(span(1, used(40, 7)), *children)) == 2
    # The same call seen twice, once with and once without cached tokens: one count differs.
    assert len(rows(span(1, used(90, 7)), *children)) == 2
    kept = rows(span(1, used(1000, 90)), *children)
    assert [(row["input_tokens"], row["flags"]) for row in kept] == [
        (1000, ["usage_differs_from_children"]),
        (10, []),
        (30, []),
    ]


def test_an_agents_usage_without_its_calls_is_refused_not_guessed(result):
    """Its calls may be in another file: a row would count them twice, silence would lose them."""
    found = result(span(1, AGENT | used(5000, 80) | AGENT))
    assert found.reasons == {1: "an agent's sum of usage without the calls that it sums up"}
    assert result(span(1, AGENT)).other_lines == 1


def test_the_ai_sdks_outer_span_is_never_a_call(result):
    """It is always written around an inner span, here in another file."""
    found = result(span(1, {"ai.operationId": "ai.generateText", "ai.usage.promptTokens": 14}))
    assert (found.rows.height, found.rejects.height, found.other_lines) == (0, 0, 1)


def test_spans_of_the_ai_sdk_by_its_own_recordings(shared, rows):
    """Real spans of version 6, as the SDK holds them: inner and outer pairs; only inner ones are calls."""
    path = shared / "facts" / "samples" / "otlp" / "vercel_ai_sdk_v6_spans.jsonl"
    recorded = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    inner = [item for item in recorded if ".do" in item["attributes"]["ai.operationId"]]
    assert 0 < len(inner) < len(recorded)
    found = rows(*(span(n, item["attributes"]) for n, item in enumerate(recorded, 1)))
    assert len(found) == len(inner)
    stated = [
        next(item["attributes"][name] for name in NAMES["input_tokens"] if name in item["attributes"])
        for item in inner
    ]
    assert [row["input_tokens"] for row in found] == stated


def test_a_failed_call_seen_by_two_instrumentations_is_one(rows):
    failed = {"status": {"code": 2}}
    found = rows(span(1, {"openinference.span.kind": "LLM"}, **failed), span(2, OPENAI, 1, **failed))
    assert [(row["request_id"], row["status"], row["usage_origin"]) for row in found] == [
        ("2", "error", "missing")
    ]


def test_an_engine_below_its_client_is_the_same_call(rows):
    engine = {
        "gen_ai.usage.prompt_tokens": 300,
        "gen_ai.usage.completion_tokens": 20,
        "gen_ai.latency.e2e": 1.4,
    }
    assert [row["request_id"] for row in rows(span(1, used(300, 20)), span(2, engine, 1))] == ["1"]
    assert [row["request_id"] for row in rows(span(2, engine, 1))] == ["2"]


def test_loops_of_parents_and_spans_exported_twice_end(rows):
    found = rows(span(1, used(1, 1), 2), span(2, AGENT, 1), span(3, used(2, 2), 3))
    assert [row["input_tokens"] for row in found] == [1, 2]
    twice = rows(span(4, used(2, 2), 5), span(4, used(2, 2), 5))
    assert len({row["record_key"] for row in twice}) == 1


def slow_rows(nodes):
    """Numbers of the nodes that are rows, by looking at each node's calls below it, one by one."""

    def parents(number):
        while (number := nodes[number]["parent"]) is not None:
            yield number

    kept = []
    for number, node in enumerate(nodes):
        below = [
            (other, nodes[other])
            for other in range(len(nodes))
            if number in parents(other) and nodes[other]["kind"] == "call"
        ]
        carriers = [item for _, item in below if item["usage"]]
        nearest = [
            item
            for other, item in below
            if item["usage"]
            and not any(
                nodes[above]["kind"] == "call" and nodes[above]["usage"]
                for above in parents(other)
                if number in parents(above)
            )
        ]
        if node["kind"] != "call":
            continue
        sums = tuple(sum(item["usage"][i] for item in nearest) for i in (0, 1))
        is_copy = (
            bool(carriers) and node["usage"] and (node["usage"][0] == sums[0] or node["usage"][1] == sums[1])
        )
        if not is_copy and (node["usage"] or not below):
            kept.append(number)
    return kept


@st.composite
def forests(draw):
    nodes = []
    for number in range(draw(st.integers(1, 9))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        usage = draw(st.none() | st.tuples(st.integers(1, 3), st.integers(1, 3)))
        nodes.append({"parent": parent, "kind": draw(st.sampled_from(["call", "agent"])), "usage": usage})
    return nodes


@given(forests())
@settings(max_examples=15, deadline=None)
def test_which_spans_are_calls_against_a_slow_reference(tmp_path_factory, read_source, nodes):
    folder = tmp_path_factory.mktemp("spans")
    spans = [
        span(
            number + 1,
            (used(*node["usage"]) if node["usage"] else OPENAI) | (AGENT if node["kind"] == "agent" else {}),
            None if node["parent"] is None else node["parent"] + 1,
        )
        for number, node in enumerate(nodes)
    ]
    (folder / "input.jsonl").write_text(lines(document(*spans[::2]), document(*spans[1::2])))
    found = read_source(find_sources([folder / "input.jsonl"])[0], folder, fmt=FORMAT)
    ids = [int(name, 16) - 1 for name in found.rows["request_id"]]
    assert sorted(ids) == slow_rows(nodes)
    assert found.lines == len(nodes)


# ---- counts


def test_accounting_b004_b009_cached_tokens_are_part_of_the_input(rows):
    """B004, B009: input = uncached + read + write; 1,999 with 1,792 cached stays 1,999."""
    attributes = {"gen_ai.usage.cache_read.input_tokens": 1792, "gen_ai.usage.cache_creation.input_tokens": 7}
    (row,) = rows(span(1, used(1999, 10, **attributes)))
    assert tokens(row) == (1999, 1792, 7, 10, None)


@pytest.mark.parametrize("name", NAMES["cache_read_tokens"])
def test_accounting_b010_every_alias_of_cache_reads_is_known(rows, name):
    """B010: the vendor's alias counts as a part of the input, not as more of it."""
    (row,) = rows(span(1, used(100, 10, **{name: 60})))
    assert tokens(row)[:2] == (100, 60)
    assert row["flags"] == []


def test_accounting_b010_an_unknown_alias_is_flagged_and_never_added(rows):
    """B010: a token attribute that nobody reads is said, not summed."""
    (row,) = rows(span(1, used(100, 10, **{"gen_ai.usage.warm_tokens": 60})))
    assert (row["input_tokens"], row["flags"]) == (100, ["token_field_not_read"])


def test_accounting_b015_exclusive_counts_of_older_libraries(rows):
    """B015: the row's own counts show that its input leaves cached tokens out; without such a sign it is taken as 1.40."""
    read = "gen_ai.usage.cache_read_input_tokens"
    by_reads, by_total = rows(
        span(1, used(31, 20, **{read: 1253})),
        span(2, used(500, 20, **{read: 100, "llm.usage.total_tokens": 620})),
    )
    assert (tokens(by_reads)[:2], tokens(by_total)[:2]) == ((1284, 1253), (600, 100))
    assert [row["flags"] for row in (by_reads, by_total)] == [["cache_outside_input"]] * 2


def test_accounting_b018_cached_input_is_not_dropped(rows):
    """B018: 538 uncached + 2,208 cached + 197 output are $0.000584 on gpt-5-mini: $0.0000552 of it cached."""
    (row,) = rows(span(1, used(2746, 197, **{"gen_ai.usage.details.cache_read_tokens": 2208})))
    uncached = row["input_tokens"] - row["cache_read_tokens"]
    cost = (
        uncached * Decimal("0.25e-6") + row["cache_read_tokens"] * Decimal("0.025e-6") + 197 * Decimal("2e-6")
    )
    assert (uncached, round(cost, 6)) == (538, Decimal("0.000584"))


def test_accounting_b021_what_was_not_reported_is_null(rows):
    """B021: a provider that reports no cache has an unknown hit rate, not one of 0."""
    silent, zero = rows(
        span(1, used(10, 1)), span(2, used(10, 1, **{"gen_ai.usage.cache_read.input_tokens": 0}))
    )
    assert (silent["cache_read_tokens"], zero["cache_read_tokens"]) == (None, 0)


def test_accounting_b038_b041_reasoning_is_part_of_the_output(rows):
    """B038, B041: prompt 20, completion 151, total 553: the output is 533, stated or not."""
    hidden, stated = rows(
        span(1, used(20, 151, **{"gen_ai.usage.total_tokens": 553})),
        span(2, used(20, 151, **{"gen_ai.usage.total_tokens": 553, "gen_ai.usage.reasoning_tokens": 382})),
    )
    assert (hidden["output_tokens"], hidden["flags"]) == (533, ["hidden_reasoning"])
    assert (tokens(stated)[3:], stated["flags"]) == ((533, 382), ["reasoning_outside_output"])


def test_accounting_b042_b052_the_tier_is_kept(rows):
    """B042, B052: the service tier prices all output; unknown stays unknown."""
    tier, none = rows(span(1, used(1, 1, **{"openai.response.service_tier": "flex"})), span(2, used(1, 1)))
    assert (tier["service_tier"], none["service_tier"]) == ("flex", None)


def test_accounting_b125_a_refused_call_has_no_counts_and_b126_a_broken_one_is_flagged(rows):
    """B125, B126: no usage is unknown; usage of a failed span is kept beside the sums, with a flag."""
    error = {"status": {"code": 2}}
    refused, broken = rows(
        span(1, OPENAI | {"error.type": "RateLimitError", "http.response.status_code": 429}, **error),
        span(2, used(10, 2), status={"code": "STATUS_CODE_ERROR"}),
    )
    assert (refused["status"], refused["http_status"], refused["usage_origin"]) == ("error", 429, "missing")
    assert (refused["input_tokens"], refused["error_kind"]) == (None, "RateLimitError")
    assert (broken["status"], broken["flags"]) == ("error", ["usage_of_failed_call"])


def test_the_newest_name_of_a_fact_counts_once(rows):
    """Spans often repeat one number under old and new names."""
    again = {"gen_ai.usage.prompt_tokens": 97, "llm.token_count.prompt": 98, "ai.usage.promptTokens": 99}
    (row,) = rows(span(1, used(96, 1, **again)))
    assert row["input_tokens"] == 96


def test_no_name_stands_for_two_facts():
    assert len(set(READ)) == len(READ)


# ---- times, content, containers


def test_times_are_nanoseconds_and_the_first_token_is_an_event_or_a_number(rows):
    event = {"name": "First Token Stream Event", "timeUnixNano": str(START * 10**9 + 250_000_999)}
    by_event, by_number, neither = rows(
        span(1, used(1, 1), events=[event, event | {"timeUnixNano": str(START * 10**9 + 900_000_000)}]),
        span(2, used(1, 1, **{"gen_ai.response.time_to_first_chunk": 0.463})),
        span(3, used(1, 1), startTimeUnixNano=START * 10**9 + 1),
    )
    start = datetime.fromtimestamp(START, UTC)
    assert by_event["first_token_at"] == start + timedelta(microseconds=250_000)
    assert (by_event["stream"], by_event["duration_ms"]) == (True, 1000.0)
    assert by_number["ttft_ms"] == 463.0
    assert (neither["started_at"], neither["first_token_at"], neither["stream"]) == (start, None, None)


def test_prompts_are_hashed_and_not_kept(rows):
    """Equal beginnings give equal hashes, in the JSON form and in the indexed one; no word of them is in a row."""
    form = "gen_ai.input.messages"
    first, second = rows(
        span(1, used(10, 1, **{form: json.dumps([{"content": "secret one"}])})),
        span(2, used(20, 1, **{form: json.dumps([{"content": "secret one"}, {"content": "secret two"}])})),
    )
    assert first["prefix_hashes"] == second["prefix_hashes"][:1]
    assert second["prefix_token_counts"][-1] == 20
    (indexed,) = rows(span(1, used(10, 1, **{"llm.input_messages.0.message.content": "secret one"})))
    assert len(indexed["prefix_hashes"]) == 1
    assert "secret" not in str([first, second, indexed])


def test_json_lines_pretty_documents_and_one_document_read_alike(read):
    documents = [document(span(2, used(3, 4), 1)), document(span(1, AGENT), span(3, used(5, 6), 1))]
    merged = {"resourceSpans": [item for doc in documents for item in doc["resourceSpans"]]}
    texts = [lines(*documents), "\n".join(json.dumps(doc, indent=2) for doc in documents), json.dumps(merged)]
    frames = [read(text, fmt=FORMAT) for text in texts]
    assert [(item.rows.height, item.other_lines) for item in frames] == [(2, 1)] * 3
    assert all(item.rows.equals(frames[0].rows) for item in frames)


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        (lines(document(span())), True),
        (json.dumps({"resource_spans": []}, indent=2), True),
        (json.dumps({"resourceMetrics": []}), False),
        (json.dumps({"prompt": '{"resourceSpans": []}'}), False),
        (json.dumps({"name": "ai.generateText", "spanContext": {}}), False),
    ],
)
def test_it_claims_documents_that_begin_with_spans(text, claims):
    assert FORMAT.recognise(Head("x", text.encode())) is claims
