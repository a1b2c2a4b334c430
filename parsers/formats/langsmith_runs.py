"""Runs of LangSmith: lines or arrays as the SDK gives them, pages of `POST /runs/query`, Parquet exports.

Runs of all types are read, as only the tree of a trace shows which of them are calls of their own; see
`parsers/run_trees.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from parsers import outcome, run_trees, usage
from parsers.fields import Fields, Read
from parsers.format import Format, TokenSemantics
from parsers.json_heads import is_page, mostly
from parsers.readers import quoted, selected, stream_frames
from parsers.records import REQUESTS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Context, Head, Structure

_COLUMNS = (
    *("id", "trace_id", "dotted_order", "parent_run_id", "name", "run_type", "start_time", "end_time"),
    *("first_token_time", "status", "error", "prompt_tokens", "completion_tokens", "total_tokens"),
    *("total_cost", "session_id", "session_name", "thread_id"),
)
_TIERS = ("priority", "flex")
_EPHEMERAL = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens", "ephemeral_1hr_input_tokens")
_INPUT = dict.fromkeys(
    (
        "cache_read",
        "cache_creation",
        "audio",
        *_EPHEMERAL,
        *_TIERS,
        *(f"{tier}_cache_read" for tier in _TIERS),
    ),
    "VARCHAR",
)
_OUTPUT = dict.fromkeys(("reasoning", "audio", *(f"{tier}_reasoning" for tier in _TIERS)), "VARCHAR")
_USAGE: Structure = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), "VARCHAR"),
    "input_token_details": _INPUT,
    "output_token_details": _OUTPUT,
}
_EMBEDDED: dict[str, Structure] = {
    "prompt_token_details": _INPUT,
    "completion_token_details": _OUTPUT,
    "extra": {
        "metadata": {
            "usage_metadata": _USAGE,
            **dict.fromkeys(
                ("ls_provider", "ls_model_name", "ls_max_tokens", "user_id", "session_id", "thread_id"),
                "VARCHAR",
            ),
        },
        "invocation_params": {"model": "VARCHAR", "model_name": "VARCHAR"},
    },
    "outputs": {"usage_metadata": _USAGE},
    "tags": ["VARCHAR"],
}
_OBJECTS = ("extra.metadata.usage_metadata", "outputs.usage_metadata")
_NEEDED = {"id", "run_type", "start_time"}
_OPERATIONS = {"llm": "chat", "embedding": "embedding"}
_PARENT_IN_ORDER = r"Z([0-9a-fA-F-]{36})\.[^.]*$"
_CLASS_OF_ERROR = r"^([A-Za-z_][\w.]{0,99})\("
_HANGUPS = ["CancelledError", "KeyboardInterrupt", "GeneratorExit"]


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED)


def _recognise_pages(head: Head) -> bool:
    return is_page(head, ("runs", *_NEEDED)) and not _recognise(head)


def _counts(fields: Fields) -> usage.Counts:
    def whole(*names: str) -> Read:
        return fields.whole(*names)

    def total(own: str, name: str) -> Read:
        return whole(own, *(f"{at}.{name}" for at in _OBJECTS))

    def inside(*names: str) -> Read:
        places = ("prompt_token_details", *(f"{at}.input_token_details" for at in _OBJECTS))
        return whole(*(f"{at}.{name}" for at in places for name in names))

    def generated(*names: str) -> Read:
        places = ("completion_token_details", *(f"{at}.output_token_details" for at in _OBJECTS))
        return whole(*(f"{at}.{name}" for at in places for name in names))

    created, five, hour = inside("cache_creation"), inside(_EPHEMERAL[0]), inside(*_EPHEMERAL[1:])
    is_stated = pl.any_horizontal(read.value.is_not_null() for read in (created, five, hour))
    # The parts by lifetime are the tokens of cache_creation over again, or stand in its place.
    written = pl.max_horizontal(created.value, pl.sum_horizontal(five.value, hour.value))
    nothing = Read(pl.lit(None, dtype=pl.Int64), pl.lit(None, dtype=pl.String))
    return usage.Counts(
        prompt=total("prompt_tokens", "input_tokens"),
        completion=total("completion_tokens", "output_tokens"),
        total=total("total_tokens", "total_tokens"),
        cache_read=inside("cache_read", *(f"{tier}_cache_read" for tier in _TIERS)),
        cache_write=Read(pl.when(is_stated).then(written), created.fault),
        cache_write_5m=five,
        cache_write_1h=hour,
        reasoning=generated("reasoning", *(f"{tier}_reasoning" for tier in _TIERS)),
        audio_input=inside("audio"),
        audio_output=generated("audio"),
        image_input=nothing,
        image_output=nothing,
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    counts = _counts(fields)
    started, ended = fields.instant("start_time").needed("start_time"), fields.instant("end_time")
    first, cost = fields.instant("first_token_time"), fields.money("total_cost")
    own, trace, kind = text("id"), text("trace_id"), text("run_type").str.to_lowercase()
    parent = pl.coalesce(text("parent_run_id"), text("dotted_order").str.extract(_PARENT_IN_ORDER))
    prompt, completion = counts.prompt.value, counts.completion.value
    # LangSmith writes 0 and 0 for runs without usage.
    has_usage = (pl.sum_horizontal(prompt, completion) > 0).fill_null(value=False)
    given = pl.when(has_usage).then(prompt), pl.when(has_usage).then(completion)
    error = pl.coalesce(text("error").str.extract(_CLASS_OF_ERROR), outcome.error_kind(fields.raw("error")))
    failed = (text("status") == "error") | error.is_not_null()
    is_call = kind.is_in(list(_OPERATIONS))
    meta = "extra.metadata."
    rows = fields.rows(
        request_id=own,
        record_key=own,
        trace_id=trace,
        parent_request_id=parent,
        session_id=text("thread_id", f"{meta}thread_id", f"{meta}session_id"),
        started_at=started,
        ended_at=ended,
        first_token_at=first,
        stream=pl.when(first.value.is_not_null()).then(pl.lit(value=True)),
        project=text("session_name", "session_id"),
        user=text(f"{meta}user_id"),
        tags=pl.col("tags") if fields.has("tags") else pl.lit(None, dtype=pl.List(pl.String)),
        provider=text(f"{meta}ls_provider"),
        model_requested=text("extra.invocation_params.model", "extra.invocation_params.model_name"),
        model_served=text(
            f"{meta}ls_model_name", "extra.invocation_params.model", "extra.invocation_params.model_name"
        ),
        operation=kind.replace_strict(_OPERATIONS, default="other", return_dtype=pl.String),
        service_tier=_service_tier(fields),
        max_output_tokens=fields.whole(f"{meta}ls_max_tokens"),
        input_tokens=given[0],
        output_tokens=pl.when(has_usage & (kind == "embedding"))
        .then(completion.fill_null(0))
        .otherwise(given[1]),
        **usage.columns(counts, has_usage),
        status=outcome.status(pl.lit(None, dtype=pl.Int32), failed=failed, cancelled=error.is_in(_HANGUPS)),
        error_kind=pl.when(failed).then(error.fill_null("unknown")),
        cost_reported=cost,
        cost_currency=pl.lit("USD"),
        other=(own.is_null() & kind.is_null())
        | (~is_call & ~has_usage).fill_null(value=False)
        | (text("status") == "pending").fill_null(value=False),
    )
    runs = fields.frame.select(
        "source_line",
        trace_id=trace.fill_null(""),
        span_id=own,
        parent_id=parent,
        operation=kind,
        version=ended.value,
        input_tokens=given[0],
        output_tokens=given[1],
    )
    return run_trees.hold(rows, runs, context)


def _map_parquet(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Columns are typed, or JSON in a string, as the export was made: all are read from their text."""
    texts = ", ".join(
        f"{f'to_json({quoted(name)})' if dtype.is_nested() else quoted(name)}::VARCHAR AS {quoted(name)}"
        for name, dtype in frame.schema.items()
        if name in FORMAT.structure
    )
    names = [name for name in FORMAT.structure if name in frame.columns]
    sql = f"SELECT source_line, {selected(names, _EMBEDDED)} FROM (SELECT source_line, {texts} FROM cells)"
    return _map(pl.concat(stream_frames(sql, frame.height, register=frame)), context)


