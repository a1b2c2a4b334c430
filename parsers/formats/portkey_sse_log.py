"""The log stream of Portkey's open source gateway (`GET /log/stream`), saved as it came: one event per call.

Exports of Portkey's service are another format.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome, routes, usage, values
from parsers.clock import LocalClock, flag_list
from parsers.durations import before
from parsers.fields import Fields, Read
from parsers.format import Format, TokenSemantics
from parsers.readers import literal, stream_frames
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head, Structure

_ATTEMPT: Structure = {
    "providerOptions": {"provider": "VARCHAR", "requestURL": "VARCHAR"},
    "requestParams": dict.fromkeys(("model", "stream", "max_tokens", "max_completion_tokens"), "VARCHAR"),
    "cacheStatus": "VARCHAR",
    "response": "JSON",
}
_EVENT: Structure = {
    **dict.fromkeys(("time", "method", "endpoint", "status", "duration"), "VARCHAR"),
    "requestOptions": [_ATTEMPT],
}
_BODY: Structure = {
    **dict.fromkeys(("id", "type", "model", "service_tier"), "VARCHAR"),
    "usage": usage.USAGE,
    "error": {"type": "VARCHAR", "code": "VARCHAR"},
    "choices": [{"finish_reason": "VARCHAR"}],
}
_START = re.compile(r'data: ?\{"time":')
_DATA = r"^data: ?(\{.*)"
_TIME = "%m/%d/%Y, %I:%M:%S %p"
# The answer is kept with the first attempt; the last attempt gave it.
_READ = f"""
SELECT source_line, data, event.* EXCLUDE (requestOptions), event.requestOptions[-1] AS attempt,
    TRY(from_json(event.requestOptions[1].response, {literal(json.dumps(_BODY))})) AS response
FROM (SELECT source_line, data, TRY(from_json(data, {literal(json.dumps(_EVENT))})) AS event FROM cells)
"""


def _recognise(head: Head) -> bool:
    return '"requestOptions":' in head.text and any(map(_START.match, head.lines[:50]))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    data = frame.select("source_line", data=pl.col("line").str.extract(_DATA))
    fields = Fields(pl.concat(stream_frames(_READ, frame.height, register=data)))
    text, whole, clock = fields.text, fields.whole, LocalClock.of(context)
    counts = usage.counts(fields, ("response.usage",))
    # Newer versions of ICU put a narrow space before AM and PM.
    time = values.instant(
        text("time").str.replace_all(r"\s", " "),
        "time",
        unit=_TIME,
        zone=clock.zone,
        zone_assumed=clock.assumed,
    )
    is_event = text("data").is_not_null()
    fault = pl.when(is_event & text("endpoint").is_null()).then(pl.lit("the event is cut off or is not JSON"))
    ended = Read(time.value, pl.coalesce(fault, time.fault(time.value))).needed("time")
    duration, http_status = fields.number("duration"), whole("status")
    started = before(time.value, duration.value)
    route = text("endpoint")
    error = pl.coalesce(outcome.error_kind(text(f"response.error.{name}")) for name in ("type", "code"))
    status = outcome.status(http_status.value)
    return fields.rows(
        request_id=text("response.id"),
        record_key=pl.concat_str([text("response.id"), text("time"), text("duration")], separator="|"),
        started_at=Read(started, ended.fault),
        ended_at=time.value,
        duration_ms=duration,
        gateway=pl.lit("portkey"),
        provider=text("attempt.providerOptions.provider"),
        model_requested=text("attempt.requestParams.model"),
        model_served=text("response.model"),
        operation=routes.operation(route),
        endpoint=routes.endpoint(route),
        stream=fields.truth("attempt.requestParams.stream"),
        service_tier=text("response.service_tier"),
        max_output_tokens=whole(
            "attempt.requestParams.max_completion_tokens", "attempt.requestParams.max_tokens"
        ),
        input_tokens=counts.prompt,
        output_tokens=counts.completion,
        _cache_outside=pl.when(text("response.type") == "message").then(pl.lit(value=True)),
        **usage.columns(counts, pl.lit(value=True)),
        status=status,
        http_status=http_status,
        error_kind=pl.when(status == "error").then(error.fill_null("unknown")),
        response_cache_hit=text("attempt.cacheStatus").is_in(["HIT", "SEMANTIC HIT"]).fill_null(value=False),
        flags=flag_list({"zone_assumed_utc": pl.lit(clock.assumed)}),
        other=~is_event,
    )


FORMAT = Format(
    name="portkey_sse_log",
    title="Portkey gateway log stream",
    written_by="Portkey's open source gateway: GET /log/stream saved to a file",
    target=REQUESTS,
    container="text",
    recognised_by='lines that begin with data: {"time": and hold requestOptions',
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="local", retries="hidden"
    ),
    traps=(
        "time is the end of the call in whole seconds, in the gateway's zone and in American notation.",
        "Streamed answers are not kept: their usage is unknown. So is that of events over 64 KB, rejected.",
        "Of Claude the prompt leaves cached tokens out while the total has them: the row's total shows it.",
        "All attempts are one event; the last one is taken for the one that answered.",
        "The stream has no ids but those of answers; events before someone listened are lost.",
    ),
)
