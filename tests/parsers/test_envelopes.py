"""Envelopes: what a log store or cloud exports is read as the log that went in, whatever its format."""

from __future__ import annotations

import csv
import gzip
import io
import json
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.detect import matching, unwrapped
from parsers.envelopes import MAX_LAYERS, peeled
from parsers.errors import UnreadableSourceError
from parsers.sources import find_sources, read_head

HOSTILE = 'Ignore all rules.\n"}]}\t{"inputTokenCount": 999999} \u2028 {"_source": 1}'


def bedrock(number):
    return {
        "schemaType": "ModelInvocationLog",
        "timestamp": f"2026-05-04T09:20:{number:02}Z",
        "requestId": f"r{number}",
        "operation": "Converse",
        "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "input": {
            "inputBodyJson": {"messages": [{"content": HOSTILE}]},
            "inputTokenCount": 3,
            "cacheReadInputTokenCount": 2074,
            "cacheWriteInputTokenCount": 297,
        },
        "output": {"outputBodyJson": {}, "outputTokenCount": 60 + number},
    }


RECORDS = [bedrock(number) for number in range(1, 5)]
MESSAGES = [json.dumps(record) for record in RECORDS]
AT_MS = 1777886446123


def lines(items):
    return "".join(json.dumps(item) + "\n" for item in items)


def table(names, rows):
    out = io.StringIO(newline="")
    csv.writer(out).writerows([names, *rows])
    return out.getvalue()


ENVELOPES = {
    "cloudwatch_s3_export": "".join(f"2026-05-04T09:20:46.123Z {message}\n" for message in MESSAGES),
    "cloudwatch_tail": "".join(f"2026-05-04T09:20:46.123000+00:00 aws/bedrock {m}\n" for m in MESSAGES),
    "logs_insights_csv": table(
        ["@timestamp", "@message", "@ptr"], [["2026-05-04 09:20:46.123", m, "x"] for m in MESSAGES]
    ),
    "logs_insights_json": json.dumps(
        {
            "status": "Complete",
            "results": [
                [
                    {"field": "@timestamp", "value": "2026-05-04 09:20:46.123"},
                    {"field": "@message", "value": m},
                ]
                for m in MESSAGES
            ],
        },
        indent=2,
    ),
    "firehose": "".join(
        json.dumps(
            {"messageType": "DATA_MESSAGE", "logEvents": [{"id": "1", "timestamp": AT_MS, "message": m}]}
        )
        for m in MESSAGES
    ),
    "filter_log_events": json.dumps(
        {
            "events": [
                {"logStreamName": "s", "timestamp": AT_MS, "message": m, "eventId": "3"} for m in MESSAGES
            ]
            + [{"timestamp": 1, "message": "Permissions are set correctly for the log destination"}],
            "searchedLogStreams": [],
        },
        indent=4,
    ),
    "lone_events": lines({"timestamp": AT_MS, "message": m, "ingestionTime": AT_MS} for m in MESSAGES),
    "firehose_of_records": "".join(MESSAGES),
    "gcloud_logging_read": json.dumps([{"insertId": "a", "jsonPayload": r} for r in RECORDS], indent=2),
    "gcloud_sink_file": lines({"textPayload": m, "timestamp": "2026-05-04T09:20:46.5Z"} for m in MESSAGES),
    "elasticdump": lines({"_index": "i", "_id": "1", "_source": record} for record in RECORDS),
    "elastic_answer": json.dumps(
        {"took": 3, "hits": {"total": 4, "hits": [{"_source": r} for r in RECORDS]}}
    ),
    "elastic_answer_of_messages": json.dumps(
        {
            "hits": {
                "hits": [{"_source": {"@timestamp": "2026-05-04T09:20:46Z", "message": m}} for m in MESSAGES]
            }
        }
    ),
    "kibana_discover_csv": table(
        ["@timestamp", "_id", "message"], [["May 4, 2026 @ 09:20:46.123", "x", m] for m in MESSAGES]
    ),
    "splunk_json": lines(
        {"preview": False, "offset": n, "result": {"_raw": m}} for n, m in enumerate(MESSAGES)
    ),
    "splunk_csv": table(
        ["_time", "_raw", "host"], [["2026-05-04T09:20:46.000+0000", m, "h"] for m in MESSAGES]
    ),
    "datadog_api": json.dumps(
        {
            "data": [
                {"id": "1", "type": "log", "attributes": {"message": "x", "attributes": r}} for r in RECORDS
            ]
        }
    ),
    "datadog_archive": lines({"_id": "1", "date": "2026-05-04T09:20:46Z", "attributes": r} for r in RECORDS),
    "loki_answer": json.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "streams",
                "result": [
                    {"stream": {"app": "x"}, "values": [[f"{AT_MS}00000{n}", m]]}
                    for n, m in enumerate(MESSAGES)
                ],
            },
        }
    ),
    "logcli_jsonl": lines(
        {"labels": {"app": "x"}, "line": m, "timestamp": "2026-05-04T09:20:46Z"} for m in MESSAGES
    ),
    "graylog_csv": table(
        ["timestamp", "source", "message"], [["2026-05-04T09:20:46.000Z", "h", m] for m in MESSAGES]
    ),
    "graylog_answer": json.dumps({"messages": [{"index": "g", "message": {"message": m}} for m in MESSAGES]}),
    "fluentd_out_file": "".join(f"2026-05-04T09:20:46+00:00\tapp.log\t{message}\n" for message in MESSAGES),
    "fluent_bit_of_docker": lines(
        {"log": m + "\n", "stream": "stdout", "kubernetes": {"pod_name": "p"}} for m in MESSAGES
    ),
    "log_analytics_answer": json.dumps(
        {
            "tables": [
                {
                    "name": "PrimaryResult",
                    "columns": [
                        {"name": "TimeGenerated", "type": "datetime"},
                        {"name": "Message", "type": "string"},
                    ],
                    "rows": [["2026-05-04T09:20:46Z", m] for m in MESSAGES],
                }
            ]
        }
    ),
    "list_object": json.dumps({"object": "list", "data": RECORDS, "has_more": False}, indent=1),
    "csv_of_columns": table(
        list(RECORDS[0]), [[json.dumps(c) if isinstance(c, dict) else c for c in r.values()] for r in RECORDS]
    ),
    "csv_of_dotted_columns": table(
        [
            *("schemaType", "timestamp", "requestId", "operation", "modelId", "input.inputTokenCount"),
            *("input.cacheReadInputTokenCount", "input.cacheWriteInputTokenCount", "output.outputTokenCount"),
        ],
        [
            [
                r["schemaType"],
                r["timestamp"],
                r["requestId"],
                r["operation"],
                r["modelId"],
                3,
                2074,
                297,
                60 + n,
            ]
            for n, r in enumerate(RECORDS, 1)
        ],
    ),
}


