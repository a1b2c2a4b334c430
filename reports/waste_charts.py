"""Charts of waste: from input to what was computed, the cache curve, findings by money.

Belongs here: laying figures of the document out for a chart. Does not belong here: judging repetition
(`pipelines/waste/`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from reports.charts import ACCENT, GREY, INK, WARN, Chart, Twin, bars, finish, over, value_axis
from reports.document_figures import Document, share
from reports.finding_parts import net_usd
from reports.numbers import money, percent, printable, short
from reports.page_strings import CHART, LABEL

SHOWN_FINDINGS = 10
_NEARLY_BEST = 0.9


def waste_charts(document: Document) -> dict[str, Chart | None]:
    """All charts of waste by id; None where the document can't carry one."""
    return {
        "waste_waterfall": _waterfall(document),
        "waste_curve": _cache_curve(document),
        "waste_findings": _findings(document),
    }


def _waterfall(document: Document) -> Chart | None:
    """Input, less cache reads, less what was computed again: what had to be computed or was not judged."""
    tokens, prefix = document["tokens"], document["waste"]["prefix"]
    if tokens["input"] is None or tokens["cache_read"] is None:
        return None
    import altair as alt

    whole = tokens["input"] - (tokens["from_response_cache"]["input"] or 0)
    read, missed = tokens["cache_read"], prefix["missed_tokens"]
    computed = whole - read
    steps = [
        ("input", 0, whole, GREY),
        ("cache_read", whole - read, whole, ACCENT),
        ("computed", 0, computed, GREY),
    ]
    if missed is not None and missed <= computed:
        steps += [("missed", computed - missed, computed, WARN), ("needed", 0, computed - missed, GREY)]
    rows = [
        {
            "step": LABEL[name],
            "low": low,
            "high": high,
            "colour": colour,
            "label": short(high - low, "tokens"),
        }
        for name, low, high, colour in steps
    ]
    order = [row["step"] for row in rows]
    base = over("steps").encode(
        y=alt.Y("step:N", title=None, sort=order, axis=alt.Axis(ticks=False, domain=False, labelLimit=180)),
        tooltip=[alt.Tooltip("step:N"), alt.Tooltip("label:N")],
    )
    axis = alt.X("low:Q", title=LABEL["tokens"], axis=value_axis())
    marks = base.mark_bar(height=18).encode(
        x=axis.scale(domain=[0, whole * 1.2 or 1], nice=False),
        x2="high:Q",
        color=alt.Color("colour:N", scale=None),
    )
    words = base.mark_text(align="left", dx=5, color=INK).encode(x="high:Q", text="label:N")
    key, part = ("waterfall_none", read) if missed is None else ("waterfall", missed)
    height = 34 * len(rows)
    return Chart(
        id="waste_waterfall",
        title=CHART[key].format(share=percent(share(part, whole))),
        spec=finish(marks + words, height, steps=rows),
        twin=Twin(
            ((LABEL["step"], "text"), (LABEL["tokens"], "count")),
            [(LABEL[name], high - low) for name, low, high, _ in steps],
        ),
        definition="missed",
        note=CHART["waterfall_note"],
        height=height + 60,
    )


def _cache_curve(document: Document) -> Chart | None:
    """Block hit ratio by capacity of an LRU cache, for all calls."""
    points = [
        row
        for row in document["waste"]["cache_curve"]
        if row["scope"] == "all" and row["capacity_tokens"] and row["block_hit_ratio"] is not None
    ]
    if not points:
        return None
    import altair as alt

    best = max(row["block_hit_ratio"] for row in points)
    enough = next(row for row in points if row["block_hit_ratio"] >= _NEARLY_BEST * best)
    rows: list[Mapping[str, Any]] = [
        {
            "tokens": row["capacity_tokens"],
            "ratio": row["block_hit_ratio"],
            "label": percent(row["block_hit_ratio"]),
        }
        for row in points
    ]
    base = over("curve").encode(
        x=alt.X(
            "tokens:Q", title=LABEL["capacity"], scale=alt.Scale(type="log"), axis=value_axis(grid=False)
        ),
        y=alt.Y("ratio:Q", title=LABEL["block_hits"], axis=alt.Axis(format="%", tickCount=5)),
    )
    tips = [
        alt.Tooltip("tokens:Q", title=LABEL["capacity"], format=","),
        alt.Tooltip("label:N", title=LABEL["ratio"]),
    ]
    marked = over("enough").encode(x="tokens:Q", y="ratio:Q")
    layers = (
        base.mark_line()
        + base.mark_point(color=GREY, size=30).encode(tooltip=tips)
        + marked.mark_point(color=WARN, size=70)
        + marked.mark_text(align="left", baseline="top", dx=8, dy=6).encode(text="label:N")
    )
    capacity = short(enough["capacity_tokens"], "tokens")
    sampled = any(row["is_sampled"] for row in points)
    return Chart(
        id="waste_curve",
        title=CHART["curve"].format(
            capacity=capacity, ratio=percent(enough["block_hit_ratio"]), best=percent(best)
        ),
        spec=finish(
            layers,
            240,
            curve=rows,
            enough=[
                {"tokens": enough["capacity_tokens"], "ratio": enough["block_hit_ratio"], "label": capacity}
            ],
        ),
        twin=Twin(
            (
                (LABEL["capacity"], "count"),
                (LABEL["capacity_blocks"], "count"),
                (LABEL["block_hits"], "ratio"),
            ),
            [(row["capacity_tokens"], row["capacity_blocks"], row["block_hit_ratio"]) for row in points],
        ),
        definition="cache-curve",
        note=CHART["curve_note"] + (f" {CHART['curve_sampled']}" if sampled else ""),
        height=300,
    )


def _findings(document: Document) -> Chart | None:
    """The dearest findings as bars of net money; of tokens where no money is known."""
    findings = document["findings"]
    priced = [found for found in findings if found["usd_net"] is not None and Decimal(found["usd_net"]) > 0]
    counted = sorted((f for f in findings if f["tokens"]), key=lambda found: -found["tokens"])
    chosen = (priced or counted)[:SHOWN_FINDINGS]
    if not chosen:
        return None
    rows = [
        {
            "name": f"{number}. {printable(found['kind'].replace('_', ' '), 24)}",
            "value": float(found["usd_net"]) if priced else found["tokens"],
            "label": money(found["usd_net"]) if priced else short(found["tokens"], "tokens"),
            "colour": WARN if number == 1 else GREY,
        }
        for number, found in enumerate(chosen, start=1)
    ]
    spec, height = bars(rows, LABEL["money" if priced else "tokens"])
    left = len(findings) - len(priced)
    first = chosen[0]
    title = (
        CHART["findings_usd"].format(usd=money(net_usd(document)), first=money(first["usd_net"]))
        if priced
        else CHART["findings_tokens"].format(tokens=short(first["tokens"]))
    )
    return Chart(
        id="waste_findings",
        title=title,
        spec=spec,
        twin=Twin(
            ((LABEL["finding"], "text"), (LABEL["money_exact"], "money"), (LABEL["tokens"], "count")),
            [(printable(found["title"], 300), found["usd_net"], found["tokens"]) for found in chosen],
        ),
        definition="net-savings",
        note=CHART["findings_note"].format(left=left) if priced and left else CHART["findings_note_all"],
        height=height,
    )
