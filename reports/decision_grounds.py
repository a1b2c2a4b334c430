"""Why the decision is what it is: three reasons, the risks, and the points against its confidence.

Belongs here: which figures of the document become which sentence. Does not belong here: the decision itself
(`decision.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reports import strings
from reports.document_figures import (
    SECONDS_PER_DAY,
    SECONDS_PER_WEEK,
    Document,
    all_requests,
    covered_s,
    exact_evidence_ratio,
    failed_checks,
    mean_tokens_per_s,
    peak,
    served,
    share,
    site_zone,
    slo_ms,
    window_s,
)
from reports.hardware_action import HardwareAction
from reports.materiality import missed_usd_a_month, what_to_fix
from reports.numbers import (
    duration,
    latency,
    money,
    parse_instant,
    percent,
    printable,
    short,
    weekday_instant,
    zone_of,
)

COVERAGE_GOOD, COVERAGE_FAIR = 0.95, 0.80
WEEK_TOLERANCE = 0.98
"""A week of logs rarely spans 168 hours to the minute."""
ASSUMED_LIMIT = 0.10
CACHE_UNKNOWN_LIMIT = 0.20
UNPRICED_LIMIT = 0.05
IDLE_LIMIT = 0.25
"""Above this share of the cost, idle hardware is a reason of its own."""
FAILED_LIMIT = 0.05
EXACT_EVIDENCE_LIMIT = 0.5
SHOWN_RISKS = 4
_RISKY_LOAD = 0.1
"""Share of what the choice carries: a peak below it would have to grow tenfold to be a risk."""
_PEAK_WINDOWS = (60.0, 300.0, 3600.0)
_MEDIUM_POINTS = 2


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence, the section that carries it and the definition of its figures (anchors of the page)."""

    text: str
    section: str
    definition: str


def reasons(document: Document) -> tuple[Statement, ...]:
    """Three reasons: waste, demand, and efficiency (or money, where there is no efficiency to speak of)."""
    third = _efficiency(document)
    idle = share(document["costs"]["idle"], document["costs"]["total"])
    if idle is not None and (idle > IDLE_LIMIT or not document["efficiency"]):
        third = _money(document)
    return (_waste(document), _demand(document), third)


def _waste(document: Document) -> Statement:
    words, prefix, tokens = strings.REASON, document["waste"]["prefix"], document["tokens"]
    if not all_requests(document):
        return Statement(words["waste_no_requests"], "waste", "requests")
    if not served(document):
        return Statement(words["waste_no_served"], "waste", "requests")
    exact = exact_evidence_ratio(document)
    if exact:
        key = "waste_exact" if tokens["cache_read"] is not None else "waste_exact_unknown"
        told = [tokens[name] for name in ("uncached_input", "cache_read", "cache_write")]
        read = percent(share(tokens["cache_read"], sum(count for count in told if count is not None)))
        text = words[key].format(seen=percent(prefix["token_hit_ratio"]), read=read)
        return Statement(text + _missed_words(document), "waste", "seen-before")
    bound = share(prefix["upper_bound_tokens"], tokens["input"])
    if bound:
        return Statement(words["waste_bound"].format(bound=percent(bound)), "waste", "evidence")
    return Statement(words["waste_unknown"], "waste", "evidence")


def _missed_words(document: Document) -> str:
    """What missed reads cost, with a space before it; nothing where it is unknown or nothing."""
    usd = missed_usd_a_month(document)
    if not usd or (covered_s(document) or 0) < SECONDS_PER_DAY:
        return ""
    key = "waste_missed" if what_to_fix(document) else "waste_note"
    return strings.REASON[key].format(usd=money(usd))


