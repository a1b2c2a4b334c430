"""OpenAI-style response bodies, lines that hold them or a usage object, and results of OpenAI batches.

Covers chat completions, completions, responses, embeddings, images, transcriptions and realtime responses of OpenAI
and of servers that speak its dialect (DeepSeek, Qwen, Mistral, xAI, Groq, Moonshot, Zhipu, Perplexity, MiniMax,
OpenRouter, Gemini's compatible endpoint, vLLM ...), and home-made lines such as {"timestamp": ..., "model": ...,
"usage": {...}}; among them, bodies of Anthropic and Gemini. Files of those alone and event streams have their own
formats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import bodies, outcome, usage
from parsers.fields import Read
from parsers.format import Format, TokenSemantics
from parsers.formats import gemini_generate_content as gemini
from parsers.records import MONEY, REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.fields import Fields
    from parsers.format import Context, Head

_COUNTS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "total_tokens")
_USAGE = {
    **usage.USAGE,
    # OpenAI's transcriptions; Perplexity; Groq; what a call cost (Perplexity: an object; OpenRouter; xAI)
    "type": "VARCHAR",
    **dict.fromkeys(("citation_tokens", "num_search_queries"), "VARCHAR"),
    **dict.fromkeys(("queue_time", "total_time"), "VARCHAR"),
    **dict.fromkeys(("cost_in_usd_ticks", "is_byok"), "VARCHAR"),
    "cost": "JSON",
    "cost_details": {"upstream_inference_cost": "VARCHAR"},
}
_BODY = {
    **dict.fromkeys(("id", "object", "type", "model", "status", "stop_reason"), "VARCHAR"),
    **dict.fromkeys(("service_tier", "output_format"), "VARCHAR"),
    **dict.fromkeys(("created", "created_at", "completed_at", "max_output_tokens", *_COUNTS), "VARCHAR"),
    "choices": [{"finish_reason": "VARCHAR"}],
    "incomplete_details": {"reason": "VARCHAR"},
    "base_resp": {"status_code": "VARCHAR"},
    "metrics": dict.fromkeys(("queue_time_ms", "time_to_first_token_ms", "generation_time_ms"), "VARCHAR"),
    "error": "JSON",
    "usage": _USAGE,
}
_BODIES = {**gemini.BODY, **_BODY}
_STRUCTURE, _EMBEDDED = bodies.structure(_BODIES)
_DIALECT = ({"prompt_tokens", "total_tokens"}, {"input_tokens", "total_tokens"})
_WITHOUT_TOTAL = ({"prompt_tokens", "completion_tokens"}, {"input_tokens", "output_tokens"})
_OPERATIONS = {
    "chat.completion": "chat",
    "chat.completion.chunk": "chat",
    "text_completion": "completion",
    "response": "responses",
    "realtime.response": "audio",
    "list": "embedding",
    "embedding": "embedding",
}
_UNFINISHED = ("queued", "in_progress")
_CHUNK = "chat.completion.chunk"
# Events of the Responses and Realtime APIs that were kept as JSON: these hold the answer as it ended.
_LAST_EVENTS = r"^response\.(?:completed|incomplete|failed|cancelled|done)$"
_XAI_TICKS_PER_USD = 10**10


def _is_body(item: dict[str, Any]) -> bool:
    """A body with a usage object of the dialect (or with null for it), a line with its counts, or a batch's."""
    kind, stated = str(item.get("object")), item.get("usage", item)
    # Bodies of Anthropic, Gemini and DashScope; chunks of a stream.
    is_other_api = (
        "usageMetadata" in item or isinstance(item.get("output"), dict) or item.get("type") == "message"
    )
    if is_other_api or kind == _CHUNK:
        return False
    if {"custom_id", "response", "error"} <= item.keys() or (kind == "chat.completion" and "choices" in item):
        return True
    if not isinstance(stated, dict):
        # Null on a completion: a chunk of a stream.
        return stated is None and kind in _OPERATIONS and kind != "text_completion"
    # Embeddings and rerankers of some servers state a total alone; transcriptions may count seconds.
    if kind == "list" or stated.get("type") == "duration":
        return bool({"total_tokens", "seconds"} & stated.keys())
    is_named = "model" in item and (stated is not item or bool(bodies.TIMES & item.keys()))
    known = (*_DIALECT, *_WITHOUT_TOTAL) if is_named else _DIALECT
    return not usage.is_anthropic(stated) and any(names <= stated.keys() for names in known)


def _is_anthropic(item: dict[str, Any]) -> bool:
    return usage.is_anthropic(item.get("usage")) and str(item.get("type", "message")) == "message"


