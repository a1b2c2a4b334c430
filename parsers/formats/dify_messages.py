"""Dify's table `messages`: a row per answer of an app. JSON lines or arrays; its CSV dump, see `envelopes.py`.

A row sums up what the app asked of its model for one answer. Workflows' own nodes are in other tables. Texts are never
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_NEEDED = {"message_tokens", "answer_tokens", "provider_response_latency", "conversation_id"}
_NAMES = (
    *("id", "conversation_id", "app_id", "model_provider", "model_id", "from_account_id", "from_end_user_id"),
    *("message_tokens", "answer_tokens", "provider_response_latency", "total_price", "currency"),
    *("created_at", "status", "error", "from_source", "invoke_from", "workflow_run_id"),
)
_STOPPED = "stopped"


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    latency, cost, state = (
        fields.number("provider_response_latency"),
        fields.money("total_price"),
        text("status"),
    )
    error = outcome.error_kind(fields.raw("error"))
    took = (latency.value * 1000).round(6)
    return fields.rows(
        request_id=text("id"),
        record_key=text("id"),
        session_id=text("conversation_id"),
        started_at=fields.instant("created_at").needed("created_at"),
        duration_ms=pl.when(took > 0).then(took),
        project=text("app_id"),
        user=text("from_account_id"),
        end_user=text("from_end_user_id"),
        gateway=pl.lit("dify"),
        provider=text("model_provider").str.split("/").list.last(),
        model_requested=text("model_id"),
        operation=pl.lit("chat"),
        input_tokens=fields.whole("message_tokens"),
        output_tokens=fields.whole("answer_tokens"),
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(text("currency").fill_null("USD")),
        status=outcome.status(
            pl.lit(None, pl.Int32),
            failed=error.is_not_null() | (state == "error").fill_null(value=False),
            cancelled=state == _STOPPED,
        ),
        error_kind=error,
    )


FORMAT = Format(
    name="dify_messages",
    title="Dify messages",
    written_by="Dify: rows of the table messages as JSON, or as CSV of a database tool",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with message_tokens, answer_tokens, provider_response_latency and conversation_id",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys(_NAMES, "VARCHAR"),
    semantics=TokenSemantics(
        cache_read="absent",
        cache_write="absent",
        reasoning="inside",
        zero_means="unknown",
        retries="hidden",
        money="USD",
    ),
    traps=(
        "A row is one answer: agents and workflows may have asked several times; counts are the sum, 0 is unknown.",
        "provider_response_latency is in seconds; created_at is when the question came, in UTC.",
        "total_price is from Dify's own price list, in currency.",
        "Of model_provider the last part is kept (langgenius/openai/openai).",
    ),
)
