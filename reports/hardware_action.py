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

Verdict = Literal["keep", "fix", "rent", "buy", "undecided"]
Option = Mapping[str, Any]

SHOWN_POOLS = 3
_RANK: dict[Verdict, int] = {"buy": 0, "rent": 1, "keep": 2, "fix": 3, "undecided": 4}
_RENTED = ("cloud", "reserved", "spot", "api")


@dataclass(frozen=True, slots=True)
class HardwareAction:
    """`phrase` is None where nothing can be said, `missing` says why. `chosen`: for every pool."""

    verdict: Verdict
    phrase: str | None
    missing: str
    chosen: bool


def hardware_action(document: Mapping[str, Any], scenario: str) -> HardwareAction:
    """Say what to do with the hardware, by the recommended option of each pool in a scenario."""
    sizing = document["sizing"]
    options = sizing[scenario]["options"] or sizing["as_is"]["options"]
    pools = sorted({option["pool"] for option in options})
    if not pools:
        return HardwareAction("undecided", None, _why_no_options(document), chosen=False)
    chosen = {option["pool"]: option for option in options if option["is_choice"]}
    today = {option["pool"]: option for option in options if option["is_today"]}
    if not chosen:
        reason = next((option["reasons"][0] for option in options if option["reasons"]), None)
        text = printable(reason or strings.DECISION["missing_choice_reason"], 200).rstrip(".")
        return HardwareAction(
            "undecided", None, strings.DECISION["missing_choice"].format(reason=text), chosen=False
        )
    told = [_pool_action(pool, chosen.get(pool), today.get(pool), len(pools), options) for pool in pools]
    told.sort(key=lambda pair: _RANK[pair[0]])
    phrases = [phrase for _, phrase in told[:SHOWN_POOLS]]
    if len(told) > SHOWN_POOLS:
        phrases.append(strings.DECISION["more_pools"].format(count=len(told) - SHOWN_POOLS))
    return HardwareAction(told[0][0], "; ".join(phrases), "", chosen=len(chosen) == len(pools))


def _why_no_options(document: Mapping[str, Any]) -> str:
    if not all_requests(document):
        return strings.DECISION["missing_requests"]
    if not (document["fleet"] or {}).get("pools"):
        return strings.DECISION["missing_fleet"]
    return strings.DECISION["missing_options"]


def option_name(option: Option) -> str:
    """An option in a few words: `8 x H100 SXM`, `API`."""
    if option["serving"] == "api" or option["accelerator"] is None:
        return "API"
    return f"{option['count']} x {printable(option['accelerator'])}"


def _pool_action(
    pool: str, chosen: Option | None, today: Option | None, pools: int, options: Sequence[Option]
) -> tuple[Verdict, str]:
    words = strings.DECISION
    where = words["for_pool"].format(pool=printable(pool)) if pools > 1 else ""
    if chosen is None:
        told = [option["reasons"][0] for option in options if option["pool"] == pool and option["reasons"]]
        reason = printable(told[0] if told else words["missing_choice_reason"], 200).rstrip(".")
        return "undecided", words["nothing"].format(pool=printable(pool), reason=reason)
    if chosen["is_today"]:
        key = "keep_api" if chosen["serving"] == "api" else "keep"
        return "keep", words[key].format(option=option_name(chosen), where=where)
    if chosen["serving"] == "api":
        return "rent", words["api"].format(where=where)
    same = today is not None and all(chosen[key] == today[key] for key in ("accelerator", "serving"))
    if today is not None and same and chosen["count"] <= today["count"]:
        # The same number of the same cards, cut into other groups or at another precision: nothing is bought.
        key = "keep_part" if chosen["count"] < today["count"] else "keep"
        return "keep", words[key].format(count=chosen["count"], option=option_name(today), where=where)
    verdict: Verdict = "rent" if chosen["serving"] in _RENTED else "buy"
    if today is not None and same:
        more = chosen["count"] - today["count"]
        name = printable(chosen["accelerator"])
        return verdict, words[f"{verdict}_more"].format(count=more, accelerator=name, where=where)
    return verdict, words[verdict].format(option=option_name(chosen), where=where)