def _recognise(head: Head) -> bool:
    """Logs of one's own may mix APIs: lines of Anthropic and Gemini count, unless they have their own format."""
    of_any_api = bodies.recognise(
        head, lambda item: _is_body(item) or _is_anthropic(item) or gemini.is_body(item)
    )
    has_gemini = bodies.is_mixed(head, gemini.is_body)
    return of_any_api and not (
        gemini.FORMAT.recognise(head) if has_gemini else bodies.recognise(head, _is_anthropic)
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = bodies.lifted(frame, _BODIES)
    of_gemini = fields.series(fields.raw(*gemini.STATED).is_not_null())
    if not of_gemini.any():
        return _rows(fields, context)
    parts = [gemini.FORMAT.map(frame.filter(of_gemini), context)]
    if not of_gemini.all():
        parts.append(_rows(bodies.lifted(frame.filter(~of_gemini), _BODIES), context))
    return pl.concat(parts, how="diagonal_relaxed")


def _rows(fields: Fields, context: Context) -> pl.DataFrame:
    text = fields.text
    kind, state, error = text("object"), text("status"), outcome.error_kind(fields.raw("error"))
    counts, is_additive = _counts(fields)
    is_embedding = kind.is_in(["list", "embedding"]).fill_null(value=False)
    of_anthropic = usage.leaves_cache_out(fields, "usage").fill_null(value=False)
    untimed = pl.any_horizontal(
        is_embedding,
        kind == "realtime.response",
        text("type") == "message",
        text("usage.type", "custom_id").is_not_null(),
        error.is_not_null(),
    )
    started, flags = bodies.started(fields, context, "created", "created_at", untimed=untimed)
    # Neither the wrapper's time nor the file's is the record's own.
    stated_at = fields.instant("created", "created_at").value
    key_at = pl.when(flags.list.len() == 0).then(pl.coalesce(stated_at, started.value))
    # Home-made lines have an HTTP status where OpenAI's Responses have a word.
    http_status = bodies.http_status(fields, "status")
    prompt, generated, total = counts.prompt.value, counts.completion.value, counts.total.value
    # Embedding bodies state no completion, some no prompt either: they generate nothing.
    says_nothing = generated.is_null() & (is_embedding | (total == prompt))
    output = pl.when(says_nothing).then(0).otherwise(generated)
    cost = _cost(fields)
    is_call = pl.any_horizontal(
        each.is_not_null()
        for each in (prompt, generated, total, kind, error, text("model", "usage.type", "custom_id"))
    )
    # Batches number their parts alike (custom_id): that is no key and links no attempts.
    request_id, body_id = text("request_id", "id", "custom_id"), text("id")
    refused = fields.whole("base_resp.status_code").value != 0
    return fields.rows(
        other=~is_call | _is_part(fields, kind, body_id, prompt),
        request_id=request_id,
        record_key=pl.concat_str(
            [body_id, key_at.dt.timestamp("us").cast(pl.String).fill_null("")], separator="|"
        ),
        started_at=started,
        **bodies.columns(fields)
        | _server_times(fields)
        | {"ended_at": fields.instant("ended_at", "completed_at")},
        model_served=text("model"),
        operation=pl.when(of_anthropic).then(pl.lit("chat")).otherwise(_operation(fields, kind)),
        service_tier=pl.when(bodies.is_batch(fields)).then(pl.lit("batch")).otherwise(text("service_tier")),
        input_tokens=pl.when(is_embedding).then(pl.coalesce(prompt, total)).otherwise(prompt),
        output_tokens=output,
        **usage.columns(counts, pl.lit(value=True)),
        _cache_outside=pl.when(of_anthropic).then(pl.lit(value=True)),
        status=outcome.status(
            http_status,
            failed=error.is_not_null() | refused | state.is_in(["failed", "error", "failure"]),
            cancelled=state.is_in(["cancelled", "canceled"]),
        ),
        http_status=pl.when(http_status >= 100).then(http_status),  # noqa: PLR2004
        error_kind=error,
        finish_reason=_finish_reason(fields),
        cost_reported=cost,
        cost_currency=pl.when(cost.is_not_null()).then(pl.lit("USD")),
        flags=pl.when(is_additive).then(flags.list.concat(pl.lit(["citations_added"]))).otherwise(flags),
    )


def _counts(fields: Fields) -> tuple[usage.Counts, pl.Expr]:
    """The counts, and whether they are Perplexity's: citations and reasoning beside prompt and completion."""
    stated = usage.counts(fields, ("usage",))
    citations = fields.whole("usage.citation_tokens")
    is_additive = citations.value.is_not_null()

    def added(read: Read, more: pl.Expr) -> Read:
        return Read(
            pl.when(is_additive).then(read.value + more.fill_null(0)).otherwise(read.value), read.fault
        )

    return (
        replace(
            stated,
            prompt=added(stated.prompt, citations.value),
            completion=added(stated.completion, stated.reasoning.value),
            total=Read(pl.when(~is_additive).then(stated.total.value), stated.total.fault),
        ),
        is_additive,
    )


def _cost(fields: Fields) -> pl.Expr:
    """What the provider says that a call cost, in USD; with one's own key the upstream's bill comes on top."""
    cost = fields.raw("usage.cost")
    stated = pl.coalesce(cost.str.json_path_match("$.total_cost"), cost)
    upstream = fields.money("usage.cost_details.upstream_inference_cost").value
    is_byok = fields.truth("usage.is_byok").value
    ticks = fields.money("usage.cost_in_usd_ticks").value / _XAI_TICKS_PER_USD
    dollars = stated.cast(MONEY, strict=False) + pl.when(is_byok).then(upstream.fill_null(0)).otherwise(0)
    return pl.coalesce(dollars, ticks)


def _server_times(fields: Fields) -> dict[str, pl.Expr]:
    """Groq's clock (in seconds) and vLLM's (`metrics`): the wait, and the work after it, first token and all."""
    queue = _milliseconds(fields, "usage.queue_time", "metrics.queue_time_ms")
    work = _milliseconds(fields, "usage.total_time", "metrics.generation_time_ms")
    first = queue.fill_null(0) + fields.number("metrics.time_to_first_token_ms").value
    return {
        "queue_ms": queue,
        "ttft_ms": pl.coalesce(fields.number("ttft_ms").value, first.round(6)),
        "duration_ms": pl.coalesce(
            fields.number("duration_ms", "latency_ms").value, (queue.fill_null(0) + work).round(6)
        ),
    }


def _milliseconds(fields: Fields, seconds: str, milliseconds: str) -> pl.Expr:
    stated = fields.number(seconds).value * 1000
    return pl.coalesce(stated, fields.number(milliseconds).value).round(6)


def _operation(fields: Fields, kind: pl.Expr) -> pl.Expr:
    """From the kind of body, else from the route; transcriptions and images state no kind."""
    is_image = fields.text("output_format").is_not_null()
    return (
        pl.when(kind.is_null() & fields.text("usage.type").is_not_null())
        .then(pl.lit("audio"))
        .when(kind.is_null() & is_image)
        .then(pl.lit("image"))
        .otherwise(
            pl.coalesce(
                kind.replace_strict(_OPERATIONS, default=None, return_dtype=pl.String),
                bodies.operation(fields),
                pl.lit("other"),
            )
        )
    )


def _is_part(fields: Fields, kind: pl.Expr, body_id: pl.Expr, prompt: pl.Expr) -> pl.Expr:
    """What tells of an answer before its end: chunks and events of a stream that was kept as JSON, but for the one
    that has the usage; a response that runs in the background, which is told again when it is asked for again.
    """
    event, state = fields.text("type"), fields.text("status")
    is_event = event.str.contains(r"^response\.") & ~event.str.contains(_LAST_EVENTS)
    is_chunk = (kind == _CHUNK).fill_null(value=False)
    is_open = (is_event | state.is_in(_UNFINISHED)).fill_null(value=False)
    return is_open | (is_chunk & bodies.outdone(body_id, prompt.is_not_null()))


def _finish_reason(fields: Fields) -> pl.Expr:
    reason = fields.text("incomplete_details.reason", "stop_reason")
    if not fields.has("choices"):
        return reason
    return pl.coalesce(pl.col("choices").list.first().struct.field("finish_reason"), reason)


FORMAT = Format(
    name="openai_usage",
    title="OpenAI-style response or usage lines",
    written_by="Clients and gateways that keep response bodies of OpenAI-compatible APIs; results of batches",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects that are or hold usage of prompt_tokens (or input_tokens), and a total or a model",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", money="USD"
    ),
    traps=(
        "created is the start of generation in whole seconds; a time beside the body comes first.",
        "A chat body or line without any time is rejected; embeddings, transcriptions, realtime responses,",
        "errors and batches' results may state none: then the file's time, flagged time_from_file.",
        "Lines of Anthropic's dialect between them (cache fields, no total_tokens) have the cache outside,",
        "lines of Gemini's the thoughts outside of the output: reasoning_outside_output.",
        "xAI leaves reasoning out of completion_tokens, Gemini's endpoint hides it: total_tokens shows both.",
        "Perplexity's citation_tokens and reasoning_tokens are added to prompt and completion: citations_added.",
        "cached_tokens and cache_write_tokens may together exceed prompt_tokens: they are cut to it.",
        "usage of null (streamed without include_usage) is unknown, not zero. Audio by the second has no tokens.",
        "Of chunks kept as JSON the last one with usage counts; they are cumulative.",
        "A batch's results are of the tier batch.",
        "vLLM's metrics count from scheduling: its wait (queue_time_ms) is added to the first token and the end.",
        "cost is OpenRouter's or Perplexity's charge in USD, xAI's ticks are 1e-10 USD.",
        "At OpenRouter with one's own key (is_byok) the upstream's cost is added: it is not part of cost.",
    ),
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
