"""What a replay tells, in the figures that people ask for.

Belongs here: percentiles of latencies, goodput, utilisation, KV use, energy. Does not belong here: the
replay itself (`simulate.py`), the words of the command (`command.py`).

Latency is measured over the calls that arrived in a window; what the machines did is over the whole replay.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.fleet import Slo
from pipelines.sizing.replay.simulate import Machines, Outcome
from pipelines.sizing.replay.workload import Reals, Workload

PERCENTILES = (50, 90, 95, 99)
KV_INSTANTS = 100
"""Instants at which the KV tokens held are told."""


def summary(
    workload: Workload, outcome: Outcome, slo: Slo, since_s: float = 0.0, until_s: float = np.inf
) -> dict[str, Any]:
    """Tell a replay, ready for JSON; null is unknown.

    Args:
        workload: what was replayed.
        outcome: what came of it.
        slo: the latency that a good call keeps.
        since_s: calls that arrived before are warm-up.
        until_s: calls that arrived from here on are left out, too.

    """
    fits = ~np.isnan(outcome.ended_s)
    seen = (outcome.arrived_s >= since_s) & (outcome.arrived_s < until_s)
    ttft, tpot = ttft_ms(outcome), tpot_ms(workload, outcome)
    good = seen & (ttft <= slo.ttft_p95_ms) & ~(tpot > slo.tpot_p95_ms)
    measured = seen & fits
    first, last = _bounds(outcome, measured)
    lasted = last - first
    ended = fits & (outcome.ended_s >= first) & (outcome.ended_s <= last)
    return {
        "calls": {
            "replayed": len(workload),
            "measured": int(seen.sum()),
            "refused": int((seen & ~fits).sum()),
        },
        "lasted_s": lasted,
        "ttft_ms": spread(ttft[measured]),
        "tpot_ms": spread(tpot[measured]),
        "e2e_ms": spread(1e3 * (outcome.ended_s - outcome.arrived_s)[measured]),
        "queue_ms": spread(1e3 * (outcome.admitted_s - outcome.arrived_s)[measured]),
        "slo": {
            "ttft_p95_ms": slo.ttft_p95_ms,
            "tpot_p95_ms": slo.tpot_p95_ms,
            "holds": _holds(ttft, tpot, seen, slo),
        },
        "goodput": {
            "ratio": _ratio(float(good.sum()), float(seen.sum())),
            "requests_per_s": _ratio(float(good.sum()), lasted),
        },
        "throughput": {
            "requests_per_s": _ratio(float(ended.sum()), lasted),
            "output_tokens_per_s": _ratio(float(workload.output_tokens[ended].sum()), lasted),
        },
        "prefix_hit_ratio": _ratio(
            float(outcome.hit_tokens[measured].sum()), float(workload.input_tokens[measured].sum())
        ),
        "machines": [_machines(one, outcome) for one in outcome.machines],
        "energy": _energy(outcome),
        "kv_tokens": kv_tokens(workload, outcome),
    }


def ttft_ms(outcome: Outcome) -> Reals:
    """Time to the first token by call; infinite where a call fits nowhere."""
    return np.nan_to_num(1e3 * (outcome.first_s - outcome.arrived_s), nan=np.inf)


def tpot_ms(workload: Workload, outcome: Outcome) -> Reals:
    """Mean time per output token after the first; NaN where there is none."""
    steps = np.maximum(workload.output_tokens - 1, 0).astype(np.float64)
    steps[steps == 0] = np.nan
    tpot: Reals = 1e3 * (outcome.ended_s - outcome.first_s) / steps
    return tpot


def spread(values: Reals) -> dict[str, float | None]:
    """Mean and percentiles (linear between ranks); null where there are no values."""
    known = values[np.isfinite(values)]
    names = ("mean", *(f"p{share}" for share in PERCENTILES), "max")
    if not known.size:
        return dict.fromkeys(names)
    figures = (known.mean(), *np.percentile(known, PERCENTILES), known.max())
    return dict(zip(names, map(float, figures), strict=True))


def _holds(ttft: Reals, tpot: Reals, seen: np.ndarray[Any, Any], slo: Slo) -> bool | None:
    """Whether 95 % of the calls keep each limit; None where there is no call."""
    if not seen.any():
        return None
    later = tpot[seen & ~np.isnan(tpot)]
    first = float(np.percentile(ttft[seen], 95, method="higher"))
    return first <= slo.ttft_p95_ms and (not later.size or float(np.percentile(later, 95)) <= slo.tpot_p95_ms)


def _bounds(outcome: Outcome, chosen: np.ndarray[Any, Any]) -> tuple[float, float]:
    """First arrival and last end of some calls."""
    if not chosen.any():
        return 0.0, 0.0
    return float(outcome.arrived_s[chosen].min()), float(outcome.ended_s[chosen].max())


def _machines(machines: Machines, outcome: Outcome) -> dict[str, Any]:
    lasted = _lasted_s(outcome)
    busy, blocks = machines.busy_s, machines.pool_blocks
    return {
        "replicas": int(busy.size),
        "busy_ratio": _ratio(float(busy.sum()), lasted * busy.size),
        "busy_ratio_by_replica": [_ratio(float(one), lasted) for one in busy],
        "mean_batch": _ratio(float(machines.sequence_s.sum()), float(busy.sum())),
        "kv_use_ratio_mean": _ratio(float(machines.block_s.sum()), float(busy.sum()) * blocks),
        "kv_use_ratio_max": float(machines.most_blocks.max()) / blocks,
        "steps": int(machines.steps.sum()),
        "prompt_tokens": int(machines.prompt_tokens.sum()),
        "output_tokens": int(machines.output_tokens.sum()),
        "preemptions": int(machines.preemptions.sum()),
    }


def _energy(outcome: Outcome) -> dict[str, float | None]:
    """Energy of all accelerators over the replay, idle time included; null where a TDP is unknown."""
    lasted, joules, tokens = _lasted_s(outcome), 0.0, 0.0
    for machines in outcome.machines:
        if machines.busy_j is None or machines.idle_w is None:
            return dict.fromkeys(("energy_j", "power_w_mean", "output_tokens_per_j"))
        idle_s = lasted * machines.busy_s.size - float(machines.busy_s.sum())
        joules += float(machines.busy_j.sum()) + max(idle_s, 0.0) * machines.idle_w
        tokens += float(machines.output_tokens.sum())
    return {
        "energy_j": joules,
        "power_w_mean": _ratio(joules, lasted),
        "output_tokens_per_j": _ratio(tokens, joules),
    }


def kv_tokens(workload: Workload, outcome: Outcome) -> list[dict[str, float]]:
    """Tokens of running calls' contexts over the replay, those of a shared prefix counted by each call.

    A call holds its input from its admission on, and its output grows evenly from the first token to the end.
    """
    fits = ~np.isnan(outcome.ended_s)
    if not fits.any():
        return []
    admitted, first, ended = (times[fits] for times in (outcome.admitted_s, outcome.first_s, outcome.ended_s))
    inputs, outputs = (
        tokens[fits].astype(np.float64) for tokens in (workload.input_tokens, workload.output_tokens)
    )
    pace = np.divide(outputs, ended - first, out=np.zeros_like(outputs), where=ended > first)
    at = np.linspace(float(outcome.arrived_s[fits].min()), float(ended.max()), KV_INSTANTS)
    held = _before(at, admitted, inputs) - _before(at, ended, inputs)
    held += at * _before(at, first, pace) - _before(at, first, pace * first)
    held -= at * _before(at, ended, pace) - _before(at, ended, pace * first)
    return [
        {"at_s": float(moment), "tokens": max(float(tokens), 0.0)}
        for moment, tokens in zip(at, held, strict=True)
    ]


def _before(at: Reals, moments: Reals, amounts: Reals) -> Reals:
    """Sum of the amounts whose moment is not after each instant."""
    order = np.argsort(moments)
    sums = np.concatenate([[0.0], np.cumsum(amounts[order])])
    total: Reals = sums[np.searchsorted(moments[order], at, side="right")]
    return total


def _lasted_s(outcome: Outcome) -> float:
    first, last = _bounds(outcome, ~np.isnan(outcome.ended_s))
    return last - first


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
