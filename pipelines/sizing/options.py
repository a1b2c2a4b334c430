"""The ways to carry each pool's load: what runs today, every accelerator of the catalogue, an API; ranked by
cost.

Belongs here: building candidates, judging them against the SLO, and laying them out as FLEET_OPTIONS. Does
not belong here: the physics (`roofline.py`, `replicas.py`, `power.py`), money (`cost.py`), which one to take
(`choice.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from pipelines.fleet import Fleet
from pipelines.sizing.choice import Candidate, choose
from pipelines.sizing.cost import bought_count, energy_usd, monthly_usd, prices_of
from pipelines.sizing.load import SECONDS_PER_MONTH, DemandSummary
from pipelines.sizing.power import mean_power_w, wall_power_kw
from pipelines.sizing.reasons import Serving, Tally, money_reasons, performance_reasons
from pipelines.sizing.replicas import (
    MAX_UTILISATION,
    Capacity,
    Curve,
    Performance,
    capacity,
    curve,
    performance,
    planned_peak,
    replicas_needed,
    unconstrained,
)
from pipelines.sizing.roofline import Replica, tpot_interval, ttft_interval
from warehouse.catalogue import BITS, PRECISIONS, Accelerator, Model, Precision, accelerators, parameters
from warehouse.tables import FLEET_OPTIONS

Scenario = Literal["as_is", "waste_removed"]

GROUPS = (1, 2, 4, 8)
"""Sizes of tensor-parallel groups that are tried."""
PCIE_GROUP_LIMIT = 4
"""Largest group over PCIe that is tried: beyond it the all-reduce rules, and nothing was measured."""
SERVER_KINDS_TRIED = frozenset({"sxm", "oam", "rack", "pcie", "consumer"})
HOST_POWER_FACTOR = 1.25
"""Power of a server / power of its accelerators, if not stated (MLPerf 5.1: 1.13 to 1.30 x TDP)."""
SERVINGS: tuple[Serving, ...] = ("own", "cloud")
NO_API: Mapping[str, Decimal] = MappingProxyType({})


@dataclass(frozen=True)
class _Sized:
    """A replica with its curves at the pool's load."""

    replica: Replica
    line: Curve
    usual: Curve
    each: Capacity


def fleet_options(
    demand: Sequence[DemandSummary],
    fleet: Fleet,
    scenario: Scenario,
    *,
    api_usd_per_month: Mapping[str, Decimal] = NO_API,
) -> pl.DataFrame:
    """Rank the ways to carry each pool's load, one row per option, as FLEET_OPTIONS.

    Args:
        demand: one summary per pool; for `waste_removed` with the waste taken out.
        fleet: the site file (SLO, prices, growth, headroom, what runs today).
        scenario: which demand this is.
        api_usd_per_month: by pool, what the same tokens cost at an API's list prices.

    A pool whose architecture is unknown gets an API row alone; a price that is unknown stays null.

    """
    rows = [
        row for load in demand for row in _pool_rows(load, fleet, scenario, api_usd_per_month.get(load.pool))
    ]
    if not rows:
        return FLEET_OPTIONS.empty()
    return FLEET_OPTIONS.conform(pl.DataFrame(rows, schema=FLEET_OPTIONS.schema, orient="row"))


def _pool_rows(
    load: DemandSummary, fleet: Fleet, scenario: Scenario, api_usd: Decimal | None
) -> list[dict[str, Any]]:
    candidates: list[Candidate] = []
    notes = list(load.basis)
    if load.model is not None:
        tally = Tally()
        if load.today is not None:
            candidates.append(_today(load, load.model, fleet))
        candidates += _catalogue_candidates(load, load.model, fleet, tally)
        notes += tally.sentences()
        if load.today is None:
            notes.append("What serves this model today is unknown: no pool of the fleet file names it")
    if load.model is None or api_usd is not None:
        candidates.append(_api(load, api_usd))
    base = {
        "scenario": scenario,
        "pool": load.pool,
        "model": load.model.name if load.model else load.log_models[0],
    }
    return [{**base, **row} for row in choose(candidates, load, notes)]


