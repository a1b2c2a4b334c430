"""Which of the options to take, and in what order to show them.

Belongs here: ranking by cost among those that meet the SLO, the rules that keep what runs today, the reasons
in words. Does not belong here: building the options (`options.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pipelines.sizing.cost import spelled
from pipelines.sizing.load import LEAST_COVERED_S, DemandSummary
from pipelines.sizing.reasons import uncounted_words
from reports.numbers import counted, duration, percent
from warehouse.catalogue import BITS, parameters

WORTH_A_CHANGE = Decimal("0.10")
"""A change must save this share of today's cost: estimates are no better, and moving is not free."""
LEAST_CALLS = 1000
"""Calls below which no hardware is advised: a p95 and a peak of fewer are chance."""
LEAST_UTILISATION = 0.01
"""Share of a new option's capacity that the mean must fill where nothing of one's own runs yet."""


@dataclass(frozen=True)
class Candidate:
    """One option: its columns of FLEET_OPTIONS, bits per weight and kind of card (None: an API).

    `running_usd` is what it costs per month once it is paid for; None for rent. `carried` says what the log
    shows of it at the peak, where it kept the SLO there; `broke` the same, where it did not.
    """

    row: dict[str, Any]
    bits: int | None
    kind: str | None
    running_usd: Decimal | None = None
    carried: str | None = None
    broke: str | None = None

    @property
    def is_api(self) -> bool:
        """Whether it is an API, whose latency is not judged."""
        return bool(self.row["serving"] == "api")

    @property
    def proof(self) -> str:
        """Why it is held to carry the peak."""
        return (
            "It meets the SLO at the peak" if self.carried is None else f"It carried the peak: {self.carried}"
        )

    @property
    def usd(self) -> Decimal | None:
        """Cost per month."""
        cost: Decimal | None = self.row.get("usd_per_month")
        return cost

    @property
    def meets(self) -> bool:
        """Whether it is known to meet the SLO."""
        return self.row.get("meets_slo") is True


def choose(
    candidates: Sequence[Candidate], load: DemandSummary, notes: Sequence[str]
) -> list[dict[str, Any]]:
    """Rank the options of one pool, mark at most one as the choice and say why; `notes` go with the first row
    told.

    Order: those that meet the SLO by cost, then those of which it can't be told, then the others.
    """
    ordered = sorted(candidates, key=_order)
    chosen, why = _choice(ordered, load)
    rows = []
    for rank, candidate in enumerate(ordered, start=1):
        own = list(candidate.row.get("reasons", ()))
        if candidate is chosen:
            own = [*_told(candidate, ordered, why), *notes]
        elif candidate.meets:
            own = [*_barred(candidate, load), *own]
        if chosen is None and rank == 1:
            own = [*why, *own, *notes]
        rows.append({**candidate.row, "rank": rank, "is_choice": candidate is chosen, "reasons": own})
    return rows


def _told(chosen: Candidate, ordered: Sequence[Candidate], why: Sequence[str]) -> list[str]:
    """Reasons of the choice: why, what an API would cost, and its own, none of them twice."""
    own = chosen.row.get("reasons", ())
    fresh = [reason for reason in own if chosen.carried is None or chosen.carried not in reason]
    return [*why, *_hosted(chosen, ordered), *fresh]


def _hosted(chosen: Candidate, ordered: Sequence[Candidate]) -> list[str]:
    """What a hosted copy of the model lists at, where one is known and it is not what is chosen."""
    return [
        f"A hosted API of the same weights lists at {spelled(entry.usd)} USD a month; "
        "its latency, and whether prompts may leave the site, are not known here"
        for entry in ordered
        if entry.is_api and entry is not chosen and not entry.row["is_today"] and entry.usd is not None
    ]


def _order(candidate: Candidate) -> tuple[int, bool, Decimal, int, bool]:
    verdict = {True: 0, None: 1, False: 2}[candidate.row.get("meets_slo")]
    cost = candidate.usd
    return (
        verdict,
        cost is None,
        cost or Decimal(0),
        candidate.row.get("count") or 0,
        not candidate.row["is_today"],
    )


def _barred(candidate: Candidate, load: DemandSummary) -> list[str]:
    """Reasons why an option that meets the SLO is listed but never chosen by itself."""
    out = []
    if candidate.bits is not None and candidate.bits < _bits_kept(load):
        out.append(f"Lower precision ({candidate.row['precision']}): answers must be tested first")
    if candidate.kind == "consumer":
        out.append("A consumer card, listed for comparison")
    name = candidate.row.get("accelerator")
    runs_today = load.today is not None and load.today.card.name == name
    if name is not None and not runs_today and name not in parameters("step_time")["measured_on"]:
        out.append("No measured point stands behind its speed: measure before you commit")
    return out


def _bits_kept(load: DemandSummary) -> int:
    """Bits per weight of today's precision, else of the published weights."""
    if load.today is not None:
        return BITS[load.today.precision]
    return BITS[load.model.native_precision] if load.model is not None else 0


