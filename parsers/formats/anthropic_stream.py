"""Anthropic Messages as event streams. Belongs here: how a message is spread over events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers.event_streams import inner, overwrite, stream_twin
from parsers.formats.anthropic_messages import FORMAT as BODIES

if TYPE_CHECKING:
    from parsers.event_streams import Answer, Answers

_METRICS = "amazon-bedrock-invocationMetrics"
_EVENTS = {
    *("message_start", "message_delta", "message_stop", "ping"),
    *("content_block_start", "content_block_delta", "content_block_stop"),
}


def _is_event(event: dict[str, Any]) -> bool:
    return str(event.get("type")) in _EVENTS


def _fold(answers: Answers, event: dict[str, Any]) -> Answer | None:
    kind = str(event.get("type"))
    if kind == "message_start":
        answer = answers.begin()
        overwrite(answer.body, inner(event, "message"), ("id", "type", "role", "model"))
        # The output that a message begins with is a placeholder.
        answer.body["usage"] = {**inner(event, "message", "usage"), "output_tokens": None}
        return answer
    if kind != "error" and (kind not in _EVENTS or answers.latest is None):
        return None
    answer = answers.of(None) if kind == "error" or answers.latest is None else answers.latest
    body = answer.body
    match kind:
        case "message_delta":
            overwrite(body, inner(event, "delta"), ("stop_reason",))
            told = {name: value for name, value in inner(event, "usage").items() if value is not None}
            body["usage"] = {**body.get("usage", {}), **told}
        case "message_stop":
            overwrite(body, event, (_METRICS,))
            answer.is_whole = True
        case "error":
            overwrite(body, event, ("error", "request_id"))
            answer.is_whole = True
    return answer


FORMAT = stream_twin(
    BODIES,
    name="anthropic_stream",
    title="Anthropic Messages event streams",
    recognised_by="data: lines (or JSON lines) of message_start, content_block_delta, message_delta and their like",
    is_event=_is_event,
    fold=_fold,
    traps=(
        "message_start has the input; message_delta is cumulative, and overwrites what it states.",
        "output_tokens of message_start is a placeholder: without a message_delta the output is unknown.",
        "The cache may stand in message_start alone, while message_delta repeats input_tokens without it.",
        "Events carry no id: of streams that were written into each other, the latest start is continued.",
    ),
)
