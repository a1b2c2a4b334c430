"""Codex CLI rollouts: JSON lines of a session whose `token_count` events state cumulative totals.

A row is what the totals grew by between two events: one model call. Events that repeat the totals are no calls. Covers
sessions, archived sessions, forks and sub-agents; not the events of `codex exec --json`, which have no times.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import INSTANT, REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COUNTS = {
    "input_tokens": "input_tokens",
    "cache_read_tokens": "cached_input_tokens",
    "cache_write_5m_tokens": "cache_write_input_tokens",
    "output_tokens": "output_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
}
_USAGE = dict.fromkeys(_COUNTS.values(), "VARCHAR")
_STRUCTURE = {
    "timestamp": "VARCHAR",
    "type": "VARCHAR",
    "payload": {
        **dict.fromkeys(
            ("type", "id", "forked_from_id", "turn_id", "cwd", "model", "model_provider"), "VARCHAR"
        ),
        "source": {"subagent": {"thread_spawn": {"parent_thread_id": "VARCHAR"}}},
        "info": {"model": "VARCHAR", "total_token_usage": _USAGE, "last_token_usage": _USAGE},
    },
}
_PARENT = "payload.source.subagent.thread_spawn.parent_thread_id"
_REPLAY = timedelta(seconds=1)
"""A fork writes its parent's history anew in one go when it begins; no call of its own is answered so soon."""
_TYPES = {"session_meta", "turn_context", "event_msg", "response_item", "compacted"}
_LASTING = ("session", "origin", "turn", "model", "provider", "cwd")


def _is_line(item: dict[str, Any]) -> bool:
    return str(item.get("type")) in _TYPES and isinstance(item.get("payload"), dict)


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_line)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    at = fields.instant("timestamp").needed("timestamp")
    totals = {name: fields.whole(f"payload.info.total_token_usage.{key}") for name, key in _COUNTS.items()}
    lasts = {name: fields.whole(f"payload.info.last_token_usage.{key}") for name, key in _COUNTS.items()}
    is_count = (text("payload.type") == "token_count").fill_null(value=False)
    fields.frame = _with_growth(
        fields.frame.with_columns(_said(fields)).with_columns(
            *(total.value.alias(f"total.{name}") for name, total in totals.items()),
            *(last.value.alias(f"last.{name}") for name, last in lasts.items()),
            at.value.alias("at"),
        ),
        context,
    )
    grown = {name: pl.col(f"grown.{name}") for name in _COUNTS}
    has_grown = pl.any_horizontal(grown[name].fill_null(0) != 0 for name in ("input_tokens", "output_tokens"))
    # A count that can't be read refuses its event.
    is_broken = pl.any_horizontal(read.fault.is_not_null() for read in (*totals.values(), *lasts.values()))
    key = pl.concat_str(
        pl.coalesce("turn", "origin"),
        "falls",
        *(pl.coalesce(f"total.{name}", f"last.{name}").fill_null(0) for name in _COUNTS),
        separator="|",
    )
    return fields.rows(
        other=~(is_count & (has_grown | is_broken)) | pl.col("is_replayed"),
        record_key=key,
        started_at=at,
        session_id=pl.col("session"),
        project=pl.col("cwd"),
        provider=pl.col("provider"),
        model_served=pl.coalesce(text("payload.info.model"), pl.col("model")),
        operation=pl.lit("responses"),
        **grown,
        status=pl.lit("ok"),
    )


def _said(fields: Fields) -> list[pl.Expr]:
    """What lines say that holds for the lines after them.

    `origin` is the session that a fork's history is of. It is the same in parent and fork; so is the id of a turn,
    where there is one.
    """
    kind, text = fields.text("type"), fields.text
    is_start = kind == "session_meta"
    says = pl.when(is_start | (kind == "turn_context"))
    return [
        pl.when(is_start).then(text("payload.id")).alias("session"),
        pl.when(is_start).then(text("payload.forked_from_id", _PARENT, "payload.id")).alias("origin"),
        says.then(text("payload.turn_id")).alias("turn"),
        says.then(text("payload.model")).alias("model"),
        says.then(text("payload.model_provider")).alias("provider"),
        says.then(text("payload.cwd")).alias("cwd"),
    ]


