"""`tokenworks replay`: from a log and a fleet to what every call would have waited.

Belongs here: finding the calls, the machines they go to, the words that are printed. Does not belong here:
arguments (`pipelines/cli.py`), the replay (`simulate.py`), its figures (`summary.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from parsers.errors import NothingToAuditError, SiteConfigError
from parsers.live import Live
from parsers.records import REQUESTS
from parsers.sources import find_sources
from pipelines.calls import model_name
from pipelines.fleet import Fleet, Pool, Slo
from pipelines.ingest.facts import build_days, choose
from pipelines.ingest.land import Reading, land_all
from pipelines.site import Window
from pipelines.sizing.power import curve_basis
from pipelines.sizing.replay.simulate import Outcome, Routing, Setup, simulate, simulate_apart
from pipelines.sizing.replay.summary import summary
from pipelines.sizing.replay.workload import PrefixSource, Trace, Workload, trace_of
from pipelines.sizing.roofline import Replica
from reports.numbers import counted, duration, latency, percent, short
from warehouse.catalogue import Precision, accelerators, closest, find_model, match_accelerator, models
from warehouse.store import Warehouse

WARM_UP_S = 300.0
"""Time replayed before a window, so that it does not begin with empty engines and caches."""


@dataclass(frozen=True)
class Options:
    """How to replay. None: the engine's default."""

    routing: Routing = "least_loaded"
    clients: int | None = None
    pause_s: float = 0.0
    warm_up_s: float | None = None
    max_sequences: int | None = None
    step_tokens: int | None = None
    prefix_source: PrefixSource | None = None
    prefill_replicas: int = 0
    link_gbs: float = 50.0

    @property
    def lead_s(self) -> float:
        """Seconds replayed before a window."""
        return WARM_UP_S if self.warm_up_s is None else self.warm_up_s


def pool_of_flags(
    model: str | None, gpu: str | None, tp: int, replicas: int, precision: Precision | None
) -> Pool:
    """A pool that serves all calls, described on the command line.

    Raises:
        SiteConfigError: a name is missing or unknown.

    """
    if model is None or gpu is None:
        raise SiteConfigError(
            "nothing says what to replay on", remedy="Give --fleet FILE, or --model and --gpu."
        )
    architecture, card = find_model(model), match_accelerator(gpu)
    if architecture is None:
        raise SiteConfigError(
            f"no architecture is called {model!r}",
            where="--model",
            remedy=f"Did you mean {closest(model, models())}?",
        )
    if card is None:
        raise SiteConfigError(
            f"no accelerator is called {gpu!r}",
            where="--gpu",
            remedy=f"Did you mean {closest(gpu, accelerators())}?",
        )
    return Pool(
        name=architecture.name,
        models=("*",),
        architecture=architecture.name,
        accelerator=card.name,
        accelerators=tp * replicas,
        tensor_parallel=tp,
        precision=precision or architecture.native_precision,
    )


def requests_of(
    paths: Sequence[str], reading: Reading, window: Window | None, warm_up_s: float, work: Path
) -> pl.LazyFrame:
    """The calls of logs, or of a data folder that an audit has filled; `warm_up_s` before the window, too.

    Raises:
        NothingToAuditError: there is none.
        UnknownFormatError, UnreadableSourceError: no file can be read.

    """
    reach = None if window is None else (window[0] - timedelta(seconds=warm_up_s), window[1])
    kept = Path(paths[0]) if len(paths) == 1 else None
    if kept is not None and (kept / "facts" / REQUESTS.name).is_dir():
        warehouse = Warehouse(kept, window=reach)
    else:
        warehouse = Warehouse(work, window=reach)
        landings = land_all(find_sources(paths, Live(work / "live")), warehouse, reading)
        chosen = choose(landings)
        if not chosen.landings and landings:
            raise landings[0].error()
        for _ in build_days(REQUESTS, chosen.days(REQUESTS), chosen, warehouse):
            pass
    requests = warehouse.scan(REQUESTS)
    if requests.select(pl.len()).collect().item() == 0:
        where = "--window" if window else ", ".join(paths)
        raise NothingToAuditError("it holds no call", where=where, remedy="Give logs that hold calls.")
    return requests


def replay_fleet(
    requests: pl.LazyFrame, fleet: Fleet, slo: Slo, options: Options, window: Window | None
) -> list[dict[str, Any]]:
    """Replay each pool of a fleet that serves any call, ready for JSON.

    Raises:
        NothingToAuditError: no call belongs to a pool and tells its tokens.
        SiteConfigError: a pool can't be simulated.

    """
    named = requests.with_columns(model_name())
    names = named.select("model").unique().collect()["model"]
    pools = {name: fleet.pool_of(name) for name in names}
    told = []
    for pool in fleet.pools:
        served = [name for name, serving in pools.items() if serving is pool]
        trace = trace_of(named.filter(pl.col("model").is_in(served)), options.prefix_source)
        if len(trace.workload):
            told.append(_replay_pool(pool, trace, slo, options, window))
    if not told:
        raise NothingToAuditError(
            "no call that a pool serves tells its input and output tokens",
            remedy="Check [[pools]] models against the names in the log.",
        )
    return told


