"""vLLM server logs: the statistics line that the engine prints every ten seconds while it works.

Belongs here: finding those lines under container prefixes and colours, their clock, window and instance,
for the V0 and the V1 engine. Does not belong here: metrics (`prometheus_query_range.py`). Every other line
is counted and dropped: request lines hold prompts and answers, and nothing of them is kept.

Time: the container's stamp (docker, CRI, compose -t) where there is one, else the record's own, which has
neither year nor zone (see `parsers/clock.py`). Records that Python's logger wrote as JSON (`parsers/log_records.py`)
or in its own layout state the year.

Windows of rates: see `parsers/windows.py`; the interval is VLLM_LOG_STATS_INTERVAL, 10 s unless set
otherwise, and 5 s in the V0 engine.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import clock, log_records
from parsers.format import Context, Format, Head
from parsers.metrics import contract_fault, engine_instance
from parsers.records import ENGINE_SAMPLES
from parsers.windows import DEFAULT_INTERVAL_S, interval_s, with_window
from parsers.xinference import VLLM_HEAD, VLLM_OWN_HEAD, as_vllm, is_xinference

EXCLUDES_CACHED_FROM = 16
"""Version 0.16, the first after vllm #33290 (2026-02-04): prompt rates count computed tokens only."""
INCLUDES_CACHED_BEFORE = 15
V0_INTERVAL_S = 5.0
_IS_V0 = pl.col("message").str.contains("Pending: ", literal=True)

_LEVEL_AND_STAMP = r"(?:INFO|DEBUG|WARNING|ERROR|CRITICAL) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d) "
_RECORD = (
    r"^(?P<before>.*?)(?:\(\w+ pid=(?P<pid>\d+)[^)]*\) )?"
    + _LEVEL_AND_STAMP
    + r"\[?(?P<source>[\w./-]+\.py):\d+\] (?P<message>.*)$"
)
_STAT_SOURCE = r"^(?:[\w./-]*[./])?(?:loggers|metrics|llm_engine)\.py$"
_REQUEST_SOURCE = r"^(?:[\w./-]*/)?(?:request_)?logger\.py$"
_STAT = r"^(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: "
_V0_HIT = r"^Prefix cache hit rate: GPU: ([\d.]+)%"  # -100 % means that there is no such cache
_START = r"^(?:Initializing an? (?:V1 )?LLM engine \(v|vLLM API server version |non-default args: |args: )"
_MODEL = (
    r"served_model_name'?\s*[=:]\s*\[?'?([^'\],\s)}]+)",
    r"'model': '([^']+)'",
    r"[( ,]model='([^']+)'",
)
_VERSION = r"(?:engine \(|version )v?(\d{1,6})\.(\d{1,6})\."
_MENTIONS = (
    "Avg prompt throughput: ",
    "Prefix cache hit rate: GPU: ",
    "LLM engine (v",
    "API server version ",
    "served_model_name",
    "default args: ",
)
_RATE = r"([\d.]+|nan|inf|N/A) tokens/s"
_AHEAD = r"^[^\"'{]{0,200}?"
"""What may stand before a record: a progress bar; no quote, which another log would open."""
_HEADED = re.compile(_AHEAD + r"(?:DEBUG|INFO|WARNING|ERROR) [\d-]{5} [\d:]{8} \[?[\w./-]+\.py:\d+\] (.*)")
_ACCESS = re.compile(_AHEAD + r"(?:INFO:     |\d{4}(?:-\d\d){2} [\d:]{8} uvicorn\.)")
_SIGNATURE = re.compile(
    r"(?:Engine \d+: |\d+ Engines Aggregated: )?Avg prompt throughput: |"
    r"Initializing an? (?:V1 )?LLM engine \(v|vLLM API server version |non-default args: \{|"
    r"Added request |Received request "
)
_HEADED_SHARE = 0.05

_VALUES: dict[str, tuple[str, float]] = {
    "prompt_tokens_per_s": (r"Avg prompt throughput: " + _RATE, 1.0),
    "generation_tokens_per_s": (r"Avg generation throughput: " + _RATE, 1.0),
    "running": (r"Running: (\d+) reqs", 1.0),
    "waiting": (r"(?:Waiting|Pending): (\d+) reqs", 1.0),
    "kv_usage_ratio": (
        r"[A-Z]{3} KV cache usage: ([\d.]+)%",
        100.0,
    ),  # V0 prints the GPU's first, then the swap's
    "prefix_cache_hit_ratio": (r"Prefix cache hit rate: ([\d.]+)%", 100.0),
}
"""Values of a statistics line: pattern (fields are found by name; their order and set change) and divisor."""


