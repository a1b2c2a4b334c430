"""Where hardware and an API cost the same: cost per month by tokens served, from the options as the load is.

Belongs here: the lines and their crossing. Does not belong here: prices and capacities (the sizing stage). An
option's cost stands for as many tokens as it carries within the SLO at the load's own mix; more of them are
bought beyond. What an API costs grows with the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reports.charts import ACCENT, GREY, INK, WARN, Chart, Twin, finish, log_ticks, over, value_axis
from reports.numbers import money, percent, printable, short
from reports.page_strings import CHART, LABEL

Option = Mapping[str, Any]
_POINTS = 60
_SPAN = 10.0
"""The chart runs from a tenth of the least to ten times the most of what matters on it."""


@dataclass(frozen=True, slots=True)
class Line:
    """Cost of one way to serve: USD a month of one unit, and the tokens it carries; None where it is an API."""

    name: str
    usd: float
    tokens: float
    is_api: bool

    def at(self, tokens: float) -> float:
        """USD a month for a number of tokens a month."""
        return self.usd * (tokens / self.tokens if self.is_api else max(1, math.ceil(tokens / self.tokens)))


def break_even_tokens(hardware: Line, api: Line) -> float:
    """Tokens a month from which on hardware costs no more than the API; infinite where none do.

    A unit more is needed just above each multiple of what one carries: full units are compared.
    """
    per_token = api.usd / api.tokens
    found = hardware.usd / per_token
    if found <= hardware.tokens:
        return found
    # The saturated cost per token of hardware is the least that it can be.
    return math.inf


def break_even(options: Sequence[Option], pool: str) -> Chart | None:
    """The cheapest owned, the cheapest rented and the API of a pool; None without an API and hardware."""
    apis = [line for option in options if (line := _api_line(option)) is not None]
    cards = [line for serving in ("own", "cloud") if (line := _cheapest(options, serving)) is not None]
    if not apis or not cards:
        return None
    import altair as alt

    api = min(apis, key=lambda line: line.usd / line.tokens)
    crossings = {line.name: break_even_tokens(line, api) for line in cards}
    today = api.tokens
    marks = [today, *(line.tokens for line in cards), *(at for at in crossings.values() if at < math.inf)]
    low, high = min(marks) / _SPAN, max(marks) * _SPAN
    lines = ((api, ACCENT), *zip(cards, (INK, GREY), strict=False))
    steps = [low * (high / low) ** (index / _POINTS) for index in range(_POINTS + 1)]
    rows = [
        {"name": line.name, "tokens": tokens, "usd": line.at(tokens), "colour": colour}
        for line, colour in lines
        for tokens in steps
    ]
    least, most = min(row["usd"] for row in rows), 3 * max(row["usd"] for row in rows)
    ends = [row | {"text": row["name"]} for row in rows if row["tokens"] == steps[-1]]
    log_x = alt.Scale(type="log", domain=[low, high], nice=False)
    x = alt.X(
        "tokens:Q",
        title=LABEL["month_tokens"],
        scale=log_x,
        axis=value_axis(grid=False, values=log_ticks(low, high)),
    )
    y = alt.Y(
        "usd:Q",
        title=LABEL["month"],
        scale=alt.Scale(type="log", domain=[least, most], nice=False),
        axis=value_axis(values=log_ticks(least, most)),
    )
    colour = alt.Color("colour:N", scale=None)
    layers = (
        over("lines").mark_line(strokeWidth=1.6).encode(x=x, y=y, detail="name:N", color=colour)
        + over("ends")
        .mark_text(align="right", dx=-2, dy=-7)
        .encode(x=x, y="usd:Q", text="text:N", color=colour)
        + over("today").mark_rule(color=WARN, strokeDash=[5, 3]).encode(x=x)
        + over("today").mark_text(align="left", dx=4, color=INK).encode(x=x, y=alt.value(8), text="label:N")
    )
    nearest = min(cards, key=lambda line: crossings[line.name])
    reached = crossings[nearest.name]
    words = {"name": nearest.name, "api": money(api.usd / api.tokens * 1e6), "today": short(today, "tokens")}
    title = (
        CHART["break_even_never"].format(**words)
        if reached == math.inf
        else CHART["break_even"].format(
            tokens=short(reached, "tokens"), share=percent(today / reached), **words
        )
    )
    return Chart(
        id="options_break_even",
        title=title,
        spec=finish(
            layers,
            260,
            lines=rows,
            ends=ends,
            today=[{"tokens": today, "label": CHART["break_even_today"].format(tokens=short(today))}],
        ),
        twin=Twin(
            (
                (LABEL["option"], "text"),
                (LABEL["month"], "money"),
                (LABEL["carried_tokens"], "real"),
                (LABEL["break_even"], "real"),
            ),
            [
                (api.name, api.usd, None, None),
                *(
                    (
                        line.name,
                        line.usd,
                        line.tokens,
                        None if (at := crossings[line.name]) == math.inf else at,
                    )
                    for line in cards
                ),
            ],
        ),
        definition="break-even",
        note=CHART["break_even_note"].format(pool=printable(pool, 40)),
        height=320,
    )


def _api_line(option: Option) -> Line | None:
    """An API's cost today and the tokens it is for."""
    usd, per_mtok = option["usd_per_month"], option["usd_per_mtok"]
    if option["serving"] != "api" or usd is None or per_mtok is None or float(per_mtok) <= 0:
        return None
    name = LABEL["api_today" if option["is_today"] else "api_hosted"]
    return Line(name, float(usd), float(usd) / float(per_mtok) * 1e6, is_api=True)


def _cheapest(options: Sequence[Option], serving: str) -> Line | None:
    """The cheapest hardware of a way to pay that meets the SLO: the recommended one, where it is of this way."""
    known = [
        option
        for option in options
        if option["serving"] == serving
        and option["meets_slo"]
        and option["usd_per_month"] is not None
        and option["usd_per_mtok_saturated"] is not None
        and float(option["usd_per_mtok_saturated"]) > 0
    ]
    if not known:
        return None
    best = min(known, key=lambda option: (not option["is_choice"], float(option["usd_per_month"])))
    usd = float(best["usd_per_month"])
    name = f"{best['count']} x {printable(best['accelerator'], 30)} ({LABEL[serving]})"
    return Line(name, usd, usd / float(best["usd_per_mtok_saturated"]) * 1e6, is_api=False)
