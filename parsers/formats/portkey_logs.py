"""Portkey's log exports: one JSON object per call, with the fields that the export asked for.

The log stream of the open source gateway is another format, if it was saved at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome, routes, usage
from parsers.clock import flag_list
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("id", "trace_id", "span_id", "created_at", "time_of_generation", "is_success", "ai_org", "ai_model"),
    *(
        "req_units",
        "res_units",
        "total_units",
        "cost",
        "cost_currency",
        "request_url",
        "response_status_code",
    ),
    *("response_time", "cache_status", "stream_mode", "workspace_slug", "virtual_key"),
)
_EMBEDDED: dict[str, Structure] = {
    "request": {
        "body": {
            "model": "VARCHAR",
            "max_tokens": "VARCHAR",
            "max_completion_tokens": "VARCHAR",
            "stream": "VARCHAR",
        }
    },
    "response": {
        "body": {
            "model": "VARCHAR",
            "type": "VARCHAR",
            "service_tier": "VARCHAR",
            "usage": usage.USAGE,
            "choices": [{"finish_reason": "VARCHAR"}],
            "error": {"type": "VARCHAR", "code": "VARCHAR"},
        }
    },
    "metadata": dict.fromkeys(("_user", "user", "team", "project", "session_id"), "VARCHAR"),
}
_NEEDED = {"ai_org", "ai_model", "req_units", "res_units"}
_CENTS = 100


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    counts = usage.counts(fields, ("response.body.usage",))
    prompt, completion = counts.prompt.value, counts.completion.value
    row_prompt, row_completion, row_total = whole("req_units"), whole("res_units"), whole("total_units")
    detail = usage.columns(counts, pl.lit(value=True))
    total = pl.coalesce(detail.pop("_total_tokens"), row_total.value)
    given_input, given_output = (
        pl.coalesce(prompt, row_prompt.value),
        pl.coalesce(completion, row_completion.value),
    )
    # Without the body nothing but the total has the cached tokens of Claude.
    is_claude = (text("ai_org") == "anthropic") | text("ai_model").str.contains("(?i)claude")
    has_parts = counts.cache_read.value.is_not_null() | counts.cache_write.value.is_not_null()
    is_total_only = is_claude & ~has_parts & (total > given_input + given_output)
    path = text("request_url")
    http_status = whole("response_status_code")
    success, cost = fields.truth("is_success").value, fields.money("cost")
    currency = text("cost_currency").str.to_uppercase().fill_null("USD")
    is_raw_claude = text("response.body.type") == "message"
    error = pl.coalesce(outcome.error_kind(text(f"response.body.error.{name}")) for name in ("type", "code"))
    status = outcome.status(http_status.value, failed=~success)
    return fields.rows(
        request_id=text("id"),
        record_key=text("id"),
        trace_id=text("trace_id"),
        session_id=text("metadata.session_id"),
        started_at=fields.instant("created_at", "time_of_generation").needed("created_at"),
        duration_ms=fields.number("response_time"),
        team=text("metadata.team"),
        project=text("metadata.project", "workspace_slug"),
        user=text("metadata._user", "metadata.user"),
        api_key_alias=text("virtual_key"),
        gateway=pl.lit("portkey"),
        provider=text("ai_org"),
        model_requested=text("request.body.model", "ai_model"),
        model_served=text("response.body.model", "ai_model"),
        operation=routes.operation(path),
        endpoint=routes.endpoint(path),
        stream=fields.truth("stream_mode", "request.body.stream"),
        service_tier=text("response.body.service_tier"),
        max_output_tokens=whole("request.body.max_completion_tokens", "request.body.max_tokens"),
        input_tokens=pl.when(is_total_only).then(total - given_output).otherwise(given_input),
        output_tokens=given_output,
        _total_tokens=pl.when(is_raw_claude.fill_null(value=False)).then(None).otherwise(total),
        _cache_outside=pl.when(is_raw_claude).then(pl.lit(value=True)),
        **detail,
        status=status,
        http_status=pl.when(http_status.value > 0).then(http_status.value),
        error_kind=pl.when(status == "error").then(error.fill_null("unknown")),
        finish_reason=_finish_reason(fields),
        response_cache_hit=text("cache_status")
        .str.to_uppercase()
        .is_in(["HIT", "SEMANTIC HIT"])
        .fill_null(value=False),
        cost_reported=pl.when(currency == "USD").then(cost.value / _CENTS).otherwise(cost.value),
        cost_currency=currency,
        flags=flag_list({"input_from_total": is_total_only}),
        other=text("ai_org").is_null() & text("created_at", "time_of_generation").is_null(),
    )


def _finish_reason(fields: Fields) -> pl.Expr:
    if not fields.has("response.body.choices"):
        return pl.lit(None, dtype=pl.String)
    return pl.col("response.body.choices").list.first().struct.field("finish_reason")


FORMAT = Format(
    name="portkey_logs",
    title="Portkey log export, JSON",
    written_by="Portkey: log exports",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with ai_org, ai_model, req_units and res_units",
    recognise=_recognise,
    map=_map,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside",
        cache_write="inside",
        reasoning="inside",
        zero_means="unknown",
        retries="hidden",
        money="USD",
    ),
    traps=(
        "cost is in US cents.",
        "Cached tokens are in response.body.usage only, and only if the export asked for the response.",
        "Of Claude the prompt leaves cached tokens out while the total has them: the row's total shows it.",
        "Of Claude without a body the input is the total less the output: input_from_total.",
        "cache_status HIT and SEMANTIC HIT are answers of the gateway's own cache.",
        "Retries within the gateway are one row.",
        "Reasoning that a translation from Gemini left out of completion_tokens shows in the total.",
    ),
)

CSV_FORMAT = csv_twin(FORMAT, needed=_NEEDED | {"created_at"}, written_by="Portkey: log exports saved as CSV")
