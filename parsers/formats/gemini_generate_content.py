"""Gemini and Vertex AI generateContent: response bodies, lines that hold them, and results of batches.

Covers usageMetadata in camelCase (REST) and usage_metadata in snake_case (SDK dumps), the Live API's counts,
embeddings, and streams that were kept as JSON (an array or lines of chunks). The OpenAI-compatible endpoint and
event streams have formats of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.fields import Read
    from parsers.format import Context, Head

_COUNTS = {
    "prompt": ("promptTokenCount", "prompt_token_count"),
    "cached": ("cachedContentTokenCount", "cached_content_token_count"),
    "candidates": (
        *("candidatesTokenCount", "candidates_token_count"),
        *("responseTokenCount", "response_token_count"),
    ),
    "thoughts": ("thoughtsTokenCount", "thoughts_token_count"),
    "tools": ("toolUsePromptTokenCount", "tool_use_prompt_token_count"),
    "total": ("totalTokenCount", "total_token_count"),
}
_TIERS = ("serviceTier", "service_tier", "trafficType", "traffic_type")
_BY_MODALITY = [{"modality": "VARCHAR", "tokenCount": "VARCHAR", "token_count": "VARCHAR"}]
_DETAILS = {
    "input": ("promptTokensDetails", "prompt_tokens_details"),
    "output": ("candidatesTokensDetails", "candidates_tokens_details", "responseTokensDetails"),
}
_USAGE = {
    **dict.fromkeys((*(name for names in _COUNTS.values() for name in names), *_TIERS), "VARCHAR"),
    **{name: _BY_MODALITY for names in _DETAILS.values() for name in names},
}
_AT = ("usageMetadata", "usage_metadata")
STATED = tuple(f"{at}.{name}" for at in _AT for name in (*_COUNTS["prompt"], *_COUNTS["total"]))
"""Fields of which every body has one."""
_NAMES = {
    "id": ("responseId", "response_id"),
    "model": ("modelVersion", "model_version"),
    "time": ("createTime", "create_time"),
}
BODY = {
    **dict.fromkeys((name for names in _NAMES.values() for name in names), "VARCHAR"),
    "model": "VARCHAR",
    "candidates": [{"finishReason": "VARCHAR", "finish_reason": "VARCHAR"}],
    "promptFeedback": {"blockReason": "VARCHAR"},
    "prompt_feedback": {"block_reason": "VARCHAR"},
    "error": "JSON",
    **dict.fromkeys(_AT, _USAGE),
}
_STRUCTURE, _EMBEDDED = bodies.structure(BODY)


def is_body(item: dict[str, Any]) -> bool:
    """A body with counts; embeddings state a prompt alone."""
    for name in _AT:
        stated = item.get(name)
        if isinstance(stated, dict) and set(_COUNTS["prompt"] + _COUNTS["total"]) & stated.keys():
            return True
    return False


def _recognise(head: Head) -> bool:
    """Among bodies of other APIs they are `openai_usage`'s, which reads all three."""
    return bodies.recognise(head, is_body) and not bodies.is_mixed(
        head, lambda body: isinstance(body.get("usage"), dict)
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, BODY)
    text = fields.text
    started, flags = bodies.started(fields, context, *_NAMES["time"])
    counts = {key: _stated(fields, names) for key, names in _COUNTS.items()}
    prompt, tools, thoughts = (counts[key].value for key in ("prompt", "tools", "thoughts"))
    whole_input = prompt + tools.fill_null(0)
    # Absent where nothing was said: blocked, or all spent on thoughts. An embedding generates nothing.
    unsaid = (counts["total"].value - whole_input - thoughts.fill_null(0)).clip(lower_bound=0)
    blocked = text("promptFeedback.blockReason", "prompt_feedback.block_reason")
    reason, error = _finish_reason(fields), outcome.error_kind(fields.raw("error"), ("status", "code"))
    answer_id, http_status = text(*_NAMES["id"]), bodies.http_status(fields)
    is_call = prompt.is_not_null() | counts["total"].value.is_not_null() | error.is_not_null()
    parts = {
        f"{kind.lower()}_{side}_tokens": _part(fields, names, kind)
        for side, names in _DETAILS.items()
        for kind in ("AUDIO", "IMAGE")
    }
    return fields.rows(
        other=~is_call | _is_part(fields, answer_id, reason),
        request_id=answer_id,
        record_key=answer_id,
        started_at=started,
        **bodies.columns(fields),
        model_served=text(*_NAMES["model"], "model"),
        operation=pl.when(
            _has_candidates(fields) | blocked.is_not_null() | counts["total"].value.is_not_null()
        )
        .then(pl.lit("chat"))
        .otherwise(pl.lit("embedding")),
        service_tier=pl.when(bodies.is_batch(fields))
        .then(pl.lit("batch"))
        .otherwise(text(*(f"{at}.{name}" for name in _TIERS for at in _AT))),
        input_tokens=whole_input,
        cache_read_tokens=counts["cached"].value,
        output_tokens=pl.coalesce(counts["candidates"].value, unsaid, pl.when(prompt.is_not_null()).then(0)),
        reasoning_tokens=thoughts,
        _total_tokens=counts["total"].value,
        **parts,
        status=outcome.status(http_status, failed=error.is_not_null()),
        http_status=http_status,
        error_kind=error,
        finish_reason=pl.coalesce(reason, blocked),
        flags=flags,
    )


