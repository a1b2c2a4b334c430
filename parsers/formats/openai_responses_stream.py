"""OpenAI Responses as event streams. Belongs here: which events hold the answer, and which of them end it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers.event_streams import inner, overwrite, stream_twin
from parsers.formats.openai_usage import FORMAT as BODIES

if TYPE_CHECKING:
    from parsers.event_streams import Answer, Answers

_LAST = {
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
}
_SAID = (
    *("id", "object", "created_at", "completed_at", "status", "model", "service_tier"),
    *("max_output_tokens", "incomplete_details", "error", "usage"),
)


def _is_event(event: dict[str, Any]) -> bool:
    return str(event.get("type", "")).startswith("response.")


def _fold(answers: Answers, event: dict[str, Any]) -> Answer | None:
    response, kind = inner(event, "response"), str(event.get("type"))
    if kind == "error":
        answer = answers.of(None)
        answer.body.update(error=event.get("error") or {"code": event.get("code")}, status="failed")
        answer.is_whole = True
        return answer
    if not response:
        # Events of the text itself carry no id.
        return answers.latest
    answer = answers.of(response.get("id"))
    overwrite(answer.body, response, _SAID)
    answer.is_whole = answer.is_whole or kind in _LAST
    return answer


FORMAT = stream_twin(
    BODIES,
    name="openai_responses_stream",
    title="OpenAI Responses event streams",
    recognised_by="data: lines (or JSON lines) of events whose type begins with response.",
    is_event=_is_event,
    fold=_fold,
    traps=("Usage is only in response.completed, .incomplete or .failed; before them it is null.",),
)
