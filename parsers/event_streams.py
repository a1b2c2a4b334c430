"""Event streams (SSE) that were captured into a file: from `data:` lines to one body per answer.

Belongs here: finding the events, holding answers until the file ends, and giving them to the mapping of the API's
bodies. Does not belong here: how an API spreads an answer over events (`formats/`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import containers
from parsers.json_text import decoded

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from parsers.format import Context, Format, Head, Structure

_DATA = "data:"
_HOLDS_DATA = r"data: ?[\[{]"
_DONE = "[DONE]"
_LOOKED_AT = 400
_LONGEST_EVENT_BYTES = 8 << 20
"""The last event of a Responses stream repeats the whole answer and the tools' schemas."""
_BATCH = 8192


@dataclass
class Answer:
    """One answer so far: what its events say of it, as a body of the API."""

    body: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    is_whole: bool = False
    line: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass
class Answers:
    """The answers of a file in the order in which they began."""

    begun: list[Answer] = field(default_factory=list)
    latest: Answer | None = None
    _open: dict[str, Answer] = field(default_factory=dict)

    def begin(self, key: str | None = None) -> Answer:
        """A new answer."""
        answer = Answer(key=key)
        self.begun.append(answer)
        if key:
            self._open[key] = answer
        return answer

    def of(self, key: Any) -> Answer:
        """The answer that an event belongs to: by its id, else the latest one that has not ended."""
        if isinstance(key, str) and key:
            return self._open.get(key) or self.begin(key)
        return self.latest if self.latest and not self.latest.is_whole else self.begin()

    def close(self) -> None:
        """The latest stream is over: an id that comes again is another answer's."""
        if self.latest is not None:
            self.latest.is_whole = True
            if self.latest.key and self._open.get(self.latest.key) is self.latest:
                del self._open[self.latest.key]


