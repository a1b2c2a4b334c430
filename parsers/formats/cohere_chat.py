"""Cohere: bodies of chat (v1, v2), embed and rerank, and lines that hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome
from parsers.clock import flag_list
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PAIR = {"input_tokens": "VARCHAR", "output_tokens": "VARCHAR"}
_USAGE = {
    "billed_units": {**_PAIR, "search_units": "VARCHAR", "image_tokens": "VARCHAR"},
    "tokens": _PAIR,
    "cached_tokens": "VARCHAR",
}
# v2 chat, everything else
_AT = ("usage", "meta")
_BODY = {
    **dict.fromkeys(("id", "response_id", "generation_id", "finish_reason", "model"), "VARCHAR"),
    **dict.fromkeys(_AT, _USAGE),
    "results": [{"relevance_score": "VARCHAR"}],
}
_STRUCTURE, _EMBEDDED = bodies.structure(_BODY)


def _is_body(item: dict[str, Any]) -> bool:
    held = [item[name] for name in _AT if isinstance(item.get(name), dict)]
    return any(isinstance(stated.get(kind), dict) for stated in held for kind in ("billed_units", "tokens"))


def _recognise(head: Head) -> bool:
    return bodies.recognise(head, _is_body)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, _BODY)
    text, whole = fields.text, fields.whole
    started, flags = bodies.started(fields, context)

    def count(*names: str) -> pl.Expr:
        return whole(*(f"{at}.{name}" for at in _AT for name in names)).value

    processed, billed = count("tokens.input_tokens"), count("billed_units.input_tokens")
    images, searches = count("billed_units.image_tokens"), count("billed_units.search_units")
    generated = count("tokens.output_tokens", "billed_units.output_tokens")
    is_rerank = (searches > 0) & processed.is_null() & billed.is_null()
    is_chat = generated.is_not_null()
    unread = pl.when(is_rerank | ~(processed.is_null() & billed.is_null())).then(0)
    request_id = text("id", "response_id", "generation_id", "request_id")
    http_status = bodies.http_status(fields)
    is_call = pl.any_horizontal(
        each.is_not_null() for each in (processed, billed, generated, searches, images)
    )
    return fields.rows(
        other=~is_call,
        request_id=request_id,
        record_key=request_id,
        started_at=started,
        **bodies.columns(fields) | {"provider": text("provider").fill_null("cohere")},
        model_served=text("model"),
        operation=pl.when(is_rerank)
        .then(pl.lit("rerank"))
        .when(is_chat)
        .then(pl.lit("chat"))
        .otherwise(pl.lit("embedding")),
        input_tokens=pl.coalesce(processed, billed + images.fill_null(0), images),
        image_input_tokens=images,
        cache_read_tokens=count("cached_tokens"),
        output_tokens=pl.coalesce(generated, unread),
        status=outcome.status(http_status),
        http_status=http_status,
        finish_reason=text("finish_reason"),
        flags=pl.concat_list(flags, flag_list({"billed_tokens_differ": processed != billed})),
    )


FORMAT = Format(
    name="cohere_chat",
    title="Cohere bodies",
    written_by="Clients and proxies that keep response bodies of Cohere's chat, embed and rerank",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold usage or meta with billed_units or tokens",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="utc"),
    traps=(
        "A body states neither time nor model: the line's are taken; else the file's time: time_from_file.",
        "tokens is what the model read and wrote, billed_units what is charged for (less Cohere's own preamble).",
        "tokens are taken, billed_units where they are alone; billed_tokens_differ marks a gap between them.",
        "cached_tokens is part of tokens.input_tokens and can exceed the billed input.",
        "Rerank is charged by search_units: its tokens are unknown.",
    ),
)
