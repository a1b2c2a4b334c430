"""What `codex exec --json` prints: events of a run, the usage at the end of each turn.

Sessions (rollouts) have their own format (`codex_rollout`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.clock import flag_list
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
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
_ENDED, _FAILED, _BEGUN = "turn.completed", "turn.failed", "thread.started"
_STRUCTURE = {
    **dict.fromkeys(("type", "thread_id", "timestamp", "model"), "VARCHAR"),
    "usage": dict.fromkeys(_COUNTS.values(), "VARCHAR"),
}


def _is_mark(item: dict[str, Any]) -> bool:
    kind, stated = item.get("type"), item.get("usage")
    is_end = kind == _ENDED and isinstance(stated, dict) and "cached_input_tokens" in stated
    return is_end or (kind == _BEGUN and "thread_id" in item)


def _recognise(head: Head) -> bool:
    return any(map(_is_mark, head.objects))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    kind = text("type")
    thread = text("thread_id").forward_fill().fill_null(pl.lit(context.carried.get("thread"), pl.String))
    fields.frame = fields.frame.with_columns(
        thread=thread, run=(kind == _BEGUN).fill_null(value=False).cum_sum() + context.carried.get("run", 0)
    )
    context.carried.update(fields.frame.select("thread", "run").row(-1, named=True))
    counts = {column: fields.whole(f"usage.{name}") for column, name in _COUNTS.items()}
    fields.frame = fields.frame.with_columns(
        **{f"total.{column}": read.value for column, read in counts.items()},
        is_end=kind.is_in([_ENDED, _FAILED]).fill_null(value=False),
    )
    turns = _since_the_turn_before(fields.frame, context)
    fields.frame = fields.frame.join(turns, on="source_line", how="left", maintain_order="left")
    at = fields.instant("timestamp")
    from_file = at.value.is_null() & pl.lit(context.modified_at is not None)
    started = pl.coalesce(at.value, pl.lit(context.modified_at, dtype=INSTANT))
    totals = [pl.col(f"total.{column}").cast(pl.String) for column in ("input_tokens", "output_tokens")]
    is_failed = kind == _FAILED
    return fields.rows(
        other=~pl.col("is_end"),
        record_key=pl.when(kind == _ENDED).then(
            pl.concat_str("thread", *totals, separator="|", ignore_nulls=True)
        ),
        started_at=started,
        session_id=pl.col("thread"),
        provider=pl.lit("openai"),
        model_served=text("model"),
        operation=pl.lit("responses"),
        **{column: pl.col(f"turn.{column}") for column in _COUNTS},
        status=pl.when(is_failed).then(pl.lit("error")).otherwise(pl.lit("ok")),
        error_kind=pl.when(is_failed).then(pl.lit("unknown")),
        flags=flag_list({"calls_summed": pl.lit(value=True), "time_from_file": from_file}),
    )


def _since_the_turn_before(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    """What each turn added to the sums of its run: they grow from turn to turn, and begin anew with a new run."""
    sums = [f"total.{column}" for column in _COUNTS]
    ends = frame.filter("is_end").select("source_line", "run", *sums)
    before: pl.DataFrame = context.carried.get("before", ends.clear())
    known = pl.concat([before, ends], how="vertical_relaxed")
    context.carried["before"] = known.filter(pl.col("total.input_tokens").is_not_null()).tail(1)
    last = {name: pl.col(name).forward_fill().shift(1).over("run").fill_null(0) for name in sums}
    has_grown = pl.all_horizontal(pl.col(name).fill_null(0) >= last[name] for name in sums)
    turn = {
        name.replace("total.", "turn."): pl.when(has_grown).then(pl.col(name) - last[name]).otherwise(name)
        for name in sums
    }
    return known.with_columns(**turn).select("source_line", *turn).tail(ends.height)


FORMAT = Format(
    name="codex_exec",
    title="Codex exec output",
    written_by="codex exec --json",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects of type thread.started, or turn.completed with usage of cached_input_tokens",
    recognise=_recognise,
    map=_map,
    retells_sessions=True,
    structure=_STRUCTURE,
    semantics=TokenSemantics(cache_read="inside", cache_write="inside", reasoning="inside", retries="hidden"),
    traps=(
        "A turn is several calls: their sum (flag calls_summed). The model is not stated.",
        "usage is the sum of the run so far: a turn is what it adds. A resumed thread repeats what was before it.",
        "No time is stated: the file's is taken, flagged time_from_file. A failed turn states no usage.",
        "The same calls are in the thread's rollout, one by one: where it is given too, they count alone.",
    ),
)
