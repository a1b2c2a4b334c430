"""SGLang server logs: the Prefill and Decode batch lines of the scheduler, in the layouts from 2024 to 2026.

Belongs here: finding those lines under prefixes, colours and progress bars, their clock, ranks and windows.
Does not belong here: metrics (`parsers/metrics.py`), requests (`sglang_requests.py`, `sglang_request_log.py`). All
else is counted and dropped.

Prefill lines give exact tokens per batch. Decode lines come every 40 decode steps (--decode-log-interval),
not on a clock, and give a rate since the decode line before: tokens = rate x the gap between the two
stamps, flagged `window_from_stamps` since most stamps have whole seconds; a sum over many lines is good,
one line is rough.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import clock, log_records
from parsers.format import Context, Format, Head
from parsers.metrics import contract_fault, engine_instance
from parsers.normalise import MAX_COUNT
from parsers.records import ENGINE_SAMPLES, INSTANT
from parsers.sglang import IS_REQUEST, LOGGER_HEAD, MODEL, OWN_HEAD, STAMP, START, as_sglang

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH = (
    r"^(?P<before>[^\"'{]*?)" + STAMP + r"(?P<kind>Prefill|Decode) batch(?: \[\d+\])?[.,] (?P<values>#.*)$"
)
_SIGN, _START_SIGN = re.compile(_BATCH), re.compile(START)
_SHARE = 0.02

_KEYS: dict[str, tuple[str, ...]] = {
    "running": ("#running-req",),
    "waiting": ("#queue-req",),
    "new_tokens": ("#new-token",),
    "cached_tokens": ("#cached-token",),
    "usage": ("token usage",),
    "full_usage": ("full token usage",),
    "swa_usage": ("swa token usage",),
    "prompt_tokens_per_s": ("input throughput (token/s)",),
    "generation_tokens_per_s": ("gen throughput (token/s)",),
    "hit_percent": ("cache hit rate",),
}
"""Values by the names on the line: their order and set change between versions."""
_PREFILL_ROLE = r"#(?:bootstrap|unbootstrapped|inflight|transferring)-req: "
_DECODE_ROLE = r"#(?:prealloc|transfer)-req: "
_VALUES = (
    "running",
    "waiting",
    "kv_usage_ratio",
    "prompt_tokens_per_s",
    "generation_tokens_per_s",
    "window_prompt_tokens",
)


def _recognise(head: Head) -> bool:
    lines = [as_sglang(log_records.bare(line)) for line in head.lines]
    starts = any(_START_SIGN.match(line) for line in lines) and not any(map(IS_REQUEST.match, lines))
    return starts or has_batches(lines)


def has_batches(lines: Sequence[str]) -> bool:
    """Whether these lines (without prefixes) are a log of batches, not only of requests."""
    return sum(bool(_SIGN.match(line)) for line in lines) > _SHARE * len(lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    if frame.is_empty() or frame["source_line"][0] <= context.carried.get("last_line", 0):
        context.carried.clear()
    first_rank = _of_first_rank(_timed(_batches(frame, context), context), context)
    rows = _rows(_windowed(first_rank, context), context)
    context.carried["last_line"] = frame["source_line"].max() or 0
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _batches(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Batch lines, taken apart; the model is that of the last start-up line."""
    plain = log_records.unwrapped(
        frame,
        pl.col("line").str.contains_any(["Prefill batch", "Decode batch", "server_args=ServerArgs("]),
    ).with_columns(pl.col("line").str.replace(LOGGER_HEAD, OWN_HEAD))
    parts = plain.with_columns(pl.col("line").str.extract_groups(_BATCH).alias("parts")).unnest("parts")
    is_start = pl.col("line").str.contains(START)
    model = pl.coalesce(pl.col("line").str.extract(pattern, 1) for pattern in MODEL)
    known = parts.with_columns(
        model=pl.when(is_start).then(model),
        process=is_start.cum_sum().cast(pl.Int64) + (context.carried.get("process") or 0),
    ).with_columns(pl.col("model").forward_fill().fill_null(pl.lit(context.carried.get("model"), pl.String)))
    for name in ("model", "process"):
        context.carried[name] = next(iter(known[name].drop_nulls().tail(1)), context.carried.get(name))
    values = {name: _value(keys) for name, keys in _KEYS.items()}
    return known.filter(pl.col("kind").is_not_null()).with_columns(
        **values,
        dp=pl.col("ranks").str.extract(r" DP(\d+)", 1),
        rank=pl.concat_str(
            pl.col("ranks").str.extract(rf" {tag}(\d+)", 1).fill_null("0").str.zfill(5)
            for tag in ("PP", "ATTN_CP", "ATTN_TP", "TP", "EP")
        ),
    )


def _value(keys: tuple[str, ...]) -> pl.Expr:
    """A number by the key before it; nan, inf, nothing and what no engine counts to are none."""
    names = "|".join(re.escape(key) for key in keys)
    number = pl.col("values").str.extract(rf"(?:^|, )(?:{names}): (-?[\d.]{{1,20}})%?(?:,|\s|$)", 1)
    value = number.cast(pl.Float64, strict=False)
    return pl.when(value < MAX_COUNT).then(value)


def _timed(batches: pl.DataFrame, context: Context) -> pl.DataFrame:
    local = clock.LocalClock.of(context)
    naive = pl.col("stamp").str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    return batches.with_columns(naive=pl.when(pl.col("container_at").is_null()).then(naive)).with_columns(
        at=pl.coalesce("container_at", local.at(pl.col("naive")))
    )


