"""What a chart of the report is, how it looks, and the list of all of them.

Belongs here: `Chart` and its table twin, colours and configuration (CSS variables, so that light, dark and
print follow the page), the marks that several charts share. Does not belong here: one chart's figures
(`demand_charts.py` and its siblings), the page (`page.py`).

Charts are Vega-Lite specifications made by Altair from aggregates, at most `MAX_POINTS` points each. Text
from logs enters them only as data values, never as a field name or an expression.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

MAX_POINTS = 1000
"""Points of one series: more can't be told apart on a screen and make the page heavy."""

Kind = Literal["text", "count", "real", "money", "ratio", "instant", "day"]
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Twin:
    """The figures of a chart as a table: columns (label, kind) and rows of plain values."""

    columns: tuple[tuple[str, Kind], ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: its finding as the title, its specification, its table twin, the definition it links to."""

    id: str
    title: str
    spec: Spec
    twin: Twin
    definition: str
    note: str = ""
    height: int = 260


ACCENT, WARN, GREY, FAINT, INK = (f"var(--{name})" for name in ("accent", "warn", "grey", "faint", "ink"))
HATCH = "url(#hatch)"
"""Fill of what is missing: a pattern that the page defines."""
HEAT = tuple(f"var(--heat{step})" for step in range(7))
SERIES = tuple(f"var(--series{step})" for step in range(6))

FONT = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'Helvetica Neue', Arial, sans-serif"
"""The page's font: Vega measures labels with it, so `inherit` would cut them."""
SI_LABELS = "format(datum.value, '~s')"
"""Axis labels one by one: Vega alone gives all of them the prefix of the largest, and zero as `0k`."""

CONFIG: Mapping[str, Any] = MappingProxyType(
    {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": INK,
            "titleColor": INK,
            "gridColor": FAINT,
            "domainColor": GREY,
            "tickColor": GREY,
            "titleFontWeight": "normal",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "labelLimit": 160,
        },
        "legend": {
            "labelColor": INK,
            "titleColor": INK,
            "orient": "top",
            "titleFontWeight": "normal",
            "labelLimit": 200,
            "gradientHorizontalMinLength": 100,
            "gradientHorizontalMaxLength": 150,
        },
        "text": {"color": INK, "font": FONT, "fontSize": 11},
        "line": {"color": ACCENT, "strokeWidth": 1.2},
        "bar": {"color": GREY},
        "rule": {"color": GREY},
        "point": {"color": GREY, "filled": True, "size": 50},
        "area": {"color": ACCENT},
        "rect": {"color": FAINT},
    }
)


TIME_LABELS = (
    "utchours(datum.value) == 0 && utcminutes(datum.value) == 0"
    " ? utcFormat(datum.value, '%a %m-%d') : utcFormat(datum.value, '%H:%M')"
)
_FEW_DECADES = 6
_LABEL_ROOM = 1.5
"""Bars end here so that their labels fit on a narrow screen too."""

Rows = Sequence[Mapping[str, Any]]


def over(name: str) -> Any:
    """Begin a chart over the rows that `finish` is given under a name."""
    import altair as alt

    return alt.Chart(alt.NamedData(name))


def finish(chart: Any, height: int, **rows: Rows) -> Spec:
    """Give a chart its size, its rows and the page's look; return the specification.

    Rows are put in last: Altair would check every one of them against its schema, which takes seconds. The specification
    itself is checked by a test, not on each page.
    """
    spec: Spec = chart.properties(width="container", height=height).to_dict(validate=False)
    # A layer over no rows would have Vega warn of an empty extent.
    if "layer" in spec:
        shared = spec.get("data")
        spec["layer"] = [part for part in spec["layer"] if rows[part.get("data", shared)["name"]]]
    spec["datasets"] = {name: list(part) for name, part in rows.items()}
    spec["config"] = dict(CONFIG)
    spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def colours(names: Sequence[str]) -> Any:
    """A colour per name, the same wherever the same names are given in the same order."""
    import altair as alt

    return alt.Scale(domain=list(names), range=[SERIES[index % len(SERIES)] for index in range(len(names))])


