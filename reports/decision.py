"""The decision in words: what to do, cost now and after, three reasons, risks, and how sure it is.

Belongs here: the order of the rules. Does not belong here: figures (only those of the document are used),
wording (`strings.py`), which waste is worth it (`materiality.py`), the action on hardware
(`hardware_action.py`). Where the document can't carry a claim, the sentence says what is missing and how to
get it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from reports import strings
from reports.decision_grounds import Statement, confidence, reasons, risks
from reports.document_figures import all_requests, covered_s, monthly_usd, share
from reports.finding_parts import net_usd
from reports.hardware_action import HardwareAction, Verdict, hardware_action, pool_in_words
from reports.materiality import Fix, what_to_fix
from reports.numbers import duration, money
from reports.sums import costs_as_stated

Money = Decimal | None


@dataclass(frozen=True, slots=True)
class MoneyChange:
    """USD per month now, after, and if the waste stays; None is unknown.

    `left_out`: pools in no sum; `left_out_after`: what their choices would cost.
    """

    now: Money
    after: Money
    unfixed: Money
    basis: str
    left_out: tuple[str, ...] = ()
    left_out_after: Money = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the first screen says. Texts may hold names from logs: escape them where they are shown.

    `advice` is what to do, `caveat` what it leaves open (empty where nothing).
    """

    verdict: Verdict
    advice: str
    caveat: str
    money: MoneyChange
    money_line: str
    reasons: tuple[Statement, ...]
    risks: tuple[Statement, ...]
    confidence: Literal["high", "medium", "low"]
    confidence_why: str

    @property
    def headline(self) -> str:
        """Advice and caveat as one text."""
        return f"{self.advice} {self.caveat}".rstrip()


def decision(document: Mapping[str, Any]) -> Decision:
    """Decide from the figures of an audit document (`audit_json.audit_document`) alone."""
    fix = what_to_fix(document)
    action = hardware_action(document, "waste_removed" if fix else "as_is")
    change = _money_change(document, with_fix=fix is not None)
    level, why = confidence(document, action)
    return Decision(
        verdict="fix" if fix else action.verdict,
        advice=_advice(fix, action),
        caveat=action.caveat,
        money=change,
        money_line=_money_line(document, change, fix),
        reasons=reasons(document),
        risks=risks(document),
        confidence=level,
        confidence_why=why,
    )


def decision_lines(found: Decision) -> list[str]:
    """The decision in three lines of plain text for a terminal."""
    return [
        f"Decision: {found.headline}",
        f"Money: {found.money_line}",
        f"Confidence: {found.confidence} ({found.confidence_why}).",
    ]


def _advice(fix: Fix | None, action: HardwareAction) -> str:
    words, phrase = strings.DECISION, action.phrase
    if phrase is None:
        return words["fix_only"].format(what=fix.what) if fix else words["undecided"]
    if fix:
        text = words["fix_then"].format(what=fix.what, action=phrase)
    else:
        text = words["act"].format(action=phrase[0].upper() + phrase[1:])
    return text + (words["no_purchase"] if action.verdict == "keep" else "")


def _by_pool(document: Mapping[str, Any], scenario: str, key: str) -> dict[str, Decimal]:
    """USD per month of the options that are marked (`is_today`, `is_choice`), by pool, where it is known."""
    options = document["sizing"][scenario]["options"]
    return {
        option["pool"]: Decimal(option["usd_per_month"])
        for option in options
        if option[key] and option["usd_per_month"] is not None
    }


def _money_change(document: Mapping[str, Any], *, with_fix: bool) -> MoneyChange:
    """Now: what runs today, else the window's cost scaled to a month. After: the choice.

    Both over the pools that know both. Where no pool knows what it costs today, the choice of all pools
    stands against the window's cost.
    """
    stays = _by_pool(document, "as_is", "is_choice")
    removed = _by_pool(document, "waste_removed", "is_choice")
    after = removed if with_fix and removed else stays
    unfixed = stays if after is removed else None
    today = _by_pool(document, "as_is", "is_today")
    compared = sorted(set(today) & set(after) & set(stays))
    left = {option["pool"] for option in document["sizing"]["as_is"]["options"]} - set(compared)
    if compared:
        now, basis = _sum(today, compared), strings.MONEY["basis_fleet"]
    else:
        now = monthly_usd(document)
        basis = strings.MONEY["basis_extrapolated"].format(length=duration(covered_s(document)))
        compared = [] if left - set(after) else sorted(after)
    return MoneyChange(
        now,
        _sum(after, compared),
        None if unfixed is None else _sum(unfixed, compared),
        basis,
        tuple(sorted(left)) if now is not None and compared and today else (),
        _sum(after, sorted(left)) if left <= set(after) else None,
    )


def _sum(amounts: Mapping[str, Decimal], pools: Sequence[str]) -> Money:
    return sum((amounts[pool] for pool in pools), Decimal(0)) if pools else None


def _money_line(document: Mapping[str, Any], change: MoneyChange, fix: Fix | None) -> str:
    words = strings.MONEY
    now, after = words["a_month"].format(usd=money(change.now)), money(change.after)
    stays = after if change.unfixed is None else money(change.unfixed)
    unfixed = "" if stays == after else words["unfixed"].format(unfixed=stays)
    if change.now is not None and change.after is not None:
        if change.basis != words["basis_fleet"]:
            now = words["how"].format(now=now, basis=change.basis)
        key = "now_after"
        if money(change.now) == after and not unfixed:
            key = "as_much" if change.now != change.after or change.left_out else "same"
            if fix is not None and not fix.in_options and fix.usd_a_month:
                key, after = "fix_worth", money(fix.usd_a_month)
        return words[key].format(now=now, after=after, unfixed=unfixed) + _left_out(change)
    if change.after is not None:
        return words["after_only"].format(missing=words["no_price"], after=after, unfixed=unfixed)
    return _line_without_after(document, change)


def _left_out(change: MoneyChange) -> str:
    words, pools, after = strings.MONEY, change.left_out, change.left_out_after
    if not pools:
        return ""
    named = (
        pool_in_words(pools[0], 40) if len(pools) == 1 else words["left_out_many"].format(count=len(pools))
    )
    cost = words["left_out_unknown"] if after is None else words["left_out_after"].format(after=money(after))
    return words["left_out"].format(pools=named, cost=cost)


def _line_without_after(document: Mapping[str, Any], change: MoneyChange) -> str:
    words, total = strings.MONEY, document["costs"]["total"]
    now = words["how"].format(now=words["a_month"].format(usd=money(change.now)), basis=change.basis)
    if change.now is not None:
        saved = share(net_usd(document), total)
        if saved is not None and saved > 0:
            rest = change.now * (1 - Decimal(str(min(saved, 1))))
            return words["after_waste"].format(now=now, after=money(rest))
        return words["now_only"].format(now=now, missing=words["no_option"])
    if total is not None:
        return words["window_only"].format(total=money(total), length=duration(covered_s(document)))
    if stated := costs_as_stated(document):
        return words["as_stated"].format(stated=stated)
    return words["unknown"].format(missing=words["no_price" if all_requests(document) else "no_calls"])
