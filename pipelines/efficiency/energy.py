"""Energy that accelerators used, from samples of their power or energy counters.

Belongs here: choosing a pool's devices, cleaning samples, integrating them by hour. Does not belong here:
modelled power (`pipelines/sizing/power.py`), tokens per joule (`hourly.py`).
"""

from __future__ import annotations

import polars as pl

from pipelines.efficiency.spread import over_hours
from pipelines.fleet import Fleet, Pool
from warehouse.catalogue import match_accelerator

MAX_GAP_PERIODS = 5
"""Power is not assumed to hold over a gap of more than this many sample periods."""


def pool_devices(devices: pl.LazyFrame, pool: Pool, fleet: Fleet) -> list[str]:
    """Name the devices of a pool.

    Those that the fleet file lists; else, if no other pool without a list has the same accelerator, those
    whose product name is that accelerator's; else, if the fleet has one pool only, those that state no
    product name too.
    """
    if pool.devices:
        return list(pool.devices)
    rivals = [other for other in fleet.pools if other.name != pool.name]
    if any(other.card == pool.card and not other.devices for other in rivals):
        return []
    listed = {device for other in rivals for device in other.devices}
    seen = devices.select("device", "device_name").unique().sort("device", "device_name").collect()
    return sorted(
        {
            device
            for device, name in seen.iter_rows()
            if device not in listed and (match_accelerator(name) == pool.card if name else not rivals)
        }
    )


def hourly_energy(devices: pl.LazyFrame, chosen: list[str]) -> pl.DataFrame:
    """Energy by hour, summed over devices: `hour_us`, `energy_j`, `time_s` (device seconds covered).

    Between two samples of a device the energy counter's difference is taken; where there is none or it was
    reset, the trapezoid of the power, unless the gap is longer than `MAX_GAP_PERIODS` of the device's usual
    period. Rows of one device and instant count once.
    """
    by_device = ["host", "device"]
    at = pl.col("at").dt.timestamp("us")
    samples = (
        devices.filter(pl.col("device").is_in(chosen))
        .select(*by_device, "power_w", "energy_j", end_us=at)
        .filter(pl.col("power_w").is_not_null() | pl.col("energy_j").is_not_null())
        .sort(*by_device, "end_us", "energy_j", "power_w", nulls_last=True)
        .unique([*by_device, "end_us"], keep="first", maintain_order=True)
    )
    steps = samples.with_columns(
        start_us=pl.col("end_us").shift(1).over(by_device),
        counted=pl.col("energy_j").diff().over(by_device),
        mean_w=(pl.col("power_w") + pl.col("power_w").shift(1).over(by_device)) / 2,
    ).filter(pl.col("start_us").is_not_null())
    seconds = (pl.col("end_us") - pl.col("start_us")) / 1e6
    steps = steps.with_columns(step_s=seconds).with_columns(
        period_s=pl.col("step_s").median().over(by_device)
    )
    trusted = pl.col("step_s") <= MAX_GAP_PERIODS * pl.col("period_s")
    joules = (
        pl.when(pl.col("counted") >= 0)
        .then(pl.col("counted"))
        .when(trusted)
        .then(pl.col("mean_w") * pl.col("step_s"))
        .otherwise(None)
    )
    known = steps.select("start_us", "end_us", energy_j=joules.cast(pl.Float64)).drop_nulls().collect()
    return over_hours(known, ["energy_j"])
