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
from pipelines.sizing.intervals import tpot_interval, ttft_interval
from pipelines.sizing.load import SECONDS_PER_MONTH, DemandSummary
from pipelines.sizing.moments import Observed
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
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import BITS, Accelerator, parameters

HOST_POWER_FACTOR = 1.25
"""Power of a server / power of its accelerators, if not stated (MLPerf 5.1: 1.13 to 1.30 x TDP)."""

SLIGHT_UNKNOWN_RATIO = 0.01
"""Share of calls without a token count up to which confidence stands: far less than the estimates are off."""
MOST_UNKNOWN_RATIO = 0.5
"""Share from which on most of the load is assumed rather than counted."""


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


@dataclass(frozen=True)
class Now:
    """What is known of the option that runs today.

    `unobserved` is it at the moments of which the log tells no latency (None: there are none), `measured_w`
    the mean power of all its accelerators together (None: not measured).
    """

    unobserved: Sized | None = None
    measured_w: float | None = None


def candidate(sized: Sized, fleet: Fleet, serving: Serving, count: int, now: Now | None = None) -> Candidate:
    """One option with its cost, power and performance.

    Args:
        sized: a replica at the load.
        fleet: the site file.
        serving: how it is paid.
        count: accelerators in all.
        now: given for what runs today. Latency that was logged at the peak then stands in place of the
            estimate, since it says what these very accelerators do.

    """
    replica, load, accelerator = sized.replica, sized.load, sized.replica.accelerator
    expected, each = _expected(sized, count)
    watts = None if now is None else now.measured_w
    is_measured = watts is not None
    if watts is None:
        modelled = mean_power_w(replica, expected.mean_batch, load.context_mean, expected.busy_ratio)
        watts = None if modelled is None else modelled * count
    host = load.today.host_power_factor if load.today else HOST_POWER_FACTOR
    wall = None if watts is None else wall_power_kw(watts, host, fleet.site.pue)
    prices = prices_of(accelerator, load.today)
    usd = monthly_usd(serving, count, prices, wall, fleet.site)
    able = sized.each.output_per_s > 0
    verdict = _by_estimate(sized, expected, fleet)
    if now is not None:
        verdict = _by_log(load, expected, now, count, fleet) or verdict
    reasons = [
        *verdict.reasons,
        *performance_reasons(
            replica, expected, load, fleet, able=able, is_observed=verdict.carried is not None
        ),
        power_reason(accelerator, is_measured=is_measured),
        *money_reasons(serving, count, accelerator, prices.owned),
    ]
    row = row_of(replica, serving, count, is_today=now is not None) | {
        "usd_per_month": usd,
        "usd_per_mtok": per_mtok(usd, load.month_tokens),
        "usd_per_mtok_saturated": per_mtok(
            usd, _saturated_tokens(each, load, count // replica.tensor_parallel)
        ),
        "power_kw": wall,
        "tokens_per_j": load.output_tokens_per_s / watts if watts else None,
        "utilisation_ratio": expected.utilisation,
        "peak_utilisation_ratio": expected.peak_utilisation if load.peak_rate is not None else None,
        **verdict.latency,
        "meets_slo": verdict.meets,
        "breaks_first": each.breaks_first,
        "reasons": reasons,
    }
    running = None if wall is None or serving == "cloud" else energy_usd(wall, fleet.site)
    return Candidate(row, BITS[replica.precision], accelerator.kind, running, verdict.carried, verdict.broke)


def _expected(sized: Sized, count: int) -> tuple[Performance, Capacity]:
    """Estimated performance of a number of accelerators, and the capacity of a replica that it refers to."""
    each = sized.each if sized.each.output_per_s > 0 else unconstrained(sized.line)
    replicas = count // sized.replica.tensor_parallel
    return performance(sized.replica, sized.line, each, sized.load, replicas, sized.usual), each


@dataclass(frozen=True)
class _Verdict:
    """Whether the SLO is met, the latency that says so, and in words what the log shows."""

    meets: bool | None
    latency: dict[str, float | None]
    reasons: tuple[str, ...] = ()
    carried: str | None = None
    broke: str | None = None


def _by_estimate(sized: Sized, expected: Performance, fleet: Fleet) -> _Verdict:
    if sized.each.output_per_s <= 0:
        return _Verdict(False, _latency(sized.replica, expected))
    if sized.load.peak_rate is None:
        return _Verdict(None, _latency(sized.replica, expected))
    meets = (
        expected.peak_utilisation <= MAX_UTILISATION
        and expected.tpot_ms_p95 <= fleet.slo.tpot_p95_ms
        and expected.ttft_ms_p95 <= fleet.slo.ttft_p95_ms
    )
    return _Verdict(meets, _latency(sized.replica, expected))


def _by_log(
    load: DemandSummary, expected: Performance, now: Now, count: int, fleet: Fleet
) -> _Verdict | None:
    """Judge by the log at the moments that it tells of, by the estimate at the others; None if it tells of
    none.
    """
    slo, told = fleet.slo, [seen for seen in load.observed if seen is not None]
    if not told:
        return None
    worst = max(
        told, key=lambda seen: max(seen.ttft_p95_ms / slo.ttft_p95_ms, seen.tpot_p95_ms / slo.tpot_p95_ms)
    )
    words, latency = observed_words(worst, expected), _observed_latency(worst)
    if worst.ttft_p95_ms > slo.ttft_p95_ms or worst.tpot_p95_ms > slo.tpot_p95_ms:
        return _Verdict(False, latency, (f"It did not carry the peak: {words}",), broke=words)
    rest = now.unobserved
    if rest is not None:
        estimate = _by_estimate(rest, _expected(rest, count)[0], fleet)
        if not estimate.meets:
            shown = f"The log shows no latency at another peak, where the estimate counts; elsewhere: {words}"
            return _Verdict(estimate.meets, estimate.latency, (shown,))
    return _Verdict(True, latency, (f"It carried the peak: {words}",), carried=words)


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


def lowered(confidence: str, unknown_ratio: float) -> str:
    """Confidence where a share of the calls tells no token count: one step less, low from a half on."""
    if unknown_ratio <= SLIGHT_UNKNOWN_RATIO:
        return confidence
    if unknown_ratio >= MOST_UNKNOWN_RATIO:
        return "low"
    return {"high": "medium"}.get(confidence, "low")


def _latency(replica: Replica, expected: Performance) -> dict[str, float | None]:
    """Estimates in ms; a queue that grows without end has no p95, which is null."""
    finite = expected.ttft_ms_p95 != float("inf")
    ttft_low, ttft_high = ttft_interval(expected.ttft_ms_p95)
    tpot_low, tpot_high = tpot_interval(replica, expected.tpot_ms_p95)
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


def _observed_latency(seen: Observed) -> dict[str, float | None]:
    """Measured latency in ms: what was measured has no interval, so low and high are the p95 itself."""
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


def per_mtok(usd: Decimal | None, tokens: float | None) -> Decimal | None:
    """Cost per million tokens; None if the cost or their number is unknown, or there are none."""
    if usd is None or tokens is None or tokens <= 0:
        return None
    return (usd / Decimal(repr(tokens)) * 1_000_000).quantize(Decimal("0.000001"))
