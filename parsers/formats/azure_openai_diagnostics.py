"""Azure OpenAI diagnostic logs of the category RequestResponse: JSON lines of storage blobs, Event Hub batches, and
rows of the table AzureDiagnostics as CSV.

They state who called what and how long it took, and no tokens. Other categories and management calls are no records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import azure, outcome
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_CATEGORY = "RequestResponse"
# As the blob has them and as the table has them.
_NAMES = {
    "category": ("category", "Category"),
    "time": ("time", "TimeGenerated"),
    "id": ("correlationId", "CorrelationId"),
    "operation": ("operationName", "OperationName"),
    "status": ("resultSignature", "ResultSignature"),
    "duration": ("durationMs", "DurationMs"),
    "resource": ("resourceId", "ResourceId", "_ResourceId"),
    "region": ("location", "Tenant", "location_s"),
}
_PROPERTIES = dict.fromkeys(
    (
        "requestTime",
        "responseTime",
        "streamType",
        "modelDeploymentName",
        "modelName",
        "modelVersion",
        "objectId",
    ),
    "VARCHAR",
)
_BAGS = ("properties", "properties_s")
_STRUCTURE = {
    **dict.fromkeys(("category", "time", "correlationId", "operationName", "resultSignature"), "VARCHAR"),
    **dict.fromkeys(("durationMs", "resourceId", "location", "Tenant"), "VARCHAR"),
    "properties": "JSON",
}


def _is_record(item: dict[str, Any]) -> bool:
    return item.get("category") in (_CATEGORY, "Audit", "Trace") and item.keys() >= {
        "operationName",
        "correlationId",
        "properties",
    }


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_record)


def _recognise_batch(head: Head) -> bool:
    text = head.text
    keys = all(word in text for word in ('"records"', f'"{_CATEGORY}"', '"operationName"', '"correlationId"'))
    return keys and text.lstrip().startswith("{") and not _recognise(head)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text

    def bag(name: str) -> tuple[str, ...]:
        return tuple(f"{bag}.{name}" for bag in _BAGS)

    received = fields.instant(*bag("requestTime"), unit="ticks")
    at, ended = azure.logged_at(fields, *_NAMES["time"]), fields.instant(*bag("responseTime"), unit="ticks")
    started = pl.coalesce(received.value, at.value)
    http_status = fields.whole(*_NAMES["status"])
    code = pl.when(http_status.value.is_between(0, 999)).then(http_status.value)
    deployment, stream = text(*bag("modelDeploymentName")), text(*bag("streamType")).str.to_lowercase()
    kind = azure.operation(text(*_NAMES["operation"]))
    is_foreign = (text(*_NAMES["category"]) != _CATEGORY).fill_null(value=False)
    return fields.rows(
        other=is_foreign | (kind.is_null() & deployment.is_null()),
        request_id=text(*_NAMES["id"]),
        # A correlation id may be on several calls.
        record_key=pl.concat_str(text(*_NAMES["id"]), started.dt.timestamp("us"), separator="|"),
        call_id=text(*_NAMES["id"]),
        started_at=started,
        ended_at=ended,
        duration_ms=pl.when(received.value.is_null() | ended.value.is_null()).then(
            fields.number(*_NAMES["duration"]).value
        ),
        user=text(*bag("objectId")),
        gateway=pl.lit("azure-openai"),
        provider=pl.lit("azure"),
        model_requested=deployment,
        model_served=pl.concat_str(
            text(*bag("modelName")), text(*bag("modelVersion")), separator="-", ignore_nulls=True
        ),
        operation=kind.fill_null("other"),
        endpoint=text(*_NAMES["operation"]),
        instance=text(*_NAMES["resource"]).str.split("/").list.last(),
        region=text(*_NAMES["region"]),
        stream=pl.when(stream == "streaming")
        .then(pl.lit(value=True))
        .when(stream == "non-streaming")
        .then(pl.lit(value=False)),
        status=outcome.status(code),
        http_status=code,
        error_kind=pl.when(code >= outcome.HTTP_FAILED).then(pl.lit("unknown")),
        usage_origin=pl.lit("missing"),
    ).with_columns(
        _reject=pl.coalesce(
            "_reject", pl.when(pl.col("started_at").is_null()).then(pl.lit("time is missing"))
        )
    )


FORMAT = Format(
    name="azure_openai_diagnostics",
    title="Azure OpenAI diagnostic log, JSON",
    written_by="Azure Monitor diagnostic settings of Azure OpenAI: storage blobs (PT1H.json)",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with category RequestResponse, operationName and properties",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    embedded=dict.fromkeys(_BAGS, _PROPERTIES),
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", clock="utc"),
    traps=(
        "There are no token counts: they are only in Azure's metrics, or in the log of an API gateway.",
        "requestTime and responseTime (100 ns ticks since the year 1) give the duration: durationMs may be negative.",
        "Several records may share a correlationId.",
        "modelDeploymentName is the name that callers use; the caller's address is cut and not kept.",
        "properties is an object or JSON in a string. Audit, Trace and management calls are other lines.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed={"properties_s", "OperationName", "ResultSignature", "CorrelationId"},
    written_by="Log Analytics: rows of AzureDiagnostics as CSV",
)

BATCH_FORMAT = pages_twin(
    FORMAT,
    name="azure_openai_diagnostic_batches",
    title="Azure OpenAI diagnostic log, Event Hub batches",
    written_by="Azure Monitor diagnostic settings of Azure OpenAI: messages of an Event Hub",
    recognised_by="JSON objects with records whose category is RequestResponse",
    recognise=_recognise_batch,
    at=("records",),
)
