"""The profile of the demand that the report shows beside the marts, from rows of requests or from counters alone.

Belongs here: which scopes are described, and putting the parts together. Does not belong here: the parts
themselves (`burstiness`, `joint`, `rhythm`, `peak_confidence`, `unmet`, `counters`), words (`reports/`).
"""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines.demand.burstiness import burstiness, covered_stretches
from pipelines.demand.counters import counter_demand
from pipelines.demand.coverage import is_relative
from pipelines.demand.joint import joint_lengths
from pipelines.demand.peak_confidence import peak_confidence
from pipelines.demand.peaks import beat_us
from pipelines.demand.rhythm import cannot_show, daily, growth, rhythm
from pipelines.demand.scopes import scopes
from pipelines.demand.unmet import unmet_demand

LEAST_SHARE = 0.02
"""A model with less of the calls has no description of its own: it decides nothing, and a log may name any number."""
GROWTH_MEASURES = ("requests_per_s", "tokens_per_s")


def demand_profile(
    requests: pl.LazyFrame,
    work: pl.DataFrame,
    coverage: pl.DataFrame,
    minutes: pl.DataFrame,
    engine_samples: pl.LazyFrame,
    zone: str,
) -> dict[str, Any]:
    """Describe the demand beyond its sums and peaks.

    Args:
        requests: REQUESTS.
        work: `work_intervals` of them.
        coverage: COVERAGE.
        minutes: DEMAND_MINUTE.
        engine_samples: ENGINE_SAMPLES.
        zone: name of the site's time zone.

    Returns:
        The part `demand` of audit.json as plain values; instants are datetimes.

    """
    stretches = covered_stretches(coverage)
    described = [
        (name, calls)
        for names, calls in scopes(work)
        if len(calls) >= LEAST_SHARE * work.height
        for name in names
    ]
    counted = counter_demand(engine_samples)
    series = {
        scope: minutes.filter(pl.col("scope") == scope) for scope, _ in described if not minutes.is_empty()
    }
    source = "requests" if series else "counters" if counted.minutes.height else None
    if source == "counters":
        series = {"all": counted.minutes}
    whole = series.get("all", minutes)
    has_calendar = not requests.select(is_relative().any()).collect().item()
    days = daily(whole, zone)
    return {
        "source": source,
        "burstiness": [
            {"scope": scope, **row}
            for scope, calls in described
            for row in burstiness(calls, stretches, beat_us(calls))
        ],
        "lengths_together": [{"scope": scope, **joint_lengths(calls)} for scope, calls in described],
        "rhythm": rhythm(whole, zone) if has_calendar else {"hour_of_day": [], "weekday": []},
        "peak_confidence": [
            {"scope": scope, **row} for scope, part in series.items() for row in peak_confidence(part, zone)
        ],
        "growth": [growth(days, measure) for measure in GROWTH_MEASURES] if source else [],
        "cannot_show": cannot_show(whole, zone, has_calendar=has_calendar),
        "unmet": unmet_demand(requests, engine_samples),
        "from_counters": counted.peaks,
    }
