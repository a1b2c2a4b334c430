"""Charts of demand: heatmap of the week, series per minute, duration curve, concurrency, resident KV.

Belongs here: aggregating `demand_minute` and `usage_hourly` for a chart. Does not belong here: computing
demand.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from reports.audit_json import SERVED, AuditInputs
from reports.charts import (
    ACCENT,
    FAINT,
    GREY,
    HATCH,
    HEAT,
    INK,
    WARN,
    Chart,
    Twin,
    binned_max,
    finish,
    iso,
    over,
    quantity_axis,
    time_axis,
    wall_clock,
)
from reports.document_figures import Document, peak, site_zone
from reports.numbers import day_label, duration, percent, short, weekday_instant, zone_of
from reports.page_strings import CHART, LABEL

HEATMAP_DAYS = 35
_TOKENS = ("input_tokens", "output_tokens")
_CURVE_POINTS = 200
_LEAST_CELLS, _LEAST_HOURS = 12, 48
_LABEL_GAP = 0.06
_LATE = 0.6
"""Share of the series beyond which words stand on the left of their point."""


def demand_charts(document: Document, inputs: AuditInputs) -> dict[str, Chart | None]:
    """All charts of demand by id; None where the marts can't carry one."""
    minutes = inputs.demand_minute.filter(pl.col("scope") == "all").sort("minute_at")
    rates = minutes.with_columns(rate=_total() / 60).filter(pl.col("rate").is_not_null())
    hourly = _hourly(rates, inputs.usage_hourly)
    return {
        "demand_week": _week(document, inputs, hourly),
        "demand_series": _series(document, inputs, rates, hourly),
        "demand_duration": _duration_curve(document, rates),
        "demand_concurrency": _load(document, inputs, minutes, "concurrency_max"),
        "demand_kv": _load(document, inputs, minutes, "resident_kv_tokens_max"),
    }


def _total() -> pl.Expr:
    """Input + output; unknown only where both are."""
    known = pl.any_horizontal(pl.col(*_TOKENS).is_not_null())
    return pl.when(known).then(pl.sum_horizontal(*_TOKENS)).cast(pl.Float64)


def _hourly(rates: pl.DataFrame, usage: pl.DataFrame) -> pl.DataFrame:
    """`at, rate, highest` (tok/s) by hour: mean and highest minute; from hourly usage where minutes lack."""
    if not rates.is_empty():
        return (
            rates.group_by(pl.col("minute_at").dt.truncate("1h").alias("at"))
            .agg(pl.col("rate").mean(), pl.col("rate").max().alias("highest"))
            .sort("at")
        )
    served = usage.filter(SERVED & ~pl.col("response_cache_hit").fill_null(value=False))
    return (
        served.with_columns(rate=_total() / 3600)
        .filter(pl.col("rate").is_not_null())
        .group_by(pl.col("hour_at").alias("at"))
        .agg(pl.col("rate").sum(), pl.lit(None, pl.Float64).alias("highest"))
        .sort("at")
    )


