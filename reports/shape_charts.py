"""Charts of the shapes of calls: lengths of inputs and outputs, growth of sessions; and their part of audit.json.

Belongs here: laying counts out. Does not belong here: counting (`pipelines/demand/shapes.py`).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from reports.charts import (
    ACCENT,
    FAINT,
    INK,
    SERIES,
    Chart,
    Twin,
    finish,
    log_ticks,
    over,
    quantity_axis,
    value_axis,
)
from reports.document_figures import Document, share
from reports.numbers import exact, percent, short
from reports.page_strings import CHART, LABEL

LENGTHS_SCHEMA = pl.Schema(
    {"measure": pl.String()}
    | {name: pl.Int64() for name in ("from_tokens", "to_tokens", "calls", "p50", "p95", "p99", "max")}
)
"""One row per measure (input, output) and bin, with the measure's quantiles."""
GROWTH_SCHEMA = pl.Schema(
    dict.fromkeys(("turn", "sessions", "input_p50", "input_p90", "input_max"), pl.Int64())
)
"""One row per turn, or bin of turns, of sessions."""
LEAST_SESSIONS = 5
"""Sessions below which a turn is an anecdote and is not drawn."""
_LEAST_TURNS = 3
_MEASURES = (("input", ACCENT), ("output", SERIES[1]))
_QUANTILES = ("p50", "p95", "p99", "max")


def lengths_part(lengths: pl.DataFrame) -> dict[str, dict[str, Any] | None]:
    """By measure: calls, quantiles and bins; null where no call tells a length."""
    out: dict[str, dict[str, Any] | None] = {}
    for measure, _ in _MEASURES:
        rows = lengths.filter(pl.col("measure") == measure).sort("from_tokens")
        out[measure] = (
            None
            if rows.is_empty()
            else {
                "calls": int(rows["calls"].sum()),
                **{name: rows[name][0] for name in _QUANTILES},
                "bins": rows.select("from_tokens", "to_tokens", "calls").to_dicts(),
            }
        )
    return out


def shape_charts(document: Document) -> dict[str, Chart | None]:
    """Both charts by id; None where the calls tell no length or no session."""
    return {"demand_lengths": _lengths(document), "waste_sessions": _growth(document)}


def _lengths(document: Document) -> Chart | None:
    known = [
        (name, part, colour)
        for name, colour in _MEASURES
        if (part := document["lengths"][name]) is not None and part["max"]
    ]
    rows = [row for name, part, colour in known for row in _steps(name, part, colour)]
    if not rows:
        return None
    import altair as alt

    sizes = [row["tokens"] for row in rows]
    ticks = log_ticks(min(sizes), max(sizes))
    tops = [
        max((row for row in rows if row["name"] == name), key=lambda row: row["share"])
        for name, _, _ in known
        if any(row["name"] == name for row in rows)
    ]
    x = alt.X(
        "tokens:Q",
        title=LABEL["tokens_of_a_call"],
        scale=alt.Scale(type="log", nice=False),
        axis=value_axis(grid=False, values=ticks),
    )
    y = quantity_axis("share", LABEL["share_of_calls"], "%")
    colour = alt.Color("colour:N", scale=None)
    layers = over("steps").mark_area(interpolate="step-after", opacity=0.25, line=True).encode(
        x=x, y=y.stack(None), color=colour, detail="name:N"
    ) + over("tops").mark_text(dy=-7, align="left").encode(x=x, y=y, text="name:N", color=colour)
    told = " ".join(
        CHART["lengths"].format(measure=LABEL[name], p50=short(part["p50"]), p95=short(part["p95"]))
        for name, part, _ in known
    )
    empty = sum(row["calls"] for _, part, _ in known for row in part["bins"] if row["from_tokens"] == 0)
    return Chart(
        id="demand_lengths",
        title=told,
        spec=finish(layers, 200, steps=rows, tops=tops),
        twin=Twin(
            (
                (LABEL["measure"], "text"),
                (LABEL["from"], "count"),
                (LABEL["below"], "count"),
                (LABEL["calls"], "count"),
                (LABEL["share_of_calls"], "ratio"),
            ),
            [
                (
                    LABEL[name],
                    row["from_tokens"],
                    row["to_tokens"],
                    row["calls"],
                    share(row["calls"], part["calls"]),
                )
                for name, part, _ in known
                for row in part["bins"]
            ],
        ),
        definition="length",
        note=CHART["lengths_note_empty" if empty else "lengths_note"].format(empty=exact(empty)),
        height=270,
    )


def _steps(name: str, part: dict[str, Any], colour: str) -> list[dict[str, Any]]:
    """The bins as a line of steps that begins and ends at zero; a log axis has no place for no tokens."""
    bins = [row for row in part["bins"] if row["from_tokens"] > 0]
    out: list[dict[str, Any]] = []
    for row in bins:
        if out and out[-1]["tokens"] < row["from_tokens"]:
            out.append({"tokens": out[-1]["to"], "share": 0.0, "to": row["from_tokens"]})
        top = row["to_tokens"] or row["from_tokens"] * 2
        if out and out[-1]["tokens"] == row["from_tokens"]:
            out.pop()
        out.append({"tokens": row["from_tokens"], "share": row["calls"] / part["calls"], "to": top})
    if out:
        out.append({"tokens": out[-1]["to"], "share": 0.0, "to": out[-1]["to"]})
    return [
        {"name": LABEL[name], "colour": colour, "tokens": row["tokens"], "share": row["share"]} for row in out
    ]


def _growth(document: Document) -> Chart | None:
    rows = [row for row in document["session_growth"] if row["sessions"] >= LEAST_SESSIONS]
    if len(rows) < _LEAST_TURNS:
        return None
    import altair as alt

    first, last = rows[0], rows[-1]
    ticks = log_ticks(first["turn"], last["turn"])
    x = alt.X(
        "turn:Q",
        title=LABEL["turn"],
        scale=alt.Scale(type="log", nice=False),
        axis=value_axis(grid=False, values=ticks),
    )
    y = quantity_axis("input_p50", LABEL["input_of_a_call"])
    ends = [
        {"turn": last["turn"], "tokens": last[key], "text": key.removeprefix("input_")}
        for key in ("input_p50", "input_p90")
    ]
    layers = (
        over("turns").mark_area(color=FAINT, opacity=0.6).encode(x=x, y=y, y2="input_p90:Q")
        + over("turns").mark_line(color=ACCENT, strokeWidth=1.6).encode(x=x, y=y)
        + over("ends").mark_text(align="right", dy=-7, color=INK).encode(x=x, y="tokens:Q", text="text:N")
    )
    figures = {
        "turn": short(last["turn"]),
        "last": short(last["input_p50"]),
        "first": short(first["input_p50"]),
    }
    return Chart(
        id="waste_sessions",
        title=CHART["growth"].format(**figures, share=percent(share(last["sessions"], first["sessions"]))),
        spec=finish(layers, 200, turns=rows, ends=ends),
        twin=Twin(
            tuple((LABEL[name], "count") for name in GROWTH_SCHEMA.names()),
            [tuple(row.values()) for row in document["session_growth"]],
        ),
        definition="session-growth",
        note=CHART["growth_note"].format(least=LEAST_SESSIONS),
        height=270,
    )
