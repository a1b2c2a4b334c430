"""Azure API Management's LLM log: rows of the table ApiManagementGatewayLlmLog (JSON lines of a Log Analytics export, CSV
of a query), or resource logs of the category GatewayLlmLogs as storage blobs have them (PT1H.json).

One call has several rows with one CorrelationId: one with the counts, others with the parts of its messages. Columns of
ApiManagementGatewayLogs are read, too, where a query joined them. Messages are never read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from parsers import azure, outcome, restated
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COLUMNS = (
    *(
        "TimeGenerated",
        "CorrelationId",
        "RequestId",
        "OperationName",
        "Region",
        "DeploymentName",
        "ModelName",
    ),
    *("IsStreamCompletion", "PromptTokens", "CompletionTokens", "TotalTokens", "SequenceNumber"),
    *("ApimSubscriptionId", "TotalTime", "ResponseCode"),
)
_CATEGORY = "GatewayLlmLogs"
# What a resource log has beside its properties.
_AROUND = {"TimeGenerated": "time", "CorrelationId": "correlationId", "Region": "location"}
_BAG = "properties"
_NEEDED = {"CorrelationId", "DeploymentName", "ModelName", "PromptTokens", "CompletionTokens"}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_resource_logs(head: Head) -> bool:
    """Blobs may hold other categories of the gateway, too: those are no calls that this log counts."""
    logs = [item for item in head.objects if {"time", "category", _BAG} <= item.keys()]
    return mostly(head.objects, lambda item: item in logs) and any(
        item["category"] == _CATEGORY for item in logs
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    at = azure.logged_at(fields, "TimeGenerated")
    prompt, generated, total = whole("PromptTokens"), whole("CompletionTokens"), whole("TotalTokens")
    status, model = whole("ResponseCode"), text("ModelName")
    code = pl.when(status.value.is_between(0, 999)).then(status.value)
    has_counts = pl.coalesce(prompt.value, generated.value, total.value).fill_null(0) > 0
    is_broken = pl.any_horizontal(read.fault.is_not_null() for read in (prompt, generated, total))
    kind = azure.operation(text("OperationName"))
    rows = fields.rows(
        other=text("DeploymentName").is_null() & ~has_counts & ~is_broken,
        request_id=text("RequestId", "CorrelationId"),
        record_key=text("CorrelationId"),
        call_id=text("CorrelationId"),
        started_at=at.needed("TimeGenerated"),
        duration_ms=fields.number("TotalTime"),
        api_key_alias=text("ApimSubscriptionId"),
        gateway=pl.lit("azure-apim"),
        model_requested=text("DeploymentName"),
        model_served=model,
        operation=kind.fill_null("other"),
        stream=fields.truth("IsStreamCompletion"),
        region=text("Region"),
        input_tokens=prompt,
        output_tokens=pl.when(kind == "embedding")
        .then(generated.value.fill_null(0))
        .otherwise(generated.value),
        _total_tokens=total.value,
        status=outcome.status(code),
        http_status=code,
        error_kind=pl.when(code >= outcome.HTTP_FAILED).then(pl.lit("unknown")),
        finish_reason=pl.lit(None, pl.String),
    )
    return restated.hold(rows, context)


def _map_resource_logs(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """As rows of the table: most columns are in the properties, their first letter small or not."""
    bag = pl.col(_BAG).str
    inside = {
        name: pl.coalesce(
            bag.json_path_match(f"$.{name[0].lower()}{name[1:]}"), bag.json_path_match(f"$.{name}")
        )
        for name in _COLUMNS
        if name not in _AROUND
    }
    return FORMAT.map(frame.select("source_line", **_AROUND, **inside), context)


FORMAT = Format(
    name="azure_apim_llm_log",
    title="Azure API Management LLM log, JSON",
    written_by="Azure API Management: table ApiManagementGatewayLlmLog, exported by Log Analytics",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with CorrelationId, DeploymentName, ModelName, PromptTokens and CompletionTokens",
    recognise=_recognise,
    map=_map,
    finish=restated.fullest,
    structure=dict.fromkeys(_COLUMNS, "VARCHAR"),
    semantics=TokenSemantics(
        cache_read="absent",
        cache_write="absent",
        reasoning="inside",
        zero_means="unknown",
        clock="utc",
        retries="hidden",
    ),
    traps=(
        "Rows without a DeploymentName and counts hold parts of messages (SequenceNumber): other lines.",
        "Of a call's other rows the one with the most output tokens counts; its parts may be in any order.",
        "Cached tokens are not logged; counts of 0 and 0 mean that none came.",
        "Callers, durations and HTTP statuses are in ApiManagementGatewayLogs: join it by CorrelationId.",
        "Attempts that the gateway makes at other backends are hidden.",
        "The portal's CSV writes times as 5/4/2026, 9:20:46.123 AM under TimeGenerated [UTC].",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed=_NEEDED,
    written_by="Azure API Management: table ApiManagementGatewayLlmLog as CSV of a query",
)

RESOURCE_LOG_FORMAT = replace(
    FORMAT,
    name="azure_apim_llm_resource_log",
    title="Azure API Management LLM log, resource logs",
    written_by="Azure Monitor diagnostic settings of Azure API Management: storage blobs (PT1H.json), Event Hub",
    recognised_by="JSON objects with time, properties and the category GatewayLlmLogs",
    recognise=_recognise_resource_logs,
    map=_map_resource_logs,
    structure={
        **dict.fromkeys(("category", "time", "correlationId", "location"), "VARCHAR"),
        _BAG: "JSON",
    },
    embedded={_BAG: "JSON"},
    priority=1,
)
