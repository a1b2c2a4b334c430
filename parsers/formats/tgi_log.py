"""Router logs of TGI and TEI (text-generation-inference, text-embeddings-inference), as text and as JSON.

Belongs here: the line at the end of each request, in its span, that says `Success` or an error. Does not
belong here: bodies with usage (`openai_usage.py`), metrics (`parsers/metrics.py`). Other lines are counted and
dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import clock, containers
from parsers.clock import flag_list
from parsers.durations import before, milliseconds
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS
from parsers.twins import container_log_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_SPANS = {
    "compat_generate": "completion",
    "generate": "completion",
    "generate_stream": "completion",
    "completions": "completion",
    "chat_completions": "chat",
    "vertex_compatibility": "chat",
    **dict.fromkeys(("embed", "openai_embed", "embed_all", "embed_sparse", "similarity"), "embedding"),
    "rerank": "rerank",
    "predict": "other",
}
_TIMES = ("total_time", "queue_time", "inference_time", "time_per_token")
_ROUTERS = {"text_generation_router": "tgi", "text_embeddings_router": "tei"}
_TARGET = r"text_(?:generation|embeddings)_router(?:_v\d)?(?:::\w+)*"
_NAMES = "|".join(_SPANS)
_ENDED = rf"^ *(?P<level>INFO|ERROR) (?P<spans>(?:{_NAMES})[:{{].*): (?P<target>{_TARGET}): (?P<message>.*)$"
_OWN = re.compile(rf"^ *(?:TRACE|DEBUG|INFO|WARN|ERROR) (?:\w+[:{{].*: )?{_TARGET}: ")
_SIGNATURE = re.compile(rf"^ *(?:INFO|ERROR) (?:{_NAMES})[:{{].*{_TARGET}: |^ *INFO {_TARGET}: ")
_SOURCE = r"^(?:[\w./-]+\.rs:\d+: )?"
_OWN_SHARE = 0.05
_FASTEST_MS = 1e-3
"""No engine takes less for a token: such a time is none."""
STRUCTURE = {
    **dict.fromkeys(("timestamp", "level", "message", "target"), "VARCHAR"),
    "span": dict.fromkeys(("name", "parameters", *_TIMES), "VARCHAR"),
    "spans": [{"name": "VARCHAR"}],
}


def _recognise_text(head: Head) -> bool:
    lines = [containers.bare(line) for line in head.lines]
    own = sum(bool(_OWN.match(line)) for line in lines)
    return own >= _OWN_SHARE * len(lines) and any(_SIGNATURE.match(line) for line in lines)


def _recognise_json(head: Head) -> bool:
    return mostly(head.objects, _is_record) and not _recognise_text(head)


def _is_record(item: dict[str, Any]) -> bool:
    return {"timestamp", "level", "target"} <= item.keys() and str(item["target"]).startswith(
        ("text_generation_", "text_embeddings_")
    )


def _map_text(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = pl.col("line")
    told = containers.unwrapped(
        frame,
        line.str.contains_any(list(_ROUTERS)) & line.str.contains_any(["Success", "ERROR"]),
    )
    parts = told.with_columns(line.str.extract_groups(_ENDED).alias("parts")).unnest("parts")
    spans = pl.col("spans")
    # A prompt in a debug line can't pass for a field: only INFO and ERROR lines are taken.
    times = {name: spans.str.extract(rf'[ {{]{name}="([^"]*)"', 1) for name in _TIMES}
    outer = spans.str.extract(r"^(\w+)", 1)
    ended = parts.filter(pl.col("message").is_not_null()).select(
        "source_line",
        "message",
        "target",
        *(value.alias(name) for name, value in times.items()),
        at="container_at",
        is_error=pl.col("level") == "ERROR",
        operation=outer.replace_strict(_SPANS, default=None, return_dtype=pl.String),
        streamed=spans.str.contains(r"(?:^|:)generate_stream\b"),
        limit=spans.str.extract(r"max_new_tokens: Some\((\d{1,15})\)", 1),
        service="service",
    )
    return _rows(frame, ended, context)


def _map_json(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    # A chunk's columns that are null throughout are still there: the structure names them.
    inner = pl.col("span").struct
    name = inner.field("name")
    outer = pl.coalesce(pl.col("spans").list.first().struct.field("name"), name)
    is_router = pl.col("target").str.contains(f"^{_TARGET}$").fill_null(value=False)
    ended = frame.filter(
        is_router & outer.is_in(list(_SPANS)) & pl.col("level").is_in(["INFO", "ERROR"])
    ).select(
        "source_line",
        "message",
        "target",
        *(inner.field(each) for each in _TIMES),
        at=clock.iso_instant(pl.col("timestamp")),
        is_error=pl.col("level") == "ERROR",
        operation=outer.replace_strict(_SPANS, default=None, return_dtype=pl.String),
        streamed=pl.concat_list(
            name, pl.col("spans").list.eval(pl.element().struct.field("name"))
        ).list.contains("generate_stream"),
        limit=inner.field("parameters").str.extract(r"max_new_tokens: Some\((\d{1,15})\)", 1),
        service=pl.lit(None, pl.String),
    )
    return _rows(frame, ended, context)


def _rows(frame: pl.DataFrame, ended: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of requests that ended; every other line of the chunk is other."""
    total, queue, inference, per_token = (milliseconds(pl.col(name)) for name in _TIMES)
    is_success = ~pl.col("is_error") & pl.col("message").str.contains(_SOURCE + "Success")
    at, error = pl.col("at"), pl.col("is_error")
    unread = pl.coalesce(
        pl.when(pl.col(name).is_not_null() & milliseconds(pl.col(name)).is_null()).then(
            pl.lit(f"{name} is not a duration")
        )
        for name in _TIMES
    )
    generated = pl.when(per_token > _FASTEST_MS).then(
        (inference / per_token).round().cast(pl.Int64, strict=False)
    )
    rows = ended.filter(is_success | error).select(
        "source_line",
        "operation",
        started_at=before(at, total),
        record_key=pl.concat_str(
            pl.lit("tgi"), at.dt.timestamp("us"), "total_time", "queue_time", separator="|"
        ),
        ended_at=pl.when(total.is_not_null()).then(at),
        queue_ms=queue,
        duration_ms=total,
        provider=pl.col("target").str.extract(r"^(text_[a-z]+_router)", 1).replace(_ROUTERS),
        instance=pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service"),
        stream=pl.when("streamed").then(pl.lit(value=True)),
        # What only reads its input generates nothing.
        output_tokens=pl.coalesce(
            generated, pl.when(is_success & pl.col("target").str.contains("embed")).then(0)
        ),
        max_output_tokens=pl.col("limit").cast(pl.Int64, strict=False),
        status=pl.when(error).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=pl.when(error).then(_error_kind(pl.col("message"))),
        usage_origin=pl.when(generated.is_null()).then(pl.lit("missing")).otherwise(pl.lit("estimated")),
        flags=flag_list({"output_from_time_per_token": generated.is_not_null()}),
        _reject=pl.coalesce(
            unread,
            pl.when(is_success & pl.col("total_time").is_null()).then(pl.lit("total_time is missing")),
            pl.when(at.is_null()).then(pl.lit("timestamp is not an instant")),
        ),
        _other=pl.lit(value=False),
    )
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _error_kind(message: pl.Expr) -> pl.Expr:
    return (
        pl.when(message.str.contains("no permits available", literal=True))
        .then(pl.lit("overloaded"))
        .when(message.str.contains("Request failed during generation", literal=True))
        .then(pl.lit("generation_failed"))
        .otherwise(pl.lit("unknown"))
    )


