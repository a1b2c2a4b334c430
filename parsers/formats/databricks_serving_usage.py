"""Databricks system tables of model serving, a row per call: system.serving.endpoint_usage and system.ai_gateway.usage.

JSON lines or arrays of rows; as CSV or Parquet, see `envelopes.py`. Inference tables hold bodies, not these columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome, routes
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_SERVING = {"databricks_request_id", "served_entity_id", "request_time", "input_token_count"}
_GATEWAY = {"request_id", "event_time", "endpoint_name", "destination_model", "input_tokens"}
_DETAILS = ("cache_read_input_tokens", "cache_creation_input_tokens", "output_reasoning_tokens")
_TASKS = {"llm/v1/chat": "chat", "llm/v1/completions": "completion", "llm/v1/embeddings": "embedding"}
_NAMES = (
    *("account_id", "databricks_request_id", "client_request_id", "request_id", "requester", "status_code"),
    *("request_time", "event_time", "latency_ms", "time_to_first_byte_ms", "request_streaming"),
    *("input_token_count", "output_token_count", "input_tokens", "output_tokens", "total_tokens"),
    *("served_entity_id", "endpoint_name", "destination_name", "destination_model", "destination_type"),
    *("api_type", "url", "entity_name", "task"),
)


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _SERVING or item.keys() >= _GATEWAY)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    code = whole("status_code")
    request_id, kind = text("databricks_request_id", "request_id"), text("api_type", "task")
    in_route = routes.operation(text("url"))
    is_gateway = text("event_time").is_not_null()
    return fields.rows(
        request_id=request_id,
        record_key=request_id,
        call_id=text("client_request_id"),
        started_at=fields.instant("request_time", "event_time").needed("request_time"),
        duration_ms=fields.number("latency_ms"),
        ttft_ms=fields.number("time_to_first_byte_ms"),
        organization=text("account_id"),
        user=text("requester"),
        gateway=pl.lit("databricks"),
        provider=pl.lit("databricks"),
        model_requested=text("endpoint_name", "entity_name", "served_entity_id"),
        model_served=text("destination_model", "destination_name"),
        operation=pl.coalesce(
            kind.replace_strict(_TASKS, default=None, return_dtype=pl.String),
            routes.operation(pl.concat_str(pl.lit("/"), kind)).replace("other", None),
            in_route,
            pl.lit("other"),
        ),
        endpoint=routes.endpoint(text("url")),
        instance=text("served_entity_id"),
        stream=fields.truth("request_streaming"),
        input_tokens=whole("input_token_count", "input_tokens"),
        output_tokens=whole("output_token_count", "output_tokens"),
        cache_read_tokens=whole("token_details.cache_read_input_tokens"),
        cache_write_5m_tokens=whole("token_details.cache_creation_input_tokens"),
        reasoning_tokens=whole("token_details.output_reasoning_tokens"),
        _total_tokens=whole("total_tokens"),
        status=outcome.status(code.value),
        http_status=code,
        error_kind=pl.when(code.value >= outcome.HTTP_FAILED).then(pl.lit("unknown")),
        flags=pl.when(is_gateway)
        .then(pl.lit([], pl.List(pl.String)))
        .otherwise(pl.lit(["counts_may_be_estimated"])),
    )


FORMAT = Format(
    name="databricks_serving_usage",
    title="Databricks model serving usage",
    written_by="Databricks: rows of system.serving.endpoint_usage or system.ai_gateway.usage",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with databricks_request_id, served_entity_id and input_token_count, or with "
    "endpoint_name, destination_model and input_tokens",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(_NAMES, "VARCHAR"),
        "token_details": "JSON",
    },
    embedded={"token_details": dict.fromkeys(_DETAILS, "VARCHAR")},
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", zero_means="unknown", clock="utc"
    ),
    traps=(
        "endpoint_usage states a quarter of the text's length where the model states no count, without saying so:",
        "counts_may_be_estimated.",
        "The cache's tokens (token_details) are taken for part of input_tokens.",
        "endpoint_usage names no model and no duration: join system.serving.served_entities by served_entity_id.",
    ),
)
