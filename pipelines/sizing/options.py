"""The ways to carry each pool's load: what runs today, every accelerator of the catalogue, an API; ranked by
cost.

Belongs here: which accelerators, groups, precisions and ways to pay are tried, and laying them out as
FLEET_OPTIONS. Does not belong here: one option's figures (`candidates.py`), the physics (`roofline.py`,
`replicas.py`, `power.py`), money (`cost.py`, `api_offers.py`), which one to take (`choice.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import polars as pl

from pipelines.fleet import Fleet, Pool
from pipelines.sizing.api_offers import ApiOffer
from pipelines.sizing.candidates import Now, Sized, candidate, lowered, per_mtok, row_of, size
from pipelines.sizing.choice import Candidate, choose
from pipelines.sizing.cost import bought_count, monthly_usd, prices_of
from pipelines.sizing.load import DemandSummary
from pipelines.sizing.power import wall_power_kw
from pipelines.sizing.reasons import Serving, Tally
from pipelines.sizing.replicas import planned_peak, replicas_needed
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import BITS, PRECISIONS, Accelerator, Model, Precision, accelerators
from warehouse.tables import FLEET_OPTIONS

Scenario = Literal["as_is", "waste_removed"]

GROUPS = (1, 2, 4, 8)
"""Sizes of tensor-parallel groups that are tried."""
PCIE_GROUP_LIMIT = 4
"""Largest group over PCIe that is tried: beyond it the all-reduce rules, and nothing was measured."""
SERVER_KINDS_TRIED = frozenset({"sxm", "oam", "rack", "pcie", "consumer"})
SERVINGS: tuple[Serving, ...] = ("own", "cloud")
NO_API: Mapping[str, ApiOffer] = MappingProxyType({})
NOT_MEASURED: Mapping[str, float] = MappingProxyType({})


def fleet_options(
    demand: Sequence[DemandSummary],
    fleet: Fleet,
    scenario: Scenario,
    *,
    apis: Mapping[str, ApiOffer] = NO_API,
    measured_w: Mapping[str, float] = NOT_MEASURED,
) -> pl.DataFrame:
    """Rank the ways to carry each pool's load, one row per option, as FLEET_OPTIONS.

    Args:
        demand: one summary per pool; for `waste_removed` with the waste taken out.
        fleet: the site file (SLO, prices, growth, headroom, what runs today).
        scenario: which demand this is.
        apis: by pool, what its tokens cost at an API.
        measured_w: by pool, the measured mean power of its accelerators together.

    A pool whose architecture is unknown gets an API row alone; a price that is unknown stays null. Where no
    call tells its input or its output nothing is sized: what runs today has a row without performance, and no
    row is chosen.

    """
    rows = [
        row
        for load in demand
        for row in _pool_rows(load, fleet, scenario, apis.get(load.pool), measured_w.get(load.pool))
    ]
    if not rows:
        return FLEET_OPTIONS.empty()
    return FLEET_OPTIONS.conform(pl.DataFrame(rows, schema=FLEET_OPTIONS.schema, orient="row"))


def _pool_rows(
    load: DemandSummary, fleet: Fleet, scenario: Scenario, api: ApiOffer | None, measured_w: float | None
) -> list[dict[str, Any]]:
    candidates: list[Candidate] = []
    notes = list(load.basis)
    if load.model is not None:
        tally = Tally()
        if load.today is not None:
            candidates.append(_today(load, load.model, load.today, fleet, measured_w))
        candidates += _catalogue_candidates(load, load.model, fleet, tally)
        notes += tally.sentences()
        if load.today is None and api is None:
            notes.append("What serves this model today is unknown: no pool of the fleet file names it")
    if load.model is None or api is not None:
        candidates.append(_api(load, api))
    base = {
        "scenario": scenario,
        "pool": load.pool,
        "model": load.model.name if load.model else load.pool,
    }
    return [{**base, **row, **_certainty(row, load)} for row in choose(candidates, load, notes)]


def _certainty(row: Mapping[str, Any], load: DemandSummary) -> dict[str, str]:
    """The confidence of a row, lowered where token counts are missing; nothing where it has none."""
    stated = row.get("confidence")
    return {} if stated is None else {"confidence": lowered(stated, load.unknown_ratio)}


def _today(
    load: DemandSummary, model: Model, pool: Pool, fleet: Fleet, measured_w: float | None
) -> Candidate:
    replica = Replica(model, pool.card, pool.tensor_parallel, pool.precision)
    if load.unmeasured:
        return _today_unsized(replica, pool, fleet, measured_w)
    sized = None if replica.peak_flops is None else size(replica, load, fleet)
    if isinstance(sized, Sized):
        dark = load.unobserved
        now = Now(unobserved=None if dark is None else size(replica, dark, fleet), measured_w=measured_w)
        return candidate(sized, fleet, pool.serving, pool.accelerators, now)
    known = replica.peak_flops is not None
    reason = (
        f"{model.name} at {pool.precision} does not fit on {pool.tensor_parallel} x {pool.card.name} "
        "by this estimate"
        if known
        else f"{pool.card.name} has no known peak at {pool.precision}: its performance can't be told"
    )
    row = row_of(replica, pool.serving, pool.accelerators, is_today=True) | {
        "usd_per_month": monthly_usd(
            pool.serving, pool.accelerators, prices_of(pool.card, pool), None, fleet.site
        ),
        "meets_slo": False if known else None,
        "breaks_first": "memory" if known else None,
        "reasons": [reason],
    }
    return Candidate(row, BITS[pool.precision], pool.card.kind)


def _today_unsized(replica: Replica, pool: Pool, fleet: Fleet, measured_w: float | None) -> Candidate:
    """What runs today where the log does not tell its load: what it costs, and nothing of its performance."""
    wall = None if measured_w is None else wall_power_kw(measured_w, pool.host_power_factor, fleet.site.pue)
    usd = monthly_usd(pool.serving, pool.accelerators, prices_of(pool.card, pool), wall, fleet.site)
    row = row_of(replica, pool.serving, pool.accelerators, is_today=True) | {
        "usd_per_month": usd,
        "power_kw": wall,
        "meets_slo": None,
    }
    return Candidate(row, BITS[pool.precision], pool.card.kind)


def _catalogue_candidates(
    load: DemandSummary, model: Model, fleet: Fleet, tally: Tally
) -> Iterator[Candidate]:
    """Best group size of every accelerator, precision and way to pay, as long as the SLO can be met."""
    if load.unmeasured or load.peak_rate is None:
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
                size(Replica(model, accelerator, group, precision), load, fleet)
                for group in _groups(model, accelerator)
            ]
            fitting = [entry for entry in sized if isinstance(entry, Sized)]
            able = [entry for entry in fitting if entry.each.output_per_s > 0]
            (tally.too_slow if fitting and not able else tally.too_small if not fitting else set()).add(
                accelerator.name
            )
            for serving in SERVINGS:
                options = [_planned(entry, fleet, serving) for entry in able]
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


def _planned(sized: Sized, fleet: Fleet, serving: Serving) -> Candidate:
    group, load = sized.replica.tensor_parallel, sized.load
    planned = planned_peak(load, fleet.site)
    if planned is None:
        msg = f"no replicas can be counted for pool {load.pool}: its peak is unknown"
        raise ValueError(msg)
    count = replicas_needed(planned, sized.each.output_per_s) * group
    if serving == "own":
        owned = prices_of(sized.replica.accelerator, load.today).owned
        count = bought_count(sized.replica.accelerator, count, group, owned)
    return candidate(sized, fleet, serving, count)


def _api(load: DemandSummary, offer: ApiOffer | None) -> Candidate:
    """An API; the one that serves the model today where no hardware of one's own is known to."""
    reasons = []
    if load.model is None:
        reasons.append("The architecture is unknown, so own or rented hardware can't be sized")
    reasons += offer.reasons if offer is not None else ("No price of this model is known",)
    usd = None if offer is None else offer.usd_per_month
    row = {
        "is_today": offer is not None and offer.is_today,
        "serving": "api",
        "usd_per_month": usd,
        "usd_per_mtok": per_mtok(usd, load.month_tokens),
        "reasons": reasons,
    }
    return Candidate(row, None, None)
