"""Events of coding agents as OpenTelemetry's JavaScript SDK writes its log records: Gemini CLI's telemetry outfile.

The file is one pretty-printed object after the other (or a line each), with spans and metrics in between. What the
events say: `parsers/agent_events.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers import agent_events
from parsers.format import Format
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Head


def _is_event(item: dict[str, Any]) -> bool:
    attributes = item.get("attributes")
    return isinstance(attributes, dict) and "event.name" in attributes


def _recognise(head: Head) -> bool:
    """Spans and metrics of the same process may come first: the name of an event is looked for in the text."""
    is_otel = any(_is_event(item) for item in head.objects) or '"event.name"' in head.text
    has_attributes = any(isinstance(item.get("attributes"), dict) for item in head.objects)
    return is_otel and has_attributes and agent_events.OF_AGENT.search(head.text) is not None


FORMAT = Format(
    name="agent_events_log",
    title="Coding agents' events, log records of the OpenTelemetry SDK",
    written_by="Gemini CLI and Qwen Code: telemetry outfile; Claude Code and others with an exporter of the SDK",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with attributes that hold event.name of a coding agent",
    recognise=_recognise,
    map=agent_events.rows,
    structure={
        "attributes": dict.fromkeys(agent_events.NAMES, "VARCHAR"),
        "body": "VARCHAR",
        "resource": {"attributes": {"service.name": "VARCHAR"}},
        "descriptor": {"name": "VARCHAR"},
    },
    semantics=agent_events.SEMANTICS,
    traps=agent_events.TRAPS,
)
