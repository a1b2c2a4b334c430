"""TGI's own answers: bodies of `/generate` and events of `/generate_stream` with `details`, and lines that hold them.

Belongs here: the answer. Does not belong here: answers of the OpenAI routes (`openai_usage.py`), the router's log
(`tgi_log.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_REASONS = {"eos_token": "stop", "stop_sequence": "stop"}
_BODY = {
    "model": "VARCHAR",
    "token": {"id": "VARCHAR"},
    "details": {
        **dict.fromkeys(("finish_reason", "generated_tokens", "input_length"), "VARCHAR"),
        "prefill": [{"id": "VARCHAR"}],
    },
}
_STRUCTURE, _EMBEDDED = bodies.structure(_BODY)


def _is_body(item: dict[str, Any]) -> bool:
    """An answer with details, or an event of a stream, whose last one has them."""
    details = item.get("details")
    is_whole = isinstance(details, dict) and {"finish_reason", "generated_tokens"} <= details.keys()
    is_part = details is None and "details" in item and isinstance(item.get("token"), dict)
    return "generated_text" in item and (is_whole or is_part)


def _recognise(head: Head) -> bool:
    return bodies.recognise(head, _is_body)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, _BODY)
    prefill = pl.col("details.prefill").list.len() if fields.has("details.prefill") else pl.lit(0, pl.UInt32)
    fields.frame = fields.frame.with_columns(prefill_n=pl.when(prefill > 0).then(prefill).cast(pl.String))
    reason = fields.text("details.finish_reason")
    started, flags = bodies.started(fields, context)
    columns = bodies.columns(fields)
    http_status = bodies.http_status(fields)
    return fields.rows(
        # Other events of a stream hold one token each.
        other=reason.is_null(),
        request_id=fields.text("request_id"),
        started_at=started,
        **columns | {"provider": fields.text("provider").fill_null("tgi")},
        model_served=fields.text("model"),
        operation=pl.lit("completion"),
        instance=pl.lit(context.options.get("instance"), pl.String),
        input_tokens=fields.whole("details.input_length", "prefill_n"),
        output_tokens=fields.whole("details.generated_tokens"),
        status=outcome.status(http_status),
        http_status=http_status,
        finish_reason=reason.replace(_REASONS),
        flags=flags,
    )


FORMAT = Format(
    name="tgi_generate",
    title="TGI answers",
    written_by="Clients and proxies that keep response bodies of TGI's native API",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold generated_text with details of finish_reason and generated_tokens",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="inside"),
    traps=(
        "A body states neither time nor model: the line's are taken; else the file's time: time_from_file.",
        (
            "Prompt tokens are known where details.input_length is there (streams of newer versions) or prefill is "
            "filled (decoder_input_details): else unknown."
        ),
        "Events of a stream are other records, but for the last one, which holds the details.",
        "generated_text and the texts of tokens are not read.",
    ),
)
