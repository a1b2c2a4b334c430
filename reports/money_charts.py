"""Charts of money: by team, by model, by day, and now against after.

Belongs here: laying the document's costs out as bars. Does not belong here: any sum (`audit_parts.py` has
them all).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from reports.charts import ACCENT, GREY, WARN, Chart, Twin, bars, finish, named, over, quantity_axis
from reports.decision import Decision
from reports.document_figures import Document, share
from reports.numbers import money, percent, printable
from reports.page_strings import CHART, LABEL

SHOWN_BARS = 12
_NAME = 40


def money_charts(document: Document, decision: Decision) -> dict[str, Chart | None]:
    """All charts of money by id; None where nothing is priced."""
    return {
        "money_change": _change(decision),
        "money_team": _by_team(document),
        "money_model": _by_model(document),
        "money_day": _by_day(document),
    }


def _bar(name: str, usd: Decimal, colour: str) -> dict[str, Any]:
    return {"name": name, "value": float(usd), "label": money(usd), "colour": colour}


def _priced(amounts: Mapping[str, str | None]) -> list[tuple[str, Decimal]]:
    return [(name, Decimal(usd)) for name, usd in amounts.items() if usd is not None]


def _shown(parts: list[tuple[str, Decimal]], colour: str) -> list[dict[str, Any]]:
    """The largest as bars, the others as one."""
    names = named([printable(name, _NAME) for name, _ in parts[:SHOWN_BARS]])
    rows = [_bar(name, usd, colour) for name, (_, usd) in zip(names, parts[:SHOWN_BARS], strict=True)]
    rest = parts[SHOWN_BARS:]
    if rest:
        others = sum((usd for _, usd in rest), Decimal(0))
        rows.append(_bar(CHART["others"].format(count=len(rest)), others, "var(--faint)"))
    return rows


def _by_team(document: Document) -> Chart | None:
    """Teams, then what has no team: calls without one and idle hardware apart."""
    costs = document["costs"]
    if costs["total"] is None:
        return None
    teams = _priced(costs["by_team"])
    idle = Decimal(costs["idle"])
    loose = Decimal(costs["unattributed"] or 0) - idle
    rows = _shown(teams, GREY)
    rows += [
        _bar(LABEL[name], usd, WARN) for name, usd in (("unattributed", loose), ("idle", idle)) if usd > 0
    ]
    if not rows:
        return None
    top = max(rows, key=lambda row: float(row["value"]))
    title = CHART["team"].format(
        name=top["name"], usd=top["label"], share=percent(share(top["value"], costs["total"]))
    )
    top["colour"] = ACCENT if top["colour"] == GREY else WARN
    spec, height = bars(rows, LABEL["money"])
    extra = [(LABEL["unattributed"], loose), (LABEL["idle"], idle)]
    return Chart(
        id="money_team",
        title=title,
        spec=spec,
        twin=Twin(
            ((LABEL["team"], "text"), (LABEL["money_exact"], "money")),
            [(printable(name), usd) for name, usd in (*costs["by_team"].items(), *extra)],
        ),
        definition="unattributed",
        height=height,
    )


def _by_model(document: Document) -> Chart | None:
    costs = document["costs"]
    models = _priced(costs["by_model"])
    if not models:
        return None
    rows = _shown([(model_name(name), usd) for name, usd in models], GREY)
    for row, (name, _) in zip(rows, models[:SHOWN_BARS], strict=False):
        row["colour"] = WARN if name.startswith("pool:") else ACCENT if row is rows[0] else GREY
    spec, height = bars(rows, LABEL["money"])
    name, usd = model_name(models[0][0]), models[0][1]
    return Chart(
        id="money_model",
        title=CHART["model"].format(
            name=printable(name, _NAME), usd=money(usd), share=percent(share(usd, costs["total"]))
        ),
        spec=spec,
        twin=Twin(
            ((LABEL["model"], "text"), (LABEL["money_exact"], "money")),
            [(printable(model_name(model)), cost) for model, cost in costs["by_model"].items()],
        ),
        definition="cost",
        height=height,
    )


def model_name(name: str) -> str:
    """A key of `costs.by_model` for people: lines of idle hardware stand there under `pool:NAME`."""
    return LABEL["idle_of"].format(pool=name.removeprefix("pool:")) if name.startswith("pool:") else name


def _by_day(document: Document) -> Chart | None:
    days = _priced(document["costs"]["by_day"])
    if not days:
        return None
    import altair as alt

    dearest, most = max(days, key=lambda pair: pair[1])
    rows = [
        {"day": day, "usd": float(usd), "label": money(usd), "colour": ACCENT if day == dearest else GREY}
        for day, usd in days
    ]
    chart = (
        over("days")
        .mark_bar()
        .encode(
            x=alt.X(
                "day:O",
                title=LABEL["charge_day"],
                axis=alt.Axis(labelAngle=0, labelOverlap=True, ticks=False),
            ),
            y=quantity_axis("usd", LABEL["money_exact"]),
            color=alt.Color("colour:N", scale=None),
            tooltip=[alt.Tooltip("day:O"), alt.Tooltip("label:N")],
        )
    )
    return Chart(
        id="money_day",
        title=CHART["day"].format(day=dearest, usd=money(most)),
        spec=finish(chart, 180, days=rows),
        twin=Twin(
            ((LABEL["charge_day"], "text"), (LABEL["money_exact"], "money")),
            list(document["costs"]["by_day"].items()),
        ),
        definition="cost",
        height=240,
    )


def _change(decision: Decision) -> Chart | None:
    """Cost per month now, after, and after if the waste stays; None where nothing would be seen to change."""
    change = decision.money
    shown = [money(usd) for usd in (change.now, change.after, change.unfixed) if usd is not None]
    if change.now is None or change.after is None or len(set(shown)) == 1:
        return None
    parts = [("now", change.now, GREY)]
    if change.unfixed is not None and change.unfixed != change.now:
        parts.append(("unfixed", change.unfixed, GREY))
    parts.append(("after", change.after, ACCENT))
    spec, height = bars([_bar(LABEL[name], usd, colour) for name, usd, colour in parts], LABEL["month"])
    return Chart(
        id="money_change",
        title=CHART["change"].format(now=money(change.now), after=money(change.after)),
        spec=spec,
        twin=Twin(
            ((LABEL["state"], "text"), (LABEL["month"], "money")),
            [(LABEL[name], usd) for name, usd, _ in parts],
        ),
        definition="month",
        note=CHART["change_note"],
        height=height,
    )
