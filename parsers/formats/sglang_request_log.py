"""SGLang's request log: `--log-requests`, as Python's text or (`--log-requests-format json`) as JSON.

Belongs here: the line at the end of each request, under the stamp of the server or without one. Does not belong
here: batch lines (`sglang_log.py`; a log that has both is read for those), exported requests
(`sglang_requests.py`).
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import clock, log_records
from parsers.fields import Fields
from parsers.format import Format
from parsers.formats.sglang_log import has_batches
from parsers.json_text import decoded
from parsers.records import REQUESTS
from parsers.sglang import IS_REQUEST, META, MODEL, PARAMETERS, SEMANTICS, STAMP, START, TRAPS, request_rows

if TYPE_CHECKING:
    from parsers.format import Context, Head

_LINE = rf"^(?:{STAMP})?(?P<finished>(?:Finish: obj=|\{{).*)$"
_META = "'meta_info': {"
_NOT_LITERAL = re.compile(r"(?<=: )(?:nan|-?inf)(?=[,}])")
_SHARE = 0.02
_STRUCTURE = {**META, "request_parameters": PARAMETERS, "timestamp": "VARCHAR"}


def _recognise(head: Head) -> bool:
    lines = [log_records.bare(line) for line in head.lines]
    return sum(bool(IS_REQUEST.match(line)) for line in lines) > _SHARE * len(lines) and not has_batches(
        lines
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    told = log_records.unwrapped(
        frame,
        pl.col("line").str.contains_any(["Finish: obj=", "request.finished", "server_args=ServerArgs("]),
    )
    is_start = pl.col("line").str.contains(START)
    model = pl.coalesce(pl.col("line").str.extract(pattern, 1) for pattern in MODEL)
    lines = told.with_columns(
        pl.col("line").str.extract_groups(_LINE).alias("parts"), base_model=pl.when(is_start).then(model)
    ).unnest("parts")
    lines = lines.with_columns(
        pl.col("base_model").forward_fill().fill_null(pl.lit(context.carried.get("model"), pl.String))
    )
    context.carried["model"] = next(iter(lines["base_model"].tail(1)), context.carried.get("model"))
    ended = lines.filter(pl.col("finished").is_not_null())
    records = [_record(line) for line in ended["finished"]]
    ended = ended.filter(pl.Series([record is not None for record in records], dtype=pl.Boolean))
    rows = _rows(ended, [record for record in records if record is not None], context)
    return (
        frame.select("source_line")
        .join(rows, on="source_line", how="left", maintain_order="left")
        .with_columns(pl.col("_other").fill_null(value=True))
    )


def _rows(ended: pl.DataFrame, records: list[dict[str, Any]], context: Context) -> pl.DataFrame:
    local = clock.LocalClock.of(context)
    names = dict.fromkeys(_flat(_STRUCTURE), pl.String)
    said = pl.DataFrame([_texts(record, names) for record in records], schema=names)
    stamp = pl.coalesce("timestamp", "stamp").str.replace("T", " ", literal=True)
    naive = stamp.str.to_datetime("%Y-%m-%d %H:%M:%S%.f", time_unit="us", strict=False)
    timed = ended.hstack(said).with_columns(naive=pl.when(pl.col("container_at").is_null()).then(naive))
    timed = timed.with_columns(
        logged_at=pl.coalesce("container_at", local.at(pl.col("naive"))).dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")
    )
    by_log = pl.all_horizontal(pl.col("request_received_ts", "request_finished_ts").is_null())
    zone = timed.select(
        clock.flag_list({name: by_log & on for name, on in local.flags(pl.col("naive")).items()})
    ).to_series()
    unread = pl.when(timed["id"].is_null()).then(
        pl.lit("the line is cut or damaged: meta_info can't be read")
    )
    rows = request_rows(Fields(timed.drop("line", "finished", "naive", "container_at")), context)
    return rows.with_columns(flags=pl.col("flags").list.concat(zone), _reject=pl.coalesce(unread, "_reject"))


def _record(line: str) -> dict[str, Any] | None:
    """What a line says of its request, named as in the exports; None if it is of no request that has ended."""
    try:
        if line.startswith("{"):
            entry = decoded(line)
            if entry.get("event") != "request.finished":
                return None
            meta, asked = entry["out"]["meta_info"], entry.get("obj")
            return {
                **meta,
                "request_parameters": {**asked, "text": None},
                "timestamp": entry.get("timestamp"),
            }
        # Texts of users stand before it: the last one is SGLang's own.
        at = line.rindex(_META)
        meta = ast.literal_eval("{" + _NOT_LITERAL.sub("None", line[at:]))["meta_info"]
        asked = line.partition("), out={")[0]
        limits = {"max_new_tokens": _last(asked, "'max_new_tokens': ")}
        return {
            **meta,
            "request_parameters": {"stream": _last(asked, ", stream="), "sampling_params": limits},
        }
    except (ValueError, SyntaxError, LookupError, TypeError, AttributeError, RecursionError, MemoryError):
        return {}


def _last(text: str, name: str) -> str | None:
    """The word behind the last mention of a parameter: the user's texts stand before it."""
    _, found, rest = text.rpartition(name)
    return re.match(r"\w*", rest)[0] if found else None  # type: ignore[index]


def _flat(structure: dict[str, Any], prefix: str = "") -> list[str]:
    return [
        name
        for key, inner in structure.items()
        for name in (_flat(inner, f"{prefix}{key}.") if isinstance(inner, dict) else [prefix + key])
    ]


def _texts(record: dict[str, Any], names: dict[str, Any]) -> dict[str, str | None]:
    """The values at these dotted names, as text."""
    found = {}
    for name in names:
        value: Any = record
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        found[name] = None if value is None or isinstance(value, dict | list) else str(value)
    return found


FORMAT = Format(
    name="sglang_request_log",
    title="SGLang request log",
    written_by="SGLang server with --log-requests, as text or JSON, on stdout, in files, docker or Kubernetes",
    target=REQUESTS,
    hop="engine",
    container="text",
    recognised_by="lines `Finish: obj=..` or JSON with event request.finished, and no batch lines",
    recognise=_recognise,
    map=_map,
    semantics=SEMANTICS,
    traps=(
        *TRAPS,
        "Answers of versions before 2025 state no instants: end = the line's stamp, start = end - e2e_latency.",
        "Stamps are local time without a zone: option timezone, else UTC is assumed and flagged.",
        "The model is that of the last server_args line.",
        "Lines over 64 KB (--log-requests-level 3) are cut before their counts: rejects.",
        "SGLANG_LOG_REQUEST_EXCEEDED_MS leaves fast requests out: such a log is a biased sample.",
    ),
)
