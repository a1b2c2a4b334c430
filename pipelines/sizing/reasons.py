"""Why an option stands where it stands, in sentences made of its figures.

Belongs here: words about performance, money and what could not be ranked. Does not belong here: deciding
(`choice.py`), computing (`replicas.py`, `cost.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipelines.fleet import Site, Slo
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.power import curve_basis
from pipelines.sizing.replicas import MAX_UTILISATION, Performance
from pipelines.sizing.roofline import tpot_interval, ttft_interval
from warehouse.catalogue import Accelerator, parameters

Serving = Literal["own", "cloud"]


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


def performance_reasons(
    accelerator: Accelerator, expected: Performance, load: DemandSummary, slo: Slo, *, able: bool
) -> list[str]:
    """Say how an option stands against the SLO; `able`: it can keep it at some load."""
    out = []
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
            f"(limit {MAX_UTILISATION:.0%}); the mean is {expected.utilisation:.0%}"
        )
        if (
            expected.replicas > 1
            and expected.peak_utilisation * expected.replicas / (expected.replicas - 1) > 1
        ):
            out.append("With one replica down the peak is not carried")
        elif expected.replicas == 1:
            out.append("One replica: nothing carries the load while it is down")
    if tpot_interval(expected.tpot_ms_p95)[1] > slo.tpot_p95_ms >= expected.tpot_ms_p95:
        out.append("The upper end of the TPOT interval breaks the SLO")
    if ttft_interval(expected.ttft_ms_p95)[1] > slo.ttft_p95_ms >= expected.ttft_ms_p95:
        out.append("The upper end of the TTFT range breaks the SLO; bursts decide it")
    out.append(curve_basis(accelerator))
    return out


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


def options_basis(site: Site) -> str:
    """Say in one sentence what all rows of FLEET_OPTIONS rest on."""
    return (
        f"Peak x (1 + {site.growth_per_year:.0%} growth) x (1 + {site.headroom_ratio:.0%} headroom); at most "
        f"{MAX_UTILISATION:.0%} of capacity and one replica to spare; "
        f"{site.amortisation_years:g} years of amortisation"
    )
