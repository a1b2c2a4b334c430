"""Runs of a trace that are listed one by one: what is above a call repeats its usage.

Belongs here: keeping the rows of a file until its end, when the whole tree is known, and what becomes of
each. Does not belong here: the judgement itself (`spans.TREE`), where a log keeps a parent (`formats/`).

A chunk does not show whether a run has calls below it: they may stand anywhere in the file. So `hold` calls
every row other and keeps it, packed and without its empty columns, and `finish` gives it back chunk by chunk. Of
runs that are listed twice (a table that keeps versions) the latest one counts. A chunk that begins before the last
one is the file read anew.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import polars as pl

from parsers import spans
from parsers.readers import stream_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Context
    from parsers.records import Table

_ROWS, _RUNS, _LAST_LINE = "rows", "runs", "last_line"
_TREE_ROWS = 65_536
_LATEST = f"""
WITH RECURSIVE spans AS (
    SELECT *, NULL::VARCHAR AS engine FROM cells
    QUALIFY row_number() OVER (
        PARTITION BY trace_id, coalesce(span_id, source_line::VARCHAR)
        ORDER BY version DESC NULLS LAST, source_line
    ) = 1
),
{spans.TREE}
"""
_JUDGED = ("source_line", "is_call", "is_repeated", "is_sum_alone", "differs")


def hold(rows: pl.DataFrame, runs: pl.DataFrame, context: Context) -> pl.DataFrame:
    """Keep the rows of a chunk; give them back as other records, but for those that are refused.

    Args:
        rows: as `Fields.rows` makes them.
        runs: of all records `source_line`, `trace_id`, `span_id`, `parent_id`, `operation` (`span_names`),
            `version` (the later one is greater), `input_tokens` and `output_tokens` (null without usage).
        context: keeps them.

    """
    carried = context.carried
    if rows["source_line"][0] <= carried.get(_LAST_LINE, 0):
        carried.clear()
    carried[_LAST_LINE] = rows["source_line"].max()
    kept = rows.filter(pl.col("_reject").is_null() & ~pl.col("_other"))
    filled = [
        column.name for column in kept if column.null_count() < kept.height or column.name == "source_line"
    ]
    packed = BytesIO()
    kept.select(filled).write_ipc(packed, compression="zstd")
    carried.setdefault(_ROWS, []).append(packed.getvalue())
    carried.setdefault(_RUNS, []).append(runs)
    return rows.with_columns(_other=pl.col("_other") | pl.col("_reject").is_null())


def finish(context: Context, target: Table) -> Iterator[pl.DataFrame]:
    """The rows that were kept: calls, and what repeats or sums them up."""
    if _ROWS not in context.carried:
        return
    rows: list[bytes] = context.carried.pop(_ROWS)
    runs = pl.concat(context.carried.pop(_RUNS))
    judged = pl.concat(
        frame.select(_JUDGED) for frame in stream_frames(_LATEST, _TREE_ROWS, or_empty=True, register=runs)
    )
    for packed in rows:
        yield _sorted_out(pl.read_ipc(packed), judged, target)


def _sorted_out(rows: pl.DataFrame, judged: pl.DataFrame, target: Table) -> pl.DataFrame:
    flags = pl.col("flags") if "flags" in rows.columns else pl.lit(None, dtype=target["flags"].dtype)
    alone, differs = pl.col("is_sum_alone"), pl.col("differs").fill_null(value=False)
    reason = pl.when(alone).then(pl.lit("a sum of usage without the calls that it sums up"))
    lines = rows["source_line"]
    mine = judged.filter(pl.col("source_line").is_between(lines.min(), lines.max()))
    return (
        rows.join(mine, on="source_line", how="left")
        .sort("source_line")
        .with_columns(
            _reject=reason,
            _other=(~alone & (~pl.col("is_call") | pl.col("is_repeated"))).fill_null(value=True),
            flags=pl.when(differs)
            .then(flags.fill_null([]).list.concat(pl.lit(["usage_differs_from_children"])))
            .otherwise(flags),
        )
        .drop(*_JUDGED[1:])
    )
