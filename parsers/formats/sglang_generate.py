"""SGLang's own answers: bodies of `/generate` and `/encode`, with `meta_info`.

Belongs here: the answer, and the time beside it where somebody kept one. Does not belong here: answers of the
OpenAI routes (`openai_usage.py`), the server's own logs (`sglang_request_log.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.fields import Fields
from parsers.format import Format
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.sglang import META, SEMANTICS, TRAPS, request_rows

if TYPE_CHECKING:
    from parsers.format import Context

_TIMES = ("timestamp", "time", "ts", "created", "created_at")


def _is_answer(item: dict[str, Any]) -> bool:
    meta = item.get("meta_info")
    return isinstance(meta, dict) and {"id", "prompt_tokens", "finish_reason"} <= meta.keys()


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    told = frame.unnest("meta_info").with_columns(logged_at=pl.coalesce(_TIMES), base_model=pl.col("model"))
    fields = Fields(told.drop("model", *_TIMES))
    # Chunks of a stream state the answer so far; the last one says why it ended.
    is_part = fields.text("finish_reason.type").is_null() & fields.text("completion_tokens").is_not_null()
    rows = request_rows(fields, context)
    return rows.with_columns(_other=fields.series(is_part))


FORMAT = Format(
    name="sglang_generate",
    title="SGLang answers",
    written_by="Clients and proxies that keep bodies of SGLang's native API",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with meta_info of id, prompt_tokens and finish_reason",
    recognise=lambda head: mostly(head.objects, _is_answer),
    map=_map,
    structure={**dict.fromkeys(("model", *_TIMES), "VARCHAR"), "meta_info": META},
    semantics=SEMANTICS,
    traps=(
        *TRAPS,
        "Answers of versions before 2025 state no instants: a line needs a time beside it, or is rejected.",
        "Chunks of a stream are cumulative: only the one that says why it ended is a row.",
    ),
)
