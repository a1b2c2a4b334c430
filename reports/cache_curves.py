"""Cache curves on the page: the chart over replicas, the table of named memories.

Belongs here: laying figures of `cache_parts.py` out. Does not belong here: the curve of one replica over all calls
(`waste_charts.py`), computing (`pipelines/waste/`).
"""

from __future__ import annotations

from typing import Any

from reports.cache_strings import CACHE
from reports.charts import Chart, Twin, colours, finish, over, value_axis
from reports.document_figures import Document
from reports.numbers import percent, short
from reports.page_strings import LABEL
from reports.tables import Cell, Table, count, cut, share_of, text

_SHOWN_REPLICAS = 8
_GIB = 2**30


def replicas_chart(document: Document) -> Chart | None:
    """Block hit ratio by the capacity of all caches together, for all calls: one replica, and several by routing."""
    lines = [
        (CACHE[row["routing"]].format(replicas=row["replicas"]), row, row["total_capacity_tokens"])
        for row in document["waste"]["cache_curve_replicas"]
        if row["scope"] == "all" and row["replicas"] == _SHOWN_REPLICAS and row["total_capacity_tokens"]
    ]
    if not lines:
        return None
    import altair as alt

    alone = [
        row for row in document["waste"]["cache_curve"] if row["scope"] == "all" and row["capacity_tokens"]
    ]
    lines = [(CACHE["single"], row, row["capacity_tokens"]) for row in alone] + lines
    rows = [
        {
            "routing": name,
            "tokens": tokens,
            "ratio": row["block_hit_ratio"],
            "label": percent(row["block_hit_ratio"]),
        }
        for name, row, tokens in lines
    ]
    names = list(dict.fromkeys(row["routing"] for row in rows))
    base = over("replicas").encode(
        x=alt.X("tokens:Q", title=CACHE["total"], scale=alt.Scale(type="log"), axis=value_axis(grid=False)),
        y=alt.Y("ratio:Q", title=LABEL["block_hits"], axis=alt.Axis(format="%", tickCount=5)),
        color=alt.Color("routing:N", title=None, scale=colours(names)),
    )
    tips = [
        alt.Tooltip("routing:N"),
        alt.Tooltip("tokens:Q", title=CACHE["total"], format=","),
        alt.Tooltip("label:N", title=LABEL["ratio"]),
    ]
    return Chart(
        id="waste_replicas",
        title=_title([row for _, row, _ in lines if row.get("replicas")]),
        spec=finish(base.mark_line() + base.mark_point(size=30).encode(tooltip=tips), 240, replicas=rows),
        twin=Twin(
            ((CACHE["alone"], "text"), (CACHE["total"], "count"), (LABEL["block_hits"], "ratio")),
            [(row["routing"], row["tokens"], row["ratio"]) for row in rows],
        ),
        definition="cache-curve",
        note=CACHE["note"],
        height=320,
    )


def _title(rows: list[dict[str, Any]]) -> str:
    """The capacity at which routing by prefix gains most over turns."""
    ratio = {(row["routing"], row["capacity_blocks"]): row["block_hit_ratio"] for row in rows}
    by_prefix = [row for row in rows if row["routing"] == "prefix_aware"]
    best = max(
        by_prefix, key=lambda row: row["block_hit_ratio"] - ratio["round_robin", row["capacity_blocks"]]
    )
    return CACHE["title"].format(
        replicas=best["replicas"],
        capacity=short(best["capacity_tokens"], "tokens"),
        best=percent(best["block_hit_ratio"]),
        spread=percent(ratio["round_robin", best["capacity_blocks"]]),
    )


def memory_table(document: Document) -> Table:
    """Named capacities of each model whose bytes per token are known: hit ratio on one and on several replicas."""
    several = {
        (row["scope"], row["capacity_blocks"], row["routing"]): row
        for row in document["waste"]["cache_curve_replicas"]
        if row["replicas"] == _SHOWN_REPLICAS
    }
    rows = []
    for row in document["waste"]["cache_curve"]:
        if row["mark"] is None or row["scope"] == "all":
            continue
        place = (row["scope"], row["capacity_blocks"])
        spread, kept = (several.get((*place, routing)) for routing in ("round_robin", "prefix_aware"))
        rows.append(
            [
                text(row["scope"].removeprefix("model:")),
                text(row["mark"]),
                count(
                    row["capacity_bytes"] / _GIB if row["capacity_bytes"] is not None else None, "cache-curve"
                ),
                count(row["capacity_tokens"], "cache-curve"),
                _share(row),
                _share(spread),
                _share(kept),
            ]
        )
    return cut(
        rows,
        CACHE["marks_table"],
        (CACHE["model"], "text"),
        (CACHE["mark"], "text"),
        (CACHE["gib"], "number"),
        (CACHE["tokens"], "number"),
        (CACHE["alone"], "number"),
        (CACHE["turn"].format(replicas=_SHOWN_REPLICAS), "number"),
        (CACHE["prefix"].format(replicas=_SHOWN_REPLICAS), "number"),
    )


def _share(row: dict[str, Any] | None) -> Cell:
    if row is None:
        return share_of(None, "cache-curve")
    error = CACHE["sampled"].format(error=percent(row["block_hit_ratio_error"])) if row["is_sampled"] else ""
    return share_of(row["block_hit_ratio"], "cache-curve", error)
