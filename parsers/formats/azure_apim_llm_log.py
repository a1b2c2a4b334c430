"""Azure API Management's table ApiManagementGatewayLlmLog: JSON lines of a Log Analytics export, or CSV of a query.

One call has several rows with one CorrelationId: one with the counts, others with the parts of its messages. Columns of
ApiManagementGatewayLogs are read, too, where a query joined them. Messages are never read.
"""

from __future__ import annotations

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
_NEEDED = {"CorrelationId", "DeploymentName", "ModelName", "PromptTokens", "CompletionTokens"}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


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
