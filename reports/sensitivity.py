"""What flips the choice: growth of the peak, the price of the choice, the waste.

Belongs here: quotients of figures that the options already state. Does not belong here: sizing under
another load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from reports.charts import ACCENT, GREY, Chart, Twin, bars, named
from reports.document_figures import Document
from reports.hardware_action import option_name
from reports.numbers import money, percent, printable
from reports.page_strings import CHART, FLIP, LABEL, PAGE

SHOWN_FLIPS = 12
Option = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Flip:
    """A change of `size` (share of today's value; None where there is no size) and what follows from it."""

    what: str
    size: float | None
    then: str


def flips(document: Document) -> list[Flip]:
    """The changes that flip the choice of each pool, the nearest first; those without a size last."""
    options = document["sizing"]["as_is"]["options"]
    pools = sorted({option["pool"] for option in options})
    out: list[Flip] = []
    for pool in pools:
        own = [option for option in options if option["pool"] == pool]
        chosen = next((option for option in own if option["is_choice"]), None)
        if chosen is None:
            continue
        found = (_growth(chosen), _price(chosen, own), _waste(chosen, document, pool))
        out += [_for_pool(flip, pool, len(pools)) for flip in found if flip is not None]
    return sorted(out, key=lambda flip: (flip.size is None, flip.size or 0.0))


def _for_pool(flip: Flip, pool: str, pools: int) -> Flip:
    if pools == 1:
        return flip
    return Flip(FLIP["named"].format(what=flip.what, pool=printable(pool, 30)), flip.size, flip.then)


def _growth(chosen: Option) -> Flip | None:
    load = chosen["peak_utilisation"]
    if not load or load >= 1:
        return None
    return Flip(FLIP["growth"], 1 / load - 1, FLIP["growth_detail"].format(option=option_name(chosen)))


def _price(chosen: Option, own: list[Option]) -> Flip | None:
    """The next dearer option that meets the SLO; why a cheaper one was passed over, its row says."""
    if chosen["usd_per_month"] is None or Decimal(chosen["usd_per_month"]) <= 0:
        return None
    now = Decimal(chosen["usd_per_month"])
    dearer = [
        (Decimal(option["usd_per_month"]), option)
        for option in own
        if option["meets_slo"]
        and option["usd_per_month"] is not None
        and Decimal(option["usd_per_month"]) > now
    ]
    if not dearer:
        return None
    usd, other = min(dearer, key=lambda pair: pair[0])
    name = f"{option_name(other)} ({other['serving']})"
    return Flip(FLIP["price"], float(usd / now - 1), FLIP["price_detail"].format(other=name))


def _waste(chosen: Option, document: Document, pool: str) -> Flip | None:
    removed = document["sizing"]["waste_removed"]["options"]
    other = next((option for option in removed if option["pool"] == pool and option["is_choice"]), None)
    if other is None or all(
        other[key] == chosen[key] for key in ("accelerator", "count", "serving", "precision")
    ):
        return None
    usd = other["usd_per_month"]
    cost = "" if usd is None else FLIP["at"].format(usd=money(usd))
    return Flip(FLIP["waste"], None, FLIP["waste_detail"].format(option=option_name(other), cost=cost))


def sensitivity_charts(document: Document) -> dict[str, Chart | None]:
    """The changes with a size as bars, the nearest first."""
    sized = [(flip, flip.size) for flip in flips(document) if flip.size is not None][:SHOWN_FLIPS]
    if not sized:
        return {"sensitivity_flip": None}
    names = named([flip.what for flip, _ in sized])
    rows = [
        {"name": name, "value": size, "label": percent(size), "colour": ACCENT if index == 0 else GREY}
        for index, (name, (_, size)) in enumerate(zip(names, sized, strict=True))
    ]
    spec, height = bars(rows, PAGE["flips_at"], "%")
    nearest, size = sized[0]
    return {
        "sensitivity_flip": Chart(
            id="sensitivity_flip",
            title=CHART["flip"].format(what=nearest.what, size=percent(size)),
            spec=spec,
            twin=Twin(
                ((PAGE["lever"], "text"), (LABEL["ratio"], "ratio"), (PAGE["consequence"], "text")),
                [(name, size, flip.then) for name, (flip, size) in zip(names, sized, strict=True)],
            ),
            definition="utilisation",
            note=CHART["flip_note"],
            height=height,
        )
    }