def _demand(document: Document) -> Statement:
    words, zone = strings.REASON, zone_of(site_zone(document))
    highest = peak(document, "total_tokens", _PEAK_WINDOWS)
    unit, mean = "tok/s", mean_tokens_per_s(document)
    if highest is None:
        highest, unit, mean = peak(document, "requests", _PEAK_WINDOWS), "calls/s", None
    if highest is None or highest["per_s"] is None:
        return Statement(_no_peak(document), "demand", "peak")
    figures = {
        "peak": short(highest["per_s"], unit),
        "window": duration(highest["window_s"]),
        "when": weekday_instant(highest["start"], zone),
    }
    if unit == "calls/s":
        return Statement(words["demand_requests"].format(**figures), "demand", "peak")
    loads = [
        option["peak_utilisation"] for option in document["sizing"]["as_is"]["options"] if option["is_today"]
    ]
    if len(loads) == 1 and loads[0] is not None:
        return Statement(words["demand_carried"].format(**figures, share=percent(loads[0])), "demand", "peak")
    if mean:
        times = short(highest["per_s"] / mean)
        return Statement(words["demand_peak"].format(**figures, times=times), "demand", "peak")
    return Statement(words["demand_peak_bare"].format(**figures), "demand", "peak")


def _no_peak(document: Document) -> str:
    words, length, calls = strings.REASON, window_s(document), all_requests(document)
    if calls and not served(document):
        kind, attempts = _commonest_failure(document)
        return words["failed_all"].format(count=short(calls), part=percent(share(attempts, calls)), kind=kind)
    if calls and length is not None and length < min(_PEAK_WINDOWS):
        return words["demand_short"].format(length=duration(length))
    engines = [entry for entry in document["engines"] if entry["counted"]]
    if not calls and any(entry["generated_tokens"] is not None for entry in engines):
        return words["demand_engines"].format(
            generated=short(_known_sum(engines, "generated_tokens")),
            prompt=short(_known_sum(engines, "prompt_tokens")),
            running=short(max((entry["running_max"] or 0 for entry in engines), default=None)),
        )
    return words["demand_unknown"]


def _known_sum(entries: Sequence[Mapping[str, Any]], key: str) -> int | None:
    known = [entry[key] for entry in entries if entry[key] is not None]
    return sum(known) if known else None


def _commonest_failure(document: Document) -> tuple[str, int]:
    """The kind of error that most attempts failed with, and how many did."""
    kinds = document["waste"]["retries"]["by_error_kind"]
    if not kinds:
        return strings.UNKNOWN, 0
    kind, row = max(kinds.items(), key=lambda entry: (entry[1]["attempts"], entry[0]))
    return printable(kind), int(row["attempts"])


def _efficiency(document: Document) -> Statement:
    words, pools = strings.REASON, document["efficiency"]
    if not pools:
        has_fleet = bool((document["fleet"] or {}).get("pools"))
        return Statement(
            words["efficiency_unknown" if has_fleet else "efficiency_no_fleet"], "efficiency", "mfu"
        )
    largest = max(pools, key=lambda entry: (entry["mfu_busy"] is not None, entry["accelerators"] or 0))
    name = printable(largest["scope"].removeprefix("pool:"))
    if largest["mfu_busy"] is None:
        basis = printable("; ".join(largest["basis"]) or strings.UNKNOWN).rstrip(".")
        rate = f"{short(largest['tokens_per_s'])} output tok/s"
        return Statement(
            words["efficiency_bare"].format(pool=name, rate=rate, basis=basis), "efficiency", "mfu"
        )
    joule = f"{short(largest['tokens_per_j'])} output tokens per joule"
    source = f"power {largest['power_source'] or strings.UNKNOWN}"
    text = words["efficiency"].format(
        pool=name,
        busy=percent(largest["mfu_busy"]),
        wall=percent(largest["mfu_wall"]),
        joule=joule,
        source=source,
    )
    return Statement(text, "efficiency", "mfu")


