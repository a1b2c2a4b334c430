"""llama.cpp's server: putting the lines of one task together into one row of REQUESTS.

Belongs here: what a line of the server's log says (`_said`), which lines are one task's, and on which line
its row stands. Does not belong here: containers and stamps (`formats/llamacpp_log.py`), the timings of
response bodies (`formats/llamacpp_response.py`).

A task is launched in a slot, told apart by its number and by the launch itself: numbers begin again with
each process. Its row stands on the line that ends it: the later of "total time" and "stop processing";
"stop processing" alone if it was cancelled, failed or generated nothing (embeddings); and where its end
never came (the process died), the launch of the slot's next task, which proves it. What is in flight at the
end of the file has its row on its last line (`unfinished`), without an end.

Chunks: events of tasks that have not ended go to the next chunk in `Context.carried`. A task that ended
within `EDGE_LINES` of the chunk's last line waits too, since its other end line may follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from parsers.clock import flag_list
from parsers.durations import before, span
from parsers.records import INSTANT
from parsers.values import relative_origin

if TYPE_CHECKING:
    from parsers.format import Context

EDGE_LINES: Final = 64
MOST_CARRIED: Final = 4096
"""Events that one chunk hands to the next; a server has far fewer in its slots."""
HEADER_REACH: Final = 6
"""Lines after "print_timing: id 0 | task 1 |" that may be its timings (builds of 2024 and 2025)."""
CLOCK_BACK_US: Final = 1_000_000
"""A stamp that lies this far before the one before it is a new process's."""
RELATIVE_CLOCK: Final = "relative_clock"

_MENTIONS = (
    "eval time",
    "total time",
    "processing task",
    "new prompt",
    "seq_rm",
    "kv cache rm",
    "stop processing",
    "slot released",
    "cancel task",
    "error: ",
    "print_timing: id",
    "loading model '",
    "loaded meta data",
)
_SLOT = r"^slot +\S+: id +(?P<slot>\d{1,9}) \| task (?P<task>\d{1,18}) \| ?(?P<text>.*)$"
_PAIRS = (
    r"^(?:[A-Z]+ +\[ *\w+\])? ?(?P<text_2>.*?) \| tid=\S+ timestamp=(?P<unix_s>\d{9,10}) .*?"
    r"id_slot=(?P<slot_2>\d{1,9}) id_task=(?P<task_2>\d{1,18})(?P<rest>.*)$"
)
_SERVER = r"^srv +\S+: (?P<text_3>(?:cancel task, id_task = |task id = )(?P<task_3>\d{1,18}).*)$"
_BARE = r"^(?:llama_[a-z_]+:)?(?P<text_4> *(?:prompt eval|eval|total) time *= .*)$"
_MODEL_LOADED = r"load_model: loading model '(?:[^']*[/\\])?([^'/\\]+?)(?:\.gguf)?'"
_MODEL_FILE = r"loaded meta data with .* from (?:.*[/\\])?([^/\\]+?)(?:\.gguf)? \(version"
_TIME = r" *= *([\d.]{1,18}) ms"
_PROMPT, _EVAL = r"^ *prompt eval time" + _TIME, r"^ *(?:generation )?eval time" + _TIME
_COUNT = r" / *(\d+) (?:tokens|runs)"
_TOO_LONG = "exceeds the available context size"
_TASK = ("service", "process", "task", "ordinal")

_COUNTS = ("prompt_n", "cached_n", "processed_n", "generated_n", "slot_n")
_DURATIONS = ("prompt_ms", "eval_ms", "total_ms")
_MARKS = ("is_relative", "is_shifted", "is_launch", "is_child", "is_release", "is_cancel")
_TEXTS = ("service", "model_loaded", "model_file", "error_kind")
_EVENT_TYPES: dict[str, pl.DataType] = {
    **dict.fromkeys(("source_line", "process", "slot", "task", *_COUNTS), pl.Int64()),
    **dict.fromkeys(_DURATIONS, pl.Float64()),
    **dict.fromkeys((*_MARKS, "is_truncated"), pl.Boolean()),
    **dict.fromkeys(_TEXTS, pl.String()),
    "at": INSTANT,
}
EVENTS = pl.Schema(_EVENT_TYPES)
"""What one line of the log says of a task, or of the start of a process."""


