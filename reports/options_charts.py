"""Charts of the options and of the data's quality.

Belongs here: cost per token against p95 TTFT with its interval, cost per month by option, coverage, lines
by format. Does not belong here: ranking options (`pipelines/sizing/`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reports.audit_json import AuditInputs
from reports.break_even import break_even
from reports.charts import (
    ACCENT,
    FAINT,
    GREY,
    HATCH,
    INK,
    WARN,
    Chart,
    Twin,
    bars,
    finish,
    iso,
    named,
    over,
    time_axis,
    value_axis,
    wall_clock,
)
from reports.document_figures import Document, share, site_zone, slo_ms
from reports.hardware_action import option_name
from reports.numbers import exact, money, percent, printable
from reports.page_strings import CHART, LABEL

SHOWN_OPTIONS = 12
SHOWN_POINTS = 25
Option = Mapping[str, Any]


def options_charts(document: Document) -> dict[str, Chart | None]:
    """Charts of the options of the load as it is; None where no option has the figures."""
    pool, options = _dearest_pool(document["sizing"]["as_is"]["options"])
    return {
        "options_scatter": _scatter(document, options, pool),
        "options_cost": _monthly(options, pool),
        "options_break_even": break_even(options, pool),
    }


def _dearest_pool(options: Sequence[Option]) -> tuple[str, list[Option]]:
    """The pool that the charts show: one with hardware if there is any, and of those the dearest."""

    def weight(option: Option) -> tuple[bool, bool, float]:
        marked = option["is_today"] or option["is_choice"]
        return option["accelerator"] is not None, marked, float(option["usd_per_month"] or 0)

    if not options:
        return "", []
    decisive = [option for option in options if option["is_today"] or option["is_choice"]] or list(options)
    pool = max(decisive, key=weight)["pool"]
    return pool, [option for option in options if option["pool"] == pool]


def full_name(option: Option, pools: int) -> str:
    """An option with what tells it from the others: `8 x H100, TP2, fp8, own`."""
    parts = [option_name(option), option["parallelism"], option["precision"], option["serving"]]
    kept = [part for part in parts if part and not (part == "api" and parts[0] == "API")]
    return ", ".join((*([printable(option["pool"], 30)] if pools > 1 else []), *kept))


def _names(options: Sequence[Option]) -> list[str]:
    pools = len({option["pool"] for option in options})
    return [full_name(option, pools) for option in options]


def _scatter(document: Document, options: Sequence[Option], pool: str) -> Chart | None:
    known = [
        o
        for o in options
        if o["usd_per_mtok"] is not None
        and float(o["usd_per_mtok"]) > 0
        and o["ttft_ms"]["p95"]
        and (o["rank"] <= SHOWN_POINTS or o["is_today"] or o["is_choice"])
    ]
    if not known:
        return None
    import altair as alt

    best = next((o for o in sorted(known, key=_per_mtok) if o["meets_slo"]), None)
    named_ones = [o for o in known if o["is_choice"] or o["is_today"] or o is best]
    rows = [
        {
            "name": name,
            "usd": _per_mtok(option),
            "ttft": option["ttft_ms"]["p95"],
            "low": option["ttft_ms"]["low"] or option["ttft_ms"]["p95"],
            "high": option["ttft_ms"]["high"] or option["ttft_ms"]["p95"],
            "label": money(option["usd_per_mtok"]),
            "ms": exact(round(option["ttft_ms"]["p95"])),
            "colour": ACCENT if option["is_choice"] else GREY if option["meets_slo"] else FAINT,
            "text": name if any(option is other for other in named_ones) else "",
        }
        for name, option in zip(_names(known), known, strict=True)
    ]
    limit = slo_ms(document, "ttft_p95_ms")
    across = alt.X(
        "usd:Q",
        title=LABEL["mtok"],
        scale=alt.Scale(type="log", nice=False, padding=40),
        axis=value_axis(grid=False),
    )
    bounds = [row[key] for row in rows for key in ("low", "high")] + ([] if limit is None else [limit])
    scale = alt.Scale(type="log", domain=[min(bounds) * 0.8, max(bounds) * 1.25], nice=False)
    base = over("options").encode(x=across)
    log = alt.Y("low:Q", title=LABEL["ttft"], scale=scale, axis=value_axis())
    tips = [
        alt.Tooltip("name:N"),
        alt.Tooltip("label:N", title=LABEL["mtok"]),
        alt.Tooltip("ms:N", title=LABEL["ttft"]),
    ]
    colour = alt.Color("colour:N", scale=None)
    layers = (
        base.mark_rule(strokeWidth=1).encode(y=log, y2="high:Q", color=colour)
        + base.mark_point(size=55).encode(y="ttft:Q", color=colour, tooltip=tips)
        + base.mark_text(align="left", dx=8, color=INK).encode(y="ttft:Q", text="text:N")
        + over("slo").mark_rule(color=WARN, strokeDash=[5, 3]).encode(y="ms:Q")
    )
    title = CHART["scatter_none"] if best is None else CHART["scatter"].format(name=_names([best])[0])
    return Chart(
        id="options_scatter",
        title=title,
        spec=finish(layers, 300, options=rows, slo=[] if limit is None else [{"ms": limit}]),
        twin=Twin(
            (
                (LABEL["option"], "text"),
                (LABEL["mtok"], "money"),
                (LABEL["ttft"], "real"),
                (LABEL["low"], "real"),
                (LABEL["high"], "real"),
                (LABEL["slo"], "text"),
            ),
            [
                (
                    name,
                    o["usd_per_mtok"],
                    *(o["ttft_ms"][key] for key in ("p95", "low", "high")),
                    yes_no(o["meets_slo"]),
                )
                for name, o in zip(_names(known), known, strict=True)
            ],
        ),
        definition="option-cost",
        note=CHART["scatter_note"].format(pool=printable(pool, 40), count=len(known)),
        height=360,
    )


def yes_no(value: bool | None) -> str | None:
    """Write yes or no; None stays unknown."""
    return None if value is None else "yes" if value else "no"


def _per_mtok(option: Option) -> float:
    return float(option["usd_per_mtok"])


def _monthly(options: Sequence[Option], pool: str) -> Chart | None:
    known = [option for option in options if option["usd_per_month"] is not None]
    if not known:
        return None
    chosen = next((option for option in known if option["is_choice"]), None)
    shown = [o for o in known if o["rank"] <= SHOWN_OPTIONS or o["is_today"] or o["is_choice"]][
        : 2 * SHOWN_OPTIONS
    ]
    names = named(_names(shown))
    rows = [
        {
            "name": name,
            "value": float(option["usd_per_month"]),
            "label": _words(option),
            "colour": ACCENT if option["is_choice"] else GREY if option["meets_slo"] else FAINT,
        }
        for name, option in zip(names, shown, strict=True)
    ]
    spec, height = bars(rows, LABEL["month"], name_px=200)
    return Chart(
        id="options_cost",
        title=CHART["cost_none"]
        if chosen is None
        else CHART["cost"].format(name=_names([chosen])[0], usd=money(chosen["usd_per_month"])),
        spec=spec,
        twin=Twin(
            ((LABEL["option"], "text"), (LABEL["month"], "money"), (LABEL["slo"], "text")),
            [
                (name, o["usd_per_month"], yes_no(o["meets_slo"]))
                for name, o in zip(_names(known), known, strict=True)
            ],
        ),
        definition="option-cost",
        note=CHART["cost_note"].format(pool=printable(pool, 40)),
        height=height,
    )


def _words(option: Option) -> str:
    marks = [LABEL[name] for name, key in (("choice", "is_choice"), ("today", "is_today")) if option[key]]
    return ", ".join((money(option["usd_per_month"]), *marks))


def quality_charts(document: Document, inputs: AuditInputs) -> dict[str, Chart | None]:
    """Coverage over time, and what became of the lines of each format."""
    return {"quality_coverage": _coverage(document, inputs), "quality_lines": _lines(document)}


def _coverage(document: Document, inputs: AuditInputs) -> Chart | None:
    stretches = inputs.coverage.sort("start_at")
    covered = document["window"]["coverage_ratio"]
    if stretches.is_empty() or covered is None:
        return None
    import altair as alt

    zone = site_zone(document)
    local = wall_clock(wall_clock(stretches, "start_at", zone), "end_at", zone)
    rows = [
        {
            "at": row["start_at"],
            "end": row["end_at"],
            "state": LABEL["gap" if row["is_gap"] else "with_data"],
            "colour": HATCH if row["is_gap"] else GREY,
        }
        for row in local.with_columns(iso("start_at"), iso("end_at")).to_dicts()
    ]
    chart = (
        over("stretches")
        .mark_rect()
        .encode(
            x=time_axis(LABEL["time"].format(zone=zone)), x2="end:T", fill=alt.Fill("colour:N", scale=None)
        )
        .encode(tooltip=[alt.Tooltip("state:N")])
    )
    return Chart(
        id="quality_coverage",
        title=CHART["coverage_whole"] if covered == 1 else CHART["coverage"].format(share=percent(covered)),
        spec=finish(chart, 36, stretches=rows),
        twin=Twin(
            (
                (LABEL["from"], "instant"),
                (LABEL["to"], "instant"),
                (LABEL["state"], "text"),
                (LABEL["reason"], "text"),
            ),
            [
                (
                    row["start_at"],
                    row["end_at"],
                    LABEL["gap" if row["is_gap"] else "with_data"],
                    row["reason"] or "",
                )
                for row in stretches.to_dicts()
            ],
        ),
        definition="coverage",
        height=90,
    )


_PARTS = ("requests", "buckets", "samples", "other_lines", "duplicates", "rejects")
_PART_COLOURS = (ACCENT, "var(--series2)", "var(--series1)", FAINT, GREY, WARN)


def _lines(document: Document) -> Chart | None:
    """Stacked bars by format: requests, sums, samples, other lines, duplicates, rejects."""
    by_format = document["inputs"]["by_format"]
    if not by_format:
        return None
    import altair as alt

    rows = [
        {"format": printable(name, 40), "part": LABEL[part], "lines": counts[part], "order": order}
        for name, counts in by_format.items()
        for order, part in enumerate(_PARTS)
        if counts[part]
    ]
    scale = alt.Scale(domain=[LABEL[part] for part in _PARTS], range=list(_PART_COLOURS))
    height = max(60, 26 * len(by_format) + 10)
    chart = (
        over("lines")
        .mark_bar(height=16)
        .encode(
            y=alt.Y("format:N", title=None, axis=alt.Axis(ticks=False, domain=False)),
            x=alt.X("lines:Q", title=LABEL["lines"], axis=value_axis()),
            color=alt.Color("part:N", title=None, scale=scale),
            order=alt.Order("order:Q"),
            tooltip=[alt.Tooltip("format:N"), alt.Tooltip("part:N"), alt.Tooltip("lines:Q", format=",")],
        )
    )
    whole = document["inputs"]
    became_rows = sum(whole[part] for part in ("requests", "buckets", "samples"))
    key, part = ("rejects", whole["rejects"]) if whole["rejects"] else ("lines", became_rows)
    columns = ("files", "lines", *_PARTS)
    return Chart(
        id="quality_lines",
        title=CHART[key].format(share=percent(share(part, whole["lines"]))),
        spec=finish(chart, height, lines=rows),
        twin=Twin(
            ((LABEL["format"], "text"), *((LABEL.get(column, column), "count") for column in columns)),
            [
                (printable(name), *(counts[column] for column in columns))
                for name, counts in by_format.items()
            ],
        ),
        definition="lines",
        height=height + 80,
    )