_SEMANTICS = TokenSemantics(cache_read="absent", cache_write="absent", reasoning="inside", clock="utc")
_TRAPS = (
    "Lines of text-embeddings-inference have times only: its tokens are unknown.",
    "No prompt tokens, no model and no time to first token in any line: input stays unknown.",
    "Output = inference_time / time_per_token, which the router divided by the count: estimated, but exact.",
    "The line is written at the end of the request: start = stamp - total_time.",
    "Durations name their unit (s, ms, µs, ns) value by value.",
    "A request that failed logs one ERROR line in its span: an error without times and tokens.",
    "max_new_tokens is a limit, not a count. Colours are on unless LOG_COLORIZE=1.",
)

TEXT = Format(
    name="tgi_log",
    title="TGI and TEI router log (text)",
    written_by="text-generation-inference and text-embeddings-inference, on stdout, docker or Kubernetes",
    target=REQUESTS,
    hop="engine",
    container="text",
    recognised_by="lines of text_*_router with a level, and a start-up or request line among them",
    recognise=_recognise_text,
    map=_map_text,
    semantics=_SEMANTICS,
    traps=_TRAPS,
)

JSON = Format(
    name="tgi_log_jsonl",
    title="TGI and TEI router log (JSON lines)",
    written_by="text-generation-inference and text-embeddings-inference with --json-output",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with timestamp, level and a target of text_generation_* or text_embeddings_*",
    recognise=_recognise_json,
    map=_map_json,
    structure=STRUCTURE,
    semantics=_SEMANTICS,
    traps=_TRAPS,
)

CONTAINER_LOG = container_log_twin(JSON)
