"""Which waste is worth removing before hardware is judged: the rule of materiality.

Belongs here: the shares and floors above which a waste leads the decision (also stated in the page's method).
Does not belong here: finding waste (the waste stage), wording (`strings.py`). What stays below is a note: it
stands among the findings and in the reasons, and does not lead.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from reports import strings
from reports.document_figures import HOURS_PER_MONTH, SECONDS_PER_DAY, Document, covered_s, share
from reports.finding_parts import net_usd

MATERIAL_SAVING = 0.05
"""Waste comes first where removing it saves this share of the money: below that the estimates can't tell."""
MATERIAL_MISSED_RATIO = 0.10
"""... or where this share of the input are missed cache reads ..."""
LEAST_USD_A_MONTH = 100
"""... and it is worth this much a month: less does not pay for an engineer's hour ..."""
LEAST_TOKENS_A_MONTH = 100_000_000
"""... or, where tokens have no price, this many of them: 100 USD at 1 USD per million."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A waste to remove first: its kind in words, and what it costs a month at most (None is unknown).

    `in_options`: whether the options with the waste removed cost less.
    """

    what: str
    usd_a_month: Decimal | None
    in_options: bool = True


def a_month(document: Document, amount: Decimal) -> Decimal:
    """An amount of the window as one of a month.

    Less than a day counts as a whole one, since the rest of it may be idle; without times the window counts
    as a month.
    """
    seconds = covered_s(document)
    if seconds is None:
        return amount
    return amount * HOURS_PER_MONTH * 3600 / Decimal(repr(max(seconds, float(SECONDS_PER_DAY))))


def missed_usd_a_month(document: Document) -> Decimal | None:
    """What missed cache reads cost a month beside what is to be done before; None where no price is known."""
    usd = net_usd(document, "missed_cache")
    return None if usd is None else a_month(document, usd)


def what_to_fix(document: Document) -> Fix | None:
    """The waste that should be removed before hardware is judged; None where none is material."""
    missed, usd = document["waste"]["prefix"]["missed_tokens"], missed_usd_a_month(document)
    ratio = share(missed, document["tokens"]["input"])
    if ratio is not None and ratio >= MATERIAL_MISSED_RATIO and _is_worth_it(document, usd):
        return Fix(strings.FIXES["missed_cache"], usd, in_options=_is_in_options(document))
    return _dearest(document)


def _is_worth_it(document: Document, missed_usd: Decimal | None) -> bool:
    if missed_usd is not None and missed_usd >= LEAST_USD_A_MONTH:
        return True
    unpriced = sum(
        part["missed_tokens"] or 0
        for part in document["waste"]["prefix"]["by_scope"]
        if part["missed_usd"] is None and part["scope"].startswith("model:") and "/team:" not in part["scope"]
    )
    return a_month(document, Decimal(unpriced)) >= LEAST_TOKENS_A_MONTH


def _dearest(document: Document) -> Fix | None:
    """The dearest finding, where it or all waste together is a material part of the money."""
    found = next((found for found in document["findings"] if found["usd_net"] is not None), None)
    if found is None:
        return None
    usd = Decimal(found["usd_net"])
    before, after = _options_usd(document)
    words = strings.FIXES.get(found["kind"], strings.FIX_OTHERWISE)
    fix = Fix(words, a_month(document, usd), in_options=before != after)
    parts = (
        (a_month(document, usd), share(usd, document["costs"]["total"])),
        (before - after, share(before - after, before)),
    )
    is_material = any(
        worth >= LEAST_USD_A_MONTH and ratio is not None and ratio >= MATERIAL_SAVING
        for worth, ratio in parts
    )
    return fix if is_material else None


def _is_in_options(document: Document) -> bool:
    before, after = _options_usd(document)
    return before != after


def _options_usd(document: Document) -> tuple[Decimal, Decimal]:
    """USD a month of the choices as the load is and with the waste removed, of pools that know both."""
    stays, removed = (
        {
            option["pool"]: Decimal(option["usd_per_month"])
            for option in document["sizing"][scenario]["options"]
            if option["is_choice"] and option["usd_per_month"] is not None
        }
        for scenario in ("as_is", "waste_removed")
    )
    both = sorted(set(stays) & set(removed))
    return sum((stays[pool] for pool in both), Decimal(0)), sum((removed[pool] for pool in both), Decimal(0))