def _money(document: Document) -> Statement:
    words, costs = strings.REASON, document["costs"]
    idle = share(costs["idle"], costs["total"])
    if idle is not None and idle > IDLE_LIMIT:
        text = words["money_idle"].format(
            share=percent(idle), idle=money(costs["idle"]), total=money(costs["total"])
        )
        return Statement(text, "money", "idle")
    if costs["total"] is not None:
        part = share(costs["unattributed"], costs["total"])
        key = "money_all_teams" if part == 0 else "money_total"
        text = words[key].format(total=money(costs["total"]), unattributed=percent(part))
        return Statement(text, "money", "cost")
    if costs["unpriced_requests"]:
        return Statement(
            words["money_unpriced"].format(count=short(costs["unpriced_requests"])), "money", "unpriced"
        )
    return Statement(words["money_none"], "money", "cost")


def risks(document: Document) -> tuple[Statement, ...]:
    """What could make the decision wrong, the gravest first, at most four; or that nothing stands out."""
    found = [*_data_risks(document), *_option_risks(document), *_minor_risks(document)]
    if not all_requests(document):
        found.insert(0, Statement(strings.RISK["no_requests"], "quality", "requests"))
    return tuple(found[:SHOWN_RISKS]) or (Statement(strings.RISK["none"], "quality", "checks"),)


def _data_risks(document: Document) -> list[Statement]:
    words, out = strings.RISK, []
    failed = failed_checks(document, "error")
    if failed:
        names = printable(", ".join(failed))
        out.append(
            Statement(words["failed_checks"].format(count=len(failed), names=names), "quality", "checks")
        )
    problems = [entry["problem"] for entry in document["efficiency"] if entry["problem"]]
    if problems:
        out.append(Statement(words["impossible"].format(problem=problems[0]), "efficiency", "mfu"))
    gaps = document["window"]["gaps"]
    if gaps:
        lengths = [(parse_instant(gap["end"]) - parse_instant(gap["start"])).total_seconds() for gap in gaps]
        first = weekday_instant(gaps[0]["start"], zone_of(site_zone(document)))
        key = "one_gap" if len(gaps) == 1 else "gaps"
        text = words[key].format(count=len(gaps), length=duration(sum(lengths)), first=first)
        out.append(Statement(text, "quality", "coverage"))
    length = window_s(document)
    if length is not None and length < SECONDS_PER_WEEK * WEEK_TOLERANCE:
        out.append(Statement(words["short"].format(length=duration(length)), "demand", "window"))
    return out


def _option_risks(document: Document) -> list[Statement]:
    """Risks of the recommended options under the load as it is, the waste included."""
    words, out = strings.RISK, []
    options = [option for option in document["sizing"]["as_is"]["options"] if option["is_choice"]]
    limit = slo_ms(document, "ttft_p95_ms")
    loads = [(option["peak_utilisation"], option["pool"]) for option in options if option["peak_utilisation"]]
    if loads and _RISKY_LOAD <= max(loads)[0] < 1:
        load, pool = max(loads)
        text = words["headroom"].format(growth=percent(1 / load - 1), pool=printable(pool))
        out.append(Statement(text, "sensitivity", "utilisation"))
    highs = [
        (option["ttft_ms"]["high"], option["pool"])
        for option in options
        if option["ttft_ms"]["high"] is not None
    ]
    if limit is not None and highs and max(highs)[0] > limit:
        high, pool = max(highs)
        text = words["slo_interval"].format(high=latency(high), limit=latency(limit), pool=printable(pool))
        out.append(Statement(text, "options", "latency"))
    bare = sorted(option["pool"] for option in options if option["replicas"] == 1)
    if bare:
        key = "spare_none" if len(bare) == 1 else "spare_none_many"
        text = words[key].format(pool=printable(bare[0]), count=len(bare) - 1)
        out.append(Statement(text, "options", "utilisation"))
    return out