def may_tell(text: pl.Expr) -> pl.Expr:
    """Whether a line may say something of a task: few do, and taking a line apart is dear."""
    return text.str.contains_any(list(_MENTIONS))


def assemble(every: pl.DataFrame, lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Rows of the tasks that end in a chunk.

    Args:
        every: `source_line` of all lines of the chunk.
        lines: those of them that `may_tell`: `source_line`, `message`, `service` (String or null: whose line it is),
            `relative_us` (Int64, since the process began, or null), `wall_at` (INSTANT or null).
        context: of the source; `carried` is read and written.

    Returns:
        one row per line, in order: canonical columns, `_reject`, `_other`.

    Raises:
        SiteConfigError: the option `origin` is not an instant.

    """
    if every.is_empty():
        return every.select("source_line", _reject=pl.lit(None, pl.String), _other=pl.lit(value=True))
    first, last = every["source_line"][0], every["source_line"][-1]
    carried = context.carried
    if first <= carried.get("last_line", 0):
        carried.clear()
    before = carried.get("events", EVENTS.to_frame())
    events = _by_task(pl.concat([before, _events(lines, before, context)]))
    carried["releases"] = carried.get("releases", False) or bool(events["is_release"].any())
    tasks = _tasks(events).with_columns(row_line=_row_line(first, last, releases=carried["releases"]))
    rows = _rows(tasks.filter(pl.col("row_line").is_not_null()), context)
    carried["events"] = _to_carry(events, tasks, last)
    taken = pl.concat([carried.get("taken", rows["source_line"].clear()), rows["source_line"]])
    carried["taken"] = taken.filter(taken.is_in(carried["events"]["source_line"].implode()))
    carried["last_line"] = last
    return (
        every.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def unfinished(context: Context) -> pl.DataFrame:
    """Rows of the tasks that wait for a line when the log ends: their second end line, or any end at all."""
    events: pl.DataFrame = context.carried.get("events", EVENTS.to_frame())
    tasks = _tasks(_by_task(events)).with_columns(row_line=pl.coalesce("end_line", "any_line"))
    rows = _rows(tasks.filter(pl.col("is_launch") | pl.col("total_ms").is_not_null()), context)
    # A damaged line may be of two tasks, and of one of them the row already.
    free = rows.filter(
        ~pl.col("source_line").is_in(context.carried.get("taken", rows["source_line"].clear()).implode())
    )
    return free.unique("source_line", keep="first", maintain_order=True)


def _events(lines: pl.DataFrame, before: pl.DataFrame, context: Context) -> pl.DataFrame:
    parts = lines.with_columns(
        pl.col("message").str.extract_groups(pattern).alias(f"_{number}")
        for number, pattern in enumerate((_SLOT, _PAIRS, _SERVER, _BARE))
    ).unnest("_0", "_1", "_2", "_3")
    is_start = pl.col("model_loaded").is_not_null() | pl.col("model_file").is_not_null()
    events = (
        parts.with_columns(
            text=pl.coalesce("text", "text_2", "text_3", "text_4"),
            slot=pl.coalesce("slot", "slot_2").cast(pl.Int64),
            task=pl.coalesce("task", "task_2", "task_3").cast(pl.Int64),
            model_loaded=pl.col("message").str.extract(_MODEL_LOADED, 1),
            model_file=pl.col("message").str.extract(_MODEL_FILE, 1),
        )
        .filter(pl.col("text").is_not_null() | is_start)
        .with_columns(**_said(pl.col("text")))
    )
    process = is_start.cast(pl.Int64).cum_sum() + (before["process"].max() or 0)
    return (
        _with_clock(_of_header(events), context)
        .with_columns(process=process)
        .select(EVENTS.names())
        .cast(EVENTS)
    )


def _said(text: pl.Expr) -> dict[str, pl.Expr]:
    """What the text of a task's line says, by name; null where it says nothing of the kind."""

    def whole(pattern: str, group: int = 1) -> pl.Expr:
        return text.str.extract(pattern, group).cast(pl.Int64, strict=False)

    def milliseconds(pattern: str) -> pl.Expr:
        value = text.str.extract(pattern, 1).cast(pl.Float64, strict=False)
        return pl.when(value.is_between(0, 1e10)).then(value)

    is_error = text.str.starts_with("task id = ") & text.str.contains("error: ", literal=True)
    too_long = text.str.contains(_TOO_LONG, literal=True)
    return {
        "is_launch": text.str.contains(r"^(?:slot is )?processing task"),
        "is_child": text.str.contains("is_child = 1", literal=True),
        "is_release": text.str.contains(r"^(?:stop processing: |slot released)"),
        "is_cancel": text.str.starts_with("cancel task, "),
        "error_kind": pl.when(is_error & too_long)
        .then(pl.lit("context_length_exceeded"))
        .when(is_error)
        .then(pl.lit("server_error")),
        "prompt_n": whole(r"^new prompt, .*?(?:n_prompt_tokens|prompt_tokens|n_tokens) = (\d+)"),
        "cached_n": pl.coalesce(
            whole(r"(?:memory_seq_rm|^kv cache rm) \[(\d+), end\)"),
            pl.when(text.str.starts_with("kv cache rm [p0")).then(
                pl.col("rest").str.extract(r" p0=(\d{1,18})", 1).cast(pl.Int64)
            ),
        ),
        "prompt_ms": milliseconds(_PROMPT),
        "processed_n": whole(_PROMPT + _COUNT, 2),
        "eval_ms": milliseconds(_EVAL),
        "generated_n": whole(_EVAL + _COUNT, 2),
        "total_ms": milliseconds(r"^ *total time" + _TIME),
        "slot_n": whole(r"^stop processing: n_(?:tokens|past) = (\d+)"),
        "is_truncated": text.str.extract(r", truncated = (\d)", 1) != "0",
    }


def _of_header(events: pl.DataFrame) -> pl.DataFrame:
    """Give bare timings to the task whose `print_timing` line stands just before them."""
    is_header = (pl.col("text") == "") & pl.col("task").is_not_null()
    bare = pl.col("task").is_null() & pl.col("text_4").is_not_null()
    headed = events.with_columns(
        pl.when(is_header).then(name).forward_fill().alias(f"_header_{name}")
        for name in ("source_line", "slot", "task", "relative_us", "wall_at")
    )
    near = bare & (pl.col("source_line") - pl.col("_header_source_line") <= HEADER_REACH)
    return headed.with_columns(
        pl.when(near).then(f"_header_{name}").otherwise(name).alias(name)
        for name in ("slot", "task", "relative_us", "wall_at")
    )


def _with_clock(events: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Add `at`: wall clock, else origin + stamp, processes of one log set one after the other."""
    state = context.carried
    stamp = pl.col("relative_us")
    earlier = stamp.forward_fill().shift(1).fill_null(state.get("stamp_us", 0))
    shift = pl.when(earlier - stamp > CLOCK_BACK_US).then(earlier).otherwise(0).cum_sum() + state.get(
        "shift_us", 0
    )
    origin = pl.lit(relative_origin(context), dtype=INSTANT)
    timed = events.with_columns(shift_us=shift).with_columns(
        at=pl.coalesce(
            "wall_at",
            (pl.col("unix_s").cast(pl.Int64) * 1_000_000).cast(INSTANT),
            origin + (stamp + pl.col("shift_us")).cast(pl.Duration("us")),
        ),
        is_relative=pl.col("wall_at").is_null() & pl.col("unix_s").is_null(),
        is_shifted=pl.col("shift_us") > 0,
    )
    for name, column in (("stamp_us", "relative_us"), ("shift_us", "shift_us")):
        state[name] = next(iter(timed[column].drop_nulls().tail(1)), state.get(name, 0))
    return timed


def _by_task(events: pl.DataFrame) -> pl.DataFrame:
    """Add what tells tasks apart (`ordinal`), the model in force, and the line of the slot's next launch."""
    begins = (
        pl.when(pl.col("task").is_null()).then(pl.col("processed_n").is_not_null()).otherwise("is_launch")
    )
    launch = pl.when("is_launch").then("source_line")
    return events.with_columns(
        model=pl.coalesce(pl.col("model_loaded", "model_file").forward_fill().over("service")),
        next_launch=launch.shift(-1).backward_fill().over("service", "slot"),
        ordinal=begins.fill_null(value=False).cum_sum().over("service", "process", "task"),
    )


def _tasks(events: pl.DataFrame) -> pl.DataFrame:
    """One row per task: what its lines say together."""

    def value(name: str) -> pl.Expr:
        return pl.col(name).drop_nulls().first().alias(name)

    def line(condition: pl.Expr) -> pl.Expr:
        return pl.col("source_line").filter(condition).last()

    timed = pl.any_horizontal(pl.col("prompt_ms", "eval_ms", "total_ms").is_not_null())
    return (
        events.filter(pl.col("task").is_not_null() | timed)
        .group_by(_TASK, maintain_order=True)
        .agg(
            *(value(name) for name in ("slot", "error_kind", "is_truncated", *_COUNTS, *_DURATIONS)),
            *(pl.col(name).fill_null(value=False).any() for name in _MARKS),
            model=pl.col("model").drop_nulls().first(),
            started_at=pl.col("at").filter(pl.col("is_launch")).first(),
            end_at=pl.col("at").filter(pl.col("is_release") | pl.col("total_ms").is_not_null()).max(),
            end_line=line(pl.col("is_release") | pl.col("total_ms").is_not_null()),
            any_line=pl.col("source_line").max(),
            next_launch=pl.col("next_launch").filter(pl.col("is_launch")).first(),
        )
    )


def _row_line(first: int, last: int, *, releases: bool) -> pl.Expr:
    """The line of a chunk that a task's row stands on; null if that line is not here, or not yet known.

    `releases`: the log prints "stop processing", so a task with timings alone may still get it.
    """
    timed = pl.col("total_ms").is_not_null()
    both = timed & (pl.col("is_release") | pl.lit(not releases))
    stopped = pl.col("is_release") & (pl.col("is_cancel") | pl.col("error_kind").is_not_null())
    settled = both | stopped | pl.col("next_launch").is_not_null() | (pl.col("end_line") <= last - EDGE_LINES)
    is_whole = timed | pl.col("is_launch")  # else the rest of a task that has its row
    end = pl.when(pl.col("end_line") >= first, settled, is_whole).then("end_line")
    # Without an end: its own last line, as the next task may have no other line than its launch.
    lost = pl.col("next_launch").is_not_null() & (pl.col("any_line") >= first)
    return pl.coalesce(end, pl.when(lost).then("any_line"))


def _to_carry(events: pl.DataFrame, tasks: pl.DataFrame, last: int) -> pl.DataFrame:
    """Events of tasks without a row that may still get one, and the last start of each service."""
    open_tasks = tasks.filter(
        pl.col("row_line").is_null() & (pl.col("is_launch") | (pl.col("any_line") > last - EDGE_LINES))
    )
    begun = pl.coalesce("model_loaded", "model_file").is_not_null()
    starts = events.filter(begun).select(pl.all().tail(2).over("service", mapping_strategy="explode"))
    kept = events.filter(~begun).join(open_tasks, on=_TASK, how="semi", nulls_equal=True)
    return pl.concat([starts, kept]).select(EVENTS.names()).sort("source_line").tail(MOST_CARRIED)


def _rows(tasks: pl.DataFrame, context: Context) -> pl.DataFrame:
    ends = pl.col("is_release") | pl.col("total_ms").is_not_null()
    timed = pl.col("total_ms").is_not_null()
    lost = ~ends
    failed = pl.col("error_kind").is_not_null()
    cancelled = pl.col("is_cancel") & ~timed & ~failed
    from_slot = (
        pl.when(~pl.col("is_truncated").fill_null(value=True), ~failed)
        .then((pl.col("slot_n") - pl.col("prompt_n") + 1).clip(lower_bound=0))
        .fill_null(pl.when(~timed & ends & ~cancelled & ~failed).then(0))
    )
    whole_prompt = pl.coalesce(
        "prompt_n",
        pl.col("cached_n") + pl.col("processed_n"),
        pl.when(~pl.col("is_truncated")).then(pl.col("slot_n") - pl.col("generated_n") + 1),
    )
    rows = _timed(tasks.sort("row_line"), context).with_columns(
        whole_prompt=whole_prompt, from_slot=pl.when(cancelled).then(from_slot)
    )
    origin_given = "origin" in context.options
    no_generation = ends & ~timed & ~cancelled & ~failed
    read = pl.coalesce(
        "cached_n", pl.when(~pl.col("is_truncated")).then(pl.col("whole_prompt") - pl.col("processed_n"))
    )
    return rows.select(
        pl.col("row_line").alias("source_line"),
        request_id=pl.col("task").cast(pl.String),
        started_at="started_at",
        ended_at="ended_at",
        ttft_ms="prompt_ms",
        duration_ms="total_ms",
        provider=pl.lit("llama.cpp"),
        model_served="model",
        instance=pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service"),
        input_tokens=pl.when("is_child").then(0).otherwise(pl.coalesce("whole_prompt", "processed_n")),
        cache_read_tokens=pl.when("is_child").then(0).otherwise(read),
        output_tokens=pl.coalesce("generated_n", "from_slot", pl.when(no_generation).then(0)),
        operation=pl.when(no_generation).then(pl.lit("embedding")),
        status=pl.when(failed | lost)
        .then(pl.lit("error"))
        .when(cancelled)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("ok")),
        error_kind=pl.when(lost & ~failed).then(pl.lit("end_not_in_log")).otherwise("error_kind"),
        usage_origin=pl.when(
            pl.all_horizontal(pl.col("whole_prompt", "processed_n", "generated_n").is_null())
        )
        .then(pl.lit("missing"))
        .otherwise(pl.lit("reported")),
        flags=flag_list(
            {
                RELATIVE_CLOCK: pl.col("is_relative") & pl.lit(not origin_given),
                "clock_from_durations": pl.col("unstamped"),
                "process_gap_unknown": pl.col("is_shifted") & pl.col("is_relative"),
                "input_excludes_cached": pl.col("whole_prompt").is_null()
                & pl.col("processed_n").is_not_null(),
                "output_from_slot_length": pl.col("generated_n").is_null()
                & pl.col("from_slot").is_not_null(),
                "operation_assumed": no_generation,
                "choice_of_other_task": pl.col("is_child"),
                "counts_disagree": pl.col("prompt_n") != pl.col("cached_n") + pl.col("processed_n"),
            }
        ),
        _reject=pl.lit(None, pl.String),
        _other=pl.lit(value=False),
    )


def _timed(tasks: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Add `started_at` and `ended_at`; tasks without stamps are set one after the other (`unstamped`)."""
    state = context.carried
    own = pl.col("total_ms").fill_null(0.0)
    unstamped = pl.col("started_at").is_null() & pl.col("end_at").is_null()
    served = pl.when(unstamped).then(own).otherwise(0.0)
    begun = served.cum_sum() - served + state.get("served_ms", 0.0)
    serial = pl.lit(relative_origin(context), dtype=INSTANT) + span(begun)
    state["served_ms"] = state.get("served_ms", 0.0) + (tasks.select(served.sum()).item() or 0.0)
    started = pl.coalesce("started_at", before(pl.col("end_at"), own), serial)
    return tasks.with_columns(started_at=started, unstamped=unstamped).with_columns(
        ended_at=pl.max_horizontal("end_at", pl.col("started_at") + span(pl.col("total_ms")))
    )