def _replay_pool(
    pool: Pool, trace: Trace, slo: Slo, options: Options, window: Window | None
) -> dict[str, Any]:
    workload = trace.workload
    since_s, until_s = options.warm_up_s or 0.0, float("inf")
    if options.clients is not None:
        workload = workload.in_closed_loop(options.clients, options.pause_s)
    elif window is not None:
        since_s, until_s = ((edge - workload.start_at).total_seconds() for edge in window)
    try:
        outcome = _simulated(workload, pool, options)
    except ValueError as error:
        raise SiteConfigError(str(error), where=f"pool {pool.name}") from error
    return {
        "pool": pool.name,
        "model": pool.model.name,
        "accelerator": pool.card.name,
        "accelerators": pool.accelerators,
        "replicas": pool.replicas,
        "parallelism": f"TP{pool.tensor_parallel}",
        "precision": pool.precision,
        "routing": options.routing,
        "prefill_replicas": options.prefill_replicas,
        "clients": options.clients,
        "basis": "simulated",
        "power_basis": curve_basis(pool.card),
        "prefix_source": trace.prefix_source,
        "calls_in_log": trace.calls,
        "calls_without_tokens": trace.unknown_tokens,
        "calls_without_prefix": trace.without_cache,
        **summary(workload, outcome, slo, since_s, until_s),
    }


def _simulated(workload: Workload, pool: Pool, options: Options) -> Outcome:
    def setup(replicas: int) -> Setup:
        return Setup(
            Replica(pool.model, pool.card, pool.tensor_parallel, pool.precision),
            replicas=replicas,
            routing=options.routing,
            max_sequences=options.max_sequences,
            step_tokens=options.step_tokens,
        )

    apart = options.prefill_replicas
    if not apart:
        return simulate(workload, setup(pool.replicas))
    if apart >= pool.replicas:
        raise ValueError(
            f"of {pool.replicas} replicas {apart} can't do prefill alone: none is left for decode"
        )
    return simulate_apart(workload, setup(apart), setup(pool.replicas - apart), options.link_gbs * 1e9)


def told_lines(told: dict[str, Any]) -> Iterator[str]:
    """A replay in words."""
    yield (
        f"{told['pool']}: {told['model']} on {told['accelerators']} x {told['accelerator']} "
        f"({counted(told['replicas'], 'replica')}, {told['parallelism']}, {told['precision']}); simulated"
    )
    calls = told["calls"]
    left_out = told["calls_without_tokens"]
    yield (
        f"  {counted(calls['measured'], 'call')} of {calls['replayed']:,} replayed, in {duration(told['lasted_s'])}"
        + (f"; {counted(left_out, 'call')} without token counts left out" if left_out else "")
        + (f"; {counted(calls['refused'], 'call')} fit into no replica" if calls["refused"] else "")
    )
    yield f"  {'':6}" + "".join(f"{name:>10}" for name in told["ttft_ms"])
    for name, label in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E"), ("queue_ms", "queue")):
        yield f"  {label:6}" + "".join(f"{latency(value):>10}" for value in told[name].values())
    slo, good = told["slo"], told["goodput"]
    verdict = {True: "holds", False: "does not hold", None: "is not known"}[slo["holds"]]
    yield (
        f"  goodput {percent(good['ratio'])}, {short(good['requests_per_s'], 'requests/s')}: the SLO of p95 TTFT "
        f"{latency(slo['ttft_p95_ms'])} and TPOT {latency(slo['tpot_p95_ms'])} {verdict}"
    )
    for role, one in zip(_roles(told), told["machines"], strict=True):
        yield (
            f"  {role}utilisation {percent(one['busy_ratio'])}, mean batch {short(one['mean_batch'])}, KV use "
            f"{percent(one['kv_use_ratio_mean'])} (most {percent(one['kv_use_ratio_max'])}), "
            f"{counted(one['preemptions'], 'preemption')}"
        )
    yield f"  prefix cache: {percent(told['prefix_hit_ratio'])} of the input {_SOURCES[told['prefix_source']]}"
    energy = told["energy"]
    yield (
        f"  {short(energy['power_w_mean'], 'W')} on average, {short(energy['output_tokens_per_j'], 'output tokens')} "
        f"per joule. {told['power_basis']}"
    )


_SOURCES = {
    "blocks": "read from it, by the log's prefix blocks",
    "logged": "read from it, as logged",
    "none": "read from it: the log tells nothing of prefixes",
}


def _roles(told: dict[str, Any]) -> tuple[str, ...]:
    return ("prefill: ", "decode: ") if told["prefill_replicas"] else ("",)
