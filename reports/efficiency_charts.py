"""Charts of efficiency: MFU and MBU by hour, tokens per joule, power against throughput, busy share.

Belongs here: laying `efficiency_hourly` out for charts. Does not belong here: FLOPs, bytes and power
(`pipelines/efficiency/`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl

from reports.audit_json import AuditInputs
from reports.charts import (
    ACCENT,
    GREY,
    HATCH,
    WARN,
    Chart,
    Twin,
    bars,
    binned_max,
    colours,
    finish,
    iso,
    named,
    over,
    quantity_axis,
    time_axis,
    value_axis,
    wall_clock,
)
from reports.demand_charts import gap_rows
from reports.document_figures import Document, site_zone
from reports.numbers import percent, printable, short
from reports.page_strings import CHART, LABEL
from reports.strings import UNKNOWN

_RATIOS = ("mfu_busy_ratio", "mfu_wall_ratio", "mbu_busy_ratio")
SHOWN_POOLS = 6


def efficiency_charts(document: Document, inputs: AuditInputs) -> dict[str, Chart | None]:
    """All charts of efficiency by id; None where the marts can't carry one."""
    pools = document["efficiency"][:SHOWN_POOLS]
    hourly = inputs.efficiency_hourly.filter(pl.col("scope").is_in([entry["scope"] for entry in pools]))
    hourly = hourly.rename({"hour_at": "at"}).sort("scope", "at")
    return {
        "efficiency_mfu": _mfu(document, inputs, hourly),
        "efficiency_joule": _joule(document, inputs, hourly),
        "efficiency_power": _power(document, hourly),
        "efficiency_busy": _busy(document),
    }


def pool_name(scope: str) -> str:
    """`pool:NAME` as text for people."""
    return printable(scope.removeprefix("pool:"), 40)


def _largest(document: Document, column: str) -> dict[str, Any]:
    """The pool with most accelerators among those that know a figure."""
    known = [entry for entry in document["efficiency"] if entry[column] is not None]
    return max(known or document["efficiency"], key=lambda entry: entry["accelerators"] or 0)


