"""llama.cpp server logs: the text log in all its layouts since 2023, and the JSON-lines log.

Belongs here: stamps and detection. Does not belong here: what the lines of a task make together
(`parsers/llamacpp.py`).

Layouts: `M.SS.mmm.uuu L slot name: id 0 | task 1 | text` (2025 on; the stamp counts from the process's
start), the same without stamp, timings on bare lines after `print_timing: id 0 | task 1 |` (2024, 2025),
`text | tid=.. timestamp=.. id_slot=.. id_task=..` (2024; ik_llama.cpp today), and `llama_print_timings:`
blocks (2023).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import containers
from parsers.format import Format, TokenSemantics
from parsers.llamacpp import assemble, may_tell, unfinished
from parsers.ollama import is_ollama
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PORT = r"(?:\[ *(?P<port>\d{2,5})\] )?"
"""The child that a router's line comes from."""
_STAMP = r"(?:(?P<min>\d{1,7})\.(?P<s>\d\d)\.(?P<ms>\d{3})\.(?P<us>\d{3}) [A-Z] )?"
_LINE = "^" + _PORT + _STAMP + r"(?P<message>.*)$"

_OWN = (
    r"slot +\S+: id +\d+ \| task -?\d+ \| ?|"
    r"srv +(?:\S+: )(?:loading model '|model loaded|listening on |update_slots: |all slots are idle)|"
    r"srv +(?:load_model|update_slots|llama_server|log_server_r): |"
    r"llama_(?:print_timings|perf_context_print): +(?:load|prompt eval|eval|total) time = |"
    r"(?:INFO|VERB|WARN|ERR) +\[ *(?:print_timings|launch_slot_with_task|update_slots|log_server_request)\] "
    r".* \| tid="
)
_RECORD = re.compile(_LINE.removesuffix(r"(?P<message>.*)$") + f"(?:{_OWN})")
_MESSAGE = re.compile(f"(?:{_OWN})")
_OLD_JSON_KEYS = {"tid", "timestamp", "level", "function", "msg"}
_OWN_SHARE = 0.05


def _recognise_text(head: Head) -> bool:
    lines = [containers.bare(line) for line in head.lines if not line.startswith('{"type":')]
    own = sum(bool(_RECORD.match(line)) for line in lines)
    return own > 0 and own >= _OWN_SHARE * len(lines) and not is_ollama(lines)


def _recognise_json(head: Head) -> bool:
    logs = [
        item for item in head.objects if item.get("type") == "log" and {"time", "level", "msg"} <= item.keys()
    ]
    old = [item for item in head.objects if item.keys() >= _OLD_JSON_KEYS]
    if old and len(old) == len(head.objects):
        return any(
            str(item["function"]) in {"main", "load_model", "print_timings", "update_slots"} for item in old
        )
    return bool(logs) and any(re.match(r"\s*(?:srv|slot|cmn|llama_\w+) ", str(item["msg"])) for item in logs)


def _map_text(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    plain = containers.unwrapped(frame, may_tell(pl.col("line")))
    parts = plain.with_columns(pl.col("line").str.extract_groups(_LINE).alias("parts")).unnest("parts")
    stamp = [pl.col(name).cast(pl.Int64) for name in ("min", "s", "ms", "us")]
    return assemble(
        frame,
        parts.select(
            "source_line",
            "message",
            service=pl.coalesce("service", "port"),
            relative_us=((stamp[0] * 60 + stamp[1]) * 1000 + stamp[2]) * 1000 + stamp[3],
            wall_at="container_at",
        ),
        context,
    )


def _map_json(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    known = {name: pl.col(name).fill_null("") for name in ("timestamp", "id_slot", "id_task", "p0")}
    old = pl.format(
        "{} | tid=0 timestamp={} id_slot={} id_task={} p0={}",
        pl.col("msg").fill_null(""),
        *known.values(),
    )
    stamp = pl.col("time").cast(pl.Int64, strict=False)
    return assemble(
        frame,
        frame.filter(may_tell(pl.col("msg"))).select(
            "source_line",
            message=pl.when(pl.col("tid").is_not_null())
            .then(old)
            .otherwise(pl.col("msg").str.strip_chars_end()),
            service=pl.lit(None, pl.String),
            relative_us=pl.when(stamp.is_between(0, 10**15)).then(stamp),
            wall_at=pl.lit(None, pl.Datetime("us", "UTC")),
        ),
        context,
    )


_SEMANTICS = TokenSemantics(cache_read="inside", cache_write="absent", reasoning="inside", clock="relative")
_TRAPS = (
    "Stamps count from the process's start: option origin says when it was, else 2000 (`relative_clock`).",
    "Tasks of a log without stamps are set one after the other (`clock_from_durations`): no load in that.",
    "Printed prompt tokens are the uncached ones; the whole prompt is task.n_tokens, not always printed.",
    "Where neither that nor the reuse is printed, input is the uncached part (`input_excludes_cached`).",
    "Rates use one decode step fewer since 2026-08: tokens and ms are read, never rates.",
    "The first token needs no decode step: a cancelled task generated slot length - prompt + 1.",
    "A task starts when a slot takes it; the wait before is not logged. ttft_ms is prompt time in the slot.",
    "A failed task is cancelled too when its client goes: it is an error, as is a task without an end.",
    "A task in flight at the end of a file has no end there: of a rotated log it is in the next file again.",
    "Tasks with is_child = 1 are further choices of one call: they repeat its prompt, which counts once.",
    "Of bare timings of parallel slots, the lines after a print_timing line are its own.",
)

TEXT = Format(
    name="llamacpp_log",
    title="llama.cpp server log (text)",
    written_by="llama-server of llama.cpp, ik_llama.cpp and forks, on stderr, docker, Kubernetes or journald",
    target=REQUESTS,
    hop="engine",
    container="text",
    recognised_by="lines of `slot name: id 0 | task 1 |`, `srv load_model:` or `llama_print_timings:`",
    recognise=_recognise_text,
    map=_map_text,
    finish=unfinished,
    semantics=_SEMANTICS,
    traps=_TRAPS,
)

JSON = Format(
    name="llamacpp_log_jsonl",
    title="llama.cpp server log (JSON lines)",
    written_by="llama-server with JSON logging",
    target=REQUESTS,
    hop="engine",
    container="json_lines",
    recognised_by="JSON objects with type log, time, level, msg; in 2024 tid, timestamp, function, msg",
    recognise=_recognise_json,
    map=_map_json,
    finish=unfinished,
    structure=dict.fromkeys(
        ("type", "time", "level", "msg", "tid", "timestamp", "id_slot", "id_task", "p0"), "VARCHAR"
    ),
    semantics=_SEMANTICS,
    traps=_TRAPS,
)
