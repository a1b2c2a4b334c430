"""LMDeploy's statistics line, printed every ten seconds while the server works.

Belongs here: the line `Avg thr (in/out)` in its layouts since 2025. Does not belong here: metrics
(`parsers/metrics.py`). Lines of requests (session=.., input_tokens=..) name no end and no output: other
lines.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import clock, log_records
from parsers.format import Context, Format, Head
from parsers.metrics import contract_fault, engine_instance
from parsers.records import ENGINE_SAMPLES
from parsers.windows import interval_s, with_window

_LINE = (
    r"^\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (?:DP|Engine )(?P<engine>\d+))?\] "
    r"Avg thr \(in/out\): (?P<prompt>[\d.]+|nan|inf) / (?P<generation>[\d.]+|nan|inf) tokens/s(?P<rest>.*)$"
)
_SIGN = re.compile(_LINE)
_SHARE = 0.02
_KEYS = ("service", "engine")
_RATES = {"prompt_tokens_per_s": "prompt", "generation_tokens_per_s": "generation"}
_VALUES = (*_RATES, "running", "waiting", "kv_usage_ratio", "prefix_cache_hit_ratio", "requests_total")


def _recognise(head: Head) -> bool:
    found = sum(bool(_SIGN.match(log_records.bare(line))) for line in head.lines)
    return found > _SHARE * len(head.lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    told = log_records.unwrapped(frame, pl.col("line").str.contains("Avg thr (in/out): ", literal=True))
    parts = told.with_columns(pl.col("line").str.extract_groups(_LINE).alias("parts")).unnest("parts")
    local = clock.LocalClock.of(context)
    naive = pl.col("stamp").str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
    stats = (
        parts.filter(pl.col("stamp").is_not_null())
        .with_columns(naive=pl.when(pl.col("container_at").is_null()).then(naive))
        .with_columns(at=pl.coalesce("container_at", local.at(pl.col("naive"))))
    )
    rows = _rows(with_window(stats, interval_s([stats], _KEYS), _KEYS), local, context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _rows(stats: pl.DataFrame, local: clock.LocalClock, context: Context) -> pl.DataFrame:
    rest = pl.col("rest")

    def number(pattern: str, divisor: float = 1.0) -> pl.Expr:
        value = rest.str.extract(pattern, 1).cast(pl.Float64, strict=False)
        return pl.when(value.is_finite()).then((value / divisor).round(8))

    rates = {name: pl.col(part).cast(pl.Float64, strict=False) for name, part in _RATES.items()}
    file = re.split(r"[/!]", context.source)[-1]
    server = pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service", pl.lit(file))
    own_clock = pl.col("container_at").is_null()
    zone = {name: own_clock & on for name, on in local.flags(pl.col("naive")).items()}
    hit = number(r"Prefix cache hit rate: ([\d.]+|nan)%", 100)
    values = stats.with_columns(
        **{name: pl.when(rate.is_finite()).then(rate) for name, rate in rates.items()},
        running=number(r"Engine \(running/waiting\): (\d{1,15}) / \d"),
        waiting=number(r"Engine \(running/waiting\): \d+ / (\d{1,15})"),
        kv_usage_ratio=number(r"KV cache: ([\d.]+|nan)%", 100),
        # The share is printed only where it is not 0.
        prefix_cache_hit_ratio=pl.when(rest.str.contains("KV cache: ", literal=True)).then(
            hit.fill_null(0.0)
        ),
        requests_total=number(r"erver \((?:succeeded|completed)/[\w/]+\): (\d{1,15}) "),
    )
    return values.select(
        "source_line",
        "window_s",
        "at",
        *_VALUES,
        instance=engine_instance(server, pl.col("engine")),
        window_prompt_tokens=pl.col("prompt_tokens_per_s") * pl.col("window_s"),
        window_generation_tokens=pl.col("generation_tokens_per_s") * pl.col("window_s"),
        flags=clock.flag_list(
            zone | {"prompt_rate_may_exclude_cached": pl.lit(value=True), "window_nominal": pl.col("nominal")}
        ),
        _reject=pl.coalesce(
            pl.when(pl.col("at").is_null()).then(pl.lit("the stamp is no local time of the given time zone")),
            contract_fault(ENGINE_SAMPLES, _VALUES),
        ),
        _other=pl.lit(value=False),
    )


FORMAT = Format(
    name="lmdeploy_log",
    title="LMDeploy server log",
    written_by="lmdeploy serve api_server (TurboMind and PyTorch engine), on stdout, docker or Kubernetes",
    target=ENGINE_SAMPLES,
    container="text",
    recognised_by="lines `[YYYY-MM-DD HH:MM:SS DPn] Avg thr (in/out): a / b tokens/s`",
    recognise=_recognise,
    map=_map,
    traps=(
        "Stamps are local time without a zone: option timezone, else UTC is assumed and flagged.",
        "Idle windows are not printed: a gap is no traffic only if the process lived.",
        "The hit rate is left out where it is 0; it is over all blocks so far: never average it.",
        "Whether `in` counts cached tokens is stated nowhere: each row is flagged.",
        "TurboMind's KV cache share includes what the prefix cache holds: full is its normal state.",
        "Requests are completed ones up to 2026-03, then succeeded ones; failures are not among them.",
        "Request lines state input tokens without an end or an output: they make no rows.",
    ),
)
