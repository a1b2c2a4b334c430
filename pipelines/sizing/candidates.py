"""One option at a time: a number of accelerators under a pool's load, with its performance, power and cost.

Belongs here: sizing a replica at its hardest moment, and the columns of FLEET_OPTIONS that follow from a
count. Does not belong here: which accelerators and counts to try (`options.py`), which one to take
(`choice.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pipelines.fleet import Fleet
from pipelines.sizing.choice import Candidate
from pipelines.sizing.cost import energy_usd, monthly_usd, prices_of
from pipelines.sizing.load import SECONDS_PER_MONTH, DemandSummary
from pipelines.sizing.power import mean_power_w, wall_power_kw
from pipelines.sizing.reasons import Serving, money_reasons, observed_words, performance_reasons, power_reason
from pipelines.sizing.replicas import (
    MAX_UTILISATION,
    Capacity,
    Curve,
    Performance,
    capacity,
    curve,
    performance,
    unconstrained,
)
from pipelines.sizing.roofline import Replica, tpot_interval, ttft_interval
from warehouse.catalogue import BITS, Accelerator, parameters

HOST_POWER_FACTOR = 1.25
"""Power of a server / power of its accelerators, if not stated (MLPerf 5.1: 1.13 to 1.30 x TDP)."""


@dataclass(frozen=True)
class Sized:
    """A replica with its curves at the pool's load; `load` is at the moment that is hardest for it."""

    replica: Replica
    load: DemandSummary
    line: Curve
    usual: Curve
    each: Capacity


def size(replica: Replica, load: DemandSummary, fleet: Fleet) -> Sized | None:
    """Curves and capacity of a replica at its hardest moment; None if the model or the longest calls do not
    fit.
    """
    usual = curve(replica, load, load.prompt_ratio)
    if usual is None:
        return None
    sized = []
    for moment in load.at_moments:
        line = curve(replica, moment, moment.peak_prompt_ratio)
        if line is not None:
            sized.append(Sized(replica, moment, line, usual, capacity(replica, line, moment, fleet.slo)))
    return max(sized, key=_hardness)


def _hardness(sized: Sized) -> float:
    """Peak / capacity; infinite where there is none within the SLO."""
    if sized.each.output_per_s <= 0:
        return float("inf")
    return (sized.load.peak_rate or 0.0) / sized.each.output_per_s


def candidate(
    sized: Sized,
    fleet: Fleet,
    serving: Serving,
    count: int,
    *,
    is_today: bool = False,
    measured_w: float | None = None,
) -> Candidate:
    """One option with its cost, power and performance.

    Args:
        sized: a replica at the load.
        fleet: the site file.
        serving: how it is paid.
        count: accelerators in all.
        is_today: whether it is what runs today. Then latency that was logged at the peak stands in place of
            the estimate, since it says what these very accelerators do.
        measured_w: mean power of all of them together, where it was measured.

    """
    replica, load, accelerator = sized.replica, sized.load, sized.replica.accelerator
    able = sized.each.output_per_s > 0
    each = sized.each if able else unconstrained(sized.line)
    replicas = count // replica.tensor_parallel
    expected = performance(replica, sized.line, each, load, replicas, sized.usual)
    watts = measured_w
    if watts is None:
        modelled = mean_power_w(accelerator, expected.mean_batch, expected.busy_ratio)
        watts = None if modelled is None else modelled * count
    host = load.today.host_power_factor if load.today else HOST_POWER_FACTOR
    wall = None if watts is None else wall_power_kw(watts, host, fleet.site.pue)
    prices = prices_of(accelerator, load.today)
    usd = monthly_usd(serving, count, prices, wall, fleet.site)
    latency, meets, reasons = _latency(expected), _meets(expected, load, fleet, able=able), []
    carried = None
    if is_today and load.observed is not None:
        seen = load.observed
        meets = seen.ttft_p95_ms <= fleet.slo.ttft_p95_ms and seen.tpot_p95_ms <= fleet.slo.tpot_p95_ms
        words = observed_words(seen, expected)
        carried = words if meets else None
        reasons.append(f"It carried the peak: {words}" if meets else f"It did not carry the peak: {words}")
        latency = _observed_latency(load)
    reasons += performance_reasons(expected, load, fleet, able=able, is_observed=carried is not None)
    reasons.append(power_reason(accelerator, is_measured=measured_w is not None))
    reasons += money_reasons(serving, count, accelerator, prices.owned)
    row = row_of(replica, serving, count, is_today=is_today) | {
        "usd_per_month": usd,
        "usd_per_mtok": per_mtok(usd, load.month_tokens),
        "usd_per_mtok_saturated": per_mtok(usd, _saturated_tokens(each, load, replicas)),
        "power_kw": wall,
        "tokens_per_j": load.output_tokens / load.window_s / watts if watts else None,
        "utilisation_ratio": expected.utilisation,
        "peak_utilisation_ratio": expected.peak_utilisation if load.peak_rate is not None else None,
        **latency,
        "meets_slo": meets,
        "breaks_first": each.breaks_first,
        "reasons": reasons,
    }
    running = None if wall is None or serving == "cloud" else energy_usd(wall, fleet.site)
    return Candidate(row, BITS[replica.precision], accelerator.kind, running, carried)


