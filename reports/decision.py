"""The decision in words: what to do, cost now and after, three reasons, risks, and how sure it is.

Belongs here: the order of the rules and their thresholds (also stated in the page's method). Does not
belong here: figures (only those of the document are used), wording (`strings.py`), the action on hardware
(`hardware_action.py`). Where the document can't carry a claim, the sentence says what is missing and how to
get it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from reports import strings
from reports.decision_grounds import Statement, confidence, reasons, risks
from reports.document_figures import covered_s, monthly_usd, share
from reports.hardware_action import Verdict, hardware_action
from reports.numbers import duration, money

MATERIAL_SAVING = Decimal("0.05")
"""Waste comes first where removing it saves this share of the money: below that the estimates can't tell."""
MATERIAL_MISSED_RATIO = 0.10
"""... or where this share of the input are missed cache reads, whatever they cost."""

Money = Decimal | None


@dataclass(frozen=True, slots=True)
class MoneyChange:
    """USD per month now, after, and if the waste stays; None is unknown. `basis`: where `now` comes from."""

    now: Money
    after: Money
    unfixed: Money
    basis: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What the first screen says. Texts may hold names from logs: escape them where they are shown."""

    verdict: Verdict
    headline: str
    money: MoneyChange
    money_line: str
    reasons: tuple[Statement, ...]
    risks: tuple[Statement, ...]
    confidence: Literal["high", "medium", "low"]
    confidence_why: str


def decision(document: Mapping[str, Any]) -> Decision:
    """Decide from the figures of an audit document (`audit_json.audit_document`) alone."""
    fix = what_to_fix(document)
    action = hardware_action(document, "waste_removed" if fix else "as_is")
    change = _money_change(document, with_fix=fix is not None)
    level, why = confidence(document, chosen=action.chosen)
    return Decision(
        verdict="fix" if fix else action.verdict,
        headline=_headline(fix, action.phrase, action.missing, nothing_bought=action.verdict == "keep"),
        money=change,
        money_line=_money_line(document, change),
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


def what_to_fix(document: Mapping[str, Any]) -> str | None:
    """Name the waste that should be removed before hardware is judged; None where none is material."""
    missed = share(document["waste"]["prefix"]["missed_tokens"], document["tokens"]["input"])
    if missed is not None and missed >= MATERIAL_MISSED_RATIO:
        return strings.FIXES["missed_cache"]
    dearest = next((found for found in document["findings"] if found["usd"] is not None), None)
    if dearest is None:
        return None
    of_cost = share(dearest["usd"], document["costs"]["total"])
    sizing = document["sizing"]
    stays, removed = (_usd(sizing[name]["choice"]) for name in ("as_is", "waste_removed"))
    saved = share(stays - removed, stays) if stays is not None and removed is not None else None
    if any(part is not None and part >= MATERIAL_SAVING for part in (of_cost, saved)):
        return strings.FIXES.get(dearest["kind"], strings.FIX_OTHERWISE)
    return None


def _headline(fix: str | None, phrase: str | None, missing: str, *, nothing_bought: bool) -> str:
    words = strings.DECISION
    if phrase is None:
        template = words["fix_only"] if fix else words["undecided"]
        return template.format(what=fix, missing=missing)
    if fix:
        text = words["fix_then"].format(what=fix, action=phrase)
    else:
        text = words["act"].format(action=phrase[0].upper() + phrase[1:])
    return text + (words["no_purchase"] if nothing_bought else "")


def _usd(option: Mapping[str, Any] | None) -> Money:
    value = None if option is None else option["usd_per_month"]
    return None if value is None else Decimal(value)


def _money_change(document: Mapping[str, Any], *, with_fix: bool) -> MoneyChange:
    """Now: today's fleet, else the window's cost scaled to a month. After: the choice."""
    sizing = document["sizing"]
    now, basis = _usd(sizing["as_is"]["today"]), strings.MONEY["basis_fleet"]
    if now is None:
        now = monthly_usd(document)
        basis = strings.MONEY["basis_extrapolated"].format(length=duration(covered_s(document)))
    stays = _usd(sizing["as_is"]["choice"])
    removed = _usd(sizing["waste_removed"]["choice"])
    after = removed if with_fix and removed is not None else stays
    return MoneyChange(now, after, stays if with_fix and removed is not None else None, basis)


def _money_line(document: Mapping[str, Any], change: MoneyChange) -> str:
    words = strings.MONEY
    now, after = words["a_month"].format(usd=money(change.now)), money(change.after)
    unfixed = "" if change.unfixed is None else words["unfixed"].format(unfixed=money(change.unfixed))
    if change.now is not None and change.after is not None:
        if change.basis != words["basis_fleet"]:
            now = words["how"].format(now=now, basis=change.basis)
        if change.now == change.after and change.unfixed in {None, change.now}:
            return words["same"].format(now=now)
        return words["now_after"].format(now=now, after=after, unfixed=unfixed)
    if change.after is not None:
        return words["after_only"].format(missing=words["no_price"], after=after, unfixed=unfixed)
    return _line_without_after(document, change)


def _line_without_after(document: Mapping[str, Any], change: MoneyChange) -> str:
    words, total = strings.MONEY, document["costs"]["total"]
    now = words["how"].format(now=words["a_month"].format(usd=money(change.now)), basis=change.basis)
    if change.now is not None:
        missed = share(document["waste"]["prefix"]["missed_usd"], total)
        if missed is not None and missed > 0:
            rest = change.now * (1 - Decimal(str(missed)))
            return words["after_cache"].format(now=now, after=money(rest))
        return words["now_only"].format(now=now, missing=words["no_option"])
    if total is not None:
        return words["window_only"].format(total=money(total), length=duration(covered_s(document)))
    return words["unknown"].format(missing=words["no_price"])
