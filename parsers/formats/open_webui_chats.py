"""Open WebUI's exported chats: a JSON array of chats (or one chat), whose answers carry the usage that their API stated.

All branches of a chat count: each was an answer. Texts are never read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import usage
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.readers import duckdb_structure
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_OLLAMA = ("prompt_eval_count", "eval_count", "total_duration", "load_duration", "prompt_eval_duration")
_MESSAGE = {
    **dict.fromkeys(("id", "role", "model", "timestamp"), "VARCHAR"),
    "error": "JSON",
    "usage": {**usage.USAGE, **dict.fromkeys(_OLLAMA, "VARCHAR")},
}
_NS_PER_MS = 1_000_000


def _recognise(head: Head) -> bool:
    """A chat may be larger than the head: its record's keys are looked for in the text."""
    names = ("chat", "history", "messages", "currentId", "childrenIds")
    return head.text.lstrip()[:1] in ("[", "{") and all(f'"{name}"' in head.text for name in names)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    counts = usage.counts(fields, ("usage",))
    prompt = pl.coalesce(counts.prompt.value, whole("usage.prompt_eval_count").value)
    output = pl.coalesce(counts.completion.value, whole("usage.eval_count").value)
    failed = fields.raw("error").is_not_null() & (fields.raw("error") != "null")
    return fields.rows(
        other=text("role") != "assistant",
        request_id=text("id"),
        record_key=pl.concat_str("chat_id", text("id"), separator="|", ignore_nulls=True),
        session_id=text("chat_id"),
        started_at=fields.instant("timestamp").needed("timestamp"),
        duration_ms=fields.number("usage.total_duration").value / _NS_PER_MS,
        user=text("user_id"),
        gateway=pl.lit("open-webui"),
        model_requested=text("model"),
        operation=pl.lit("chat"),
        input_tokens=prompt,
        output_tokens=output,
        **usage.columns(counts, pl.lit(value=True)),
        status=pl.when(failed.fill_null(value=False)).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=pl.when(failed).then(pl.lit("unknown")),
    )


FORMAT = Format(
    name="open_webui_chats",
    title="Open WebUI chats",
    written_by="Open WebUI: exported chats",
    target=REQUESTS,
    hop="client",
    container="json_document",
    recognised_by="JSON that holds chat, history, messages, currentId and childrenIds",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(("id", "user_id"), "VARCHAR"),
        "chat": {"history": {"messages": f"MAP(VARCHAR, {duckdb_structure(_MESSAGE)})"}},
    },
    records=(
        "SELECT chat_id, user_id, message.* FROM (SELECT id AS chat_id, user_id, "
        "unnest(map_values(chat.history.messages)) AS message FROM document)"
    ),
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", clock="utc"),
    traps=(
        "usage is kept only where the model's settings ask for it; answers without it have unknown counts.",
        "Usage of Ollama has its own names; total_duration (ns) is the engine's time.",
        "timestamp is in whole seconds. Titles, tags and searches that the server asks for are not in chats.",
    ),
)