def _week(document: Document, inputs: AuditInputs, hourly: pl.DataFrame) -> Chart | None:
    """Hour x day, tokens per second; hours without data are hatched, the hour of the peak is framed."""
    if hourly.height < _LEAST_CELLS:
        return None
    import altair as alt

    zone = site_zone(document)
    local = wall_clock(hourly, "at", zone).with_columns(
        day=pl.col("at").dt.date(), hour=pl.col("at").dt.hour().cast(pl.Int64)
    )
    first = local["day"].max() - timedelta(days=HEATMAP_DAYS - 1)  # type: ignore[operator]
    local = local.filter(pl.col("day") >= first)
    cells = (
        local.group_by("day", "hour").agg(pl.col("rate").mean(), pl.col("highest").max()).sort("day", "hour")
    )
    top = cells.sort("rate", descending=True).row(0, named=True)
    rows = [
        {
            "day": day_label(row["day"]),
            "hour": row["hour"],
            "rate": row["rate"],
            "label": short(row["rate"], "tok/s"),
            "top": (row["day"], row["hour"]) == (top["day"], top["hour"]),
        }
        for row in cells.to_dicts()
    ]
    missing = _hours_in_gaps(inputs, zone, {(row["day"], row["hour"]) for row in rows}, first)
    days = sorted({row["day"] for row in (*rows, *missing)})
    axes: dict[str, Any] = {
        "x": alt.X(
            "hour:O",
            title=LABEL["hour_of_day"].format(zone=zone),
            scale=alt.Scale(domain=list(range(24))),
            axis=alt.Axis(labelAngle=0, labelOverlap=True, ticks=False, domain=False),
        ),
        "y": alt.Y(
            "day:O", title=None, scale=alt.Scale(domain=days), axis=alt.Axis(ticks=False, domain=False)
        ),
    }
    fill = alt.Color(
        "rate:Q",
        title="tok/s",
        scale=alt.Scale(type="quantize", range=list(HEAT), domain=[0, top["rate"] or 1]),
        legend=alt.Legend(format=".2~s", orient="bottom", direction="horizontal", titleOrient="top"),
    )
    cell = over("cells").mark_rect(stroke="var(--page)", strokeWidth=1)
    heat = cell.encode(
        **axes, color=fill, tooltip=[alt.Tooltip("day:O"), alt.Tooltip("hour:O"), alt.Tooltip("label:N")]
    )
    gaps = over("missing").mark_rect(fill=HATCH, stroke=FAINT, strokeWidth=0.5).encode(**axes)
    frame = over("top").mark_rect(fill=None, stroke=WARN, strokeWidth=2.5).encode(**axes)
    height = min(560, max(90, 26 * len(days)))
    share = float(cells["rate"].to_numpy().sum())
    busiest = short(top["rate"], "tok/s")
    hours = cells.sort("rate", descending=True)["rate"]
    tenth = max(1, round(cells.height / 10))
    part = percent(float(hours.head(tenth).to_numpy().sum()) / share) if share else "0 %"
    when = f"{day_label(top['day'])} {top['hour']:02d}:00"
    title = CHART["week_tenth" if cells.height >= _LEAST_HOURS else "week"].format(
        rate=busiest, when=when, share=part
    )
    note = CHART["week_note" if len(days) < HEATMAP_DAYS else "week_note_cut"].format(days=HEATMAP_DAYS)
    return Chart(
        id="demand_week",
        title=title,
        spec=finish(
            gaps + heat + frame, height, cells=rows, missing=missing, top=[row for row in rows if row["top"]]
        ),
        twin=Twin(
            (
                (LABEL["day"].format(zone=zone), "text"),
                (LABEL["hour"], "count"),
                (LABEL["rate_mean"], "real"),
                (LABEL["rate_high"], "real"),
            ),
            [(day_label(row["day"]), row["hour"], row["rate"], row["highest"]) for row in cells.to_dicts()],
        ),
        definition="rate",
        note=note,
        height=height + 90,
    )


def _hours_in_gaps(
    inputs: AuditInputs, zone: str, known: set[tuple[str, int]], first: Any
) -> list[dict[str, Any]]:
    """Cells of the heatmap that lie in a gap and hold nothing."""
    out = []
    for row in inputs.coverage.filter("is_gap").to_dicts():
        moment = row["start_at"].replace(minute=0, second=0, microsecond=0)
        while moment < row["end_at"]:
            local = moment.astimezone(zone_of(zone))
            cell = (day_label(local.date()), local.hour)
            if cell not in known and local.date() >= first:
                out.append({"day": cell[0], "hour": cell[1]})
            moment += timedelta(hours=1)
    return out


def _gap_layer() -> Any:
    """Hatched bands over the rows `gaps`."""
    import altair as alt

    return over("gaps").mark_rect(fill=HATCH).encode(x=alt.X("at:T"), x2=alt.X2("end:T"))


def gap_rows(inputs: AuditInputs, zone: str) -> list[dict[str, Any]]:
    """The gaps in the data as `at, end` on the wall clock of a zone."""
    gaps = inputs.coverage.filter("is_gap").select("start_at", "end_at")
    for column in ("start_at", "end_at"):
        gaps = wall_clock(gaps, column, zone)
    return gaps.select(iso("start_at").alias("at"), iso("end_at").alias("end")).to_dicts()


