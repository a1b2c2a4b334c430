"""Work done by each pool, hour by hour, against what its hardware could do: MFU, MBU, tokens per joule.

Belongs here: placing the work of requests in time, and setting it against peaks, time and energy. Does not
belong here: the work of a request (`flops.py`), integrating samples (`energy.py`), the power curve
(`sizing/power.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.calls import is_demand, model_name
from pipelines.demand.spread import ended_us, measured_intervals, started_us
from pipelines.efficiency.energy import hourly_energy, pool_devices
from pipelines.efficiency.flops import (
    decode_flops,
    decode_kv_bytes,
    decode_steps,
    kv_read_bytes,
    prefill_flops,
    streamed_weight_bytes,
)
from pipelines.efficiency.spread import HOUR_US, over_hours, union
from pipelines.fleet import Fleet, Pool
from pipelines.sizing.power import curve_basis, mean_power_w
from pipelines.sizing.roofline import Replica
from warehouse.catalogue import Model
from warehouse.tables import EFFICIENCY_HOURLY

MIN_MEASURED_RATIO = 0.5
"""Share of an hour's device seconds that samples must cover for its power to count as measured."""

AMOUNTS = ("input_tokens", "uncached_input_tokens", "output_tokens", "flops", "kv_bytes", "steps")


@dataclass(frozen=True)
class _Hours:
    """What is known of a pool by hour, each keyed by the hour's start in microseconds."""

    work: dict[int, dict[str, Any]]
    flight_s: dict[int, float]
    busy_s: dict[int, float]
    wall_s: dict[int, float]
    energy: dict[int, tuple[float, float]]
    without_end: int
    without_tokens: int
    cache_unknown: int
    context_tokens: float
    """Mean tokens before a token that is decoded."""


def efficiency_hourly(
    requests: pl.LazyFrame, devices: pl.LazyFrame, fleet: Fleet, coverage: pl.DataFrame
) -> pl.DataFrame:
    """Work against hardware by pool and hour, as EFFICIENCY_HOURLY.

    Args:
        requests: the facts; served calls that no response cache answered count.
        devices: samples of power or energy; hours without enough of them get modelled power, and say so.
        fleet: the site file; models outside of its pools have no row.
        coverage: COVERAGE; wall time is the time without gap.

    """
    served = requests.filter(is_demand()).with_columns(model_name())
    names = served.select(pl.col("model").unique()).collect()["model"].to_list()
    wall = _wall(coverage, requests)
    rows = []
    for pool in fleet.pools:
        mine = [name for name in names if fleet.pool_of(name) == pool]
        calls = _calls(served.filter(pl.col("model").is_in(mine)))
        rows += _rows(pool, _hours(pool, calls, devices, fleet, wall))
    if not rows:
        return EFFICIENCY_HOURLY.empty()
    frame = pl.DataFrame(rows, infer_schema_length=None)
    hour = pl.from_epoch("hour_us", time_unit="us").dt.replace_time_zone("UTC")
    return EFFICIENCY_HOURLY.conform(frame.with_columns(hour_at=hour))


def _calls(served: pl.LazyFrame) -> pl.DataFrame:
    """Times in microseconds (null = unknown) and token counts of a pool's calls.

    Which ends and first tokens are believed is the demand's rule, so that both tell of the same hours.
    """
    cached = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), "input_tokens")
    timed = measured_intervals(
        served,
        pl.col("input_tokens").cast(pl.Float64).alias("input"),
        pl.when(pl.col("input_tokens").is_not_null()).then(cached).cast(pl.Float64).alias("cached"),
        pl.col("cache_read_tokens").is_null().alias("cache_unknown"),
    )
    return timed.select(
        "input",
        "cached",
        "cache_unknown",
        output="output_tokens",
        start_us="work_from_us",
        # A queue that ends after the first token contradicts it and was ignored, so the order holds.
        first_us="measured_us",
        end_us="ended_us",
    ).collect()


