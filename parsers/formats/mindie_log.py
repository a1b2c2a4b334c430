"""Huawei MindIE's logs: the scheduler's metrics of each DP rank, printed at level DEBUG.

Belongs here: lines `DP[n] metrics: freeNpuBlock=..` under the stamps of MindIE's modules. Does not belong
here: /metrics (`parsers/metrics.py`). All else, most of it chatter, is counted and dropped: MindIE logs no
calls.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import clock, log_records
from parsers.format import Format
from parsers.metrics import contract_fault, engine_instance
from parsers.records import ENGINE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context, Head

_STAMP = (
    r"^\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3,6})(?P<offset>[+-]\d\d:?\d\d)?\] \[\d+\] \[\d+\] "
)
_OWN = re.compile(
    _STAMP
    + r"(?:\[MS\] \[\d+\] \[[A-Z]+\] :|\[[\w-]+\] \[(?:DEBUG|INFO|WARN|WARNING|ERROR)\] \[[\w.-]+:\d+\] :)"
)
_LINE = _STAMP + r".*? : +DP\[(?P<rank>\d+)\] metrics: (?P<values>freeNpuBlock=.*)$"
_SHARE = 0.5
_VALUES = ("running", "waiting", "kv_usage_ratio", "prefix_cache_hit_ratio")


def _recognise(head: Head) -> bool:
    lines = [log_records.bare(line) for line in head.lines]
    return sum(bool(_OWN.match(line)) for line in lines) > _SHARE * len(lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    told = log_records.unwrapped(frame, pl.col("line").str.contains("] metrics: freeNpuBlock=", literal=True))
    parts = told.with_columns(pl.col("line").str.extract_groups(_LINE).alias("parts")).unnest("parts")
    rows = _rows(parts.filter(pl.col("values").is_not_null()), context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _rows(lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    local = clock.LocalClock.of(context)
    naive = pl.col("stamp").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    stated = clock.iso_instant(pl.concat_str("stamp", "offset"))
    own_zone = pl.col("offset").is_null()

    def number(name: str) -> pl.Expr:
        return pl.col("values").str.extract(rf"\b{name}=([\d.]{{1,20}})", 1).cast(pl.Float64, strict=False)

    free, blocks = number("freeNpuBlock"), number("totalNpuBlock")
    hits, lookups = number("npuRadixHit"), number("allRadixMatch")
    samples = lines.with_columns(
        naive=pl.when(own_zone).then(naive),
        running=number("runningReq"),
        waiting=number("waitingReq"),
        kv_usage_ratio=pl.when(blocks > 0).then((1 - free / blocks).round(8)),
        prefix_cache_hit_ratio=pl.when(lookups > 0).then((hits / lookups).round(8)),
    ).with_columns(at=pl.coalesce(stated, local.at(pl.col("naive"))))
    file = re.split(r"[/!]", context.source)[-1]
    server = pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service", pl.lit(file))
    return samples.select(
        "source_line",
        "at",
        *_VALUES,
        instance=engine_instance(server, pl.col("rank")),
        flags=clock.flag_list({name: own_zone & on for name, on in local.flags(pl.col("naive")).items()}),
        _reject=contract_fault(ENGINE_SAMPLES, ("at", *_VALUES)),
        _other=pl.lit(value=False),
    )


FORMAT = Format(
    name="mindie_log",
    title="MindIE log",
    written_by="MindIE-LLM, MindIE Server and MindIE MS (mindie-llm_*, mindie-server_*, mindie-ms_*)",
    target=ENGINE_SAMPLES,
    container="text",
    recognised_by="lines `[stamp] [pid] [tid] [module] [LEVEL] [file:line] :` or `[stamp] .. [MS] ..`",
    recognise=_recognise,
    map=_map,
    traps=(
        "No line says which calls there were: tokens per call are in a gateway, sums in /metrics.",
        "Only level DEBUG prints samples: a log of level INFO has other lines only.",
        "Stamps have an offset (+0800, +08:00) or none, in one file: then option timezone, else UTC.",
        "prefillTput and decodeTput are tokens per ms of the last batch, of no window: not used.",
        "The line of all DP ranks sums up those of each: other.",
        "MindIE's and MindSpore Serving's OpenAI-style answers are read as openai_usage.",
    ),
)