def _segments(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Number the unbroken stretches of hours, so that no line is drawn across a gap."""
    jump = (pl.col("at").diff() > timedelta(hours=1)).over(by)
    return frame.with_columns(stretch=jump.fill_null(value=False).cum_sum().over(by))


def _hatched() -> Any:
    import altair as alt

    return over("gaps").mark_rect(fill=HATCH).encode(x=alt.X("at:T"), x2=alt.X2("end:T"))


def _mfu(document: Document, inputs: AuditInputs, hourly: pl.DataFrame) -> Chart | None:
    """MFU and MBU of the largest pool by hour."""
    entry = _largest(document, "mfu_busy") if document["efficiency"] else None
    if entry is None or entry["mfu_busy"] is None:
        return None
    import altair as alt

    zone, labels = site_zone(document), [LABEL["mfu_busy"], LABEL["mfu_wall"], LABEL["mbu_busy"]]
    own = hourly.filter(pl.col("scope") == entry["scope"])
    thinned, _ = binned_max(own, "at", _RATIOS)
    long = (
        thinned.rename(dict(zip(_RATIOS, labels, strict=True)))
        .unpivot(labels, index="at", variable_name="measure", value_name="ratio")
        .filter(pl.col("ratio").is_not_null())
        .sort("measure", "at")
    )
    points = _segments(wall_clock(long, "at", zone), ["measure"]).with_columns(iso("at")).to_dicts()
    scale = alt.Scale(domain=labels, range=[ACCENT, GREY, "var(--series1)"])
    line = (
        over("points")
        .mark_line()
        .encode(
            x=time_axis(LABEL["time"].format(zone=zone)),
            y=quantity_axis("ratio", LABEL["ratio"], "%"),
            color=alt.Color("measure:N", title=None, scale=scale),
            detail="stretch:N",
        )
    )
    return Chart(
        id="efficiency_mfu",
        title=CHART["mfu"].format(
            busy=percent(entry["mfu_busy"]), wall=percent(entry["mfu_wall"]), pool=pool_name(entry["scope"])
        ),
        spec=finish(_hatched() + line, 220, points=points, gaps=gap_rows(inputs, zone)),
        twin=Twin(
            ((LABEL["hour_at"], "instant"), *((label, "ratio") for label in labels)),
            list(own.select("at", *_RATIOS).iter_rows()),
        ),
        definition="mfu",
        note=CHART["mfu_note"],
        height=310,
    )


def _joule(document: Document, inputs: AuditInputs, hourly: pl.DataFrame) -> Chart | None:
    """Output tokens per joule by hour and pool."""
    known = hourly.filter(pl.col("tokens_per_j").is_not_null())
    if known.is_empty():
        return None
    import altair as alt

    zone, entry = site_zone(document), _largest(document, "tokens_per_j")
    scopes = known["scope"].unique().sort().to_list()
    names = dict(zip(scopes, named([pool_name(scope) for scope in scopes]), strict=True))
    shown = known.with_columns(pool=pl.col("scope").replace_strict(names, return_dtype=pl.String))
    points = _segments(wall_clock(shown, "at", zone), ["pool"]).select(
        iso("at"), "pool", "stretch", "tokens_per_j"
    )
    line = (
        over("points")
        .mark_line()
        .encode(
            x=time_axis(LABEL["time"].format(zone=zone)),
            y=quantity_axis("tokens_per_j", LABEL["joule"], "~g"),
            detail="stretch:N",
        )
    )
    if len(scopes) > 1:
        line = line.encode(color=alt.Color("pool:N", title=None, scale=colours(list(names.values()))))
    return Chart(
        id="efficiency_joule",
        title=CHART["joule"].format(
            rate=short(entry["tokens_per_j"]),
            pool=pool_name(entry["scope"]),
            source=entry["power_source"] or UNKNOWN,
        ),
        spec=finish(_hatched() + line, 180, points=points.to_dicts(), gaps=gap_rows(inputs, zone)),
        twin=Twin(
            ((LABEL["hour_at"], "instant"), (LABEL["pool"], "text"), (LABEL["joule"], "real")),
            list(shown.select("at", "pool", "tokens_per_j").iter_rows()),
        ),
        definition="tokens-per-joule",
        note=CHART["mfu_note"],
        height=260,
    )


def _power(document: Document, hourly: pl.DataFrame) -> Chart | None:
    """Mean power against output tokens per second, one point per hour, of the largest pool."""
    known = hourly.filter(
        pl.col("power_w_mean").is_not_null() & pl.col("output_tokens").is_not_null() & (pl.col("wall_s") > 0)
    )
    if known.is_empty():
        return None
    import altair as alt

    entry = _largest(document, "power_w_mean")
    own = known.filter(pl.col("scope") == entry["scope"]).with_columns(
        rate=pl.col("output_tokens") / pl.col("wall_s")
    )
    if own.is_empty():
        return None
    points = own.select("rate", "power_w_mean").to_dicts()
    chart = (
        over("points")
        .mark_point(color=ACCENT, size=24, opacity=0.6)
        .encode(
            x=alt.X("rate:Q", title=LABEL["output_rate"], axis=value_axis(grid=False)),
            y=quantity_axis("power_w_mean", LABEL["power"]),
        )
    )
    low, high = (short(float(value), "W") for value in (own["power_w_mean"].min(), own["power_w_mean"].max()))  # type: ignore[arg-type]
    return Chart(
        id="efficiency_power",
        title=CHART["power"].format(low=low, high=high, pool=pool_name(entry["scope"])),
        spec=finish(chart, 200, points=points),
        twin=Twin(
            ((LABEL["hour_at"], "instant"), (LABEL["output_rate"], "real"), (LABEL["power"], "real")),
            list(own.select("at", "rate", "power_w_mean").iter_rows()),
        ),
        definition="power",
        note=CHART["power_note"].format(source=entry["power_source"] or UNKNOWN),
    )


def _busy(document: Document) -> Chart | None:
    """Share of the covered time with at least one call in flight, by pool."""
    known = [entry for entry in document["efficiency"] if entry["busy_ratio"] is not None]
    if not known:
        return None
    names = named([pool_name(entry["scope"]) for entry in known])
    rows = [
        {
            "name": name,
            "value": entry["busy_ratio"],
            "label": percent(entry["busy_ratio"]),
            "colour": WARN if entry["busy_ratio"] == min(other["busy_ratio"] for other in known) else GREY,
        }
        for name, entry in zip(names, known, strict=True)
    ]
    spec, height = bars(rows, LABEL["busy"], "%")
    least = min(known, key=lambda entry: float(entry["busy_ratio"]))
    return Chart(
        id="efficiency_busy",
        title=CHART["busy"].format(pool=pool_name(least["scope"]), busy=percent(least["busy_ratio"])),
        spec=spec,
        twin=Twin(
            ((LABEL["pool"], "text"), (LABEL["busy"], "ratio")),
            [(name, entry["busy_ratio"]) for name, entry in zip(names, known, strict=True)],
        ),
        definition="mfu",
        height=height,
    )
