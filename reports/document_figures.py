"""Figures that several sentences and charts take from an audit document in the same way.

Belongs here: look-ups and quotients over the document. Does not belong here: figures that are not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from reports.numbers import parse_instant

Document = Mapping[str, Any]

HOURS_PER_MONTH = 730
SECONDS_PER_DAY = 86_400
SECONDS_PER_WEEK = 7 * SECONDS_PER_DAY


def share(part: Any, whole: Any) -> float | None:
    """Part / whole; None where one is unknown or the whole is zero. Takes numbers and decimal strings."""
    if part is None or whole is None or float(whole) == 0:
        return None
    return float(part) / float(whole)


def window_s(document: Document) -> float | None:
    """Length of the window in seconds."""
    start, end = document["window"]["start"], document["window"]["end"]
    if start is None or end is None:
        return None
    return (parse_instant(end) - parse_instant(start)).total_seconds()


def covered_s(document: Document) -> float | None:
    """Seconds of the window with data; the whole window where its coverage is unknown."""
    length, covered = window_s(document), document["window"]["coverage_ratio"]
    return length if length is None or covered is None else length * covered


def monthly_usd(document: Document) -> Decimal | None:
    """Scale the window's cost to a month of 730 hours; None where it is unknown or covers less than a day."""
    total, seconds = document["costs"]["total"], covered_s(document)
    if total is None or seconds is None or seconds < SECONDS_PER_DAY:
        return None
    return (Decimal(total) * HOURS_PER_MONTH * 3600 / Decimal(repr(seconds))).quantize(Decimal("0.01"))


def served(document: Document) -> int:
    """Served calls: ok and cancelled."""
    tokens = document["tokens"]
    return int(tokens["requests_ok"] + tokens["requests_cancelled"])


def all_requests(document: Document) -> int:
    """All calls of the marts, failed ones included."""
    return served(document) + int(document["tokens"]["requests_error"])


def mean_tokens_per_s(document: Document) -> float | None:
    """Input and output of served calls, response cache left out, per second with data."""
    tokens, seconds = document["tokens"], covered_s(document)
    if tokens["input"] is None or not seconds:
        return None
    cached = tokens["from_response_cache"]
    worked = tokens["input"] + (tokens["output"] or 0) - (cached["input"] or 0) - (cached["output"] or 0)
    return float(worked) / seconds


def peak(
    document: Document, measure: str, windows: Iterable[float], scope: str = "all"
) -> dict[str, Any] | None:
    """Find the peak of a measure over the first of the windows (seconds) that the document has."""
    found = {
        row["window_s"]: row
        for row in document["peaks"]
        if row["measure"] == measure and row["scope"] == scope
    }
    return next((found[window] for window in windows if window in found), None)


def exact_evidence_ratio(document: Document) -> float | None:
    """Share of the judged input for which a hash chain or a prompt hash tells what was sent before."""
    evidence = document["waste"]["prefix"]["evidence"]
    sizes = {level: row["input_tokens"] for level, row in evidence.items()}
    if any(size is None for size in sizes.values()):
        return None
    return share(sizes["hash_chain"] + sizes["prompt_hash"], sum(sizes.values()))


def failed_checks(document: Document, severity: str) -> list[str]:
    """Names of the checks of a severity that did not pass."""
    return [
        row["check"] for row in document["data_quality"] if not row["passed"] and row["severity"] == severity
    ]


def slo_ms(document: Document, key: str) -> float | None:
    """Read a latency limit that fleet.toml promises (`ttft_p95_ms`, `tpot_p95_ms`)."""
    value = ((document["fleet"] or {}).get("slo") or {}).get(key)
    return None if value is None else float(value)


def site_zone(document: Document) -> str:
    """The time zone in which instants are shown."""
    return str(((document["fleet"] or {}).get("site") or {}).get("timezone") or "UTC")
