"""OTLP trace exports as JSON: one `ExportTraceServiceRequest` per line, or documents one after the other.

Covers the file exporters of the collector and the SDKs, in protojson's camelCase and in snake_case, and the
older name of scopes. A record is a span. What it says, and which spans are calls: `parsers/spans.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers import spans
from parsers.format import Format, TokenSemantics
from parsers.formats.otlp_agent_events import FORMAT as AGENT_EVENTS
from parsers.otlp import ATTRIBUTES, TEXT, attribute, first, signals
from parsers.records import REQUESTS
from parsers.span_names import FIRST_TOKEN_EVENTS, INDEXED_PROMPTS, PROMPTS, READ, TOKEN_PREFIXES, TOOLS

if TYPE_CHECKING:
    from parsers.format import Head, Structure

_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_TIMES = ("startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano")
_EVENT_TIMES = ("timeUnixNano", "time_unix_nano")
_IDS = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")

_SPAN: Structure = {
    **dict.fromkeys((*_IDS, *_TIMES, "name"), "VARCHAR"),
    "attributes": ATTRIBUTES,
    "status": {"code": "VARCHAR"},
    "events": [dict.fromkeys(("name", *_EVENT_TIMES), "VARCHAR")],
}
_RESOURCE: Structure = {
    "resource": {"attributes": ATTRIBUTES},
    **{name: [{"spans": [_SPAN]}] for name in _SCOPES},
}


_INDEXED = " OR ".join(f"starts_with(a.key, '{prefix}')" for prefix in INDEXED_PROMPTS)
_COUNTED = " OR ".join(f"starts_with(a.key, '{prefix}')" for prefix in TOKEN_PREFIXES)
_READ = spans.sql_list(READ)
_EVENTS = spans.sql_list(FIRST_TOKEN_EVENTS)
_PARTS = ", ".join(
    f"coalesce(TRY(from_json({attribute('span.attributes', name)}, '[\"JSON\"]')), [])" for name in PROMPTS
)

# Nothing is materialised but the tree: a file of prompts is larger than memory.
_RECORDS = f"""
SELECT * EXCLUDE (keys, texts) FROM (
WITH RECURSIVE resources AS NOT MATERIALIZED (
    SELECT unnest(coalesce(resourceSpans, resource_spans)) AS of_resource FROM document
),
scopes AS NOT MATERIALIZED (
    SELECT of_resource.resource.attributes AS resource, unnest({first("of_resource", _SCOPES)}) AS of_scope
    FROM resources
),
entries AS NOT MATERIALIZED (SELECT resource, unnest(of_scope.spans) AS span FROM scopes),
kept AS NOT MATERIALIZED (
    SELECT *, list_filter(span.attributes, lambda a: a.key IN ({_READ})) AS read,
        list_filter(span.attributes, lambda a: {_COUNTED}) AS counted
    FROM entries
),
texts AS NOT MATERIALIZED (
    SELECT *, list_transform(read, lambda a: a.key) AS keys, list_transform(read, lambda a: {TEXT}) AS texts
    FROM kept
),
spans AS NOT MATERIALIZED (
    SELECT row_number() OVER () AS source_line, keys, texts,
        lower({first("span", _IDS[:2])}) AS trace_id,
        lower({first("span", _IDS[2:4])}) AS span_id,
        nullif(lower({first("span", _IDS[4:])}), '') AS parent_id,
        {first("span", _TIMES[:2])} AS started,
        {first("span", _TIMES[2:])} AS ended,
        span.status.code AS status,
        list_min(list_transform(
            list_filter(span.events, lambda e: e.name IN ({_EVENTS})), lambda e: {first("e", _EVENT_TIMES)}
        )) AS first_token,
        {attribute("resource", "service.name")} AS service,
        {attribute("resource", "cloud.region")} AS region,
        coalesce(nullif(list_concat({_PARTS})::VARCHAR[], []), list_transform(
            list_filter(span.attributes, lambda a: {_INDEXED}),
            lambda a: a.key || '=' || coalesce({TEXT}, '')
        )) AS prompt,
        TRY(from_json({attribute("span.attributes", TOOLS)}, '["JSON"]'))::VARCHAR[] AS tools,
        coalesce(len(list_filter(counted, lambda a: a.key NOT IN ({_READ}))) > 0, false) AS has_unread_count,
        {spans.picked(lambda name: f"texts[list_position(keys, '{name}')]")}
    FROM texts
),
{spans.TREE}
)
"""


def _recognise(head: Head) -> bool:
    return "spans" in signals(head.text) and not AGENT_EVENTS.recognise(head)


FORMAT = Format(
    name="otlp_spans",
    title="OpenTelemetry spans, OTLP JSON",
    written_by="OpenTelemetry file exporters: GenAI conventions, OpenLLMetry, OpenInference, AI SDK, vLLM",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="JSON objects whose first key is resourceSpans, among those of other signals",
    recognise=_recognise,
    map=spans.rows,
    structure={"resourceSpans": [_RESOURCE], "resource_spans": [_RESOURCE]},
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", clock="utc"),
    traps=(
        "Parents repeat or sum up the usage of spans below: only the lowest spans with usage are rows.",
        "An agent's usage without the calls below it is rejected: they are in another file, or not sampled.",
        "Parents are found within one file; of calls with one trace, response id and counts one is kept.",
        "Anthropic's input_tokens once left cached tokens out: seen only where the row's counts show it.",
        "request_id is the response's id, else the span's; parent_request_id is a span's id.",
        "Sampling drops spans: sums are those of the sample.",
        "An engine's span below a client's span with usage is the same call and is left out.",
        "A failed span may carry usage (the answer came, then something broke): usage_of_failed_call.",
        "Token attributes that nobody reads are flagged: token_field_not_read.",
    ),
)
