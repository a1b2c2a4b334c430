"""Ollama's server log: the access lines of its calls, with what the runner said of their tokens.

Belongs here: GIN lines of model routes, paired with the runner's timings (llama.cpp's, old and new) or with
the Go runner's `loading cache slot` (OLLAMA_DEBUG). Does not belong here: answers (`ollama_response.py`),
logs of llama.cpp's own server (`llamacpp_log.py`).

A call's row stands on its GIN line, which is written at its end. Runner lines name no call: the oldest task
that fits into the call's duration is taken to be its task, which is sure where calls follow one another
(OLLAMA_NUM_PARALLEL=1), and right in sum where they overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import clock, containers, durations, outcome, routes
from parsers.format import Format, TokenSemantics
from parsers.ollama import GIN, OWN, is_ollama
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Context, Head

_MODEL = (
    (
        r'^time=\S+ level=[A-Z]+ source=sched\.go:\d+ msg="[^"]*" '
        r"runner\.name=(?:registry\.ollama\.ai/library/)?([\w./:-]{1,200})"
    ),
    r"^(?:llm_load_print_meta|print_info|llama_model_loader): .*?general\.name(?: +str)? += +(.{1,200}?)\s*$",
)
"""The name that calls are made by (OLLAMA_DEBUG), or the one in the model's file."""
_TASK = r"\btask (\d{1,18}) \||\btask_id=(\d{1,18})\b"
_PROMPT = r"prompt eval time *= *([\d.]{1,18}) ms */ *(\d{1,12}) tokens"
_OUTPUT = r"(?:^|[^t] |generation )eval time *= *([\d.]{1,18}) ms */ *(\d{1,12}) (?:tokens|runs)"
_WHOLE = r"new prompt, .*n_tokens = (\d{1,12})"
_REUSED = r"memory_seq_rm \[(\d{1,12}), end\)|kv cache rm \[(\d{1,12}), end\)"
_SLOT = r'^[^"]* msg="loading cache slot" .*\bprompt=(\d{1,12}) used=(\d{1,12})'
_MENTIONS = (
    *("[GIN] ", " level=", "general.name", "eval time", "new prompt, ", "seq_rm [", "kv cache rm ["),
    "loading cache slot",
)
_OPERATIONS = {"chat": "chat", "generate": "completion", "embed": "embedding", "embeddings": "embedding"}
_ROUTE = r"^/api/(chat|generate|embed|embeddings)$"
_SLACK_MS = 1000.0
"""GIN cuts durations of more than a minute to whole seconds."""
_MOST_WAITING = 256


@dataclass(slots=True)
class _Task:
    """What runner lines said of one task."""

    prompt: int | None = None
    cached: int | None = None
    computed: int | None = None
    output: int | None = None
    prompt_ms: float | None = None
    ms: float = 0.0
    by_slot: bool = False

    @property
    def whole_prompt(self) -> int | None:
        if self.prompt is not None or self.computed is None:
            return self.prompt
        return None if self.cached is None else self.cached + self.computed