def _segments(frame: pl.DataFrame, at: str, step_minutes: int) -> pl.DataFrame:
    """Number the unbroken stretches, so that no line is drawn across minutes without a row."""
    jump = pl.col(at).diff() > timedelta(minutes=step_minutes * 2)
    return frame.with_columns(stretch=jump.fill_null(value=False).cum_sum())


def _drawn(points: pl.DataFrame, measure: str) -> list[dict[str, Any]]:
    """Points as a chart holds them: more than four digits can't be told apart on it."""
    return points.with_columns(iso("at"), pl.col(measure).round_sig_figs(4)).to_dicts()


def _series(
    document: Document, inputs: AuditInputs, rates: pl.DataFrame, hourly: pl.DataFrame
) -> Chart | None:
    """Tokens per second by minute, with median, p95 and the peak marked, gaps hatched."""
    if rates.is_empty():
        return None
    import altair as alt

    zone = site_zone(document)
    thinned, minutes = binned_max(rates.rename({"minute_at": "at"}), "at", ["rate"])
    points = _segments(wall_clock(thinned, "at", zone), "at", minutes)
    line = (
        over("points")
        .mark_line(interpolate="step-after")
        .encode(
            x=time_axis(LABEL["time"].format(zone=zone)),
            y=quantity_axis("rate", LABEL["rate"]),
            detail="stretch:N",
        )
    )
    p50, p95, highest = (rates["rate"].quantile(q, "linear") or 0.0 for q in (0.5, 0.95, 1.0))
    named = [("p50", p50), ("p95", p95)] if p95 - p50 > _LABEL_GAP * highest else [("p50, p95", p95)]
    levels = [{"rate": value, "label": f"{name} {short(value)}"} for name, value in named]
    rules = over("levels").mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="rate:Q")
    words = (
        over("levels")
        .mark_text(align="right", dy=-6, color=INK)
        .encode(y="rate:Q", x=alt.value("width"), text="label:N")
    )
    layers = _gap_layer() + line + rules + words + _peak_layer(rates)
    under = float((rates["rate"] < highest / 2).to_numpy().mean())
    title = CHART["series_none" if not highest else "series" if under else "series_flat"].format(
        share=percent(under)
    )
    note = CHART["series_note" if minutes == 1 else "series_note_thinned"].format(minutes=minutes)
    return Chart(
        id="demand_series",
        title=title,
        spec=finish(
            layers,
            240,
            points=_drawn(points, "rate"),
            gaps=gap_rows(inputs, zone),
            levels=levels,
            top=_peak_rows(rates, zone),
        ),
        twin=Twin(
            ((LABEL["hour_at"], "instant"), (LABEL["rate_mean"], "real"), (LABEL["rate_high"], "real")),
            list(hourly.select("at", "rate", "highest").iter_rows()),
        ),
        definition="rate",
        note=note,
        height=300,
    )


def _peak_layer(rates: pl.DataFrame) -> Any:
    """The peak, its words on the side where there is room."""
    base = over("top").encode(x="at:T", y="rate:Q")
    place = float(rates["rate"].arg_max() or 0) / rates.height
    side: dict[str, Any] = {"align": "right", "dx": -8} if place > _LATE else {"align": "left", "dx": 8}
    words = base.mark_text(color=INK, **side).encode(text="label:N")
    return base.mark_point(color=WARN, filled=True, size=60) + words


def _peak_rows(rates: pl.DataFrame, zone: str) -> list[dict[str, Any]]:
    top = wall_clock(rates.sort("rate", descending=True).head(1), "minute_at", zone)
    return [
        {
            "at": row["text"],
            "rate": row["rate"],
            "label": CHART["peak_minute"].format(rate=short(row["rate"], "tok/s")),
        }
        for row in top.select(iso("minute_at").alias("text"), "rate").to_dicts()
    ]


