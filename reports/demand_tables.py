"""Tables and sentences of the demand's profile on the page.

Belongs here: how burstiness, joint lengths, rhythm, growth, the peak's confidence, unmet demand and counters are
laid out. Does not belong here: computing them (`pipelines/demand/`), the key of audit.json
(`demand_profile.py`), peaks of the log (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reports.document_figures import Document, share, site_zone
from reports.numbers import duration, exact, instant, percent, zone_of
from reports.strings import PROFILE
from reports.tables import Cell, CellKind, Table, count, cut, share_of, text

SHOWN_CLASSES = 200
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def demand_tables(document: Document) -> dict[str, Table]:
    """Every table of the profile by name; one without rows is not shown."""
    return {
        "peak_confidence": _peak_confidence(document),
        "unmet": _unmet(document),
        "growth": _growth(document),
        "burstiness": _burstiness(document),
        "quantiles": _quantiles(document),
        "classes": _classes(document),
        "hour_of_day": _rhythm(document, "hour_of_day"),
        "weekday": _rhythm(document, "weekday"),
        "from_counters": _from_counters(document),
    }


def demand_sentences(document: Document) -> list[str]:
    """What has to be known to read the tables: their source, what censors the demand, what the days can't show."""
    profile = document["demand"]
    lines = [PROFILE["counters_only"]] if profile["source"] == "counters" else []
    unmet = profile["unmet"]
    if unmet is not None and unmet["failed_attempts"]:
        kinds = ", ".join(
            f"{exact(number)} {kind.replace('_', ' ')}" for kind, number in unmet["by_kind"].items() if number
        )
        lines.append(
            PROFILE["unmet"].format(
                failed=exact(unmet["failed_attempts"]),
                kinds=kinds,
                met=exact(unmet["met_later_calls"]),
                unmet=exact(unmet["unmet_calls"]),
                unlinked=exact(unmet["unlinked_attempts"]),
            )
        )
    elif unmet is not None and profile["source"] == "requests":
        lines.append(PROFILE["none_unmet"])
    saturation = {} if unmet is None else unmet["saturation"]
    lines += [
        PROFILE[key].format(share=percent(saturation[key]))
        for key in ("queue_share", "waiting_share", "kv_full_share")
        if saturation.get(key) is not None
    ]
    said = "; ".join(f"{row['what']} ({row['why']})" for row in profile["cannot_show"])
    return [*lines, PROFILE["cannot_show"].format(said=said)] if said else lines


def _head(*labels: str, first: tuple[str, ...] = ("scope",)) -> tuple[tuple[str, CellKind], ...]:
    words: list[tuple[str, CellKind]] = [(PROFILE[label], "text") for label in first]
    return (*words, *((PROFILE[label], "number") for label in labels))


def _measure(row: Mapping[str, Any]) -> Cell:
    return text(row["measure"].replace("_", " "))


def _peak_confidence(document: Document) -> Table:
    rows = [
        [
            text(row["scope"], 60),
            _measure(row),
            count(row["days"], "peak-confidence"),
            count(row["observed_max"], "peak-confidence"),
            _interval(row["p99"], row["p99_low"], row["p99_high"], "peak-confidence"),
            _interval(
                row["expected_max"],
                row["expected_max_low"],
                row["expected_max_high"],
                "peak-confidence",
                row["basis"],
            ),
            count(row["factor"], "peak-confidence", estimate=row["basis"]),
            text(row["basis"], 160),
        ]
        for row in document["demand"]["peak_confidence"]
    ]
    head = _head(
        "days",
        "observed_max",
        "p99_of_minutes",
        "expected_max",
        "factor",
        "basis",
        first=("scope", "measure"),
    )
    return cut(rows, PROFILE["peak_confidence_table"], *head[:-1], (PROFILE["basis"], "text"))


def _interval(
    value: float | None, low: float | None, high: float | None, definition: str, estimate: str = ""
) -> Cell:
    cell = count(value, definition, estimate=estimate)
    if value is None or low is None or high is None:
        return cell
    ends = f"{count(low, definition).text} .. {count(high, definition).text}"
    return Cell(f"{cell.text} ({ends})", cell.exact, definition, cell.estimate)