def _hours(
    pool: Pool, calls: pl.DataFrame, devices: pl.LazyFrame, fleet: Fleet, wall: dict[int, float]
) -> _Hours:
    flying = calls.filter(pl.col("end_us").is_not_null()).select("start_us", "end_us")
    flight, busy = over_hours(flying, ()), over_hours(union(flying), ())
    chosen = pool_devices(devices, pool, fleet)
    energy = hourly_energy(devices, chosen) if chosen else None
    return _Hours(
        work=_work(calls, pool.model),
        flight_s=dict(zip(flight["hour_us"], flight["time_s"], strict=True)),
        busy_s=dict(zip(busy["hour_us"], busy["time_s"], strict=True)),
        wall_s=wall,
        energy={}
        if energy is None
        else {row[0]: row[1:] for row in energy.select("hour_us", "energy_j", "time_s").rows()},
        without_end=calls["end_us"].null_count(),
        without_tokens=calls.filter(pl.col("input").is_null() | pl.col("output").is_null()).height,
        cache_unknown=int(calls["cache_unknown"].sum()),
        context_tokens=_mean_context(calls),
    )


def _mean_context(calls: pl.DataFrame) -> float:
    """Mean input and half of the output of the calls that tell both; 0 where none does."""
    mean = calls.select((pl.col("input") + pl.col("output") / 2).mean()).item()
    return 0.0 if mean is None else float(mean)


def _work(calls: pl.DataFrame, model: Model) -> dict[int, dict[str, float | None]]:
    """Work by hour. An amount is null where all of its parts are unknown, and zero where it has no part."""
    hours: dict[int, dict[str, list[float | None]]] = {}
    for phase in _phases(calls, model):
        amounts = [name for name in AMOUNTS if name in phase.columns]
        for row in over_hours(phase, amounts).iter_rows(named=True):
            parts = hours.setdefault(row["hour_us"], {name: [] for name in AMOUNTS})
            for name in amounts:
                parts[name].append(row[name])
    return {hour: {name: _sum(parts[name]) for name in AMOUNTS} for hour, parts in hours.items()}


