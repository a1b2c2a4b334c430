"""Claude Code session transcripts: JSON lines, one per content block; those of the assistant carry usage.

Covers sessions of all versions, sub-agents' own files and forks of the product that keep its shape. A message is
stated once per block: one row is kept of it. Copies of progress that hold a sub-agent's messages are no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import restated, usage
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_UNIQUE_LENGTH = 20
_SYNTHETIC = "<synthetic>"
_PROVIDERS = {"msg_bdrk_": "bedrock", "msg_vrtx_": "vertex_ai", "msg_0": "anthropic"}
_STRUCTURE = {
    **dict.fromkeys(("type", "timestamp", "sessionId", "session_id", "requestId", "uuid", "cwd"), "VARCHAR"),
    "costUSD": "VARCHAR",
    "message": {
        **dict.fromkeys(("id", "model", "stop_reason"), "VARCHAR"),
        "usage": {
            **usage.USAGE,
            "service_tier": "VARCHAR",
            "speed": "VARCHAR",
            "iterations": [usage.ITERATION],
        },
    },
}
# Lines that have no session of their own.
_OUTSIDE_SESSIONS = {"summary", "file-history-snapshot"}


def _is_line(item: dict[str, Any]) -> bool:
    return ("sessionId" in item and bool({"type", "message"} & item.keys())) or (
        str(item.get("type")) in _OUTSIDE_SESSIONS and bool({"leafUuid", "messageId"} & item.keys())
    )


def _is_turn(item: dict[str, Any]) -> bool:
    """A turn of the conversation; products with such lines but other usage objects have no `isSidechain`."""
    message = item.get("message")
    stated = message.get("usage") if isinstance(message, dict) else None
    return "isSidechain" in item or (
        isinstance(stated, dict) and {"input_tokens", "output_tokens"} <= stated.keys()
    )


def _recognise(head: Head) -> bool:
    lines = [item for item in head.objects if _is_line(item)]
    return mostly(head.objects, _is_line) and any(map(_is_turn, lines))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    counts = usage.iterated(usage.counts(fields, ("message.usage",)), fields, "message.usage")
    at, cost = fields.instant("timestamp").needed("timestamp"), fields.money("costUSD")
    model, message_id = text("message.model"), text("message.id")
    prompt, generated = counts.prompt.value, counts.completion.value
    is_call = prompt.is_not_null() | generated.is_not_null()
    provider = pl.coalesce(
        pl.when(message_id.str.starts_with(start)).then(pl.lit(name)) for start, name in _PROVIDERS.items()
    )
    rows = fields.rows(
        other=~is_call
        | (text("type").fill_null("assistant") != "assistant")
        | (model == _SYNTHETIC).fill_null(value=False),
        request_id=text("requestId", "message.id"),
        record_key=_record_key(message_id, text("requestId"), text("uuid")),
        call_id=message_id,
        started_at=at,
        session_id=text("sessionId", "session_id"),
        project=text("cwd"),
        provider=provider,
        model_served=model,
        operation=pl.lit("chat"),
        service_tier=pl.when(text("message.usage.speed") == "fast")
        .then(pl.lit("fast"))
        .otherwise(text("message.usage.service_tier")),
        input_tokens=prompt,
        output_tokens=generated,
        **usage.columns(counts, is_call),
        status=pl.lit("ok"),
        finish_reason=text("message.stop_reason"),
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
    )
    return restated.hold(rows, context)


def _record_key(message_id: pl.Expr, request_id: pl.Expr, line_id: pl.Expr) -> pl.Expr:
    """An API's message id is unique, and repeats may have another requestId; a gateway's short ones may not be."""
    is_unique = message_id.str.len_bytes() >= _UNIQUE_LENGTH
    both = pl.concat_str(message_id, request_id, separator="|", ignore_nulls=True)
    has_name = message_id.is_not_null() | request_id.is_not_null()
    return pl.when(is_unique).then(message_id).when(has_name).then(both).otherwise(line_id)


FORMAT = Format(
    name="claude_code_transcript",
    title="Claude Code transcript",
    written_by="Claude Code: sessions below projects/, sub-agents included",
    target=REQUESTS,
    hop="client",
    replays=True,
    container="json_lines",
    recognised_by="JSON objects with sessionId and type, among them turns (isSidechain, or usage of a message)",
    recognise=_recognise,
    map=_map,
    finish=restated.fullest,
    structure=_STRUCTURE,
    semantics=TokenSemantics(
        cache_read="outside", cache_write="outside", reasoning="inside", retries="hidden", money="USD"
    ),
    traps=(
        "A message has one line per content block, each with usage: the one of most output tokens counts.",
        "Some versions never write the final usage: output_tokens of 1 to 8 are then a lower bound.",
        "Resumed, forked and sub-agents' files repeat messages, some under another requestId: message.id counts.",
        "timestamp is when a block was written; the first one of a message is taken for its start.",
        "No duration and no time to first token; failed attempts are hidden, and their placeholders are no calls.",
        "usage.iterations, where it sums up to more than usage, is what is billed.",
        "costUSD is in old versions only. speed fast is shown as the service tier.",
    ),
)