def _with_growth(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Fill what lasts forward, and take from each event the totals of the one before it.

    Totals that fell began anew (a resumed session, a context that was full); the first ones of a file may be
    inherited: there `last_token_usage` is what was added.
    """
    before = context.carried
    frame = frame.with_columns(
        pl.col(name).forward_fill().fill_null(pl.lit(before.get(name), pl.String)) for name in _LASTING
    )
    # The file is of the session that it names first; what follows are its ancestors'.
    session = before.get("session") or frame["session"].drop_nulls().first()
    frame = frame.with_columns(pl.lit(session, pl.String).alias("session"))
    before["first_at"] = before.get("first_at") or frame["at"].drop_nulls().first()
    is_early = pl.col("at") <= pl.lit(before["first_at"], INSTANT) + _REPLAY
    is_fork = pl.lit(session is not None) & pl.col("origin").ne_missing(pl.col("session"))
    frame = frame.with_columns((is_fork & is_early).fill_null(value=False).alias("is_replayed"))
    known = {name: pl.lit(before.get(f"total.{name}"), pl.Int64) for name in _COUNTS}
    frame = frame.with_columns(
        pl.col(f"total.{name}").forward_fill().shift(1).fill_null(known[name]).alias(f"before.{name}")
        for name in _COUNTS
    )
    growth = {name: pl.col(f"total.{name}") - pl.col(f"before.{name}").fill_null(0) for name in _COUNTS}
    is_first = pl.all_horizontal(pl.col(f"before.{name}").is_null() for name in _COUNTS)
    fell = pl.any_horizontal((delta < 0).fill_null(value=False) for delta in growth.values())
    has_total = pl.any_horizontal(pl.col(f"total.{name}").is_not_null() for name in _COUNTS)
    has_last = pl.any_horizontal(pl.col(f"last.{name}").is_not_null() for name in _COUNTS)
    from_last = has_last & (is_first | fell | ~has_total)
    frame = frame.with_columns(
        pl.when(from_last)
        .then(pl.col(f"last.{name}"))
        .when(is_first | fell)
        .then(pl.col(f"total.{name}"))
        .otherwise(delta)
        .alias(f"grown.{name}")
        for name, delta in growth.items()
    )
    frame = frame.with_columns((fell.cast(pl.Int64).cum_sum() + before.get("falls", 0)).alias("falls"))
    end = frame.select(
        *_LASTING,
        "falls",
        *(pl.coalesce(f"total.{name}", f"before.{name}").alias(f"total.{name}") for name in _COUNTS),
    ).row(-1, named=True)
    before.update(end)
    return frame


FORMAT = Format(
    name="codex_rollout",
    title="Codex CLI rollout",
    written_by="Codex CLI: sessions/YYYY/MM/DD/rollout-*.jsonl, archived_sessions",
    target=REQUESTS,
    hop="client",
    replays=True,
    container="json_lines",
    recognised_by="JSON objects with type session_meta, turn_context, event_msg or response_item, and payload",
    recognise=_recognise,
    map=_map,
    structure=_STRUCTURE,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", retries="hidden"),
    traps=(
        "total_token_usage is cumulative and is stated again without a call: a row is its growth.",
        "Totals fall after a resume or a full context: there, and in a file's first event, last_token_usage counts.",
        "Forks and sub-agents begin with their parent's events under new times: those of the first second are no calls.",
        "The turn (or the session that a history is of) and the totals are the key of an event.",
        "total_tokens is not used: it is not always input plus output.",
        "timestamp is when the usage was known, the end of the call; no duration, no id of a call.",
        "The model is that of the turn. Calls that failed state no usage and are no rows.",
    ),
)
