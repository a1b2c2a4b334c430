"""The key `demand` of audit.json: the profile of the demand as plain values.

Belongs here: its keys, also of a profile of nothing, and its instants. Does not belong here: computing it
(`pipelines/demand/profile.py`), its tables (`demand_tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from reports.audit_parts import plain
from reports.json_values import instant_text

DEMAND_PROFILE = "demand_profile"
"""The asset that makes it, and the frame that is kept of it: one cell, its JSON."""
EMPTY_PROFILE: Mapping[str, Any] = MappingProxyType(
    {
        "source": None,
        "rhythm": {"hour_of_day": [], "weekday": []},
        "unmet": None,
        **{
            name: []
            for name in (
                "burstiness",
                "lengths_together",
                "peak_confidence",
                "growth",
                "cannot_show",
                "from_counters",
            )
        },
    }
)
"""A profile of nothing: every key is there."""


def demand_part(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile as values of JSON; `start_us` becomes `start`, an instant."""
    unmet = profile["unmet"]
    return {
        **plain(profile),
        "from_counters": [_timed(row) for row in profile["from_counters"]],
        "unmet": None
        if unmet is None
        else {**plain(unmet), "peaks": [_timed(row) for row in unmet["peaks"]]},
    }


def _timed(row: Mapping[str, Any]) -> dict[str, Any]:
    start = instant_text(datetime.fromtimestamp(row["start_us"] / 1e6, UTC))
    return {**{name: plain(value) for name, value in row.items() if name != "start_us"}, "start": start}
