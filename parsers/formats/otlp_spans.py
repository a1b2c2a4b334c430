"""OTLP trace exports as JSON: one `ExportTraceServiceRequest` per line, or documents one after the other.

Covers the collector's and the SDKs' file exporters, in protojson's camelCase and in snake_case, and the older name of scopes.
A record is a span. What a span says of a call, and which spans are calls, is in `parsers/spans.py`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers import spans
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.span_names import FIRST_TOKEN_EVENTS, INDEXED_PROMPTS, PROMPTS, READ, TOKEN_PREFIXES

if TYPE_CHECKING:
    from parsers.format import Head, Structure

_START = re.compile(r'\s*\{\s*"(?:resourceSpans|resource_spans)"\s*:')
_KINDS = ("stringValue", "intValue", "doubleValue", "boolValue", "string_value", "int_value", "double_value", "bool_value")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans")
_TIMES = ("startTimeUnixNano", "start_time_unix_nano", "endTimeUnixNano", "end_time_unix_nano")
_IDS = ("traceId", "trace_id", "spanId", "span_id", "parentSpanId", "parent_span_id")

_SINGLE: Structure = dict.fromkeys(_KINDS, "VARCHAR")
_LIST: Structure = {"values": [_SINGLE]}
_ATTRIBUTES: Structure = [{"key": "VARCHAR", "value": {**_SINGLE, "arrayValue": _LIST, "array_value": _LIST}}]
_SPAN: Structure = {
    **dict.fromkeys((*_IDS, *_TIMES, "name"), "VARCHAR"),
    "attributes": _ATTRIBUTES,
    "status": {"code": "VARCHAR"},
    "events": [{"name": "VARCHAR", "timeUnixNano": "VARCHAR", "time_unix_nano": "VARCHAR"}],
}
_RESOURCE: Structure = {
    "resource": {"attributes": _ATTRIBUTES},
    **{name: [{"spans": [_SPAN]}] for name in _SCOPES},
}


def _first(place: str, names: tuple[str, ...]) -> str:
    return f"coalesce({', '.join(f'{place}.{name}' for name in names)})"


def _value(attributes: str, key: str) -> str:
    return f"({attributes})[list_position(list_transform({attributes}, lambda a: a.key), '{key}')].value.stringValue"


_ARRAY = "coalesce(a.value.arrayValue, a.value.array_value).values[1]"
_TEXT = f"coalesce({_first('a.value', _KINDS)}, {_first(_ARRAY, _KINDS)})"
_INDEXED = " OR ".join(f"starts_with(a.key, '{prefix}')" for prefix in INDEXED_PROMPTS)
_COUNTED = " OR ".join(f"starts_with(a.key, '{prefix}')" for prefix in TOKEN_PREFIXES)
_PARTS = ", ".join(
    f"coalesce(TRY(from_json(list_filter(span.attributes, lambda a: a.key = '{name}')[1].value.stringValue, '[\"JSON\"]')), [])"
    for name in PROMPTS
)

_RECORDS = f"""
SELECT * EXCLUDE (keys, texts) FROM (
WITH RECURSIVE resources AS NOT MATERIALIZED (
    SELECT unnest(coalesce(resourceSpans, resource_spans)) AS of_resource FROM document
),
scopes AS NOT MATERIALIZED (
    SELECT of_resource.resource.attributes AS resource, unnest({_first("of_resource", _SCOPES)}) AS of_scope FROM resources
),
entries AS NOT MATERIALIZED (SELECT resource, unnest(of_scope.spans) AS span FROM scopes),
kept AS NOT MATERIALIZED (
    SELECT *, list_filter(span.attributes, lambda a: a.key IN ({spans.sql_list(READ)})) AS read FROM entries
),
texts AS NOT MATERIALIZED (
    SELECT *, list_transform(read, lambda a: a.key) AS keys, list_transform(read, lambda a: {_TEXT}) AS texts FROM kept
),
spans AS NOT MATERIALIZED (
    SELECT row_number() OVER () AS source_line, keys, texts,
        lower({_first("span", _IDS[:2])}) AS trace_id, lower({_first("span", _IDS[2:4])}) AS span_id,
        nullif(lower({_first("span", _IDS[4:])}), '') AS parent_id,
        {_first("span", _TIMES[:2])} AS started, {_first("span", _TIMES[2:])} AS ended, span.status.code AS status,
        list_min(list_transform(
            list_filter(span.events, lambda e: e.name IN ({spans.sql_list(FIRST_TOKEN_EVENTS)})),
            lambda e: coalesce(e.timeUnixNano, e.time_unix_nano)
        )) AS first_token,
        list_filter(resource, lambda a: a.key = 'service.name')[1].value.stringValue AS service,
        list_filter(resource, lambda a: a.key = 'cloud.region')[1].value.stringValue AS region,
        coalesce(nullif(list_concat({_PARTS}), []), list_transform(
            list_filter(span.attributes, lambda a: {_INDEXED}), lambda a: a.key || '=' || coalesce({_TEXT}, '')
        )) AS prompt,
        coalesce(len(list_filter(span.attributes, lambda a: ({_COUNTED}) AND a.key NOT IN ({spans.sql_list(READ)}))) > 0, false)
            AS has_unread_count,
        {spans.picked(lambda name: f"texts[list_position(keys, '{name}')]")}
    FROM texts
),
{spans.TREE}
)
"""


def _recognise(head: Head) -> bool:
    return _START.match(head.text) is not None


FORMAT = Format(
    name="otlp_spans",
    title="OpenTelemetry spans, OTLP JSON",
    written_by="OpenTelemetry collector and SDKs: file exporters; instrumentations of OpenLLMetry, OpenInference, AI SDK, vLLM",
    target=REQUESTS,
    container="json_document",
    recognised_by="JSON objects whose first key is resourceSpans",
    recognise=_recognise,
    map=spans.rows,
    structure={"resourceSpans": [_RESOURCE], "resource_spans": [_RESOURCE]},
    records=_RECORDS,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", clock="utc"),
    traps=(
        "Parents repeat or sum up the usage of the spans below: only the lowest spans with usage are rows.",
        "An agent's usage without the calls below it is rejected: they were sampled away or are in another file.",
        "Parents are told apart within one file only; a copy that shares its response id and counts is dropped later.",
        "Before GenAI 1.40 Anthropic's input_tokens often left cached tokens out: seen only where reads exceed the input.",
        "request_id is the response id, else the span's; parent_request_id is always a span's id.",
        "Sampling drops spans: sums are those of the sample.",
        "An engine's span below a client's span with usage is the same call and is left out.",
        "A failed span may carry usage (the answer came, then something broke): flagged usage_of_failed_call.",
        "Token attributes under names that nobody reads are flagged token_field_not_read.",
    ),
)