def _of_first_rank(batches: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Of the ranks of one engine that print the same batch, the first; each DP rank is an engine."""
    key = ["service", "dp"]
    empty = pl.DataFrame(schema={"service": pl.String, "dp": pl.String, "rank": pl.String})
    seen = pl.concat([context.carried.get("ranks", empty), batches.select(*key, "rank")])
    firsts = seen.group_by(key).agg(pl.col("rank").min())
    context.carried["ranks"] = firsts.select(empty.columns)
    return batches.join(firsts, on=[*key, "rank"], how="semi", nulls_equal=True, maintain_order="left")


def _windowed(batches: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Add `window_s` (gap to the engine's line of the same kind before) and counters of the prefix cache."""
    key = ["service", "dp", "kind", "process"]
    names: dict[str, pl.DataType] = dict.fromkeys(key[:3], pl.String())
    sums: dict[str, pl.DataType] = {"process": pl.Int64(), "queried": pl.Float64(), "hit": pl.Float64()}
    empty = pl.DataFrame(schema={**names, **sums, "at": INSTANT})
    counted = batches.with_columns(
        queried=pl.col("new_tokens").fill_null(0) + pl.col("cached_tokens").fill_null(0),
        hit=pl.col("cached_tokens").fill_null(0),
    )
    both = pl.concat([context.carried.get("ends", empty), counted], how="diagonal").with_columns(
        window_s=pl.col("at").diff().over(key).dt.total_microseconds() / 1e6,
        queried=pl.col("queried").cum_sum().over(key),
        hit=pl.col("hit").cum_sum().over(key),
    )
    context.carried["ends"] = both.group_by(key[:3], maintain_order=True).last().select(empty.columns)
    new: pl.DataFrame = both.filter(pl.col("source_line").is_not_null())
    return new


def _rows(batches: pl.DataFrame, context: Context) -> pl.DataFrame:
    prefill = pl.col("kind") == "Prefill"
    file = re.split(r"[/!]", context.source)[-1]
    server = pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service", pl.lit(file))
    dp = pl.when(pl.col("dp").is_not_null()).then("dp")
    window = pl.when(pl.col("window_s") >= 0).then("window_s")
    own_clock = pl.col("container_at").is_null()
    from_zone = {
        name: own_clock & on for name, on in clock.LocalClock.of(context).flags(pl.col("naive")).items()
    }
    cut = pl.when(prefill, pl.col("new_tokens").is_null()).then(
        pl.lit("the batch line is cut: #new-token is missing")
    )
    timeless = pl.when(pl.col("at").is_null()).then(
        pl.when(pl.col("stamp").is_null())
        .then(pl.lit("the line has no time: SGLang before 2024-12 prints none, keep the container's"))
        .otherwise(pl.lit("the stamp is no local time that existed in the given time zone"))
    )
    rows = batches.with_columns(
        instance=engine_instance(server, dp),
        window_s=window,
        kv_usage_ratio=pl.coalesce("usage", pl.max_horizontal("full_usage", "swa_usage")),
        window_prompt_tokens=pl.when(prefill).then("new_tokens"),
        window_generation_tokens=(pl.col("generation_tokens_per_s") * window).round(6),
        prefix_cache_queries_total=pl.when(prefill).then("queried"),
        prefix_cache_hits_total=pl.when(prefill, pl.col("cached_tokens").is_not_null()).then("hit"),
        prefix_cache_hit_ratio=(pl.col("hit_percent") / 100).round(8),
        flags=clock.flag_list(
            from_zone
            | {
                "prompt_rate_excludes_cached": prefill,
                "window_from_stamps": ~prefill & window.is_not_null(),
                "pd_prefill": pl.col("values").str.contains(_PREFILL_ROLE),
                "pd_decode": pl.col("values").str.contains(_DECODE_ROLE),
            }
        ),
        fault=pl.coalesce(timeless, cut),
        _other=pl.lit(value=False),
    )
    named = [name for name in ENGINE_SAMPLES.names if name in rows.columns]  # source_line too
    return rows.select(
        *named, "_other", _reject=pl.coalesce("fault", contract_fault(ENGINE_SAMPLES, _VALUES))
    )


FORMAT = Format(
    name="sglang_log",
    title="SGLang server log",
    written_by="SGLang scheduler, on stdout, docker, Kubernetes or compose",
    target=ENGINE_SAMPLES,
    container="text",
    recognised_by="records `[YYYY-MM-DD HH:MM:SS ranks]` of a Prefill or Decode batch or server_args",
    recognise=_recognise,
    map=_map,
    traps=(
        "Stamps are local time without a zone: option timezone, else UTC is assumed and flagged.",
        "#new-token is what a batch computed; #cached-token stands on a request's first chunk: add up only.",
        "Prefix-cache counters are sums over the file's prefill lines, not the engine's own counters.",
        "Decode lines come every 40 steps: tokens = rate x gap of the stamps; the first has no window.",
        "input throughput is over the gap to the prefill before, idle time included: it gives no tokens.",
        "token usage is a share of the KV pool; of full and swa shares the larger counts.",
        "Ranks of one engine print the same batch: the first rank counts, and each DP rank is an engine.",
        "Retracted requests are computed, and printed, again. Servers of a PD pair are flagged.",
        "Lines of requests (--log-requests) between the batches are other: sglang_request_log reads them instead.",
        "Versions before 2024-12 print no time: only a container's stamp makes their lines usable.",
    ),
)
