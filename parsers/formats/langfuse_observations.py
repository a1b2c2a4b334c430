"""Observations of Langfuse: lines or arrays, CSV, pages of the API, whole traces.

Covers `GET /api/public/observations` and the UI's export (camelCase), the blob storage export and dumps of
the ClickHouse table (snake_case). Traces without observations, and scores, are other files. The map of counts
is read in `parsers/langfuse_usage.py`, nested observations in `parsers/run_trees.py`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import langfuse_usage, outcome, run_trees
from parsers.clock import flag_list
from parsers.fields import Fields, Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Context, Head, Structure

_PLAIN = (
    *("id", "type", "level", "model", "version", "sessionId", "userId", "projectId", "traceId", "startTime"),
    *("endTime", "completionStartTime", "parentObservationId", "statusMessage", "calculatedTotalCost"),
    *("updatedAt", "totalCost", "trace_id", "project_id", "session_id", "user_id", "start_time", "end_time"),
    *("completion_start_time", "parent_observation_id", "status_message", "provided_model_name"),
    *("total_cost", "event_ts", "updated_at", "is_deleted", "timeToFirstToken", "time_to_first_token"),
)
_MAPS = ("usageDetails", "usage_details", "provided_usage_details", "usage")
_COSTS = ("costDetails", "cost_details")
_EMBEDDED: dict[str, Structure] = {
    **dict.fromkeys(_MAPS, langfuse_usage.MAP),
    **{name: {"total": "VARCHAR"} for name in _COSTS},
}
_CAMEL = {"id", "type", "traceId", "startTime", "parentObservationId"}
_SNAKE = {"id", "type", "trace_id", "start_time", "parent_observation_id"}
_PAGE = re.compile(r'\s*\{\s*"(?:data|meta)"\s*:')
_CALLS = ("GENERATION", "EMBEDDING")
_STATUS_IN_MESSAGE = r"(?i)\b(?:error code|status(?:[ _]?code)?|http)\W{0,3}([45]\d\d)\b"


def _is_observation(item: dict[str, Any]) -> bool:
    return item.keys() >= _CAMEL or item.keys() >= _SNAKE


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_observation)


def _recognise_csv(head: Head) -> bool:
    """The columns of a table are the reader's choice; a header can't be taken for a prompt's text."""
    header = {*head.csv_header, "parentObservationId", "parent_observation_id"}
    return "level" in header and (header >= _CAMEL or header >= _SNAKE)


def _recognise_pages(head: Head) -> bool:
    return _PAGE.match(head.text) is not None and is_page(head, _CAMEL)


