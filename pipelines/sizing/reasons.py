"""Why an option stands where it stands, in sentences made of its figures.

Belongs here: words about performance, money and what could not be ranked. Does not belong here: deciding
(`choice.py`), computing (`replicas.py`, `cost.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from pipelines.fleet import Fleet
from pipelines.sizing.intervals import tpot_interval, ttft_interval
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.moments import Observed
from pipelines.sizing.power import curve_basis
from pipelines.sizing.replicas import MAX_UTILISATION, Performance
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import Accelerator, parameters

Serving = Literal["own", "cloud"]
_MS_PER_S = 1000


@dataclass
class Tally:
    """What was tried and gave no row, by reason, so that it can be said."""

    unpriced: set[str] = field(default_factory=set)
    too_small: set[str] = field(default_factory=set)
    too_slow: set[str] = field(default_factory=set)

    def sentences(self) -> list[str]:
        """One sentence per reason that applies."""
        told = (
            ("No price is known for", self.unpriced),
            ("The model or one call does not fit on", self.too_small - self.too_slow - self.unpriced),
            ("The SLO is out of reach at any number of", self.too_slow - self.unpriced),
        )
        return [f"{words}: {', '.join(sorted(names))}" for words, names in told if names]


def observed_words(seen: Observed, expected: Performance) -> str:
    """Say what the log shows at the peak, and what the estimate would have been."""
    at = datetime.fromtimestamp(seen.start_us / 1e6, tz=UTC)
    failed = f", {seen.failed:,} more failed," if seen.failed else ""
    return (
        f"observed p95 TTFT {_ms(seen.ttft_p95_ms)}, TPOT {_ms(seen.tpot_p95_ms)} over {seen.calls:,} "
        f"calls{failed} in {seen.window_s:g} s from {at:%Y-%m-%d %H:%M:%S} UTC "
        f"(estimated: {_ms(expected.ttft_ms_p95)}, {_ms(expected.tpot_ms_p95)})"
    )


def _ms(value: float) -> str:
    if value == float("inf"):
        return "without end"
    return f"{value:,.3g} ms" if value < _MS_PER_S else f"{value:,.0f} ms"


def performance_reasons(
    replica: Replica,
    expected: Performance,
    load: DemandSummary,
    fleet: Fleet,
    *,
    able: bool,
    is_observed: bool = False,
) -> list[str]:
    """Say how an option stands against the SLO.

    Args:
        replica: a replica of it.
        expected: its estimated performance.
        load: what it has to carry.
        fleet: the site file.
        able: whether it can keep the SLO at some load.
        is_observed: whether the log shows that it keeps it, so that intervals of estimates say nothing more.

    """
    out, slo, growth = [], fleet.slo, fleet.site.growth_per_year
    if not able:
        out.append(
            "Breaks the SLO even with one call at a time "
            f"(TTFT {slo.ttft_p95_ms:g} ms, TPOT {slo.tpot_p95_ms:g} ms)"
        )
    elif load.peak_rate is None:
        out.append("The peak is unknown, so whether the SLO holds can't be told")
    else:
        out.append(
            f"Peak is {expected.peak_utilisation:.0%} of what it carries within the SLO "
            f"(limit {MAX_UTILISATION:.0%}); the mean is {expected.utilisation:.1%}"
        )
        grown = expected.peak_utilisation * (1 + growth)
        if growth > 0 and expected.peak_utilisation <= MAX_UTILISATION < grown:
            out.append(f"With a year's growth of {growth:.0%} the peak is {grown:.0%}: above the limit")
        if (
            expected.replicas > 1
            and expected.peak_utilisation * expected.replicas / (expected.replicas - 1) > 1
        ):
            out.append("With one replica down the peak is not carried")
        elif expected.replicas == 1:
            out.append("One replica: nothing carries the load while it is down")
    if not is_observed:
        out += _interval_reasons(replica, expected, fleet)
    return out


def _interval_reasons(replica: Replica, expected: Performance, fleet: Fleet) -> list[str]:
    out, slo = [], fleet.slo
    if tpot_interval(replica, expected.tpot_ms_p95)[1] > slo.tpot_p95_ms >= expected.tpot_ms_p95:
        out.append("The upper end of the TPOT interval breaks the SLO")
    if ttft_interval(expected.ttft_ms_p95)[1] > slo.ttft_p95_ms >= expected.ttft_ms_p95:
        out.append("The upper end of the TTFT range breaks the SLO; bursts decide it")
    return out


def power_reason(accelerator: Accelerator, *, is_measured: bool) -> str:
    """Say where the power comes from."""
    return "Power measured" if is_measured else curve_basis(accelerator)


def money_reasons(serving: Serving, count: int, accelerator: Accelerator, owned: int) -> list[str]:
    """Say what the cost of an option rests on."""
    if serving == "cloud":
        low, high = accelerator.cloud_usd_per_hour_low, accelerator.cloud_usd_per_hour_high
        return (
            []
            if low is None
            else [f"On-demand prices range from {low:g} to {high:g} USD per accelerator hour"]
        )
    bought = max(count - owned, 0)
    if not bought:
        return [
            "Amortisation of the accelerators plus energy; servers, network, hosting and staff are not in it"
        ]
    share = parameters("ownership")["on_top_ratio"]
    return [
        f"{bought} accelerators are bought, with {share:.0%} on top for servers, network, building and staff"
    ]


def uncounted_words(load: DemandSummary) -> str:
    """Say which token counts no call of a pool tells, and how to get them."""
    what = " and ".join(load.unmeasured)
    return (
        f"No choice: the {what} token counts of all {load.requests:,} calls are unknown. Have the gateway log "
        "the usage block of every answer; OpenAI-compatible servers stream it if a call sets "
        "stream_options.include_usage"
    )
