"""Events that coding agents log through OpenTelemetry: what each says of a call to a model.

Belongs here: names of events and of their attributes (Claude Code, Codex, Gemini CLI, Qwen Code), and their mapping
to REQUESTS. Does not belong here: how a file holds the events (`formats/`), spans (`spans.py`).

A call ends with one event: Claude Code's `api_request` or `api_error`, Gemini CLI's `api_response` or `api_error`,
Codex's `sse_event` with counts. Codex's `api_request` and its other events of streams are calls only if they failed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.durations import before
from parsers.fields import Fields, Read
from parsers.format import TokenSemantics

if TYPE_CHECKING:
    from parsers.format import Context

_PREFIX = r"^(claude_code|gemini_cli|qwen-code|codex)\."
OF_AGENT = re.compile(r'"(?:claude_code|gemini_cli|qwen-code|codex)\.\w')
"""Text of a file that holds such events."""
_PROVIDERS = {"claude_code": "anthropic", "codex": "openai", "gemini_cli": "gemini", "qwen-code": "qwen"}
_OF_ANTHROPIC = ("cache_read_tokens", "cache_creation_tokens")
# Claude Code's message holds the body of the API's answer.
_CLASS_IN_MESSAGE = r'"type":\s*"(\w+_error)"'
_COUNTS = {
    "input": ("input_tokens", "input_token_count"),
    "output": ("output_tokens", "output_token_count"),
    "read": ("cache_read_tokens", "cached_content_token_count", "cached_token_count"),
    "written": ("cache_creation_tokens", "cache_write_token_count"),
    "reasoning": ("reasoning_token_count",),
    "thoughts": ("thoughts_token_count",),
    "total": ("total_token_count",),
}
_ATTRIBUTES = {
    "event": ("event.name",),
    "at": ("event.timestamp",),
    "sequence": ("event.sequence", "prompt_id"),
    "id": ("request_id", "response.id", "response_id"),
    "session_id": ("session.id", "conversation.id", "session_id"),
    "organization": ("organization.id",),
    "user": ("user.email", "user.account_uuid", "user.account_id", "user.id"),
    "model": ("model", "gen_ai.request.model"),
    "duration": ("duration_ms",),
    "ttft": ("ttft_ms",),
    "cost": ("cost_usd",),
    "attempt": ("attempt",),
    "status": ("status_code", "http.response.status_code"),
    "error_type": ("error_type", "error.type"),
    "error": ("error", "error.message", "error_message"),
    "tier": ("speed", "service_tier"),
    **_COUNTS,
    "tool": ("tool_token_count",),
}
NAMES = tuple(name for names in _ATTRIBUTES.values() for name in names)
"""Attributes that are read; a frame of events has each as `attributes.<name>`."""


def rows(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    """Map events: `attributes.<name>`, `body` (the event's full name, or a message) and `at` (text)."""
    fields = Fields(frame)

    def names(what: str) -> tuple[str, ...]:
        return tuple(f"attributes.{name}" for name in _ATTRIBUTES[what])

    def text(what: str) -> pl.Expr:
        return fields.text(*names(what))

    count = {kind: fields.whole(*names(kind)).value for kind in _COUNTS}
    at = fields.instant(*names("at"), "at").needed("event.timestamp")
    duration, http_status = fields.number(*names("duration")), _http_status(text("status"))
    product = pl.coalesce(text("event").str.extract(_PREFIX), fields.text("body").str.extract(_PREFIX))
    event, error = text("event").str.replace(_PREFIX, ""), text("error")
    of_codex = (product == "codex").fill_null(value=False)
    is_stream_end = of_codex & (event == "sse_event")
    broke = of_codex & event.is_in(["api_request", "sse_event"]) & error.is_not_null()
    failed = ((event == "api_error") | broke | (http_status >= outcome.HTTP_FAILED)).fill_null(value=False)
    is_call = (
        pl.when(of_codex)
        .then(
            (failed & event.is_in(["api_request", "sse_event"]))
            | (is_stream_end & text("input").is_not_null())
        )
        .when(product == "claude_code")
        .then(event.is_in(["api_request", "api_error"]))
        .otherwise(event.is_in(["api_response", "api_error"]))
    )
    # That of a stream's event is the time since the event before it.
    spent = pl.when(~is_stream_end.fill_null(value=False)).then(duration.value)
    # Gemini's own counts: what tools brought in, and thoughts, come on top; Codex calls its total "tool".
    of_tools = pl.when(~of_codex).then(fields.whole(*names("tool")).value)
    has_own = [fields.text(f"attributes.{name}").is_not_null() for name in _OF_ANTHROPIC]
    cost = fields.money(*names("cost"))
    return fields.rows(
        other=~(is_call & product.is_not_null()).fill_null(value=False),
        request_id=text("id"),
        record_key=pl.concat_str(
            *(each.fill_null("") for each in (text("session_id"), event, text("id"), text("sequence"))),
            at.value.dt.timestamp("us"),
            count["input"].fill_null(-1),
            count["output"].fill_null(-1),
            separator="|",
        ),
        started_at=Read(before(at.value, spent), at.fault),
        duration_ms=spent,
        ttft_ms=fields.number(*names("ttft")),
        **{name: text(name) for name in ("session_id", "organization", "user")},
        provider=product.replace_strict(_PROVIDERS, default=None, return_dtype=pl.String),
        model_requested=text("model"),
        operation=pl.when(of_codex).then(pl.lit("responses")).otherwise(pl.lit("chat")),
        attempt=fields.whole(*names("attempt")),
        service_tier=pl.when(text("tier") != "normal").then(text("tier")),
        input_tokens=count["input"] + of_tools.fill_null(0),
        output_tokens=count["output"] + count["thoughts"].fill_null(0),
        cache_read_tokens=count["read"],
        cache_write_5m_tokens=count["written"],
        reasoning_tokens=pl.coalesce(count["reasoning"], count["thoughts"]),
        _total_tokens=count["total"],
        _cache_outside=pl.when(pl.any_horizontal(has_own)).then(pl.lit(value=True)),
        status=outcome.status(
            http_status, failed=failed, cancelled=failed & error.str.contains(r"(?i)\b(?:abort|cancel)")
        ),
        http_status=http_status,
        error_kind=pl.when(failed).then(
            pl.coalesce(
                outcome.error_kind(text("error_type")),
                error.str.extract(_CLASS_IN_MESSAGE),
                pl.lit("unknown"),
            )
        ),
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
    )


def _http_status(stated: pl.Expr) -> pl.Expr:
    """The status; an error without one has the word undefined, or the name of an error, in its place."""
    return stated.str.extract(r"^(\d{3})$").cast(pl.Int64)


SEMANTICS = TokenSemantics(
    cache_read="inside", cache_write="inside", reasoning="inside", retries="hidden", money="USD"
)
TRAPS = (
    "An event is written when the call has ended: the start is earlier by duration_ms.",
    "Codex's event of usage has no duration of the call: its time is taken for the start.",
    "Claude Code's input_tokens leave cached tokens out; Gemini CLI's and Codex's have them.",
    "Gemini CLI's output leaves thoughts out and its input what tools brought in (tool): both are added.",
    "Codex's tool_token_count is the total of the call.",
    "cost_usd is the agent's own estimate at list prices.",
    "The same calls are in the agents' transcripts and spans, under other ids: read one of them.",
)
