"""Gemini CLI sessions: one JSON document per session, or (newer) JSON lines; and Qwen Code's, a fork's, lines.

An answer is stated again when it grows: the last statement counts. Control lines ($set, $rewindTo) and turns without
counts are no calls; a rewound turn was one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import restated
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COUNTS = {
    "prompt": ("tokens.input", "usageMetadata.promptTokenCount"),
    "tool": ("tokens.tool", "usageMetadata.toolUsePromptTokenCount"),
    "cached": ("tokens.cached", "usageMetadata.cachedContentTokenCount"),
    "answer": ("tokens.output", "usageMetadata.candidatesTokenCount"),
    "thoughts": ("tokens.thoughts", "usageMetadata.thoughtsTokenCount"),
}
_MESSAGE = {
    **dict.fromkeys(("id", "timestamp", "type", "model"), "VARCHAR"),
    "tokens": dict.fromkeys(("input", "output", "cached", "thoughts", "tool"), "VARCHAR"),
}
_SESSION = dict.fromkeys(("sessionId", "projectHash"), "VARCHAR")
_CONTROLS = {"$set": "JSON", "$rewindTo": "VARCHAR"}
_QWEN = {
    **dict.fromkeys(("uuid", "cwd"), "VARCHAR"),
    "usageMetadata": {
        name.partition(".")[2]: "VARCHAR"
        for names in _COUNTS.values()
        for name in names
        if "Metadata" in name
    },
}


def _recognise_document(head: Head) -> bool:
    """A session may be larger than the head: its keys are looked for in the text."""
    text = head.text
    keys = all(f'"{name}"' in text for name in ("sessionId", "projectHash", "messages", "startTime"))
    return keys and text.lstrip().startswith("{") and not any(map(_is_message, head.objects))


def _is_message(item: dict[str, Any]) -> bool:
    of_gemini = item.get("type") == "gemini" and {"id", "timestamp"} <= item.keys()
    of_qwen = item.get("type") == "assistant" and {"sessionId", "usageMetadata"} <= item.keys()
    return of_gemini or of_qwen


def _recognise_lines(head: Head) -> bool:
    return any(map(_is_message, head.objects))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    fields.frame = fields.frame.with_columns(
        text(name).forward_fill().fill_null(pl.lit(context.carried.get(name), pl.String)).alias(name)
        for name in _SESSION
    )
    context.carried.update(fields.frame.select(*_SESSION).row(-1, named=True))
    at = fields.instant("timestamp").needed("timestamp")
    counts = {name: fields.whole(*names) for name, names in _COUNTS.items()}
    stated = {name: read.value for name, read in counts.items()}
    is_broken = pl.any_horizontal(read.fault.is_not_null() for read in counts.values())
    is_answer = text("type").is_in(["gemini", "assistant"]).fill_null(value=False)
    is_call = is_answer & (is_broken | stated["prompt"].is_not_null() | stated["answer"].is_not_null())
    rows = fields.rows(
        other=~is_call,
        request_id=text("id", "uuid"),
        record_key=pl.concat_str(pl.col("sessionId").fill_null(""), text("id", "uuid"), separator="|"),
        started_at=at,
        session_id=pl.col("sessionId"),
        project=text("cwd", "projectHash"),
        model_served=text("model"),
        operation=pl.lit("chat"),
        input_tokens=stated["prompt"] + stated["tool"].fill_null(0),
        cache_read_tokens=stated["cached"],
        output_tokens=pl.when(stated["answer"].is_not_null() | stated["thoughts"].is_not_null()).then(
            stated["answer"].fill_null(0)
        ),
        reasoning_tokens=stated["thoughts"],
        status=pl.lit("ok"),
    )
    return restated.hold(rows, context)


FORMAT = Format(
    name="gemini_cli_chat",
    title="Gemini CLI session",
    written_by="Gemini CLI: tmp/<project>/chats/session-*.json",
    target=REQUESTS,
    hop="client",
    replays=True,
    container="json_document",
    recognised_by="a JSON object with sessionId, projectHash, startTime and messages",
    recognise=_recognise_document,
    map=_map,
    finish=restated.latest,
    structure={**_SESSION, "messages": [_MESSAGE]},
    records=(
        "SELECT sessionId, projectHash, entry.* "
        "FROM (SELECT sessionId, projectHash, unnest(messages) AS entry FROM document)"
    ),
    semantics=TokenSemantics(
        cache_read="inside", cache_write="absent", reasoning="outside", retries="hidden"
    ),
    traps=(
        "output leaves thoughts out and input the tokens of tool results (tool): both are added.",
        "cached is part of input.",
        "A message that is written again counts once, as it was last.",
        "timestamp is when the answer was written; no duration. Failed calls state no counts and are no rows.",
        "The project is a hash of its folder (Qwen Code: the folder).",
    ),
)

LINES_FORMAT = replace(
    FORMAT,
    name="gemini_cli_chat_jsonl",
    title="Gemini CLI session, JSON lines",
    written_by="Gemini CLI: chats/session-*.jsonl; Qwen Code: chats/*.jsonl",
    container="json_lines",
    recognised_by="JSON objects of type gemini with id and timestamp; or of type assistant with usageMetadata",
    recognise=_recognise_lines,
    structure={**_SESSION, **_MESSAGE, **_QWEN, **_CONTROLS},
    records=None,
)