def _stated(fields: Fields, names: tuple[str, ...]) -> Read:
    return fields.whole(*(f"{at}.{name}" for at in _AT for name in names))


def _part(fields: Fields, names: tuple[str, ...], kind: str) -> pl.Expr:
    """Tokens of one modality; details need not add up to their parent, and may lack a number."""
    found = [column for at in _AT for name in names if fields.has(column := f"{at}.{name}")]
    if not found:
        return pl.lit(None, dtype=pl.Int64)
    entry = pl.element().struct
    number = pl.coalesce(entry.field("tokenCount"), entry.field("token_count")).cast(pl.Int64, strict=False)
    numbers = pl.coalesce(found).list.eval(pl.when(entry.field("modality") == kind).then(number)).list
    return pl.when(numbers.drop_nulls().list.len() > 0).then(numbers.sum())


def _has_candidates(fields: Fields) -> pl.Expr:
    return pl.col("candidates").is_not_null() if fields.has("candidates") else pl.lit(value=False)


def _finish_reason(fields: Fields) -> pl.Expr:
    if not fields.has("candidates"):
        return pl.lit(None, dtype=pl.String)
    first = pl.col("candidates").list.first().struct
    return pl.coalesce(first.field("finishReason"), first.field("finish_reason"))


def _is_part(fields: Fields, answer_id: pl.Expr, reason: pl.Expr) -> pl.Expr:
    """Chunks of a stream before its last one: the same id follows, or, without ids, the text goes on."""
    goes_on = answer_id.is_null() & reason.is_null() & _has_candidates(fields)
    is_followed = pl.int_range(pl.len()) < pl.len() - 1
    return bodies.outdone(answer_id) | (goes_on & is_followed)


FORMAT = Format(
    name="gemini_generate_content",
    title="Gemini generateContent bodies",
    written_by="Clients and proxies that keep response bodies of Gemini or Vertex AI; results of batches",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold a body with usageMetadata (or usage_metadata) of token counts",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="outside", clock="utc"),
    traps=(
        "Times: the line's, else createTime (Vertex), else the file's, flagged time_from_file.",
        "Input is promptTokenCount + toolUsePromptTokenCount; output is candidates + thoughts.",
        "candidatesTokenCount is absent where nothing was said: then it is what the total leaves.",
        "Details by modality need not add up, and are read for audio and images only.",
        "Of chunks kept as JSON the last one counts: promptTokenCount can fall in it.",
        "The requested model is only in the URL, if the line has one. A cache's storage is in no field.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
