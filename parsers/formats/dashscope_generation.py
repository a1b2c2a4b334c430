"""DashScope's native API (Qwen): bodies of generation, embeddings, rerank and applications, and SDK dumps of them.

Its OpenAI-compatible endpoint writes bodies of `openai_usage`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome, usage
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PART = dict.fromkeys(("model_id", "input_tokens", "output_tokens"), "VARCHAR")
_BODY = {
    **dict.fromkeys(("code", "model"), "VARCHAR"),
    "output": {
        "finish_reason": "VARCHAR",
        "choices": [{"finish_reason": "VARCHAR"}],
        "embeddings": [{"text_index": "VARCHAR"}],
        "results": [{"relevance_score": "VARCHAR"}],
    },
    "usage": {**usage.USAGE, "image_tokens": "VARCHAR", "audio_tokens": "VARCHAR", "models": [_PART]},
}
_STRUCTURE, _EMBEDDED = bodies.structure(_BODY)


def _is_body(item: dict[str, Any]) -> bool:
    """An answer, or a refusal in the API's words."""
    if "request_id" not in item or "usageMetadata" in item or "object" in item:
        return False
    stated = item.get("usage")
    if isinstance(item.get("output"), dict):
        return isinstance(stated, dict) and bool({"total_tokens", "input_tokens", "models"} & stated.keys())
    return isinstance(item.get("code"), str) and isinstance(item.get("message"), str) and not stated


def _recognise(head: Head) -> bool:
    return bodies.recognise(head, _is_body)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = _summed(bodies.lifted(frame, _BODY))
    text = fields.text
    counts = usage.counts(fields, ("usage", "application"))
    started, flags = bodies.started(fields, context)
    has = {
        name: fields.raw(f"output.{name}").is_not_null()
        if not fields.has(f"output.{name}")
        else pl.col(f"output.{name}").is_not_null()
        for name in ("embeddings", "results")
    }
    reads = pl.any_horizontal(has.values())
    http_status, error = bodies.http_status(fields), outcome.error_kind(_word(fields.raw("code")))
    input_tokens = pl.when(reads).then(pl.coalesce(counts.prompt.value, counts.total.value))
    reason = text("output.finish_reason")
    if fields.has("output.choices"):
        choice = pl.col("output.choices").list.first().struct.field("finish_reason")
        reason = pl.coalesce(choice, reason)
    request_id = text("request_id")
    is_call = counts.prompt.value.is_not_null() | counts.total.value.is_not_null() | error.is_not_null()
    return fields.rows(
        other=~is_call | bodies.outdone(request_id),
        request_id=request_id,
        record_key=request_id,
        started_at=started,
        **bodies.columns(fields) | {"provider": text("provider").fill_null("dashscope")},
        model_served=text("model", "application.model_id"),
        operation=pl.when(has["embeddings"])
        .then(pl.lit("embedding"))
        .when(has["results"])
        .then(pl.lit("rerank"))
        .otherwise(pl.lit("chat")),
        input_tokens=pl.coalesce(input_tokens, counts.prompt.value),
        output_tokens=pl.when(reads & counts.completion.value.is_null())
        .then(0)
        .otherwise(counts.completion.value),
        **usage.columns(counts, pl.lit(value=True)),
        status=outcome.status(http_status, failed=error.is_not_null()),
        http_status=http_status,
        error_kind=error,
        finish_reason=reason.replace("null", None),
        flags=flags,
    )


def _word(code: pl.Expr) -> pl.Expr:
    """The class of an error; a number is the HTTP status once more."""
    return pl.when(~code.str.contains(r"^\d+$")).then(code)


def _summed(fields: Fields) -> Fields:
    """An application's calls of models as one usage object, `application`, named by the first model."""
    if not fields.has("usage.models"):
        return fields
    entry, models = pl.element().struct, pl.col("usage.models").list
    sums = {
        f"application.{name}": models.eval(entry.field(name).cast(pl.Int64, strict=False))
        .list.sum()
        .cast(pl.String)
        for name in ("input_tokens", "output_tokens")
    }
    return Fields(
        fields.frame.with_columns(**sums, **{"application.model_id": models.first().struct.field("model_id")})
    )


FORMAT = Format(
    name="dashscope_generation",
    title="DashScope bodies",
    written_by="Clients and proxies that keep answers of DashScope's (Alibaba Model Studio's) native API",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold request_id, output (an object) and usage, or request_id and code",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", clock="utc"),
    traps=(
        "A body states neither time nor model: the line's are taken; else the file's time: time_from_file.",
        "Cached tokens stand in prompt_tokens_details, although the totals are called input and output.",
        "Whether tokens written to an explicit cache are part of input_tokens is unverified: taken as inside.",
        "Streams repeat request_id with counts so far: the last one counts.",
        "An application's usage.models are summed; the first one names the row's model.",
    ),
)