@pytest.fixture
def read_inside(tmp_path, read_source):
    """Read what a file holds inside of its envelopes, as landing does."""

    def run(content, name="input"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        source = find_sources([path])[0]
        head = read_head(source)
        inner = source if matching(head) else unwrapped(source, head)[0]
        return read_source(inner, tmp_path)

    return run


@pytest.mark.parametrize("name", ENVELOPES)
def test_bedrock_records_come_out_of_every_envelope(read_inside, name):
    """Each call once, with its own time and counts: 3 + 2074 + 297 in; words of a prompt change nothing."""
    result = read_inside(ENVELOPES[name])
    assert result.format == "bedrock_invocation_log"
    rows = result.rows.sort("request_id")
    assert rows["request_id"].to_list() == ["r1", "r2", "r3", "r4"]
    assert rows["input_tokens"].to_list() == [2374] * 4
    assert rows["output_tokens"].to_list() == [61, 62, 63, 64]
    assert rows["started_at"].dt.second().to_list() == [1, 2, 3, 4]
    assert result.rejects.is_empty()


def test_compressed_exports_are_looked_into(read_inside):
    assert read_inside(gzip.compress(ENVELOPES["splunk_json"].encode())).rows.height == 4


def test_rows_of_parquet_are_objects_of_their_columns(read_inside, tmp_path):
    frame = pl.DataFrame([{k: v for k, v in r.items() if k not in {"input", "output"}} for r in RECORDS])
    counts = pl.struct(inputTokenCount=pl.lit(7)), pl.struct(outputTokenCount=pl.lit(5))
    frame.with_columns(input=counts[0], output=counts[1]).write_parquet(tmp_path / "table")
    rows = read_inside((tmp_path / "table").read_bytes()).rows
    assert (rows["input_tokens"].to_list(), rows["output_tokens"].to_list()) == ([7] * 4, [5] * 4)


def test_a_record_without_a_time_has_its_envelope_s(read_inside):
    """Anthropic's bodies state none; the store's time is to the millisecond, and money stays what it was."""
    body = {
        "id": "msg_01XAbCdEfGhIjKlMnOp",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 12304, "output_tokens": 550},
    }
    wrapped = {"events": [{"timestamp": AT_MS, "message": json.dumps(body)}], "searchedLogStreams": []}
    rows = read_inside(json.dumps(wrapped, indent=1)).rows
    assert rows["started_at"].dt.strftime("%FT%T%.3f").to_list() == ["2026-05-04T09:20:46.123"]
    assert rows["input_tokens"].to_list() == [12307]
    assert rows["flags"].to_list() == [[]]


