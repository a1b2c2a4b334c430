"""One thing that was planted, as truth.json states it.

Belongs here: its shape. Does not belong here: finding it in the rows (`planted.py`, `planted_habits.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.synth.company import KEY_NUMBER, KEYS, MODEL_NUMBER, MODELS
from pipelines.synth.tally import Rows, iso


@dataclass(frozen=True)
class Planted:
    """One thing that is in the logs on purpose."""

    kind: str
    team: str | None
    key_alias: str | None
    model: str | None
    requests: int
    tokens: int
    first_at: str | None
    last_at: str | None
    detail: dict[str, Any]


def entry(kind: str, rows: Rows, tokens: int, alias: str | None, model: str | None, **detail: Any) -> Planted:
    """The entry of rows of one key and model, where they have one; `detail` holds what only this kind has."""
    key = KEYS[KEY_NUMBER[alias]] if alias else None
    starts = rows["started_us"]
    return Planted(
        kind,
        key.team.name if key and key.team else None,
        alias,
        MODELS[MODEL_NUMBER[model]].log_name if model else None,
        len(rows),
        tokens,
        iso(int(starts.min())) if len(rows) else None,
        iso(int(starts.max())) if len(rows) else None,
        detail,
    )
