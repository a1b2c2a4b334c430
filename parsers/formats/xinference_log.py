"""Xinference's log: the line at the end of each generation of its vLLM backend, with its tokens.

Belongs here: `Generate finished, request_id: ..`, with the start that `Added request ..` tells. Does not
belong here: metrics (`parsers/metrics.py`), vLLM's statistics (`vllm_log.py`). Calls of other backends leave
no tokens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import clock, log_records
from parsers.durations import span
from parsers.format import Format, TokenSemantics
from parsers.records import INSTANT, REQUESTS
from parsers.xinference import STAMP, is_xinference

if TYPE_CHECKING:
    from parsers.format import Context, Head

_ENDED = (
    r"Generate finished, request_id: (?P<ended>[^,\s]{1,80}), stop reason: (?P<reason>\w+), "
    r"prompt tokens: (?P<input>\w+), completion tokens: (?P<output>\w+), all tokens: (?P<total>\w+)"
    r"(?:, elapsed: (?P<elapsed>[\d.]{1,18})s)?"
)
_ADDED = r"Added request (?P<added>[^,\s]{1,80}?)\.?$"
_ADDED_BY_VLLM = r"^INFO (\d\d-\d\d \d\d:\d\d:\d\d) \[[\w/.]+:\d+\] Added request ([^,\s]{1,80}?)\.?$"
_LINE = STAMP + rf"(?:\d+ )?(?:DEBUG|INFO) *(?: - )?(?:{_ENDED}|{_ADDED})"
_MODEL = (
    STAMP.replace("?P<stamp>", "?:").replace("?P<logger>", "?:")
    + r"(?:\d+ )?[A-Z]+ *(?:- )?Enter launch_builtin_model, args: .*?model_uid(?:=|': ?)'([^']{1,200})'"
)
_MOST_STARTED = 4096


def _recognise(head: Head) -> bool:
    return is_xinference([log_records.bare(line) for line in head.lines])


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    if frame.is_empty() or frame["source_line"][0] <= context.carried.get("last_line", 0):
        context.carried.clear()
    context.carried["last_line"] = frame["source_line"].max() or 0
    told = log_records.unwrapped(
        frame, pl.col("line").str.contains_any(["Generate finished, ", "Added request ", "model_uid"])
    )
    local = clock.LocalClock.of(context)
    line = pl.col("line")
    # vLLM's own stamps have no year: it is that of the line before.
    stamp = pl.coalesce("stamp", pl.concat_str("year", pl.lit("-"), line.str.extract(_ADDED_BY_VLLM, 1)))
    naive = stamp.str.replace(",", ".", literal=True).str.to_datetime(
        "%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False
    )
    lines = (
        told.with_columns(line.str.extract_groups(_LINE).alias("parts"))
        .unnest("parts")
        .with_columns(
            year=_last(pl.col("stamp").str.head(4), "year", context),
            model=_last(line.str.extract(_MODEL, 1), "model", context),
            added=pl.coalesce("added", line.str.extract(_ADDED_BY_VLLM, 2)),
        )
        .with_columns(naive=naive)
        .with_columns(at=local.at(pl.col("naive")))
    )
    for name in ("year", "model"):
        context.carried[name] = next(iter(lines[name].drop_nulls().tail(1)), context.carried.get(name))
    rows = _rows(_started(lines, context), local, context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _last(said: pl.Expr, name: str, context: Context) -> pl.Expr:
    """What the last line that said it said, in this chunk or in one before."""
    return said.forward_fill().fill_null(pl.lit(context.carried.get(name), pl.String))


def _started(lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The lines that end a generation, with `added_at`; starts without an end wait for the next chunk."""
    none = pl.DataFrame(schema={"ended": pl.String, "added_at": INSTANT})
    added = lines.filter(pl.col("added").is_not_null()).select(ended="added", added_at="at")
    starts = pl.concat([context.carried.get("starts", none), added]).unique(
        "ended", keep="last", maintain_order=True
    )
    ends = lines.filter(pl.col("ended").is_not_null())
    context.carried["starts"] = starts.join(ends, on="ended", how="anti", maintain_order="left").tail(
        _MOST_STARTED
    )
    return ends.join(starts, on="ended", how="left", maintain_order="left")


def _rows(ends: pl.DataFrame, local: clock.LocalClock, context: Context) -> pl.DataFrame:
    def count(name: str) -> pl.Expr:
        return pl.col(name).cast(pl.Int64, strict=False)

    elapsed = span(pl.col("elapsed").cast(pl.Float64, strict=False) * 1000)
    started = pl.coalesce("added_at", pl.col("at") - elapsed)
    nothing = count("input").is_null() & count("output").is_null()
    bad = pl.coalesce(
        pl.when(count(name).is_null() & (pl.col(name) != "None")).then(
            pl.lit(f"{text} is not a whole number")
        )
        for name, text in (
            ("input", "prompt tokens"),
            ("output", "completion tokens"),
            ("total", "all tokens"),
        )
    )
    return ends.select(
        "source_line",
        request_id="ended",
        record_key=pl.concat_str(pl.lit("xinference"), "ended", separator="|"),
        started_at=pl.coalesce(started, "at"),
        ended_at=pl.when(started.is_not_null()).then("at"),
        provider=pl.lit("xinference"),
        model_served="model",
        instance=pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service"),
        input_tokens=count("input"),
        output_tokens=count("output"),
        _total_tokens=count("total"),
        status=pl.when(pl.col("reason") == "abort").then(pl.lit("cancelled")).otherwise(pl.lit("ok")),
        finish_reason=pl.when(pl.col("reason") != "None").then("reason"),
        usage_origin=pl.when(nothing).then(pl.lit("missing")).otherwise(pl.lit("reported")),
        flags=clock.flag_list(
            local.flags(pl.col("naive"))
            | {"start_unknown": started.is_null(), "model_last_loaded": pl.col("model").is_not_null()}
        ),
        _reject=pl.coalesce(
            bad,
            pl.when(pl.col("at").is_null()).then(pl.lit("the stamp is no local time of the given time zone")),
        ),
        _other=pl.lit(value=False),
    )


FORMAT = Format(
    name="xinference_log",
    title="Xinference log",
    written_by="xinference-local, xinference-supervisor and xinference-worker, on stdout or in files",
    target=REQUESTS,
    hop="engine",
    container="text",
    recognised_by="lines `YYYY-MM-DD HH:MM:SS,mmm xinference.module pid LEVEL ..`",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="inside", clock="local"),
    traps=(
        "Only generations of the vLLM backend say their tokens, from 2026 on at level DEBUG only.",
        "Stamps are local time without a zone: option timezone, else UTC is assumed and flagged.",
        "The start is vLLM's `Added request`, or end - elapsed, else the end (`start_unknown`).",
        "The model is that of the last launch (`model_last_loaded`): with several it may be another's.",
        "Cached tokens are in no line. Enter/Leave lines are of internal calls, several to a request: other.",
        "vLLM's statistics in such a log repeat the same tokens: other lines.",
    ),
)