def wall_clock(frame: pl.DataFrame, column: str, zone: str) -> pl.DataFrame:
    """Replace instants by the wall clock of a zone, typed as UTC: a browser shows them as they are."""
    local = pl.col(column).dt.convert_time_zone(zone).dt.replace_time_zone(None).dt.replace_time_zone("UTC")
    return frame.with_columns(local)


def iso(column: str) -> pl.Expr:
    """An instant as ISO 8601 text with Z, as Vega reads it."""
    return pl.col(column).dt.strftime("%Y-%m-%dT%H:%M:%SZ").alias(column)


def binned_max(frame: pl.DataFrame, at: str, measures: Sequence[str]) -> tuple[pl.DataFrame, int]:
    """Thin a series of minutes to at most `MAX_POINTS` by the maximum of each bin.

    Args:
        frame: one row per minute (column `at`), sorted.
        at: name of the column of instants.
        measures: columns to take the maximum of.

    Returns:
        The thinned frame (`at` = start of the bin) and the minutes per bin; 1 where nothing was thinned.

    """
    first, last = frame[at].min(), frame[at].max()
    if frame.height <= MAX_POINTS or first is None or last is None:
        return frame.select(at, *measures), 1
    span = int((last - first).total_seconds() // 60) + 1  # type: ignore[operator, union-attr]
    minutes = -(-span // MAX_POINTS)
    thinned = (
        frame.sort(at)
        .group_by_dynamic(at, every=f"{minutes}m", start_by="datapoint")
        .agg(pl.col(*measures).max())
    )
    return thinned, minutes


def time_axis(title: str) -> Any:
    """Build an x axis over wall-clock time."""
    import altair as alt

    return alt.X(
        "at:T",
        title=title,
        scale=alt.Scale(type="utc"),
        axis=alt.Axis(labelExpr=TIME_LABELS, labelOverlap=True, grid=False, tickCount=8),
    )


def value_axis(form: str = "~s", **more: Any) -> Any:
    """Build an axis of quantities, with SI prefixes unless another format is asked for."""
    import altair as alt

    words = {"labelExpr": SI_LABELS} if form == "~s" else {"format": form}
    return alt.Axis(**{"tickCount": len(more.get("values", range(5))), **words, **more})


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis that don't run into each other: powers of ten, and 2 and 5 of them where few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= _FEW_DECADES else (1,)
    return [tick for power in decades for step in steps if low <= (tick := step * 10.0**power) <= high]


def quantity_axis(field: str, title: str, form: str = "~s") -> Any:
    """Build a y encoding from zero."""
    import altair as alt

    return alt.Y(f"{field}:Q", title=title, axis=value_axis(form))


def bars(rows: Rows, title: str, form: str = "~s", *, name_px: int = 150) -> tuple[Spec, int]:
    """Horizontal bars with direct labels.

    Args:
        rows: `name`, `value`, `label` (the value in words), `colour` (one of the page's), in the order shown.
        title: title of the value axis, with unit.
        form: number format of the axis.
        name_px: room for the names, in pixels.

    Returns:
        The specification, and the height it takes in pixels.

    """
    import altair as alt

    names = [row["name"] for row in rows]
    size = max(60, 24 * len(names) + 10)
    highest = max((row["value"] for row in rows), default=0) or 1
    base = over("bars").encode(
        y=alt.Y(
            "name:N", title=None, sort=names, axis=alt.Axis(ticks=False, domain=False, labelLimit=name_px)
        ),
        x=alt.X(
            "value:Q",
            title=title,
            scale=alt.Scale(domain=[0, highest * _LABEL_ROOM], nice=False),
            axis=value_axis(form),
        ),
        tooltip=[alt.Tooltip("name:N"), alt.Tooltip("label:N", title=title)],
    )
    marks = base.mark_bar(height=14).encode(color=alt.Color("colour:N", scale=None))
    labels = base.mark_text(align="left", dx=4).encode(text="label:N")
    return finish(marks + labels, size, bars=rows), size + 45


def named(names: Sequence[str]) -> list[str]:
    """Names cut for an axis, kept apart: two that are cut to the same text get a number."""
    seen: dict[str, int] = {}
    out = []
    for name in names:
        text = name if len(name) <= 40 else name[:39] + "…"  # noqa: PLR2004
        seen[text] = seen.get(text, 0) + 1
        out.append(text if seen[text] == 1 else f"{text} ({seen[text]})")
    return out