def _sum(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return None if parts and not known else sum(known)


def _phases(calls: pl.DataFrame, model: Model) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Prefill and decode of each call as intervals with their work; both span all if the split is unknown."""
    known = calls.with_columns(pl.col("input", "output", "cached").fill_null(float("nan")))
    given, output, cached = (known[name].to_numpy() for name in ("input", "output", "cached"))
    new = given - cached
    begin, end = pl.col("start_us"), pl.coalesce("end_us", "start_us")
    split = pl.col("first_us")
    prefill = calls.select(start_us=begin, end_us=pl.coalesce(split, end)).with_columns(
        pl.Series("input_tokens", given),
        pl.Series("uncached_input_tokens", new),
        pl.Series("flops", prefill_flops(model, new, cached)),
        pl.Series("kv_bytes", kv_read_bytes(model, cached)),
    )
    decode = calls.select(start_us=pl.coalesce(split, begin), end_us=end).with_columns(
        pl.Series("output_tokens", output),
        pl.Series("flops", decode_flops(model, given, output)),
        pl.Series("kv_bytes", decode_kv_bytes(model, given, output)),
        pl.Series("steps", decode_steps(output)),
    )
    unknown = pl.selectors.float().fill_nan(None)
    return prefill.with_columns(unknown), decode.with_columns(unknown)


def _wall(coverage: pl.DataFrame, requests: pl.LazyFrame) -> dict[int, float]:
    """Seconds with data by hour; where coverage has no stretch, the span of the requests."""
    at = [pl.col(name).dt.timestamp("us") for name in ("start_at", "end_at")]
    stretches = coverage.filter(~pl.col("is_gap")).select(start_us=at[0], end_us=at[1])
    if stretches.is_empty():
        last = pl.coalesce(ended_us(), started_us())
        stretches = requests.select(start_us=started_us().min(), end_us=last.max()).collect().drop_nulls()
    hours = over_hours(union(stretches), ())
    return dict(zip(hours["hour_us"], hours["time_s"], strict=True))


def _rows(pool: Pool, hours: _Hours) -> list[dict[str, Any]]:
    return [_row(pool, hours, hour) for hour in sorted(hours.wall_s.keys() | hours.work.keys())]


def _row(pool: Pool, hours: _Hours, hour: int) -> dict[str, Any]:
    work = hours.work.get(hour) or dict.fromkeys(AMOUNTS, 0.0)
    wall = min(hours.wall_s.get(hour, 0.0), HOUR_US / 1e6)
    # Work without any known end leaves the busy time unknown; no work at all leaves it at zero.
    busy = hours.busy_s.get(hour, None if hour in hours.work else 0.0)
    # Mean number of calls in flight while any is: the batch of the whole pool.
    in_flight = hours.flight_s.get(hour, 0.0) / busy if busy else 0.0
    moved = _bytes(pool, work, in_flight)
    peak, bandwidth = pool.card.peak_flops(pool.precision), pool.card.bandwidth_bytes_per_s
    energy, power, source, power_basis = _energy(pool, hours, hour, wall, busy, in_flight)
    return {
        "scope": f"pool:{pool.name}",
        "hour_us": hour,
        "accelerators": pool.accelerators,
        **{name: work[name] for name in AMOUNTS[:4]},
        "bytes": moved,
        "busy_s": busy,
        "wall_s": wall,
        "mfu_busy_ratio": _ratio(work["flops"], busy, peak, pool.accelerators),
        "mfu_wall_ratio": _ratio(work["flops"], wall, peak, pool.accelerators),
        "mbu_busy_ratio": _ratio(moved, busy, bandwidth, pool.accelerators),
        "energy_j": energy,
        "power_w_mean": power,
        "power_source": source,
        "tokens_per_j": None
        if not energy or work["output_tokens"] is None
        else work["output_tokens"] / energy,
        "basis": "; ".join([*_work_basis(pool, hours), power_basis]),
    }


def _bytes(pool: Pool, work: dict[str, Any], in_flight: float) -> float | None:
    """Weights once per decode step of a replica, plus KV reads; null without times, which give the batch."""
    if work["steps"] is None or work["kv_bytes"] is None:
        return None
    if in_flight == 0:
        return 0.0 if work["steps"] == 0 else None
    batch = max(in_flight / pool.replicas, 1.0)
    weights = float(streamed_weight_bytes(pool.model, pool.precision, batch))
    return float(work["steps"]) / batch * weights + float(work["kv_bytes"])


def _ratio(done: float | None, seconds: float | None, peak: float | None, accelerators: int) -> float | None:
    """Achieved / possible; null if either is unknown or no time passed."""
    if done is None or not seconds or peak is None:
        return None
    return done / (seconds * peak * accelerators)


def _energy(
    pool: Pool, hours: _Hours, hour: int, wall: float, busy: float | None, in_flight: float
) -> tuple[float | None, float | None, str | None, str]:
    """Energy over the wall time, mean power of the pool, where it comes from, and that in words."""
    joules, covered = hours.energy.get(hour, (0.0, 0.0))
    share = covered / (wall * pool.accelerators) if wall else 0.0
    if share >= MIN_MEASURED_RATIO:
        power = joules / covered * pool.accelerators
        return power * wall, power, "measured", f"power measured over {min(share, 1):.0%} of device time"
    if busy is None or not wall:
        return None, None, None, "power unknown: no samples and no times of calls to model it from"
    # Fewer calls in flight than replicas leave some replicas idle.
    each = in_flight / pool.replicas
    working = min(busy / wall, 1.0) * min(each, 1.0)
    replica = Replica(pool.model, pool.card, pool.tensor_parallel, pool.precision)
    # An unsupported precision has no step time to take the use of the units from.
    watts = (
        None
        if replica.peak_flops is None
        else mean_power_w(replica, max(each, 1.0), hours.context_tokens, working)
    )
    if watts is None:
        what = f"no samples, and no TDP or no peak at {pool.precision} of {pool.card.name} is known"
        return None, None, None, f"power unknown: {what}"
    power = watts * pool.accelerators
    return power * wall, power, "modelled", curve_basis(pool.card)[0].lower() + curve_basis(pool.card)[1:]


def _work_basis(pool: Pool, hours: _Hours) -> list[str]:
    text = [
        f"model FLOPs of {pool.model.name}, cached tokens excluded; dense peak at {pool.precision}",
        "bytes: weights once per decode step at the mean batch, plus KV reads; none for prefill alone",
    ]
    if hours.cache_unknown:
        text.append(f"cache reads unknown for {hours.cache_unknown:,} calls, taken as none")
    if hours.without_tokens:
        text.append(f"{hours.without_tokens:,} calls with unknown tokens are left out of the work")
    if hours.without_end:
        text.append(f"{hours.without_end:,} calls without a believable end are left out of the busy time")
    return text