def _unmet(document: Document) -> Table:
    unmet = document["demand"]["unmet"]
    if unmet is None or not unmet["failed_attempts"]:
        return cut([], PROFILE["unmet_table"])
    rows = [
        [
            text(PROFILE[name]),
            count(unmet[name]["low"], "unmet"),
            count(unmet[name]["high"], "unmet", estimate=unmet["basis"]),
            share_of(_above(unmet[name]["low"], unmet[name]["high"]), "unmet"),
        ]
        for name in ("requests", "total_tokens")
    ]
    rows += [
        [
            text(PROFILE["peak_of"].format(window=duration(row["window_s"]))),
            count(row["served"], "unmet"),
            count(row["with_unmet"], "unmet", estimate=unmet["basis"]),
            share_of(_above(row["served"], row["with_unmet"]), "unmet"),
        ]
        for row in unmet["peaks"]
    ]
    return cut(rows, PROFILE["unmet_table"], *_head("served", "with_unmet", "more", first=("measure",)))


def _above(low: float | None, high: float | None) -> float | None:
    return None if low is None or high is None else share(high - low, low)


def _growth(document: Document) -> Table:
    rows = [
        [
            text(PROFILE[row["measure"]]),
            count(row["days"], "growth"),
            *(share_of(row[name], "growth", row["basis"]) for name in ("growth_per_week", "low", "high")),
            text(row["basis"], 160),
        ]
        for row in document["demand"]["growth"]
    ]
    head = _head("days", "per_week", "low", "high", first=("measure",))
    return cut(rows, PROFILE["growth_table"], *head, (PROFILE["basis"], "text"))


def _burstiness(document: Document) -> Table:
    figures = (
        "mean_requests",
        "dispersion",
        "dispersion_within_hour",
        "count_cv2",
        "interarrival_cv2_p50",
        "interarrival_cv2_p90",
    )
    rows = [
        [
            text(row["scope"], 60),
            Cell(duration(row["window_s"])),
            *(count(row[name], "burstiness") for name in figures),
        ]
        for row in document["demand"]["burstiness"]
    ]
    return cut(rows, PROFILE["burstiness_table"], *_head("window", *figures))


def _quantiles(document: Document) -> Table:
    names = ("known", "p50", "p90", "p95", "p99", "max")
    rows = [
        [
            text(part["scope"], 60),
            text(measure.replace("_", " ")),
            *(count(values[name], "lengths-together") for name in names),
            count(part["rank_correlation"].get(f"{measure}_output"), "lengths-together"),
        ]
        for part in document["demand"]["lengths_together"]
        for measure, values in part["quantiles"].items()
    ]
    head = _head(*names, "with_output", first=("scope", "measure"))
    return cut(rows, PROFILE["quantiles_table"], *head)


def _classes(document: Document) -> Table:
    names = ("input_most", "output_most", "calls", "input_tokens", "uncached_input_tokens", "output_tokens")
    rows = [
        [
            text(part["scope"], 60),
            *(count(row[name], "lengths-together") for name in names),
            share_of(share(row["calls"], part["calls"]), "lengths-together"),
        ]
        for part in document["demand"]["lengths_together"]
        if part["scope"] == "all"
        for row in part["classes"]
    ]
    return cut(rows, PROFILE["classes_table"], *_head(*names, "share_of_calls"), limit=SHOWN_CLASSES)


def _rhythm(document: Document, name: str) -> Table:
    rows = [
        [
            Cell(f"{row['hour']:02d}:00" if name == "hour_of_day" else _DAYS[row["weekday"] - 1]),
            count(row["seen"], "rate"),
            count(row["minutes"], "rate"),
            count(row["requests_per_s"], "rate"),
            count(row["tokens_per_s"], "rate"),
            count(row["busiest_minute_requests"], "rate"),
        ]
        for row in document["demand"]["rhythm"][name]
    ]
    head = _head(
        "seen", "minutes", "requests_per_s", "tokens_per_s", "busiest_minute_requests", first=(name,)
    )
    return cut(rows, PROFILE[f"{name}_table"].format(zone=site_zone(document)), *head)


def _from_counters(document: Document) -> Table:
    zone = zone_of(site_zone(document))
    rows = [
        [
            text(row["scope"], 60),
            _measure(row),
            Cell(duration(row["window_s"])),
            count(row["value"], "peak", estimate=row["basis"]),
            count(row["per_s"], "peak") if row["per_s"] is not None else Cell("–"),
            Cell(duration(row["resolution_s"])),
            count(row["left_out"], "peak"),
            Cell(instant(row["start"], zone)),
        ]
        for row in document["demand"]["from_counters"]
    ]
    head = _head("window", "value", "per_s", "resolution", "left_out", "start", first=("scope", "measure"))
    return cut(rows, PROFILE["from_counters_table"], *head)
