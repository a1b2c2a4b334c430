"""Spans as OpenTelemetry's SDKs print them: `span.to_json()` and the console exporter of Python, and spans of the
JavaScript SDK written as JSON.

One object per span, on a line each, pretty-printed or in an array; attributes are a plain object. A record is a span.
What it says, and which spans are calls: `parsers/spans.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers import spans
from parsers.format import Format
from parsers.formats.agent_events_log import FORMAT as AGENT_EVENTS
from parsers.formats.otlp_spans import FORMAT as OTLP
from parsers.json_heads import mostly
from parsers.span_names import FIRST_TOKEN_EVENTS, INDEXED_PROMPTS, PROMPTS, READ, TOKEN_PREFIXES, TOOLS

if TYPE_CHECKING:
    from parsers.format import Head, Structure

_CONTEXTS = ("context", "spanContext", "_spanContext")
_CONTEXT: Structure = dict.fromkeys(("trace_id", "span_id", "traceId", "spanId"), "VARCHAR")
_STRUCTURE: Structure = {
    **dict.fromkeys(_CONTEXTS, _CONTEXT),
    "parentSpanContext": {"spanId": "VARCHAR"},
    **dict.fromkeys(("name", "parent_id", "parentSpanId", "start_time", "end_time"), "VARCHAR"),
    **{name: ["BIGINT"] for name in ("startTime", "endTime")},
    "status": dict.fromkeys(("status_code", "code"), "VARCHAR"),
    "attributes": "JSON",
    "events": [{"name": "VARCHAR", "timestamp": "VARCHAR", "time": ["BIGINT"]}],
    "resource": {"attributes": dict.fromkeys(("service.name", "cloud.region"), "VARCHAR")},
}


def _is_span(item: dict[str, Any]) -> bool:
    context: dict[str, Any] = next((item[name] for name in _CONTEXTS if isinstance(item.get(name), dict)), {})
    has_id = bool({"trace_id", "traceId"} & context.keys())
    return (
        has_id
        and isinstance(item.get("attributes"), dict)
        and bool({"start_time", "startTime"} & item.keys())
    )


def _recognise(head: Head) -> bool:
    """Agents write their events and spans into one file: there the events count."""
    return mostly(head.objects, _is_span) and not AGENT_EVENTS.recognise(head)


def _attribute(name: str) -> str:
    """SQL of an attribute as text; of a list, its first member."""
    path = f'$."{name}"'
    return f"coalesce(attributes ->> '{path}[0]', attributes ->> '{path}')"


def _nanoseconds(pair: str) -> str:
    """SQL of the JavaScript SDK's [seconds, nanoseconds]."""
    return f"({pair}[1]::HUGEINT * 1000000000 + {pair}[2])::VARCHAR"


def _of_context(*names: str) -> str:
    return ", ".join(f"{context}.{name}" for context in _CONTEXTS for name in names)


def _hex(*values: str) -> str:
    return f"nullif(replace(lower(coalesce({', '.join(values)})), '0x', ''), '')"


_PARTS = ", ".join(
    f"""coalesce(TRY(from_json(attributes ->> '$."{name}"', '["JSON"]')), [])""" for name in PROMPTS
)
_INDEXED = " OR ".join(f"starts_with(k, '{prefix}')" for prefix in INDEXED_PROMPTS)
_COUNTED = " OR ".join(f"starts_with(k, '{prefix}')" for prefix in TOKEN_PREFIXES)
_RECORDS = f"""
SELECT * FROM (
WITH RECURSIVE spans AS NOT MATERIALIZED (
    SELECT row_number() OVER () AS source_line,
        {_hex(_of_context("trace_id", "traceId"))} AS trace_id,
        {_hex(_of_context("span_id", "spanId"))} AS span_id,
        {_hex("parent_id", "parentSpanId", "parentSpanContext.spanId")} AS parent_id,
        coalesce(start_time, {_nanoseconds("startTime")}) AS started,
        coalesce(end_time, {_nanoseconds("endTime")}) AS ended,
        coalesce(replace(status.status_code, 'ERROR', '2'), status.code) AS status,
        list_min(list_transform(
            list_filter(events, lambda e: e.name IN ({spans.sql_list(FIRST_TOKEN_EVENTS)})),
            lambda e: coalesce(e.timestamp, {_nanoseconds("e.time")})
        )) AS first_token,
        resource.attributes."service.name" AS service,
        resource.attributes."cloud.region" AS region,
        coalesce(nullif(list_concat({_PARTS})::VARCHAR[], []), list_transform(
            list_filter(json_keys(attributes), lambda k: {_INDEXED}),
            lambda k: k || '=' || coalesce(attributes ->> ('$."' || k || '"'), '')
        )) AS prompt,
        TRY(from_json(attributes ->> '$."{TOOLS}"', '["JSON"]'))::VARCHAR[] AS tools,
        coalesce(len(list_filter(json_keys(attributes),
            lambda k: ({_COUNTED}) AND k NOT IN ({spans.sql_list(READ)}))) > 0, false) AS has_unread_count,
        {spans.picked(_attribute)}
    FROM document
),
{spans.TREE}
)
"""

FORMAT = Format(
    name="otel_sdk_spans",
    title="OpenTelemetry spans, as the SDK prints them",
    written_by="OpenTelemetry SDKs: Python's console exporter and span.to_json(), JavaScript's spans as JSON",
    target=OTLP.target,
    container="json_document",
    recognised_by="JSON objects with attributes, a start, and a context that holds the trace's id",
    recognise=_recognise,
    map=spans.rows,
    structure=_STRUCTURE,
    records=_RECORDS,
    semantics=OTLP.semantics,
    traps=OTLP.traps,
    hop=OTLP.hop,
    priority=OTLP.priority + 1,
)