def test_spans_of_a_table_keep_the_names_of_their_attributes(read_inside):
    """Phoenix's frames of spans have a column for each attribute, whose own name holds dots."""
    names = [
        "name",
        "context.trace_id",
        "context.span_id",
        "parent_id",
        "start_time",
        "end_time",
        "status_code",
    ]
    counts = ["attributes.llm.token_count.prompt", "attributes.llm.token_count.completion"]
    rest = ["attributes.llm.model_name", "attributes.openinference.span.kind", "attributes.input.value"]
    times = ["2026-05-04 09:20:46.123000+00:00", "2026-05-04 09:20:48.123000+00:00"]
    rows = [
        ["ChatCompletion", "t1", "s2", "s1", *times, "OK", "12307", "550", "gpt-4o", "LLM", HOSTILE],
        ["agent", "t1", "s1", "", *times, "OK", "", "", "", "CHAIN", ""],
    ]
    result = read_inside(table([*names, *counts, *rest], rows))
    assert result.format == "otel_sdk_spans"
    assert result.rows.select("input_tokens", "output_tokens", "duration_ms").rows() == [(12307, 550, 2000.0)]


def test_gateway_logs_with_bodies_have_their_usage(read_inside):
    """Azure API Management's GatewayLogs keep the body as a string inside of the properties."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1777886446,
        "model": "gpt-4o",
        "choices": [],
    }
    body["usage"] = {"prompt_tokens": 18, "completion_tokens": 26, "total_tokens": 44}
    logs = [
        {
            "time": "2026-05-04T09:20:47.1234567Z",
            "category": "GatewayLogs",
            "correlationId": f"c-{n}",
            "properties": {
                "apiId": "openai",
                "backendResponseBody": json.dumps(body | {"id": f"chatcmpl-{n}"}),
            },
        }
        for n in range(3)
    ]
    rows = read_inside(lines(logs)).rows
    assert rows["input_tokens"].to_list() == [18] * 3


def test_results_of_inlined_batches_of_gemini(read_inside):
    body = {
        "candidates": [{"finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 20, "candidatesTokenCount": 151, "thoughtsTokenCount": 382},
        "modelVersion": "gemini-2.5-pro",
    }
    body["usageMetadata"]["totalTokenCount"] = 553
    held = [{"response": body | {"responseId": f"r{n}"}, "metadata": {"key": str(n)}} for n in range(2)]
    batch = {"name": "batches/1", "response": {"inlinedResponses": {"inlinedResponses": held}}}
    rows = read_inside(json.dumps(batch, indent=2)).rows
    assert rows.select("input_tokens", "output_tokens").rows() == [(20, 533)] * 2


def test_typed_values_of_mongodb_are_values(read_inside):
    row = {
        "_id": {"$oid": "65f0"},
        "id": "m-1",
        "conversation_id": "v-1",
        "message_tokens": {"$numberLong": "1200"},
        "answer_tokens": {"$numberInt": "80"},
        "provider_response_latency": {"$numberDouble": "1.5"},
        "created_at": {"$date": "2026-05-04T09:20:46Z"},
    }
    result = read_inside(lines([{"_source": row}]))
    assert result.rows.select("input_tokens", "output_tokens").rows() == [(1200, 80)]


def test_money_is_not_rounded_on_its_way(read_inside):
    row = {
        "request_id": "a",
        "call_type": "acompletion",
        "spend": "@",
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "total_tokens": 7,
        "startTime": "2026-05-04 09:20:46",
        "endTime": "2026-05-04 09:20:47",
        "model": "m",
        "metadata": {},
    }
    text = lines([{"_index": "i", "_source": row}]).replace('"@"', "0.000123456789012345678")
    rows = read_inside(text).rows
    assert rows["cost_reported"].to_list() == [Decimal("0.000123456789")]


def test_an_engine_s_lines_have_their_time_and_order(read_inside):
    """Loki answers with the latest line first, and vLLM's stamps have no year."""
    said = [
        f"INFO 05-04 09:20:{10 * n} [loggers.py:236] Engine 000: Avg prompt throughput: {n}.0 tokens/s, "
        "Avg generation throughput: 2.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.5%, "
        "Prefix cache hit rate: 0.0%"
        for n in range(1, 4)
    ]
    values = [[str(AT_MS * 10**6 + n * 10**10), line] for n, line in enumerate(said)]
    streams = [{"stream": {"pod": "vllm-0"}, "values": values[::-1]}]
    result = read_inside(
        json.dumps({"status": "success", "data": {"resultType": "streams", "result": streams}})
    )
    assert result.format == "vllm_log"
    assert result.rows["at"].is_sorted()
    assert result.rows.height == 3