def row_of(replica: Replica, serving: Serving, count: int, *, is_today: bool) -> dict[str, Any]:
    """The columns that say what an option is."""
    return {
        "is_today": is_today,
        "accelerator": replica.accelerator.name,
        "count": count,
        "replicas": count // replica.tensor_parallel,
        "parallelism": f"TP{replica.tensor_parallel}",
        "precision": replica.precision,
        "serving": serving,
        "confidence": _confidence(replica.accelerator),
    }


def _confidence(accelerator: Accelerator) -> str:
    """The catalogue row's confidence; medium at most where no measured point supports the step time."""
    if accelerator.confidence == "high" and accelerator.name not in parameters("step_time")["measured_on"]:
        return "medium"
    return accelerator.confidence


def _meets(expected: Performance, load: DemandSummary, fleet: Fleet, *, able: bool) -> bool | None:
    if not able:
        return False
    if load.peak_rate is None:
        return None
    return (
        expected.peak_utilisation <= MAX_UTILISATION
        and expected.tpot_ms_p95 <= fleet.slo.tpot_p95_ms
        and expected.ttft_ms_p95 <= fleet.slo.ttft_p95_ms
    )


def _latency(expected: Performance) -> dict[str, float | None]:
    """Estimates in ms; a queue that grows without end has no p95, which is null."""
    finite = expected.ttft_ms_p95 != float("inf")
    ttft_low, ttft_high = ttft_interval(expected.ttft_ms_p95)
    tpot_low, tpot_high = tpot_interval(expected.tpot_ms_p95)
    return {
        "ttft_ms_p50": expected.ttft_ms_p50,
        "ttft_ms_p95": expected.ttft_ms_p95 if finite else None,
        "ttft_ms_low": ttft_low if finite else None,
        "ttft_ms_high": ttft_high if finite else None,
        "tpot_ms_p50": expected.tpot_ms_p50,
        "tpot_ms_p95": expected.tpot_ms_p95,
        "tpot_ms_low": tpot_low,
        "tpot_ms_high": tpot_high,
    }


def _observed_latency(load: DemandSummary) -> dict[str, float | None]:
    """Measured latency in ms: what was measured has no interval, so low and high are the p95 itself."""
    seen = load.observed
    if seen is None:
        return {}
    first = seen.ttft_p95_ms if seen.ttft_p95_ms != float("inf") else None
    return {
        "ttft_ms_p50": seen.ttft_p50_ms,
        **dict.fromkeys(("ttft_ms_p95", "ttft_ms_low", "ttft_ms_high"), first),
        "tpot_ms_p50": seen.tpot_p50_ms,
        **dict.fromkeys(("tpot_ms_p95", "tpot_ms_low", "tpot_ms_high"), seen.tpot_p95_ms),
    }


def _saturated_tokens(each: Capacity, load: DemandSummary, replicas: int) -> float:
    """Input and output tokens of a month at the capacity within the SLO, at the load's own mix."""
    return each.output_per_s * replicas * (1 + load.input_mean / load.output_mean) * SECONDS_PER_MONTH


def per_mtok(usd: Decimal | None, tokens: float) -> Decimal | None:
    """Cost per million tokens; None if the cost is unknown or there are none."""
    if usd is None or tokens <= 0:
        return None
    return (usd / Decimal(repr(tokens)) * 1_000_000).quantize(Decimal("0.000001"))
