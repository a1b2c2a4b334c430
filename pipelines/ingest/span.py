"""Which days an audit is about, where files hold rows of very different times.

Belongs here: telling the bulk of the rows from strays. A clock that was never set (1970), one that runs wild (2286) or a
trace with a clock of its own (2000-01-01) must not stretch a week to decades. Does not belong here: gaps within the span
(`pipelines/demand/coverage.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from parsers.records import RECORD_TABLES, REQUESTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pipelines.ingest.facts import Chosen

LONGEST_SILENCE = timedelta(days=31)
"""Days that lie further apart than this, with none between them, are of different spans."""


@dataclass(frozen=True)
class Span:
    """The days that are audited, and the rows on days that are not."""

    first: date
    last: date
    left_out: Mapping[date, int]

    def told(self) -> str:
        """What was left out, as a sentence; empty if nothing was."""
        if not self.left_out:
            return ""
        days = sorted(self.left_out)
        where = (
            f"on {days[0]}" if len(days) == 1 else f"on {len(days):,} days between {days[0]} and {days[-1]}"
        )
        return (
            f"{sum(self.left_out.values()):,} row(s) {where} lie more than {LONGEST_SILENCE.days} days from the bulk "
            f"({self.first} to {self.last}) and are in no figure; audit them by themselves with --window"
        )


def audited_span(chosen: Chosen, window: tuple[datetime, datetime] | None) -> Span | None:
    """The days to audit: those of the window, else the bulk; None if there are none.

    The bulk is the span with the most requests (then the most samples, then the latest).
    """
    tables = {table.name: chosen.rows_by_day(table) for table in RECORD_TABLES}
    days = sorted({day for counts in tables.values() for day in counts})
    if window is not None:
        start, end = window
        final = (end.astimezone(UTC) - timedelta(microseconds=1)).date()
        inside = [day for day in days if start.astimezone(UTC).date() <= day <= final]
        return Span(inside[0], inside[-1], {}) if inside else None
    if not days:
        return None

    def weight(span: Sequence[date]) -> tuple[int, int, date]:
        counted = {name: sum(counts.get(day, 0) for day in span) for name, counts in tables.items()}
        return counted[REQUESTS.name], sum(counted.values()), span[-1]

    bulk = max(_spans(days), key=weight)
    left_out = {
        day: sum(counts.get(day, 0) for counts in tables.values())
        for day in days
        if not bulk[0] <= day <= bulk[-1]
    }
    return Span(bulk[0], bulk[-1], left_out)


def _spans(days: Sequence[date]) -> list[list[date]]:
    spans = [[days[0]]]
    for day in days[1:]:
        if day - spans[-1][-1] > LONGEST_SILENCE:
            spans.append([])
        spans[-1].append(day)
    return spans