def _today(load: DemandSummary, model: Model, fleet: Fleet) -> Candidate:
    pool = load.today
    if pool is None:
        msg = f"pool {load.pool} has no hardware today"
        raise ValueError(msg)
    replica = Replica(model, pool.card, pool.tensor_parallel, pool.precision)
    sized = None if replica.peak_flops is None else _size(replica, load, fleet)
    if isinstance(sized, _Sized):
        return _candidate(sized, load, fleet, pool.serving, pool.accelerators, is_today=True)
    known = replica.peak_flops is not None
    reason = (
        f"{model.name} at {pool.precision} does not fit on {pool.tensor_parallel} x {pool.card.name} "
        "by this estimate"
        if known
        else f"{pool.card.name} has no known peak at {pool.precision}: its performance can't be told"
    )
    row = _row(replica, pool.serving, pool.accelerators, is_today=True) | {
        "usd_per_month": monthly_usd(
            pool.serving, pool.accelerators, prices_of(pool.card, pool), None, fleet.site
        ),
        "meets_slo": False if known else None,
        "breaks_first": "memory" if known else None,
        "reasons": [reason],
    }
    return Candidate(row, BITS[pool.precision], pool.card.kind)


def _catalogue_candidates(
    load: DemandSummary, model: Model, fleet: Fleet, tally: Tally
) -> Iterator[Candidate]:
    """Best group size of every accelerator, precision and way to pay, as long as the SLO can be met."""
    planned = planned_peak(load, fleet.site)
    if planned is None:
        return
    for accelerator in accelerators().values():
        if accelerator.kind not in SERVER_KINDS_TRIED:
            continue
        prices = prices_of(accelerator, load.today)
        if prices.capex is None and prices.hour is None:
            tally.unpriced.add(accelerator.name)
            continue
        found = False
        for precision in _precisions(model, accelerator, load):
            sized = [
                _size(Replica(model, accelerator, group, precision), load, fleet)
                for group in _groups(model, accelerator)
            ]
            fitting = [entry for entry in sized if isinstance(entry, _Sized)]
            able = [entry for entry in fitting if entry.each.output_per_s > 0]
            (tally.too_slow if fitting and not able else tally.too_small if not fitting else set()).add(
                accelerator.name
            )
            for serving in SERVINGS:
                options = [_planned(entry, load, fleet, serving, planned) for entry in able]
                priced = [
                    option for option in options if option.usd is not None and not _is_today(option, load)
                ]
                if priced:
                    found = True
                    yield min(priced, key=lambda option: (not option.meets, option.usd, option.row["count"]))
        if found:
            for names in (tally.too_slow, tally.too_small):
                names.discard(accelerator.name)


def _is_today(option: Candidate, load: DemandSummary) -> bool:
    """Whether an option is what runs today, which has its own row."""
    pool, row = load.today, option.row
    return pool is not None and (
        row["accelerator"],
        row["count"],
        row["parallelism"],
        row["precision"],
        row["serving"],
    ) == (
        pool.card.name,
        pool.accelerators,
        f"TP{pool.tensor_parallel}",
        pool.precision,
        pool.serving,
    )


def _precisions(model: Model, accelerator: Accelerator, load: DemandSummary) -> list[Precision]:
    """Precisions to try: one per width up to that of the published weights, that the card computes."""
    native = BITS[model.native_precision]
    today: tuple[Precision, ...] = (load.today.precision,) if load.today else ()
    order = (*today, "bf16", "fp8", *PRECISIONS)
    chosen: dict[int, Precision] = {}
    for precision in order:
        if BITS[precision] <= native and accelerator.peak_flops(precision) is not None:
            chosen.setdefault(BITS[precision], precision)
    return list(chosen.values())


def _groups(model: Model, accelerator: Accelerator) -> list[int]:
    """Tensor-parallel groups that divide the heads and that the interconnect holds."""
    limit = accelerator.scale_up_size
    if accelerator.kind == "pcie" and accelerator.interconnect_gbs:
        limit = max(limit, PCIE_GROUP_LIMIT)
    return [group for group in GROUPS if group <= limit and model.heads % group == 0]


