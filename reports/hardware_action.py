"""What to do with the hardware, in words: keep, rent or buy how many of what, pool by pool.

Belongs here: comparing what is recommended with what runs today. Does not belong here: choosing an option
(`pipelines/sizing/choice.py` did), money, reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reports import strings
from reports.document_figures import all_requests
from reports.numbers import printable
from reports.sums import has_sums_only

Verdict = Literal["keep", "fix", "rent", "buy", "undecided"]
Option = Mapping[str, Any]

SHOWN_POOLS = 3
_RANK: dict[Verdict, int] = {"buy": 0, "rent": 1, "keep": 2, "fix": 3, "undecided": 4}
_RENTED = ("cloud", "reserved", "spot", "api")


@dataclass(frozen=True, slots=True)
class HardwareAction:
    """`phrase` is None where nothing can be said, and `missing` says why; `undecided` counts pools."""

    verdict: Verdict
    phrase: str | None
    missing: str
    pools: int = 0
    undecided: int = 0
    undecided_words: str = ""


def hardware_action(document: Mapping[str, Any], scenario: str) -> HardwareAction:
    """Say what to do with the hardware, by the recommended option of each pool in a scenario."""
    sizing = document["sizing"]
    options = sizing[scenario]["options"] or sizing["as_is"]["options"]
    pools = sorted({option["pool"] for option in options})
    if not pools:
        return HardwareAction("undecided", None, _why_no_options(document))
    chosen = {option["pool"]: option for option in options if option["is_choice"]}
    today = {option["pool"]: option for option in options if option["is_today"]}
    if not chosen:
        return HardwareAction("undecided", None, _why_no_choice(document, options))
    told = [
        _pool_action(pool, chosen[pool], today.get(pool), alone=len(pools) == 1)
        for pool in pools
        if pool in chosen
    ]
    undecided = [pool for pool in pools if pool not in chosen]
    verdict = min((verdict for verdict, _, _ in told), key=lambda name: _RANK[name])
    return HardwareAction(
        verdict,
        "; ".join(_hardware_phrases(told)),
        "",
        pools=len(pools),
        undecided=len(undecided),
        undecided_words=_undecided_words(undecided, options),
    )


def _hardware_phrases(told: Sequence[tuple[Verdict, str, bool]]) -> list[str]:
    """What is bought, then rented, then kept; several APIs that stay are one phrase."""
    words = strings.DECISION
    apis = [phrase for _, phrase, keeps_api in told if keeps_api]
    phrases = [
        phrase for _, phrase, keeps_api in sorted(told, key=lambda one: _RANK[one[0]]) if not keeps_api
    ]
    shown = phrases[:SHOWN_POOLS]
    if len(phrases) > SHOWN_POOLS:
        shown.append(words["more_pools"].format(count=len(phrases) - SHOWN_POOLS))
    if apis:
        shown.append(apis[0] if len(apis) == 1 else words["keep_apis"].format(count=len(apis)))
    return shown


def _undecided_words(pools: Sequence[str], options: Sequence[Option]) -> str:
    """A sentence on the pools without a choice, with a space before it; nothing where each has one."""
    words = strings.DECISION
    if len(pools) > 1:
        return words["pools_undecided"].format(count=len(pools))
    reasons = [_told([option for option in options if option["pool"] == pool]) for pool in pools]
    return "".join(
        words["pool_undecided"].format(pool=_begins(pool_in_words(pool)), reason=reason)
        for pool, reason in zip(pools, reasons, strict=True)
    )


def _begins(words: str) -> str:
    """The words at the beginning of a sentence; a name keeps its case."""
    return words[0].upper() + words[1:] if words == strings.NO_MODEL else words


def pool_in_words(pool: str, limit: int = 80) -> str:
    """A pool's name; in words where it is that of the calls without a model."""
    return strings.NO_MODEL if pool == strings.UNKNOWN else printable(pool, limit)


def _why_no_options(document: Mapping[str, Any]) -> str:
    if has_sums_only(document):
        return strings.DECISION["missing_calls"]
    if not all_requests(document):
        return strings.DECISION["missing_requests"]
    if not (document["fleet"] or {}).get("pools"):
        return strings.DECISION["missing_fleet"]
    return strings.DECISION["missing_options"]


def _why_no_choice(document: Mapping[str, Any], options: Sequence[Option]) -> str:
    if not (document["fleet"] or {}).get("pools"):
        return strings.DECISION["missing_fleet"]
    return strings.DECISION["missing_choice"].format(reason=_told(options))


def _told(options: Sequence[Option]) -> str:
    """The first reason that the options give for there being no choice, as part of a sentence."""
    told = next((option["reasons"][0] for option in options if option["reasons"]), None)
    text = printable(told or strings.DECISION["missing_choice_reason"], 200)
    return text.removeprefix(strings.DECISION["no_choice_prefix"]).rstrip(".")


def option_name(option: Option) -> str:
    """An option in a few words: `8 x H100 SXM`, `API`."""
    if option["serving"] == "api" or option["accelerator"] is None:
        return "API"
    return f"{option['count']} x {printable(option['accelerator'])}"


def _pool_action(
    pool: str, chosen: Option, today: Option | None, *, alone: bool
) -> tuple[Verdict, str, bool]:
    """What to do with one pool: the verdict, its phrase, and whether it is an API that stays."""
    words = strings.DECISION
    where = "" if alone else words["for_pool"].format(pool=pool_in_words(pool))
    if chosen["serving"] == "api":
        stays = bool(chosen["is_today"])
        return "keep" if stays else "rent", words["keep_api" if stays else "api"].format(where=where), stays
    same = today is not None and all(chosen[key] == today[key] for key in ("accelerator", "serving"))
    if today is not None and same and chosen["count"] <= today["count"]:
        # The same number of the same cards, cut into other groups or at another precision: nothing is bought.
        key = "keep_part" if chosen["count"] < today["count"] else "keep"
        text = words[key].format(count=chosen["count"], option=option_name(today), where=where)
        return "keep", text, False
    verdict: Verdict = "rent" if chosen["serving"] in _RENTED else "buy"
    if today is not None and same:
        more = chosen["count"] - today["count"]
        name = printable(chosen["accelerator"])
        return verdict, words[f"{verdict}_more"].format(count=more, accelerator=name, where=where), False
    unstated = words["today_unstated"] if today is None else ""
    return verdict, words[verdict].format(option=option_name(chosen), where=where + unstated), False
