"""OpenAI's organisation usage: tokens and calls by bucket of time, as pages of the API or the dashboard's CSV.

Belongs here: `/v1/organization/usage/*`. Does not belong here: money (`openai_costs.py`), usage objects of
calls (`openai_usage.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.buckets import is_page, keyed, page_records, page_structure
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PERIOD = ("start_time", "end_time")
_RESULT = (
    *("object", "input_tokens", "input_cached_tokens", "input_cache_write_tokens", "output_tokens"),
    *("num_model_requests", "project_id", "user_id", "api_key_id", "model", "batch", "service_tier"),
    *("size", "source"),
)
_OPERATIONS = {
    "completions": "chat",
    "embeddings": "embedding",
    "moderations": "moderation",
    "images": "image",
    "audio_speeches": "audio",
    "audio_transcriptions": "audio",
}


def _recognise(head: Head) -> bool:
    sums = r'(?:"num_model_requests"\s*:|"organization\.usage\.)'
    return is_page(head, r'"start_time"\s*:', sums)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    calls, output = whole("num_model_requests"), whole("output_tokens")
    # The CSV does not say what kind it is of: only completions have output tokens.
    kind = pl.coalesce(
        text("object").str.extract(r"^organization\.usage\.(\w+)\.result$"),
        pl.when(output.value.is_not_null()).then(pl.lit("completions")),
    )
    quiet = pl.col("quiet") if fields.has("quiet") else calls.value.is_null() & text("model").is_null()
    is_batch = fields.truth("batch")
    # Stored bytes and sessions of the code interpreter are sums of no calls.
    other = quiet | (kind.is_not_null() & ~kind.is_in(list(_OPERATIONS)))
    rows = fields.rows(
        other=other,
        started_at=fields.instant("start_time").needed("start_time"),
        ended_at=fields.instant("end_time"),
        provider=pl.lit("openai"),
        project=text("project_id"),
        user=text("user_id"),
        api_key_alias=text("api_key_id"),
        model=text("model"),
        service_tier=pl.coalesce(
            text("service_tier"), pl.when(is_batch.value).then(pl.lit("batch")), pl.lit(None, pl.String)
        ),
        operation=kind.replace_strict(_OPERATIONS, default=None, return_dtype=pl.String),
        requests=calls.needed("num_model_requests"),
        input_tokens=whole("input_tokens"),
        cache_read_tokens=whole("input_cached_tokens"),
        cache_write_5m_tokens=whole("input_cache_write_tokens"),
        output_tokens=output,
        _kind=kind,
        _batch=text("batch").str.to_lowercase(),
        _image=pl.concat_str(text("size"), text("source"), separator=" ", ignore_nulls=True),
    )
    report = pl.concat_str(pl.lit("openai usage"), pl.col("_kind"), separator=" ", ignore_nulls=True)
    return keyed(rows, report, "_kind", "_batch", "_image")


FORMAT = Format(
    name="openai_usage_buckets",
    title="OpenAI organisation usage",
    written_by="OpenAI: answers of /v1/organization/usage/completions, embeddings, images ...",
    target=USAGE_BUCKETS,
    container="json_document",
    recognised_by="JSON pages or buckets with start_time, results and num_model_requests",
    recognise=_recognise,
    map=_map,
    structure=page_structure(*_PERIOD),
    records=page_records(*_PERIOD, dict.fromkeys(_RESULT, "VARCHAR")),
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="absent"),
    traps=(
        "input_tokens = uncached + cached + cache_write; the text, audio and image counts are parts of it.",
        "Usage of completions covers chat, responses and completions alike; operation says chat.",
        "project_id, user_id, api_key_id, model, batch and service_tier are null unless grouped by.",
        "A bucket without results had no usage: it is counted as other.",
        "The dashboard's CSV has the same fields, counts as 3.0, and lines without any for quiet buckets.",
        "Pages fetched with different group_by are views of the same usage: one of them counts.",
        "Vector stores and code interpreter sessions have no calls: other.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed={"start_time", "end_time", "num_model_requests"},
    written_by="OpenAI: the usage page's export (completions_usage_*.csv)",
    title="OpenAI organisation usage, CSV",
)
