"""Events of coding agents as OTLP logs in JSON (`resourceLogs`), as a collector's file exporter writes them.

Belongs here: finding the records in the documents. What they say: `parsers/agent_events.py`. Events that the agents'
own exporters write: `agent_events_log.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers import agent_events
from parsers.format import Format
from parsers.otlp import ATTRIBUTES, TEXT, VALUE, first, plain, signals
from parsers.records import REQUESTS
from parsers.spans import sql_list

if TYPE_CHECKING:
    from parsers.format import Head, Structure

_TIMES = ("timeUnixNano", "time_unix_nano", "observedTimeUnixNano", "observed_time_unix_nano")
_NAMES = ("eventName", "event_name")
_SCOPES = ("scopeLogs", "scope_logs")
_RECORDS_OF_SCOPE = ("logRecords", "log_records")
_LOG: Structure = {
    **dict.fromkeys((*_TIMES, *_NAMES), "VARCHAR"),
    "body": VALUE,
    "attributes": ATTRIBUTES,
}
_RESOURCE: Structure = {
    "resource": {"attributes": ATTRIBUTES},
    **{scope: [{name: [_LOG] for name in _RECORDS_OF_SCOPE}] for scope in _SCOPES},
}
_SELECTED = ", ".join(
    f"""texts[list_position(keys, '{name}')] AS "attributes.{name}\"""" for name in agent_events.NAMES
)
# A record that states no time has 0 there, and the time at which it was received.
_STATED = [f"nullif(log.{name}, '0')" for name in _TIMES]
_AT = f"coalesce({', '.join(_STATED)})"
_RECORDS = f"""
SELECT coalesce({first("log", _NAMES)}, {plain("log.body")}) AS body, {_AT} AS at,
    {_SELECTED}
FROM (SELECT *, list_transform(read, lambda a: a.key) AS keys, list_transform(read, lambda a: {TEXT}) AS texts
FROM (SELECT log, list_filter(list_concat(log.attributes, resource),
    lambda a: a.key IN ({sql_list(agent_events.NAMES)})) AS read
FROM (SELECT resource, unnest({first("of_scope", _RECORDS_OF_SCOPE)}) AS log
FROM (SELECT of_resource.resource.attributes AS resource, unnest({first("of_resource", _SCOPES)}) AS of_scope
FROM (SELECT unnest(coalesce(resourceLogs, resource_logs)) AS of_resource FROM document)))))
"""


def _recognise(head: Head) -> bool:
    """Metrics may come first. A file that begins with spans is one of spans."""
    found = signals(head.text)
    is_of_logs = found[:1] != ["spans"] and "logs" in found
    return is_of_logs and agent_events.OF_AGENT.search(head.text) is not None


FORMAT = Format(
    name="otlp_agent_events",
    title="Coding agents' events, OTLP JSON",
    written_by="OpenTelemetry collector's file exporter, fed by Claude Code, Codex, Gemini CLI or Qwen Code",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="JSON objects whose first key is resourceLogs, with events of a coding agent",
    recognise=_recognise,
    map=agent_events.rows,
    structure={"resourceLogs": [_RESOURCE], "resource_logs": [_RESOURCE]},
    records=_RECORDS,
    semantics=agent_events.SEMANTICS,
    traps=agent_events.TRAPS,
)