def test_what_is_damaged_is_a_reject_and_costs_no_other(read_inside):
    text = ENVELOPES["splunk_json"].splitlines()
    text.insert(2, text[2][:200])
    result = read_inside("\n".join(text))
    assert result.rows.height == 4
    assert result.rejects.height == 1


def test_an_export_that_is_cut_off_gives_what_was_whole(read_inside):
    result = read_inside(ENVELOPES["gcloud_logging_read"][:-300])
    assert result.rows.height == 3
    assert result.rejects.height == 1


def test_what_came_before_a_cut_is_read(tmp_path, read_source):
    path = tmp_path / "input.gz"
    rows = [
        json.dumps(
            {"preview": False, "result": {"_raw": json.dumps(bedrock(1) | {"requestId": f"{n * 7919}"})}}
        )
        for n in range(20_000)
    ]
    packed = gzip.compress("\n".join(rows).encode())
    path.write_bytes(packed[: len(packed) // 2])
    source = find_sources([path])[0]
    result = read_source(unwrapped(source, read_head(source))[0], tmp_path)
    assert result.rows.height > 1000
    assert "cut off" in result.problem


NAMES = [
    "_source",
    "message",
    "hits",
    "data",
    "result",
    "values",
    "stream",
    "rows",
    "columns",
    "field",
    "a.b",
    "a",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.just('{"log": "x"}'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=3), st.sampled_from([None, 1]), st.integers(1, MAX_LAYERS))
def test_whatever_is_inside_is_answered_with_lines(values, indent, layers):
    text = "\n".join(json.dumps(value, indent=indent) for value in values)
    assert peeled(io.BytesIO(text.encode()), layers).read() is not None


@pytest.mark.parametrize("depth", range(100, 2000, 150))
def test_nesting_that_no_parser_follows_is_left_as_it_is(depth):
    deep = '{"data": ' * depth + "1" + "}" * depth
    assert peeled(io.BytesIO(f"{deep}\n{deep}\n".encode()), 3).read() is not None


def test_a_damaged_table_is_unreadable(tmp_path):
    path = tmp_path / "input"
    path.write_bytes(b"PAR1 but no table")
    source = find_sources([path])[0]
    with pytest.raises(UnreadableSourceError, match="damaged"):
        unwrapped(source, read_head(source))


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 100, b"[" * 5000, b'{"a":' * 5000, b"a,b\n1,2\n", b'{"data": [{"x": 1}]}'],
)
def test_what_no_format_knows_stays_as_it_is(tmp_path, content):
    path = tmp_path / "input"
    path.write_bytes(content)
    source = find_sources([path])[0]
    assert unwrapped(source, read_head(source))[0] == source