def _recognise(head: Head) -> bool:
    return is_ollama([containers.bare(line) for line in head.lines])


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    if frame.is_empty() or frame["source_line"][0] <= context.carried.get("last_line", 0):
        context.carried.clear()
    context.carried["last_line"] = frame["source_line"].max() or 0
    lines = containers.unwrapped(frame, pl.col("line").str.contains_any(list(_MENTIONS)))
    found = _told(lines, context)
    calls = found.filter(pl.col("operation").is_not_null())
    usage = pl.DataFrame(list(_usage(found, context.carried)), schema=_USAGE, orient="row")
    rows = _rows(calls.join(usage, on="source_line", how="left", maintain_order="left"), context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _told(lines: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Lines of calls and tasks, taken apart; zone and model are of the last line that named one."""
    line = pl.col("line")
    # Ollama's own lines may quote prompts: what a runner says is on lines of its own.
    runner = pl.when(pl.col("offset").is_null()).then(line)

    def first(pattern: str, dtype: pl.DataType, group: int = 1, of: pl.Expr = runner) -> pl.Expr:
        return of.str.extract(pattern, group).cast(dtype, strict=False)

    count, ms = pl.Int64(), pl.Float64()
    parts = lines.with_columns(
        line.str.extract_groups(GIN).alias("gin"), offset=line.str.extract(OWN, 1)
    ).unnest("gin")
    path = routes.endpoint(pl.col("path"))
    own = path.str.extract(_ROUTE, 1).replace_strict(_OPERATIONS, default=None, return_dtype=pl.String)
    known = routes.operation(path)
    told = parts.with_columns(
        path=path,
        operation=pl.when(pl.col("verb") == "POST").then(
            pl.coalesce(own, pl.when(path.str.starts_with("/v1/"), known != "other").then(known))
        ),
        took_ms=durations.milliseconds(pl.col("took")),
        model=pl.coalesce(line.str.extract(each, 1) for each in _MODEL),
        task=pl.coalesce(first(_TASK, count), first(_TASK, count, 2)),
        prompt=pl.coalesce(first(_WHOLE, count), first(_SLOT, count, of=line)),
        slot_used=first(_SLOT, count, 2, of=line),
        reused=pl.coalesce(first(_REUSED, count), first(_REUSED, count, 2)),
        prompt_ms=first(_PROMPT, ms),
        computed=first(_PROMPT, count, 2),
        output_ms=first(_OUTPUT, ms),
        output=first(_OUTPUT, count, 2),
    )
    state = context.carried
    for name in ("offset", "model"):
        told = told.with_columns(pl.col(name).forward_fill().fill_null(pl.lit(state.get(name), pl.String)))
        state[name] = next(iter(told[name].drop_nulls().tail(1)), state.get(name))
    return told


_SAID = ("prompt", "slot_used", "reused", "computed", "output")
_OF_EVENTS = ("source_line", "operation", "http", "took_ms", "task", "prompt_ms", "output_ms", *_SAID)
_USAGE = {
    **dict.fromkeys(("source_line", "input_n", "cached_n", "output_n"), pl.Int64),
    "ttft_ms": pl.Float64,
    "computed_only": pl.Boolean,
}


def _usage(told: pl.DataFrame, state: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Tokens of each call: runner lines and calls in the file's order; what waits stays in `state`."""
    waiting: list[_Task] = state.setdefault("waiting", [])
    working: dict[int | None, _Task] = state.setdefault("working", {})
    events = told.select(_OF_EVENTS).filter(pl.any_horizontal(pl.col(*_SAID, "operation").is_not_null()))
    for event in events.iter_rows(named=True):
        if event["operation"] is None:
            _note(event, waiting, working)
        elif event["operation"] == "embedding":
            slots = [task for task in waiting if task.by_slot]
            waiting[:] = [task for task in waiting if not task.by_slot]
            if slots:
                read = sum(task.prompt or 0 for task in slots), sum(task.cached or 0 for task in slots)
                yield (event["source_line"], *read, 0, None, False)
        elif event["http"] == "200":
            fitting = (task for task in waiting if task.ms <= (event["took_ms"] or 0.0) + _SLACK_MS)
            if (task := next(fitting, None)) is not None:
                waiting.remove(task)
                whole = task.whole_prompt
                prompt = task.computed if whole is None else whole
                partly = whole is None and prompt is not None
                yield event["source_line"], prompt, task.cached, task.output, task.prompt_ms, partly
        elif waiting and waiting[0].by_slot:
            waiting.pop(0)


def _note(event: dict[str, Any], waiting: list[_Task], working: dict[int | None, _Task]) -> None:
    """Add what a runner line says to its task; the line of the output's time ends it."""
    if event["slot_used"] is not None:
        waiting.append(_Task(prompt=event["prompt"], cached=event["slot_used"], by_slot=True))
    else:
        task = working.setdefault(event["task"], _Task())
        task.prompt = task.prompt if event["prompt"] is None else event["prompt"]
        if task.cached is None:
            task.cached = event["reused"]
        if event["computed"] is not None:
            task.computed, task.prompt_ms = event["computed"], event["prompt_ms"]
        if event["output"] is not None:
            task.output = event["output"]
            task.ms = (event["output_ms"] or 0.0) + (task.prompt_ms or 0.0)
            waiting.append(working.pop(event["task"]))
    del waiting[:-_MOST_WAITING]
    while len(working) > _MOST_WAITING:
        working.pop(next(iter(working)))


def _rows(calls: pl.DataFrame, context: Context) -> pl.DataFrame:
    local = clock.LocalClock.of(context)
    naive = pl.col("stamp").str.to_datetime("%Y/%m/%d - %H:%M:%S", time_unit="us", strict=False)
    offset = pl.col("offset").str.replace("Z", "+00:00", literal=True)
    stated = pl.concat_str(naive.dt.strftime("%Y-%m-%dT%H:%M:%S"), offset)
    http = pl.col("http").cast(pl.Int32)
    status = outcome.status(http)
    own_zone = pl.col("offset").is_null()
    embeds = pl.col("operation") == "embedding"
    nothing = pl.col("input_n").is_null() & pl.col("output_n").is_null()
    rows = calls.with_columns(
        at=pl.coalesce(clock.iso_instant(stated), local.at(naive)), naive=pl.when(own_zone).then(naive)
    )
    zone = {name: own_zone & on for name, on in local.flags(pl.col("naive")).items()}
    return rows.select(
        "source_line",
        "ttft_ms",
        "operation",
        # Whole seconds don't tell calls apart; durations with a fraction do.
        record_key=pl.when(pl.col("took").str.contains(".", literal=True)).then(
            pl.concat_str(pl.lit("ollama"), "stamp", "took", "client", "path", separator="|")
        ),
        started_at=durations.before(pl.col("at"), pl.col("took_ms")),
        ended_at="at",
        duration_ms="took_ms",
        provider=pl.lit("ollama"),
        model_served="model",
        endpoint="path",
        instance=pl.coalesce(pl.lit(context.options.get("instance"), pl.String), "service"),
        input_tokens="input_n",
        cache_read_tokens="cached_n",
        output_tokens=pl.coalesce("output_n", pl.when(embeds, status == "ok").then(0)),
        status=status,
        http_status=http,
        error_kind=pl.when(status == "error").then(pl.concat_str(pl.lit("http_"), pl.col("http"))),
        usage_origin=pl.when(nothing).then(pl.lit("missing")).otherwise(pl.lit("reported")),
        flags=clock.flag_list(
            zone
            | {
                "input_excludes_cached": pl.col("computed_only"),
                "model_last_loaded": pl.col("model").is_not_null(),
            }
        ),
        _reject=pl.when(pl.col("at").is_null()).then(pl.lit("the GIN stamp is no instant of its time zone")),
        _other=pl.lit(value=False),
    )


FORMAT = Format(
    name="ollama_log",
    title="Ollama server log",
    written_by="ollama serve, on stderr, journald, docker or Kubernetes, of all versions",
    target=REQUESTS,
    hop="engine",
    container="text",
    recognised_by="[GIN] lines of Ollama's routes, or lines `time=.. level=.. source=file.go:line`",
    recognise=_recognise,
    map=_map,
    semantics=TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="local"),
    traps=(
        "GIN lines have neither tokens nor a model: tokens come from runner lines, where those are printed.",
        "Runner lines name no call: of parallel calls, neighbours may be mixed up; the sum is right.",
        "The Go runner (0.4 to 0.29) prints prompt and reused tokens with OLLAMA_DEBUG, never the output.",
        "prompt eval counts computed tokens only; the whole prompt is known where the reuse is printed.",
        "The model is that of the last load (`model_last_loaded`): with several loaded it may be another's.",
        "GIN stamps are local, in whole seconds; their offset is that of the server's own lines.",
        "Durations of over a minute are cut to seconds. A call that only loads a model looks alike.",
    ),
)
