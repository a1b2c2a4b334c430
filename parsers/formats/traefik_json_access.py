"""JSON access logs of Traefik in front of model servers or gateways.

Only requests of a model are rows, see `parsers/access_log.py`; others, and Traefik's own messages, are counted
as other. There is no usage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import access_log, outcome, routes
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_TIMES = ("StartUTC", "StartLocal")
_HEADERS = {
    "team": ("request_X-Team", "request_X-Team-Id", "request_X-Tenant-Id"),
    "project": ("request_X-App", "request_X-Project"),
    "user": ("request_X-User", "request_X-User-Id"),
}
_STRUCTURE: Structure = {
    **dict.fromkeys((*_TIMES, "RequestMethod", "RequestPath", "DownstreamStatus", "OriginStatus"), "VARCHAR"),
    **dict.fromkeys(("Duration", "RequestCount", "ServiceName", "ServiceAddr", "RetryAttempts"), "VARCHAR"),
    **dict.fromkeys(("level", "msg", "TraceId", "ClientAddr", "request_X-Request-Id"), "VARCHAR"),
    "downstream_Content-Type": "VARCHAR",
    **dict.fromkeys((name for names in _HEADERS.values() for name in names), "VARCHAR"),
}
_NEEDED = {"StartUTC", "RequestPath", "DownstreamStatus", "Duration"}
_CALL = re.compile(rf'"RequestPath":\s*"[^"]*(?:{access_log.CALL_ROUTE})')
_NS_PER_MS = 1_000_000


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED) and _CALL.search(head.text) is not None


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = access_log.fields_of(frame)
    text = fields.text
    path, started = routes.endpoint(text("RequestPath")), fields.instant(*_TIMES).needed("StartUTC")
    http_status, none = fields.whole("DownstreamStatus", "OriginStatus"), pl.lit(None, dtype=pl.Int64)
    identity = [text(name) for name in ("StartUTC", "ClientAddr", "RequestCount")]
    return fields.rows(
        request_id=text("request_X-Request-Id"),
        record_key=pl.concat_str(identity, separator="|"),
        trace_id=text("TraceId"),
        started_at=started,
        duration_ms=(fields.number("Duration").value / _NS_PER_MS).round(6),
        **{column: text(*names) for column, names in _HEADERS.items()},
        gateway=pl.lit("traefik"),
        operation=routes.operation(path),
        endpoint=path,
        stream=pl.when(text("downstream_Content-Type").str.contains("text/event-stream", literal=True)).then(
            pl.lit(value=True)
        ),
        instance=text("ServiceAddr", "ServiceName"),
        input_tokens=none,
        output_tokens=none,
        status=outcome.status(http_status.value),
        http_status=http_status,
        other=~access_log.is_call(path, text("RequestMethod")),
    )


FORMAT = Format(
    name="traefik_json_access",
    title="Traefik access log, JSON",
    written_by="Traefik with accessLog.format json, before model APIs",
    target=REQUESTS,
    hop="proxy",
    container="json_lines",
    recognised_by="JSON objects with StartUTC, RequestPath, DownstreamStatus and Duration, and model routes",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(
        cache_read="absent", cache_write="absent", reasoning="absent", clock="utc", retries="hidden"
    ),
    traps=(
        "There is no usage, no model and no time to the first token: calls, times and outcomes only.",
        "Duration is in nanoseconds; a status of 499 is a client that hung up.",
        "Retries are within one line. Headers are there only where the operator keeps them.",
        "A proxy before and one behind a gateway log one call twice, under different ids.",
    ),
    priority=5,
)

CONTAINER_LOG_FORMAT = container_log_twin(FORMAT)
