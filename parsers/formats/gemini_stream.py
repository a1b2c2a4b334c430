"""Gemini generateContent as event streams (alt=sse). Belongs here: how an answer is spread over chunks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers.event_streams import inner, overwrite, stream_twin
from parsers.formats.gemini_generate_content import FORMAT as BODIES

if TYPE_CHECKING:
    from parsers.event_streams import Answer, Answers

_SAID = (
    *("responseId", "modelVersion", "createTime", "usageMetadata", "promptFeedback", "error"),
    *("response_id", "model_version", "create_time", "usage_metadata", "prompt_feedback"),
)


def _is_event(event: dict[str, Any]) -> bool:
    chunk = _chunk(event)
    return bool({"usageMetadata", "usage_metadata"} & chunk.keys()) or (
        bool(inner(chunk, "candidates", 0, "content"))
    )


def _chunk(event: dict[str, Any]) -> dict[str, Any]:
    """Code Assist puts the chunk into `response`."""
    held = inner(event, "response")
    return held if "candidates" in held else event


def _fold(answers: Answers, event: dict[str, Any]) -> Answer | None:
    chunk = _chunk(event)
    answer = answers.of(chunk.get("responseId") or chunk.get("response_id"))
    overwrite(answer.body, chunk, _SAID)
    candidate = inner(chunk, "candidates", 0)
    reason = candidate.get("finishReason") or candidate.get("finish_reason")
    if reason:
        answer.body["candidates"] = [{"finishReason": reason}]
    if reason or chunk.get("promptFeedback") or chunk.get("error"):
        answer.is_whole = True
    return answer


FORMAT = stream_twin(
    BODIES,
    name="gemini_stream",
    title="Gemini generateContent event streams",
    recognised_by="data: lines of chunks with candidates or usageMetadata",
    is_event=_is_event,
    fold=_fold,
    # Chunks as JSON lines look like whole bodies, and are read as such.
    as_json_lines=False,
    traps=(
        "Every chunk has usageMetadata; the last one counts, as promptTokenCount can fall in it.",
        "Older chunks carry no responseId: an answer then ends with its finishReason.",
        "Input is promptTokenCount + toolUsePromptTokenCount; output is candidates + thoughts.",
    ),
)