def _choice(ordered: Sequence[Candidate], load: DemandSummary) -> tuple[Candidate | None, list[str]]:
    if load.unmeasured and load.model is not None:
        return None, [uncounted_words(load)]
    able = [entry for entry in ordered if entry.meets and entry.usd is not None and not _barred(entry, load)]
    today = next((entry for entry in ordered if entry.row["is_today"]), None)
    others = [entry for entry in able if entry is not today]
    best = others[0] if others else None
    if today is not None and today.is_api:
        kept = _why_keep_api(today, best, load)
        if kept is not None:
            return today, [kept]
    elif today is not None and today.meets:
        kept = _why_keep(today, best)
        if kept is not None:
            return today, [kept]
    if best is None:
        return None, [_why_none(ordered, load)]
    lacking = _lacking(today, best, load)
    if lacking is None:
        return best, [_why_change(today, best)]
    stays = today if today is not None and (today.is_api or today.meets) else None
    return stays, [f"No {'choice' if stays is None else 'change'}: {lacking}"]


def _lacking(today: Candidate | None, best: Candidate, load: DemandSummary) -> str | None:
    """Say what the data lacks for a change of hardware, and how to get it; None where it carries one."""
    length = duration(load.window_s)
    if load.requests < LEAST_CALLS:
        return (
            f"{counted(load.requests, 'call')} in {length} are too little data to size hardware by: "
            f"keep what serves it today, and log {LEAST_CALLS:,} calls or more over a week"
        )
    breaks = today is not None and today.row.get("meets_slo") is False
    if load.window_s < LEAST_COVERED_S and not breaks:
        return f"{length} of data does not show the peak of a day: keep what serves it today, and log a week"
    mean = best.row.get("utilisation_ratio")
    if today is None and mean is not None and mean < LEAST_UTILISATION:
        return (
            f"the load would use {percent(mean)} of {best.row['count']} x {best.row['accelerator']}, too little "
            "to buy or rent hardware for: keep what serves it today, or take an API paid by the token"
        )
    return None


def _why_keep_api(today: Candidate, best: Candidate | None, load: DemandSummary) -> str | None:
    """Say why the API stays; None if hardware would cost clearly less."""
    if load.model is None:
        return "An API is what serves it today and the only option that can be told"
    if best is None or best.usd is None:
        return "An API serves it today, and no hardware is known to meet the SLO"
    if today.usd is None or best.usd >= today.usd * (1 - WORTH_A_CHANGE):
        return (
            "An API serves it today; the cheapest hardware that meets the SLO would cost "
            f"{best.usd:,.0f} USD a month"
        )
    return None


def _why_keep(today: Candidate, best: Candidate | None) -> str | None:
    """Say why what runs today stays; None if it should not."""
    if best is None or best.usd is None:
        return f"{today.proof}; no other option that does is known at this precision"
    if today.usd is None:
        return f"{today.proof}; its cost is unknown, so no change can be shown to pay"
    if best.usd >= today.usd * (1 - WORTH_A_CHANGE):
        return (
            f"{today.proof}; no option of this precision and with measured speed saves {WORTH_A_CHANGE:.0%}"
        )
    if today.running_usd is not None and not _is_part_of(best, today) and best.usd >= today.running_usd:
        return (
            f"{today.proof}. It is paid for: running it costs {today.running_usd:,.0f} USD a month in "
            f"energy, the cheapest other option {best.usd:,.0f}"
        )
    return None


def _why_change(today: Candidate | None, best: Candidate) -> str:
    if today is None:
        return "The cheapest option that meets the SLO at the peak without lower precision"
    if not today.meets and not today.is_api:
        how = "by this estimate" if today.broke is None else f"({today.broke})"
        return (
            f"What runs today does not meet the SLO at the peak {how}; this is the cheapest option that does"
        )
    if _is_part_of(best, today):
        count, had = best.row["count"], today.row["count"]
        return f"{count} of today's {had} accelerators carry the peak with one replica to spare"
    saved = (today.usd or Decimal(0)) - (best.usd or Decimal(0))
    return f"It meets the SLO at the peak and saves {saved:,.0f} USD a month against today"


def _is_part_of(option: Candidate, today: Candidate) -> bool:
    """Whether an option is fewer of the accelerators that run today, paid the same way."""
    same = all(option.row.get(key) == today.row.get(key) for key in ("accelerator", "serving"))
    return same and option.row["count"] < today.row["count"]


def _why_none(ordered: Sequence[Candidate], load: DemandSummary) -> str:
    if load.unmeasured:
        return uncounted_words(load)
    if load.peak_rate is None and load.model is not None:
        return "No choice: the peak of this model is unknown"
    if load.model is None:
        return (
            "No choice: neither the architecture nor a price of this model is known; state one in fleet.toml"
        )
    if all(entry.usd is None for entry in ordered):
        return "No choice: no price is known"
    return "No choice: no option with a known price meets the SLO at today's precision"