def _size(replica: Replica, load: DemandSummary, fleet: Fleet) -> _Sized | None:
    """Curves and capacity of a replica; None if the model or the longest calls do not fit."""
    line = curve(replica, load, load.peak_prompt_ratio)
    usual = curve(replica, load, load.prompt_ratio)
    if line is None or usual is None:
        return None
    return _Sized(replica, line, usual, capacity(replica, line, load, fleet.slo))


def _planned(sized: _Sized, load: DemandSummary, fleet: Fleet, serving: Serving, planned: float) -> Candidate:
    group = sized.replica.tensor_parallel
    count = replicas_needed(planned, sized.each.output_per_s) * group
    if serving == "own":
        owned = prices_of(sized.replica.accelerator, load.today).owned
        count = bought_count(sized.replica.accelerator, count, group, owned)
    return _candidate(sized, load, fleet, serving, count, is_today=False)


def _candidate(
    sized: _Sized, load: DemandSummary, fleet: Fleet, serving: Serving, count: int, *, is_today: bool
) -> Candidate:
    """One option with its cost, power and performance."""
    replica, accelerator = sized.replica, sized.replica.accelerator
    able = sized.each.output_per_s > 0
    each = sized.each if able else unconstrained(sized.line)
    replicas = count // replica.tensor_parallel
    expected = performance(replica, sized.line, each, load, replicas, sized.usual)
    watts = mean_power_w(accelerator, expected.mean_batch, expected.busy_ratio)
    host = load.today.host_power_factor if load.today else HOST_POWER_FACTOR
    wall = None if watts is None else wall_power_kw(watts * count, host, fleet.site.pue)
    prices = prices_of(accelerator, load.today)
    usd = monthly_usd(serving, count, prices, wall, fleet.site)
    meets = _meets(expected, load, fleet) if able else False
    row = _row(replica, serving, count, is_today=is_today) | {
        "usd_per_month": usd,
        "usd_per_mtok": _per_mtok(usd, load.month_tokens),
        "usd_per_mtok_saturated": _per_mtok(usd, _saturated_tokens(each, load, replicas)),
        "power_kw": wall,
        "tokens_per_j": load.output_tokens / load.window_s / (watts * count) if watts else None,
        "utilisation_ratio": expected.utilisation,
        "peak_utilisation_ratio": expected.peak_utilisation if load.peak_rate is not None else None,
        **_latency(expected),
        "meets_slo": meets,
        "breaks_first": each.breaks_first,
        "reasons": performance_reasons(accelerator, expected, load, fleet.slo, able=able)
        + money_reasons(serving, count, accelerator, prices.owned),
    }
    running = None if wall is None or serving == "cloud" else energy_usd(wall, fleet.site)
    return Candidate(row, BITS[replica.precision], accelerator.kind, running)


def _row(replica: Replica, serving: Serving, count: int, *, is_today: bool) -> dict[str, Any]:
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


def _meets(expected: Performance, load: DemandSummary, fleet: Fleet) -> bool | None:
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


def _saturated_tokens(each: Capacity, load: DemandSummary, replicas: int) -> float:
    """Input and output tokens of a month at the capacity within the SLO, at the load's own mix."""
    return each.output_per_s * replicas * (1 + load.input_mean / load.output_mean) * SECONDS_PER_MONTH


def _per_mtok(usd: Decimal | None, tokens: float) -> Decimal | None:
    if usd is None or tokens <= 0:
        return None
    return (usd / Decimal(repr(tokens)) * 1_000_000).quantize(Decimal("0.000001"))


def _api(load: DemandSummary, usd: Decimal | None) -> Candidate:
    reasons = []
    if load.model is None:
        reasons.append("The architecture is unknown, so own or rented hardware can't be sized")
    reasons.append("The same tokens at list prices" if usd is not None else "No price of this model is known")
    row = {
        "is_today": load.model is None and usd is not None,
        "serving": "api",
        "usd_per_month": usd,
        "usd_per_mtok": _per_mtok(usd, load.month_tokens),
        "reasons": reasons,
    }
    return Candidate(row, None, None)
