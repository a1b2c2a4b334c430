"""What to do with the hardware, in words: keep, rent or buy how many of what, pool by pool.

Belongs here: comparing what is recommended with what runs today. Does not belong here: choosing an option
(`pipelines/sizing/choice.py` did), money, reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reports import strings
from reports.document_figures import all_requests, served
from reports.numbers import counted, printable
from reports.sums import has_sums_only

Verdict = Literal["keep", "fix", "rent", "buy", "undecided"]
Option = Mapping[str, Any]

SHOWN_POOLS = 3
_FLEET_FILE = "fleet.toml"
_RANK: dict[Verdict, int] = {"buy": 0, "rent": 1, "keep": 2, "fix": 3, "undecided": 4}
_RENTED = ("cloud", "reserved", "spot", "api")


@dataclass(frozen=True, slots=True)
class HardwareAction:
    """`phrase` is None where nothing can be said. `caveat` says what is left open, and why; `undecided` counts
    pools.
    """

    verdict: Verdict
    phrase: str | None
    caveat: str
    pools: int = 0
    undecided: int = 0


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
        " ".join(filter(None, (_undecided_words(undecided, options), _fleet_words(chosen, today)))),
        pools=len(pools),
        undecided=len(undecided),
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
    """A sentence on the pools without a choice; nothing where each has one."""
    if not pools:
        return ""
    reason = _told([option for option in options if option["pool"] == pools[0]])
    first = pool_in_words(pools[0], 40)
    if len(pools) == 1:
        return strings.DECISION["pool_undecided"].format(pool=_begins(first), reason=reason)
    return strings.DECISION["pools_undecided"].format(count=len(pools), pool=first, reason=reason)


def _fleet_words(chosen: Mapping[str, Option], today: Mapping[str, Option]) -> str:
    """Ask for the fleet, once, where hardware is named for a pool of which nothing says what serves it."""
    unstated = any(pool not in today and option["serving"] != "api" for pool, option in chosen.items())
    return strings.DECISION["state_fleet"] if unstated else ""


def _begins(words: str) -> str:
    """The words at the beginning of a sentence; a name keeps its case."""
    return words[0].upper() + words[1:] if words == strings.NO_MODEL else words


def pool_in_words(pool: str, limit: int = 80) -> str:
    """A pool's name; in words where it is that of the calls without a model."""
    return strings.NO_MODEL if pool == strings.UNKNOWN else printable(pool, limit)


def _why_no_options(document: Mapping[str, Any]) -> str:
    words, calls = strings.DECISION, all_requests(document)
    if has_sums_only(document):
        return words["missing_calls"]
    if not calls:
        key = "_engines" if document["engines"] else "_meters" if document["inputs"]["samples"] else ""
        return words[f"missing_calls{key}" if key else "missing_requests"]
    if not served(document):
        return words["missing_served"].format(calls=counted(calls, "call"))
    if document["window"]["start"] is None:
        return words["missing_times"]
    return words["missing_options" if _has_pools(document) else "missing_fleet"]


def _why_no_choice(document: Mapping[str, Any], options: Sequence[Option]) -> str:
    reason = _told(options)
    told = _has_pools(document) or _FLEET_FILE in reason
    return strings.DECISION["missing_choice" if told else "missing_choice_fleet"].format(
        reason=reason[0].upper() + reason[1:]
    )


def _has_pools(document: Mapping[str, Any]) -> bool:
    return bool((document["fleet"] or {}).get("pools"))


def _told(options: Sequence[Option]) -> str:
    """The first reason that the options give for there being no choice, as part of a sentence."""
    told = next((option["reasons"][0] for option in options if option["reasons"]), None)
    text = printable(told or strings.DECISION["missing_choice_reason"], 400)
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
