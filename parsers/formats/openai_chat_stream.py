"""OpenAI chat completions (and completions) as event streams, of OpenAI and of what speaks its dialect.

Belongs here: how an answer is spread over chunks. Does not belong here: what its counts mean (`openai_usage.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parsers.event_streams import inner, overwrite, stream_twin
from parsers.formats.openai_usage import FORMAT as BODIES

if TYPE_CHECKING:
    from parsers.event_streams import Answer, Answers

_CHUNK = "chat.completion.chunk"
_SAID = ("id", "created", "model", "service_tier", "provider", "base_resp")


def _is_event(event: dict[str, Any]) -> bool:
    """A chunk; those of completions (and of Azure's filter) are told from bodies by usage that is still open."""
    kind = event.get("object")
    if not isinstance(event.get("choices"), list) or "timings" in event:
        return False
    is_open = "created" in event and not event.get("usage") and kind != "chat.completion"
    return kind == _CHUNK or is_open


def _fold(answers: Answers, event: dict[str, Any]) -> Answer | None:
    error, choice = event.get("error"), inner(event, "choices", 0)
    # Moonshot and Groq have places of their own.
    usage = inner(event, "usage") or inner(choice, "usage") or inner(event, "x_groq", "usage")
    if not (choice or usage or error):
        # Azure's first chunk: what its filter thinks of the prompt, with an empty id.
        return None
    answer = answers.of(event.get("id"))
    body = answer.body
    overwrite(body, event, _SAID)
    body["object"] = "text_completion" if event.get("object") == "text_completion" else "chat.completion"
    if usage:
        body["usage"] = usage
    if choice.get("finish_reason"):
        body["choices"] = [{"finish_reason": choice["finish_reason"]}]
    if error:
        body["error"] = error
    answer.is_whole = answer.is_whole or bool(error or choice.get("finish_reason"))
    return answer


FORMAT = stream_twin(
    BODIES,
    name="openai_chat_stream",
    title="OpenAI chat event streams",
    recognised_by="data: lines (or JSON lines) of chat.completion.chunk objects, or of completions' chunks",
    is_event=_is_event,
    fold=_fold,
    traps=(
        "Usage comes in a last chunk without choices, in the last one with them, or grows in every chunk.",
        "Without stream_options.include_usage there is none: unknown, not zero. Zeros that are stated are zero.",
        "xAI leaves reasoning out of completion_tokens, Gemini's endpoint hides it: total_tokens shows both.",
    ),
)