def _recognise_traces(head: Head) -> bool:
    is_trace = is_page(head, ("observations", *_CAMEL))
    return is_trace and not _PAGE.match(head.text) and not _recognise(head)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, instant = fields.text, fields.instant
    usage = langfuse_usage.read(fields, *_MAPS)
    cost = fields.money(
        *(f"{name}.total" for name in _COSTS), "calculatedTotalCost", "totalCost", "total_cost"
    )
    started = instant("startTime", "start_time").needed("startTime")
    ended, first = instant("endTime", "end_time"), instant("completionStartTime", "completion_start_time")
    ttft_s, version = (
        fields.number("timeToFirstToken", "time_to_first_token"),
        instant("event_ts", "updatedAt", "updated_at"),
    )
    kind, trace, own = text("type").str.to_uppercase(), text("traceId", "trace_id"), text("id")
    has_usage = usage.input.is_not_null() | usage.output.is_not_null()
    message = fields.raw("statusMessage", "status_message")
    failed = (text("level") == "ERROR").fill_null(value=False)
    http_status = pl.when(failed).then(message.str.extract(_STATUS_IN_MESSAGE).cast(pl.Int32))
    # Langfuse counts the input itself where the sender gave no usage: of calls that failed before any output.
    is_guess = failed & (usage.output.fill_null(0) == 0)
    rows = fields.rows(
        request_id=own,
        record_key=pl.concat_str(trace, own, separator="|"),
        trace_id=trace,
        parent_request_id=text("parentObservationId", "parent_observation_id"),
        session_id=text("sessionId", "session_id"),
        user=text("userId", "user_id"),
        project=text("projectId", "project_id"),
        started_at=started,
        ended_at=ended,
        first_token_at=first,
        ttft_ms=ttft_s.value * 1000,
        stream=pl.when(first.value.is_not_null() | ttft_s.value.is_not_null()).then(pl.lit(value=True)),
        model_served=text("model", "provided_model_name"),
        operation=pl.when(kind == "EMBEDDING").then(pl.lit("embedding")).otherwise(pl.lit("chat")),
        input_tokens=Read(usage.input, usage.fault),
        output_tokens=pl.when((kind == "EMBEDDING") & usage.input.is_not_null())
        .then(usage.output.fill_null(0))
        .otherwise(usage.output),
        cache_read_tokens=usage.read,
        cache_write_5m_tokens=usage.write_5m,
        cache_write_1h_tokens=usage.write_1h,
        reasoning_tokens=usage.reasoning,
        **usage.details,
        status=outcome.status(http_status, failed=failed),
        http_status=http_status,
        error_kind=pl.when(failed).then(outcome.error_kind(message).fill_null("unknown")),
        # A provider that refuses a call does not bill it; Langfuse prices the estimate.
        cost_reported=pl.when(is_guess & http_status.is_not_null()).then(0).when(~is_guess).then(cost.value),
        cost_currency=pl.lit("USD"),
        usage_origin=pl.when(~has_usage)
        .then(pl.lit("missing"))
        .when(is_guess)
        .then(pl.lit("estimated"))
        .otherwise(pl.lit("reported")),
        flags=flag_list(usage.flags),
        other=(own.is_null() & kind.is_null())
        | (~kind.is_in(_CALLS) & ~has_usage).fill_null(value=False)
        | text("is_deleted").is_in(["1", "true"]).fill_null(value=False),
    )
    runs = fields.frame.select(
        "source_line",
        trace_id=trace.fill_null(""),
        span_id=own,
        parent_id=text("parentObservationId", "parent_observation_id"),
        operation=kind,
        version=version.value,
        input_tokens=usage.input,
        output_tokens=usage.output,
    )
    return run_trees.hold(rows, runs, context)


def _finish(context: Context) -> Iterator[pl.DataFrame]:
    return run_trees.finish(context, REQUESTS)


FORMAT = Format(
    name="langfuse_observations",
    title="Langfuse observations, JSON",
    written_by="Langfuse: UI export, blob storage export, dumps of the ClickHouse table `observations`",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with id, type, traceId, startTime and parentObservationId (or in snake_case)",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    structure={**dict.fromkeys(_PLAIN, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        # `langfuse_usage` adds the parts up, as rows differ in whether they are inside.
        cache_read="inside",
        cache_write="inside",
        reasoning="inside",
        money="USD",
    ),
    traps=(
        "Keys of usageDetails are disjoint by convention: cached, reasoning and audio tokens are added up.",
        "Senders that give the whole input and cached tokens beside it double them: the total may show it.",
        "Else an input hardly larger than its cached part is taken for a whole: cache_taken_as_inside_input.",
        "Of larger ones it stays open whether cached tokens count twice: cache_may_be_inside_input.",
        "Agents, chains and generations around generations repeat usage: only the innermost is a row.",
        "Parents are found within one file. Of an observation listed twice the latest version counts.",
        "A failed call without output has Langfuse's own estimate; refused by the provider it costs 0.",
        "Hits of a client's cache of answers look like calls and are priced.",
        "User and session belong to the trace and are in few exports.",
    ),
)

CSV_FORMAT = replace(
    csv_twin(FORMAT, needed=_CAMEL, written_by="Langfuse: UI export, blob storage export as CSV"),
    recognise=_recognise_csv,
)

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="langfuse_observation_pages",
    title="Langfuse observation pages",
    written_by="Langfuse: answers of GET /api/public/observations",
    recognised_by="JSON objects with data that holds observations",
    recognise=_recognise_pages,
    at=("data",),
)

TRACES_FORMAT = pages_twin(
    FORMAT,
    name="langfuse_traces",
    title="Langfuse traces with their observations",
    written_by="Langfuse: answers of GET /api/public/traces/{id}, a trace downloaded in the UI",
    recognised_by="JSON objects with observations that holds observations",
    recognise=_recognise_traces,
    at=("observations",),
)
