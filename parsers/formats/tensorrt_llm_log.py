"""TensorRT-LLM's iteration log (`print_iter_log: true`): one line per iteration of the executor's loop.

Belongs here: lines `iter = .., states = {..}` in the orders in use. Does not belong here: the JSON of GET
/metrics (`trtllm_iteration_stats.py`). Every other line is counted and dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import clock, log_records, trtllm
from parsers.format import Format
from parsers.records import ENGINE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context, Head

_LINE = (
    r"^(?:\[(?P<stamp>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] )?\[TRT-LLM\] (?P<tags>(?:\[[^\]]*\] ?)*)"
    r"iter = \d+, (?P<values>.*)$"
)
_SIGN = re.compile(_LINE)
_OWN = re.compile(r"^(?:\[[\d/:-]+\] )?\[TRT-LLM\] ")
_SHARE = 0.01
_AT = r"timestamp = ([\d-]{10} [\d:]{8})"


def _recognise(head: Head) -> bool:
    lines = [log_records.bare(line) for line in head.lines]
    own = sum(bool(_OWN.match(line)) for line in lines)
    return own > _SHARE * len(lines) and any(_SIGN.match(line) for line in lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    if frame.is_empty() or frame["source_line"][0] <= context.carried.get("last_line", 0):
        context.carried.clear()
    context.carried["last_line"] = frame["source_line"].max() or 0
    told = log_records.unwrapped(frame, pl.col("line").str.contains("[TRT-LLM]", literal=True))
    parts = told.with_columns(pl.col("line").str.extract_groups(_LINE).alias("parts")).unnest("parts")
    rows = _rows(_of_first_rank(parts.filter(pl.col("values").is_not_null()), context), context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _of_first_rank(lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Ranks of one engine print the same iteration: the first that printed counts."""
    rank = pl.col("values").str.extract(r"global_rank = (\d{1,9})", 1).cast(pl.Int64).fill_null(0)
    ranked = lines.with_columns(rank=rank)
    seen: dict[str | None, int] = context.carried.setdefault("ranks", {})
    for service, first in ranked.group_by("service").agg(pl.col("rank").min()).iter_rows():
        seen[service] = min(first, seen.get(service, first))
    firsts = pl.DataFrame(list(seen.items()), schema={"service": pl.String, "rank": pl.Int64}, orient="row")
    return ranked.join(firsts, on=["service", "rank"], how="semi", nulls_equal=True, maintain_order="left")


def _rows(lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    values, local = pl.col("values"), clock.LocalClock.of(context)

    def number(name: str, unit: str = "") -> pl.Expr:
        text = values.str.extract(rf"\b{name}'? ?[=:] ([\d.]{{1,20}}){unit}(?:[,}}]|$)", 1)
        return text.cast(pl.Float64, strict=False)

    def read(text: pl.Expr, *patterns: str) -> pl.Expr:
        return pl.coalesce(text.str.to_datetime(each, time_unit="us", strict=False) for each in patterns)

    printed = read(values.str.extract(_AT, 1), "%Y-%m-%d %H:%M:%S", "%m-%d-%Y %H:%M:%S")
    naive = pl.coalesce(printed, read(pl.col("stamp"), "%m/%d/%Y-%H:%M:%S"))
    own_clock = pl.col("container_at").is_null()
    samples = lines.with_columns(naive=pl.when(own_clock).then(naive)).with_columns(
        at=pl.coalesce("container_at", local.at(pl.col("naive"))),
        window_s=pl.coalesce(number("host_step_time", "ms") / 1000, number("elapsed_time", "s")),
        running=number("num_scheduled_requests"),
        waiting=pl.lit(None, pl.Float64),
        kv_usage_ratio=number("kv_cache_util"),
        window_prompt_tokens=number("num_ctx_tokens"),
        window_generation_tokens=number("num_generation_tokens"),
    )
    zone = {name: own_clock & on for name, on in local.flags(pl.col("naive")).items()}
    cut = pl.when(~values.str.contains("states = {", literal=True)).then(pl.lit("states is missing"))
    return samples.select(
        "source_line",
        "at",
        *trtllm.VALUES,
        instance=pl.coalesce("service", trtllm.server(context)),
        prompt_tokens_per_s=trtllm.per_second("window_prompt_tokens"),
        generation_tokens_per_s=trtllm.per_second("window_generation_tokens"),
        flags=clock.flag_list(zone | trtllm.FLAGS),
        _reject=pl.coalesce(cut, trtllm.fault()),
        _other=pl.lit(value=False),
    )


FORMAT = Format(
    name="tensorrt_llm_log",
    title="TensorRT-LLM iteration log",
    written_by="trtllm-serve and the LLM API with print_iter_log: true, on stdout, docker or Slurm",
    target=ENGINE_SAMPLES,
    container="text",
    recognised_by="lines of [TRT-LLM] with `iter = n, ..`",
    recognise=_recognise,
    map=_map,
    traps=(
        *trtllm.TRAPS,
        "Where several ranks print, the lowest counts: of attention data parallelism the others are lost.",
        "prev_device_step_time is of the iteration before and may hold idle time: the host's is used.",
        "Without print_iter_log the log has no numbers of work.",
    ),
)