def stream_twin(
    fmt: Format,
    *,
    name: str,
    title: str,
    recognised_by: str,
    is_event: Callable[[dict[str, Any]], bool],
    fold: Callable[[Answers, dict[str, Any]], Answer | None],
    traps: tuple[str, ...],
    as_json_lines: bool = True,
) -> Format:
    """The answers of an API whose bodies are a format, as event streams.

    Args:
        fmt: the format of the bodies.
        name: of the new format.
        title: of the new format.
        recognised_by: the rule in words.
        is_event: whether an event is one of this API.
        fold: put an event into its answer and give the answer; None for an event of no answer.
        traps: of the new format, before those of all streams.
        as_json_lines: whether lines that are an event's data, without `data:`, count as events, too.

    """
    starts = (_DATA, "{") if as_json_lines else (_DATA,)
    begins = f"^(?:{_DATA}|\\{{)" if as_json_lines else f"^{_DATA}"

    def recognise(head: Head) -> bool:
        lines = [containers.bare(line) for line in head.lines[:_LOOKED_AT]]
        found = [event for line in lines if line.startswith(starts) and (event := _parsed(_data(line)))]
        return bool(found) and 2 * sum(map(is_event, found)) > len(found)

    def fold_lines(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
        answers: Answers = context.carried.setdefault("answers", Answers())
        wanted = pl.col("line").str.contains(r"[\[{]" if as_json_lines else _HOLDS_DATA)
        events = containers.unwrapped(frame, wanted).filter(pl.col("line").str.contains(begins))
        faults: dict[int, str] = {}
        for line, text, at in events.select("source_line", "line", "container_at").iter_rows():
            data = _data(text)
            event = _parsed(data)
            answer = answers.latest if data == _DONE else None
            if data == _DONE:
                answers.close()
            elif event is None:
                faults[line] = _damage(text)
            else:
                answer = fold(answers, event)
            if answer is not None:
                answers.latest, answer.line = answer, line
                answer.first_at, answer.last_at = answer.first_at or at, at
        reject = pl.col("source_line").replace_strict(faults, default=None, return_dtype=pl.String)
        return frame.select("source_line", _reject=reject, _other=reject.is_null())

    def finish(context: Context) -> pl.DataFrame:
        answers: Answers = context.carried.pop("answers", Answers())
        found = [answer for answer in answers.begun if answer.line]
        if not found:
            return pl.DataFrame()
        kinds = {name: fmt.embedded.get(name, kind) for name, kind in fmt.structure.items()}
        schema = {name: _dtype(kind) for name, kind in kinds.items()}
        # A body takes far more memory than its row.
        batches = [found[start : start + _BATCH] for start in range(0, len(found), _BATCH)]
        return pl.concat(
            (rows_of(batch, kinds, schema, context) for batch in batches), how="diagonal_relaxed"
        )

    def rows_of(
        answers: list[Answer], kinds: dict[str, Structure], schema: dict[str, Any], context: Context
    ) -> pl.DataFrame:
        bodies = [_shaped(_timed(answer), kinds) for answer in answers]
        frame = pl.DataFrame(bodies, schema=schema).with_columns(
            pl.Series("source_line", [answer.line for answer in answers], dtype=pl.Int64)
        )
        is_cut = pl.Series([not answer.is_whole for answer in answers])
        rows = fmt.map(frame, context)
        cut_off = pl.when(is_cut).then(pl.lit(["stream_cut_off"])).otherwise(pl.lit([], pl.List(pl.String)))
        return rows.with_columns(
            stream=pl.lit(value=True),
            status=pl.when(is_cut & (pl.col("status") == "ok")).then(pl.lit("cancelled")).otherwise("status"),
            flags=pl.col("flags").list.concat(cut_off),
            _other=pl.lit(value=False),
        )

    return replace(
        fmt,
        name=name,
        title=title,
        written_by="Clients, proxies and curl -N that write an event stream to a file as it comes",
        container="text",
        longest_line_bytes=_LONGEST_EVENT_BYTES,
        recognised_by=recognised_by,
        recognise=recognise,
        structure=None,
        embedded={},
        map=fold_lines,
        finish=finish,
        traps=(
            *traps,
            "One row per answer, of its last statement of usage: chunks are cumulative and never summed.",
            "An answer that does not end is cancelled and flagged stream_cut_off; usage only if a chunk had it.",
            "Times are those of the container's stamps, else the API's own, else the file's: time_from_file.",
            f"An event of more than {_LONGEST_EVENT_BYTES:,} bytes can't be read: a reject, and its usage is unknown.",
        ),
        priority=fmt.priority + 1,
    )


def overwrite(body: dict[str, Any], event: dict[str, Any], names: tuple[str, ...]) -> None:
    """Put the fields that say something into a body: later events know more."""
    body.update({name: event[name] for name in names if event.get(name) not in (None, "")})


def inner(event: dict[str, Any], *path: str | int) -> dict[str, Any]:
    """An object inside of an event; an empty one where there is none."""
    found: Any = event
    for part in path:
        if isinstance(part, int):
            found = found[part] if isinstance(found, list) and len(found) > part else None
        else:
            found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _data(line: str) -> str:
    return line.removeprefix(_DATA).strip()


def _parsed(data: str) -> dict[str, Any] | None:
    try:
        value = decoded(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _damage(line: str) -> str:
    if len(line.encode()) >= _LONGEST_EVENT_BYTES:
        return f"the event is longer than {_LONGEST_EVENT_BYTES:,} bytes"
    return "the data of the event is no JSON object"


def _timed(answer: Answer) -> dict[str, Any]:
    if answer.first_at is None or answer.last_at is None:
        return answer.body
    stamps = {"started_at": answer.first_at.isoformat(), "ended_at": answer.last_at.isoformat()}
    return {**answer.body, **stamps}


def _dtype(structure: Structure) -> Any:
    if isinstance(structure, dict):
        return pl.Struct({name: _dtype(kind) for name, kind in structure.items()})
    return pl.List(_dtype(structure[0])) if isinstance(structure, list) else pl.String


def _shaped(value: Any, structure: Structure) -> Any:
    """A value as the reader of JSON files gives it: the fields of the structure, all leaves as text."""
    if isinstance(structure, dict):
        held = value if isinstance(value, dict) else None
        return held and {
            name: _shaped(each, structure[name]) for name, each in held.items() if name in structure
        }
    if isinstance(structure, list):
        return [_shaped(each, structure[0]) for each in value] if isinstance(value, list) else None
    if value is None or not (structure == "JSON" or isinstance(value, str)):
        return value if value is None else json.dumps(value)
    text = json.dumps(value) if structure == "JSON" else value
    # Half of a surrogate pair is no text.
    return text.encode("utf-8", "replace").decode()