def _recognise_parquet(head: Head) -> bool:
    """The names of columns stand at the end of the file: only small files show them in their head."""
    return head.data.startswith(b"PAR1") and all(
        name.encode() in head.data for name in (*_NEEDED, "dotted_order")
    )


def _finish(context: Context) -> Iterator[pl.DataFrame]:
    return run_trees.finish(context, REQUESTS)


def _service_tier(fields: Fields) -> pl.Expr:
    """LangChain names the tier in the keys of the details: `flex`, `flex_cache_read`."""
    places = ("prompt_token_details", *(f"{at}.input_token_details" for at in _OBJECTS))
    return pl.coalesce(
        pl.when(
            fields.text(
                *(f"{at}.{name}" for at in places for name in (tier, f"{tier}_cache_read"))
            ).is_not_null()
        ).then(pl.lit(tier))
        for tier in _TIERS
    )


FORMAT = Format(
    name="langsmith_runs",
    title="LangSmith runs, JSON",
    written_by="LangSmith: runs as the SDK (list_runs) and the API give them",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with id, run_type and start_time",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    structure={**dict.fromkeys(_COLUMNS, "VARCHAR"), **dict.fromkeys(_EMBEDDED, "JSON")},
    embedded=_EMBEDDED,
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", zero_means="unknown", money="USD"
    ),
    traps=(
        "Chains and agents hold the sums of the runs below: only the innermost runs with usage are rows.",
        "Sums without the runs below (an export of root runs only) are rejected.",
        "cache_creation and its parts by lifetime are one number told twice.",
        "Some wrappers of Anthropic left cached tokens out of the prompt: seen only by counts that show it.",
        "Times without a zone are UTC. Runs of status pending are in flight: other.",
        "Hits of a client's cache of answers look like calls.",
        "Tiers (flex, priority) stand in the names of the details.",
    ),
)

CSV_FORMAT = csv_twin(FORMAT, needed=_NEEDED, written_by="LangSmith: runs saved as CSV, as data frames do")

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="langsmith_run_pages",
    title="LangSmith run pages",
    written_by="LangSmith: answers of POST /runs/query",
    recognised_by="JSON objects with runs that holds runs",
    recognise=_recognise_pages,
    at=("runs",),
)

PARQUET_FORMAT = replace(
    FORMAT,
    name="langsmith_runs_parquet",
    title="LangSmith runs, Parquet",
    written_by="LangSmith: bulk exports",
    container="parquet",
    recognised_by="Parquet columns run_type, start_time and dotted_order (name the format of large files)",
    recognise=_recognise_parquet,
    map=_map_parquet,
    structure=None,
    embedded={},
    priority=1,
)
