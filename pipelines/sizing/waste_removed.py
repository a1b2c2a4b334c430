"""A load without what changes take from it.

Belongs here: how the mean, the tail and the peak of a load shrink. Does not belong here: what the changes take (the waste
stage: `net_savings.removed_by_model`), the load as it is (`load.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from pipelines.sizing.load import DemandSummary


@dataclass(frozen=True)
class Removed:
    """What changes take from a load: calls that are not made, and tokens that are not sent, computed, generated."""

    calls: float = 0.0
    input_tokens: float = 0.0
    computed_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: Removed) -> Removed:
        """Both together."""
        return Removed(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


def all_without_waste(
    summaries: Sequence[DemandSummary], removed: Mapping[str, Removed]
) -> list[DemandSummary]:
    """Take avoidable work out of every pool; `removed` is by log model."""

    def of(load: DemandSummary) -> Removed:
        return sum((removed.get(name, Removed()) for name in load.log_models), Removed())

    return [without_waste(load, of(load)) for load in summaries]


def without_waste(summary: DemandSummary, removed: Removed) -> DemandSummary:
    """Take avoidable work out of a load, evenly: mean, tail and peak of a measure shrink by the same share.

    Tokens that are read from cache instead are in `computed_tokens` alone: they stay in the context (and so in the KV
    cache). Calls that are not made shorten no others: the tail of lengths shrinks by what goes beyond their share.
    """
    if max(astuple(removed)) <= 0:
        return summary
    calls = 1 - _share(removed.calls, summary.requests)
    whole = 1 - _share(removed.input_tokens, summary.input_tokens)
    computed = 1 - _share(removed.computed_tokens, summary.uncached_input_tokens)
    output = 1 - _share(removed.output_tokens, summary.output_tokens)
    # What calls without a count hold is unknown: they stay.
    fewest = min(summary.requests, max(summary.missing.values()) + 1)
    note = (
        f"{summary.uncached_input_tokens * (1 - computed):,.0f} input tokens to compute taken out evenly "
        f"({1 - computed:.0%} of them), with {1 - whole:.0%} of the input sent, {1 - output:.0%} of the output and "
        f"{1 - calls:.0%} of the calls"
    )
    return replace(
        summary,
        requests=max(round(summary.requests * calls), fewest),
        input_tokens=summary.input_tokens * whole,
        uncached_input_tokens=summary.uncached_input_tokens * computed,
        output_tokens=summary.output_tokens * output,
        uncached_input_p95=_times(summary.uncached_input_p95, _per_call(computed, calls)),
        context_p99=_times(summary.context_p99, _per_call(whole, calls)),
        peak_requests_per_s=_times(summary.peak_requests_per_s, calls),
        peak_uncached_per_s=_times(summary.peak_uncached_per_s, computed),
        peak_output_per_s=_times(summary.peak_output_per_s, output),
        moments=tuple(
            replace(
                moment,
                requests_per_s=moment.requests_per_s * calls,
                uncached_per_s=_times(moment.uncached_per_s, computed),
                output_per_s=_times(moment.output_per_s, output),
            )
            for moment in summary.moments
        ),
        basis=(*summary.basis, note),
    )


def _per_call(kept: float, calls_kept: float) -> float:
    return min(kept / calls_kept, 1.0) if calls_kept else 1.0


def _share(part: float, whole: float) -> float:
    return min(max(part, 0.0) / whole, 1.0) if whole else 0.0


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
