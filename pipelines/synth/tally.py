"""The rows of the example week as they were written, kept as arrays for counting.

Belongs here: keeping rows day by day, sums over them, how instants and money are written in truth.json.
Does not belong here: what the sums mean (`truth.py`, `planted.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from pipelines.synth.company import NANO_USD
from pipelines.synth.traffic import ERROR, SECOND_US, Bools, Calls, Ints

_DAY_STEP = 1 << 40
"""Row numbers of different days differ by this."""
_KEPT = (
    "started_us", "key", "model", "input", "cache_read", "cache_write", "output", "reasoning", "outcome",
    "error", "retries", "fallbacks", "call", "trace_call", "in_session", "prefix", "system", "is_large", "prompt",
    "duration_us", "limit", "is_batch",
)  # fmt: skip


@dataclass
class Tally:
    """Rows as they are written, day by day; bodies and text are not kept."""

    parts: list[dict[str, Ints]] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    gaps: list[dict[str, Any]] = field(default_factory=list)

    def add(self, day: int, written: Calls, cost_nano: Ints) -> None:
        """Take the rows of one day (started_us ascending is not needed)."""
        part: dict[str, Ints] = {name: getattr(written, name) for name in _KEPT}
        part["cost"] = cost_nano
        for name in ("call", "trace_call"):
            part[name] = part[name] + day * _DAY_STEP
        self.parts.append(part)

    def add_gap(self, start_us: int, end_us: int, lost: Calls) -> None:
        """Note what a lost stretch of the log held."""
        served = lost.outcome != ERROR
        self.gaps.append(
            {
                "start": iso(start_us),
                "end": iso(end_us),
                "requests_lost": len(lost),
                "input_tokens_lost": int(np.maximum(lost.input, 0)[served].sum()),
                "output_tokens_lost": int(np.maximum(lost.output, 0)[served].sum()),
            }
        )

    def rows(self) -> Rows:
        """All rows in order of their start."""
        joined = {name: np.concatenate([part[name] for part in self.parts]) for name in self.parts[0]}
        order = np.argsort(joined["started_us"], kind="stable")
        return Rows({name: column[order] for name, column in joined.items()})


@dataclass(frozen=True)
class Rows:
    """Written rows as arrays; `rows["input"]` is a column, `rows.where(mask)` fewer rows."""

    columns: dict[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        """One column."""
        return self.columns[name]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.columns["input"])

    def where(self, mask: Bools) -> Rows:
        """The rows that a mask keeps."""
        return Rows({name: column[mask] for name, column in self.columns.items()})

    def tokens(self, name: str) -> int:
        """Sum of a column of tokens, unknown ones left out."""
        return int(np.maximum(self[name], 0).sum())

    @property
    def served(self) -> Rows:
        """Rows that were answered, in whole or in part."""
        return self.where(self["outcome"] != ERROR)


def iso(us: int) -> str:
    """An instant as ISO 8601 with Z."""
    whole = datetime.fromtimestamp(us // SECOND_US, tz=UTC)
    return whole.replace(microsecond=us % SECOND_US).isoformat(timespec="microseconds").replace("+00:00", "Z")


def usd(nano: int) -> str:
    """Billionths of a dollar as a decimal string, exact."""
    return f"{nano // NANO_USD}.{nano % NANO_USD:09d}"