def _recognise(head: Head) -> bool:
    bare = [log_records.bare(line) for line in head.lines]
    lines = [as_vllm(line) for line in bare]
    messages = [found[1] for line in lines if (found := _HEADED.match(line))]
    access = sum(bool(_ACCESS.match(line)) for line in lines)
    enough = len(messages) >= _HEADED_SHARE * (len(lines) - access)
    return enough and any(_SIGNATURE.match(message) for message in messages) and not is_xinference(bare)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    in_head = _records(_head_lines(context))
    records = _started(_records(frame), _started(in_head, None) if _begins_later(frame) else None)
    stats = _with_clock(records.filter("is_stat"), context)
    default = V0_INTERVAL_S if stats.select(_IS_V0.any()).item() else DEFAULT_INTERVAL_S
    interval = interval_s([_with_clock(in_head.filter("is_stat"), context), stats], _ENGINE_KEYS, default)
    windowed = with_window(stats, interval, _ENGINE_KEYS)
    hits = _with_clock(records.filter(~pl.col("is_stat") & pl.col("is_v0_hit")), context)
    rows = pl.concat([_stat_rows(windowed, context), _hit_rows(hits, context)], how="diagonal_relaxed")
    return (
        frame.select("source_line")
        .join(
            rows.with_columns(_other=pl.lit(value=False)), on="source_line", how="left", maintain_order="left"
        )
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _begins_later(frame: pl.DataFrame) -> bool:
    return not frame.is_empty() and frame["source_line"][0] > 1


def _head_lines(context: Context) -> pl.DataFrame:
    lines = pl.Series("line", context.head.split("\n"), dtype=pl.String)
    return (
        lines.to_frame()
        .with_row_index("source_line", offset=1)
        .with_columns(pl.col("source_line").cast(pl.Int64))
    )


def _candidates(lines: pl.DataFrame) -> pl.DataFrame:
    """Lines that may matter."""
    mentions = pl.any_horizontal(pl.col("line").str.contains(text, literal=True) for text in _MENTIONS)
    line = pl.col("line")
    year = pl.when(line.str.contains(VLLM_HEAD)).then(line.str.head(4))
    return log_records.unwrapped(lines, mentions).with_columns(
        line.str.replace(VLLM_HEAD, VLLM_OWN_HEAD),
        year=pl.when(year != log_records.NO_YEAR).then(year),
    )


def _records(lines: pl.DataFrame) -> pl.DataFrame:
    """The first log record of each candidate; one inside another record (a prompt's text) is not taken."""
    found = _candidates(lines).with_columns(pl.col("line").str.extract_groups(_RECORD).alias("record"))
    return found.unnest("record").with_columns(
        pl.col("message").str.extract(r"^Engine (\d+): ", 1).alias("engine"),
        _is_statistic(_STAT).alias("is_stat"),
        _is_statistic(_V0_HIT).alias("is_v0_hit"),
    )


def _is_statistic(message: str) -> pl.Expr:
    found = pl.col("source").str.contains(_STAT_SOURCE) & pl.col("message").str.contains(message)
    return found.fill_null(value=False)


def _started(records: pl.DataFrame, earlier: pl.DataFrame | None) -> pl.DataFrame:
    """Add `model` and `version` (1000 x major + minor) as the last start-up line before a record names them.

    `earlier`: the same for the beginning of the file, if the records begin later.
    """
    message = pl.col("message")
    is_start = message.str.contains(_START) & ~pl.col("source").str.contains(_REQUEST_SOURCE)
    names = [message.str.extract(pattern, 1) for pattern in _MODEL]
    model = pl.coalesce(pl.when(name != "None").then(name) for name in names)
    version = message.str.extract(_VERSION, 1).cast(pl.Int64) * 1000 + message.str.extract(_VERSION, 2).cast(
        pl.Int64
    )
    said = records.with_columns(
        pl.when(is_start).then(model).forward_fill().over("service").alias("model"),
        pl.when(is_start).then(version).forward_fill().over("service").alias("version"),
    )
    if earlier is None:
        return said
    last = {name: earlier[name].drop_nulls().tail(1).to_list() for name in ("model", "version")}
    return said.with_columns(pl.col(name).fill_null(value[0]) for name, value in last.items() if value)


def _with_clock(records: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Add `at`, and the `naive` local time that it comes from where there is no container's stamp."""
    local = clock.LocalClock.of(context)
    stamp, year = pl.col("stamp"), clock.stated_year(context)
    if year is not None:
        opening = re.search(_LEVEL_AND_STAMP, context.head)
        first = opening["stamp"] if opening else records["stamp"].drop_nulls().to_list()[:1]
        naive = clock.naive_in_stated_year(stamp, year, first if isinstance(first, str) else "".join(first))
    elif context.modified_at is not None:
        naive = clock.naive_before(stamp, context.modified_at, local)
    else:
        naive = pl.lit(None, pl.Datetime("us"))
    dated = pl.concat_str("year", pl.lit("-"), stamp).str.to_datetime(time_unit="us", strict=False)
    own = pl.when(pl.col("container_at").is_null()).then(pl.coalesce(dated, naive))
    return records.with_columns(own.alias("naive")).with_columns(
        pl.coalesce("container_at", local.at(pl.col("naive"))).alias("at")
    )


_ENGINE_KEYS = ("service", "pid", "engine")


def _subject(context: Context) -> dict[str, pl.Expr]:
    """Whose sample it is. Process 1 is that of any container, and tells no more than the file's name does."""
    process = pl.when(pl.col("pid") != "1").then(pl.concat_str(pl.lit("pid-"), pl.col("pid")))
    file = re.split(r"[/!]", context.source)[-1]
    server = pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service", process, pl.lit(file))
    return {
        "instance": engine_instance(server, pl.col("engine")),
        "model": pl.col("model"),
        "at": pl.col("at"),
    }


def _stat_rows(stats: pl.DataFrame, context: Context) -> pl.DataFrame:
    texts = {name: pl.col("message").str.extract(pattern, 1) for name, (pattern, _) in _VALUES.items()}
    numbers = {name: _number(texts[name], divisor) for name, (_, divisor) in _VALUES.items()}
    values = stats.with_columns(**numbers)
    cut = texts["prompt_tokens_per_s"].is_null() | texts["generation_tokens_per_s"].is_null()
    rules = contract_fault(ENGINE_SAMPLES, _VALUES)
    return values.select(
        "source_line",
        "window_s",
        *_VALUES,
        **_subject(context),
        window_prompt_tokens=pl.col("prompt_tokens_per_s") * pl.col("window_s"),
        window_generation_tokens=pl.col("generation_tokens_per_s") * pl.col("window_s"),
        flags=clock.flag_list(
            _clock_flags(context) | _prompt_flags() | {"window_nominal": pl.col("nominal")}
        ),
        _reject=pl.coalesce(
            pl.when(cut).then(pl.lit("the statistics line is cut: it needs both throughputs, in tokens/s")),
            _clock_fault(context),
            rules,
        ),
    )


def _number(text: pl.Expr, divisor: float) -> pl.Expr:
    """A finite number (nan, inf and N/A are none); rounded, because 17.5 % is to be 0.175."""
    number = text.cast(pl.Float64, strict=False)
    return pl.when(number.is_finite()).then((number / divisor).round(8))


def _hit_rows(hits: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The line of its own in which V0 prints its hit rate."""
    return hits.with_columns(
        prefix_cache_hit_ratio=_number(pl.col("message").str.extract(_V0_HIT, 1), 100.0)
    ).select(
        "source_line",
        "prefix_cache_hit_ratio",
        **_subject(context),
        flags=clock.flag_list(_clock_flags(context)),
        _reject=pl.coalesce(
            _clock_fault(context), contract_fault(ENGINE_SAMPLES, ["prefix_cache_hit_ratio"])
        ),
    )


def _clock_flags(context: Context) -> dict[str, pl.Expr]:
    own = pl.col("container_at").is_null()
    from_mtime = own & pl.lit(clock.stated_year(context) is None) & pl.col("year").is_null()
    local = clock.LocalClock.of(context).flags(pl.col("naive"))
    return {name: own & condition for name, condition in local.items()} | {clock.YEAR_FROM_MTIME: from_mtime}


def _prompt_flags() -> dict[str, pl.Expr]:
    """Whether prompt rates include tokens read from the cache: it changed between versions."""
    version = pl.when(_IS_V0).then(0).otherwise(pl.col("version"))
    excludes, includes = version >= EXCLUDES_CACHED_FROM, version < INCLUDES_CACHED_BEFORE
    return {
        "prompt_rate_excludes_cached": excludes,
        "prompt_rate_includes_cached": includes,
        "prompt_rate_may_exclude_cached": ~(excludes | includes).fill_null(value=False),
    }


def _clock_fault(context: Context) -> pl.Expr:
    dated = clock.stated_year(context) is not None or context.modified_at is not None
    reason = (
        "the stamp is no local time that existed in the given year and time zone"
        if dated
        else "the stamp has no year; give the option year, such as year=2026"
    )
    return pl.when(pl.col("at").is_null()).then(pl.lit(reason))


FORMAT = Format(
    name="vllm_log",
    title="vLLM server log",
    written_by="vLLM (V0 and V1 engine), on stdout, docker, Kubernetes or compose, as text or JSON; also in Xinference",
    target=ENGINE_SAMPLES,
    container="text",
    recognised_by="records of level, MM-DD time and file.py:line; a statistics, start-up or request message",
    recognise=_recognise,
    map=_map,
    traps=(
        "Stamps have neither year nor zone: the container's is used, else options year and timezone.",
        "Idle windows are not printed: a gap is no traffic only if the process lived. Nothing is filled in.",
        "Prompt rates exclude cached tokens since 0.16 and include them before 0.15; each row is flagged.",
        "Prompt tokens count when their prefill ends, so a window may show more than the hardware's rate.",
        "The prefix cache hit rate is over the last 1,000 requests (V0: over all blocks): never average it.",
        "With --api-server-count above 1 vLLM prints no statistics.",
        "MFU lines are rates rounded to 0.1 TFLOP/s, read and written bytes in one: counted, not used.",
        "Of a file in several chunks, a chunk's first line per engine has the nominal window.",
    ),
)
