"""Logs of Cloudflare AI Gateway: rows and pages of its logs API, and what Logpush delivers.

Logpush has another set of fields, without counts of tokens. Bodies and their encrypted copies are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import outcome, routes
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("id", "created_at", "provider", "model", "model_type", "path", "step", "tokens_in", "tokens_out"),
    *("cost", "duration", "cached", "success", "status_code"),
)
_OWNER = {
    "team": ("team", "team_id", "teamId"),
    "project": ("project", "app", "application"),
    "user": ("user", "user_id", "userId", "email"),
    "session_id": ("session_id", "sessionId", "session"),
}
_STRUCTURE: Structure = {**dict.fromkeys(_COLUMNS, "VARCHAR"), "metadata": "JSON"}
_EMBEDDED: dict[str, Structure] = {
    "metadata": dict.fromkeys((name for names in _OWNER.values() for name in names), "VARCHAR")
}
_NEEDED = {"created_at", "provider", "model", "tokens_in", "tokens_out"}
_PUSHED: Structure = {
    **dict.fromkeys(("Timestamp", "Gateway", "Provider", "RequestedModel", "Model", "Endpoint"), "VARCHAR"),
    **dict.fromkeys(("StatusCode", "Cached", "RoutingDecisionID"), "VARCHAR"),
    "Metrics": dict.fromkeys(("cost", "durationMs"), "VARCHAR"),
    "RequestBody": {"iv": "VARCHAR"},
}
_PUSHED_NEEDED = {"Timestamp", "Provider", "Model", "StatusCode", "Metrics"}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_pages(head: Head) -> bool:
    """A page may be larger than the head: the keys are looked for in its text."""
    keys = all(f'"{name}"' in head.text for name in ("result", *_NEEDED))
    return keys and head.text.lstrip().startswith("{") and not _recognise(head)


def _recognise_pushed(head: Head) -> bool:
    def is_event(item: dict[str, Any]) -> bool:
        return item.keys() >= _PUSHED_NEEDED and bool({"Gateway", "RequestedModel"} & item.keys())

    return mostly(head.objects, is_event)


def _operation(path: pl.Expr) -> pl.Expr:
    """Paths begin after the provider, some without a slash."""
    return routes.operation("/" + path.str.strip_prefix("/"))


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    step, cached, success = fields.whole("step"), fields.truth("cached"), fields.truth("success")
    http_status, path = fields.whole("status_code"), text("path")
    owner = {column: text(*(f"metadata.{name}" for name in names)) for column, names in _OWNER.items()}
    cost = fields.money("cost")
    return fields.rows(
        request_id=text("id"),
        record_key=text("id"),
        started_at=fields.instant("created_at").needed("created_at"),
        duration_ms=fields.number("duration"),
        attempt=step.value + 1,
        **owner,
        gateway=pl.lit("cloudflare"),
        provider=text("provider"),
        model_served=text("model"),
        operation=_operation(path),
        endpoint=routes.endpoint(path),
        input_tokens=fields.whole("tokens_in"),
        output_tokens=fields.whole("tokens_out"),
        status=outcome.status(http_status.value, failed=~success.value),
        http_status=http_status,
        response_cache_hit=cached,
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
    )


def _map_pushed(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    started, http_status = fields.instant("Timestamp").needed("Timestamp"), fields.whole("StatusCode")
    path, cost, counts = text("Endpoint"), fields.money("Metrics.cost"), pl.lit(None, dtype=pl.Int64)
    return fields.rows(
        record_key=pl.concat_str(
            [text("Gateway"), started.value.dt.timestamp("us"), text("RequestBody.iv", "RoutingDecisionID")],
            separator="|",
        ),
        started_at=started,
        duration_ms=fields.number("Metrics.durationMs"),
        gateway=pl.lit("cloudflare"),
        project=text("Gateway"),
        provider=text("Provider"),
        model_requested=text("RequestedModel"),
        model_served=text("Model"),
        operation=_operation(path),
        endpoint=routes.endpoint(path),
        input_tokens=counts,
        output_tokens=counts,
        status=outcome.status(http_status.value),
        http_status=http_status,
        response_cache_hit=fields.truth("Cached"),
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
    )


FORMAT = Format(
    name="cloudflare_ai_gateway",
    title="Cloudflare AI Gateway log rows, JSON",
    written_by="Cloudflare AI Gateway: rows of its logs API as JSON lines or as an array",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with created_at, provider, model, tokens_in and tokens_out",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="absent",
        cache_write="absent",
        reasoning="absent",
        zero_means="unknown",
        clock="utc",
        money="USD",
    ),
    traps=(
        "Cached tokens of the provider are not logged: whether tokens_in has them is the provider's way.",
        "cached is the gateway's own cache: such a row is neither demand nor cost of the provider.",
        "step above 0 is a fallback within one call of the client; nothing names the call.",
        "cost is the gateway's estimate, or the price that the request brought along (custom_cost).",
        "Counts of 0 and 0 mean that no usage was seen.",
    ),
)
PAGES_FORMAT = pages_twin(
    FORMAT,
    name="cloudflare_ai_gateway_pages",
    title="Cloudflare AI Gateway log pages",
    written_by="Cloudflare AI Gateway: answers of GET .../ai-gateway/gateways/{id}/logs",
    recognised_by="JSON objects with result that holds log rows",
    recognise=_recognise_pages,
    at=("result",),
)
PUSHED_FORMAT = Format(
    name="cloudflare_ai_gateway_logpush",
    title="Cloudflare AI Gateway events, Logpush",
    written_by="Cloudflare Logpush, data set ai_gateway_events",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with Timestamp, Provider, Model, StatusCode, Metrics and Gateway",
    recognise=_recognise_pushed,
    map=_map_pushed,
    structure=_PUSHED,
    semantics=TokenSemantics(
        cache_read="absent", cache_write="absent", reasoning="absent", clock="utc", money="USD"
    ),
    traps=(
        "There are no counts of tokens: usage is missing. They are in the encrypted bodies.",
        "Timestamp may be RFC 3339, seconds or nanoseconds, as the job was set up.",
        "Events have no id: where bodies are not stored, an event that was delivered twice is two rows.",
        "Cached events were answered by the gateway: neither demand nor cost of the provider.",
    ),
    priority=3,
)