def _duration_curve(document: Document, rates: pl.DataFrame) -> Chart | None:
    """Share of the time for which the rate is at least as high as the value read."""
    if rates.is_empty():
        return None
    import altair as alt

    values = rates["rate"].sort(descending=True)
    last = values.len() - 1
    # Even steps, and finer and finer ones towards the peak, which lasts for minutes.
    even = [round(index * last / _CURVE_POINTS) for index in range(_CURVE_POINTS + 1)]
    fine = [min(last, round(1.15**index)) for index in range(_CURVE_POINTS // 2)]
    steps = sorted({0, *even, *fine})
    rows = [{"share": (step + 1) / values.len(), "rate": values[step]} for step in steps]
    rows.insert(0, {"share": 0.0, "rate": values[0]})
    area = (
        over("curve")
        .mark_area(color=ACCENT, opacity=0.25, line={"color": ACCENT})
        .encode(
            x=alt.X("share:Q", title=LABEL["time_share"], axis=alt.Axis(format="%", grid=False)),
            y=quantity_axis("rate", LABEL["rate_least"]),
        )
    )
    mean = float(values.to_numpy().mean())
    rule = over("mean")
    mean_layer = rule.mark_rule(color=GREY, strokeDash=[4, 3]).encode(y="rate:Q") + rule.mark_text(
        align="right", dy=-6
    ).encode(y="rate:Q", x=alt.value("width"), text="label:N")
    tenth = values[int(0.1 * (values.len() - 1))]
    found = peak(document, "total_tokens", (60.0, 300.0, 3600.0))
    against = found["per_s"] if found else None
    words = CHART["duration" if against is None else "duration_peak"]
    return Chart(
        id="demand_duration",
        title=words.format(rate=short(tenth, "tok/s"), peak=short(against, "tok/s")),
        spec=finish(
            area + mean_layer,
            220,
            curve=rows,
            mean=[{"rate": mean, "label": CHART["mean"].format(rate=short(mean, "tok/s"))}],
        ),
        twin=Twin(
            ((LABEL["time_share"], "ratio"), (LABEL["rate_least"], "real")),
            [(row["share"], row["rate"]) for row in rows[::5]],
        ),
        definition="rate",
        note=CHART["duration_note"],
        height=280,
    )


_LOADS = {
    "concurrency_max": ("demand_concurrency", LABEL["concurrency"], "concurrency", "concurrency", "calls"),
    "resident_kv_tokens_max": ("demand_kv", LABEL["kv"], "resident_kv_tokens", "resident-kv", "tokens"),
}


def _load(document: Document, inputs: AuditInputs, minutes: pl.DataFrame, column: str) -> Chart | None:
    """Concurrency or resident KV tokens over time."""
    chart_id, axis, measure, definition, unit = _LOADS[column]
    known = minutes.filter(pl.col(column).is_not_null()).select(
        pl.col("minute_at").alias("at"), pl.col(column).cast(pl.Float64)
    )
    if known.is_empty():
        return None

    zone = site_zone(document)
    thinned, step = binned_max(known, "at", [column])
    points = _segments(wall_clock(thinned, "at", zone), "at", step).rename({column: "value"})
    line = (
        over("points")
        .mark_line(interpolate="step-after")
        .encode(
            x=time_axis(LABEL["time"].format(zone=zone)), y=quantity_axis("value", axis), detail="stretch:N"
        )
    )
    hours = known.group_by(pl.col("at").dt.truncate("1h")).agg(pl.col(column).max()).sort("at")
    found = peak(document, measure, (60.0, 300.0, 3600.0))
    top = short(float(known[column].to_numpy().max()), unit)
    title = CHART["load"].format(top=top)
    if found is not None:
        when = weekday_instant(found["start"], zone_of(zone))
        held = {"mean": short(found["value"]), "window": duration(found["window_s"]), "when": when}
        title = CHART["load_held"].format(top=top, **held)
    return Chart(
        id=chart_id,
        title=title,
        spec=finish(
            _gap_layer() + line,
            180,
            points=_drawn(points, "value"),
            gaps=gap_rows(inputs, zone),
        ),
        twin=Twin(((LABEL["hour_at"], "instant"), (axis, "real")), list(hours.iter_rows())),
        definition=definition,
        note=CHART["series_note" if step == 1 else "series_note_thinned"].format(minutes=step),
        height=240,
    )
