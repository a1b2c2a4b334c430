"""What a correct reader must find in the example week: totals, peaks, and everything that was planted.

Belongs here: the document truth.json and its sums. Does not belong here: making the week (`traffic.py`,
`sessions.py`, `incidents.py`), finding what was planted (`planted.py`).

All counts are of rows in the files, each record once: what the gap swallowed is counted only in the gap's own
entry, what was exported twice only in the overlap's. Models and teams have the names that the log gives them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pipelines.synth.company import KEYS, MODELS, UNKNOWN
from pipelines.synth.planted import planted_in
from pipelines.synth.planted_entry import Planted
from pipelines.synth.tally import Rows, Tally, iso, usd
from pipelines.synth.traffic import CANCELLED, ERROR, MINUTE_US, RESPONSE_CACHE

SCHEMA_VERSION = 2
_UNATTRIBUTED = "unattributed"


@dataclass(frozen=True)
class Truth:
    """The content of truth.json."""

    seed: int
    start: str
    days: int
    waste: list[str]
    files: dict[str, int]
    lines: int
    duplicate_lines: int
    rows: dict[str, int]
    tokens: dict[str, Any]
    by_model: dict[str, dict[str, Any]]
    by_team: dict[str, dict[str, Any]]
    spend_usd: str
    peaks: list[dict[str, Any]]
    planted: list[Planted]
    gaps: list[dict[str, Any]]
    telemetry: dict[str, Any]
    schema_version: int = SCHEMA_VERSION

    def to_json(self) -> str:
        """The document as text, keys in the order of this class."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def of_kind(self, kind: str) -> Planted:
        """The one planted thing of a kind.

        Raises:
            KeyError: nothing of the kind was planted.

        """
        for planted in self.planted:
            if planted.kind == kind:
                return planted
        raise KeyError(kind)


def truth_of(
    tally: Tally, *, seed: int, start: str, days: int, waste: frozenset[str], telemetry: dict[str, Any]
) -> Truth:
    """Count everything that was written."""
    rows = tally.rows()
    duplicates = sum(tally.duplicates.values())
    outcomes = rows["outcome"]
    errors, cancelled = int((outcomes == ERROR).sum()), int((outcomes == CANCELLED).sum())
    overlaps = [
        Planted("overlapping_export", None, None, None, count, 0, None, None, {"in_file": name})
        for name, count in tally.duplicates.items()
    ]
    return Truth(
        seed=seed,
        start=start,
        days=days,
        waste=sorted(waste),
        files=tally.files,
        lines=len(rows) + duplicates,
        duplicate_lines=duplicates,
        rows={
            "all": len(rows),
            "ok": len(rows) - errors - cancelled,
            "error": errors,
            "cancelled": cancelled,
        },
        tokens=_totals(rows) | {"failed_estimated": {"requests": 0, "input": 0, "output": 0}},
        by_model=dict(_split(rows, "model", [model.log_name for model in MODELS])),
        by_team=dict(_split(rows, "key", [key.team.name if key.team else _UNATTRIBUTED for key in KEYS])),
        spend_usd=usd(int(rows["cost"].sum())),
        peaks=list(_peaks(rows)),
        planted=[*planted_in(rows), *overlaps],
        gaps=tally.gaps,
        telemetry=telemetry,
    )


def _totals(rows: Rows) -> dict[str, Any]:
    """Sums over served rows, the response cache's included and named.

    `uncached_input` is over rows that state their cache reads; the input of the others is
    `input_cache_unknown`.
    """
    served = rows.served
    missing = served["input"] == UNKNOWN
    states = (served["cache_read"] != UNKNOWN) & ~missing
    known = served.where(states)
    from_cache = served.where(served["outcome"] == RESPONSE_CACHE)
    read, write = known.tokens("cache_read"), known.tokens("cache_write")
    return {
        "input": served.tokens("input"),
        "uncached_input": known.tokens("input") - read - write,
        "input_cache_unknown": served.where(~states).tokens("input"),
        "cache_read": read,
        "cache_write": write,
        "output": served.tokens("output"),
        "reasoning": served.tokens("reasoning"),
        "requests_ok": int((served["outcome"] != CANCELLED).sum()),
        "requests_error": len(rows) - len(served),
        "requests_cancelled": int((served["outcome"] == CANCELLED).sum()),
        "requests_usage_missing": int(missing.sum()),
        "requests_cache_unknown": int((~states).sum()),
        "from_response_cache": {
            "requests": len(from_cache),
            "input": from_cache.tokens("input"),
            "output": from_cache.tokens("output"),
        },
        "spend_usd": usd(int(rows["cost"].sum())),
    }


def _split(rows: Rows, column: str, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    labels = np.array(names)[rows[column]]
    for name in dict.fromkeys(names):
        part = rows.where(labels == name)
        if len(part):
            yield name, _totals(part)


def _peaks(rows: Rows) -> Iterator[dict[str, Any]]:
    """The largest UTC minute by start, by scope and measure; for requests also the largest 60 s anywhere."""
    demand = rows.where((rows["outcome"] != ERROR) & (rows["outcome"] != RESPONSE_CACHE))
    scopes: list[tuple[str, Rows]] = [("all", demand)]
    scopes += [
        (f"model:{model.log_name}", demand.where(demand["model"] == n)) for n, model in enumerate(MODELS)
    ]
    for scope, part in scopes:
        if not len(part):
            continue
        given, output = np.maximum(part["input"], 0), np.maximum(part["output"], 0)
        measures = {
            "requests": np.ones(len(part), np.int64),
            "input_tokens": given,
            "output_tokens": output,
            "total_tokens": given + output,
        }
        minutes, place = np.unique(part["started_us"] // MINUTE_US, return_inverse=True)
        for measure, values in measures.items():
            sums = np.bincount(place, weights=values).astype(np.int64)
            best = int(sums.argmax())
            if not sums[best]:
                continue
            yield _peak(scope, measure, "utc_minute", int(sums[best]), int(minutes[best]) * MINUTE_US)
        starts = part["started_us"]
        inside = np.searchsorted(starts, starts + MINUTE_US) - np.arange(len(starts))
        best = int(inside.argmax())
        yield _peak(scope, "requests", "sliding", int(inside[best]), int(starts[best]))


def _peak(scope: str, measure: str, window: str, value: int, start_us: int) -> dict[str, Any]:
    named = {"scope": scope, "measure": measure, "window": window, "window_s": 60}
    return named | {"value": value, "start": iso(start_us)}