def _minor_risks(document: Document) -> list[Statement]:
    words, tokens, out = strings.RISK, document["tokens"], []
    if document["inputs"]["files_with_problems"]:
        count = document["inputs"]["files_with_problems"]
        out.append(Statement(words["bad_files"].format(count=count), "quality", "lines"))
    unpriced = document["costs"]["unpriced_requests"]
    if unpriced:
        out.append(Statement(words["unpriced"].format(count=short(unpriced)), "money", "unpriced"))
    failed = share(tokens["requests_error"], all_requests(document))
    if failed is not None and failed >= FAILED_LIMIT:
        kind, _ = _commonest_failure(document)
        out.append(Statement(words["failed"].format(share=percent(failed), kind=kind), "waste", "retries"))
    bound = "cache_unknown" if document["costs"]["total"] is None else "cache_unknown_cost"
    for key, column in (
        (bound, "requests_cache_unknown"),
        ("usage_missing", "requests_usage_missing"),
    ):
        part = share(tokens[column], served(document))
        if part:
            out.append(Statement(words[key].format(share=percent(part)), "quality", "requests"))
    assumed = assumed_ratio(document)
    if assumed:
        out.append(Statement(words["assumed"].format(share=percent(assumed)), "demand", "peak"))
    return out


def assumed_ratio(document: Document) -> float | None:
    """Share of the calls whose times were assumed for the peak of all tokens."""
    highest = peak(document, "total_tokens", _PEAK_WINDOWS)
    return None if highest is None else highest["assumed_ratio"]


def confidence(document: Document, action: HardwareAction) -> tuple[Literal["high", "medium", "low"], str]:
    """Add up the points against the decision (the page's method lists them) and say what they are for."""
    words = strings.CONFIDENCE
    against = [*_coverage_points(document), *_evidence_points(document)]
    if action.phrase is None:
        against.append((3, words["no_choice"]))
    elif action.undecided:
        against.append((1, words["some_choice"].format(count=action.undecided, pools=action.pools)))
    levels = {
        option["confidence"] for option in document["sizing"]["as_is"]["options"] if option["is_choice"]
    } & {"medium", "low"}
    if levels:
        level = "low" if "low" in levels else "medium"
        against.append((2 if level == "low" else 1, words["choice"].format(level=level)))
    failed = failed_checks(document, "error")
    if failed:
        against.append((3, words["checks"].format(count=len(failed))))
    points = sum(weight for weight, _ in against)
    why = "; ".join(text for _, text in sorted(against, key=lambda entry: -entry[0])) or words["all_good"]
    return ("high" if points == 0 else "medium" if points <= _MEDIUM_POINTS else "low"), why


def _coverage_points(document: Document) -> list[tuple[int, str]]:
    words, covered, seconds = strings.CONFIDENCE, document["window"]["coverage_ratio"], covered_s(document)
    out = []
    if covered is None:
        out.append((1, words["coverage_unknown"]))
    elif covered < COVERAGE_GOOD:
        text = words["coverage"].format(coverage=percent(covered))
        out.append((1 if covered >= COVERAGE_FAIR else 2, text))
    length = window_s(document)
    if length is not None and length < SECONDS_PER_WEEK * WEEK_TOLERANCE:
        out.append((2 if (seconds or 0) < SECONDS_PER_DAY else 1, words["short"]))
    return out


def _evidence_points(document: Document) -> list[tuple[int, str]]:
    words = strings.CONFIDENCE
    out: list[tuple[int, str]] = []
    if not served(document):
        return out
    exact = exact_evidence_ratio(document) or 0.0
    if exact < EXACT_EVIDENCE_LIMIT:
        out.append((1, words["evidence"].format(share=percent(exact))))
    assumed = assumed_ratio(document)
    if assumed is not None and assumed > ASSUMED_LIMIT:
        out.append((1, words["assumed"].format(share=percent(assumed))))
    unknown = share(document["tokens"]["requests_cache_unknown"], served(document))
    if unknown is not None and unknown > CACHE_UNKNOWN_LIMIT:
        out.append((1, words["cache_unknown"].format(share=percent(unknown))))
    unpriced = document["costs"]["unpriced_requests"]
    if (share(unpriced, served(document)) or 0.0) > UNPRICED_LIMIT:
        out.append((1, words["unpriced"].format(count=short(unpriced))))
    return out
