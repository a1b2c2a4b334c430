"""What one's own hardware costs, and who carries it.

Belongs here: pools by day, the allocation of their cost to calls by the tokens that were worked on, idle as a
line of its own. Does not belong here: what an hour costs (purchase, energy, staff: `pipelines/fleet.py`) and
how busy a pool was (`pipelines/efficiency/`).

Rule: a pool's cost of a day = usd_per_hour x hours. The share of the hours with no call in flight is idle;
the rest is carried by the pool's calls in proportion to weight = input_weight x tokens worked on (input that
was not read from a cache) + output_weight x output tokens. Tokens read from the cache weigh nothing. Lines
and idle add up to the pool's cost to the picodollar. Where the busy hours are unknown, the calls carry
everything and the lines say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from parsers.records import MONEY, TEXT
from pipelines.costs.calls import PAYER
from pipelines.costs.exact import from_pico, split, to_pico

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

HOURS = pl.Decimal(38, 12)
POOL_DAYS: dict[str, pl.DataType | type[pl.DataType]] = {
    "pool": TEXT,
    "models": pl.List(TEXT),
    "charge_day": pl.Date,
    "usd_per_hour": MONEY,
    "hours": HOURS,
    "busy_hours": HOURS,
    "input_weight": HOURS,
    "output_weight": HOURS,
}
_IDENTITY = [name for name in PAYER if name != "charge_day"]
# Weights are kept to a thousandth, so that weight x tokens stays a whole number.
_MILLI = 1000


@dataclass(frozen=True, slots=True)
class PoolDay:
    """One pool on one UTC day, within the window that the logs cover.

    `models` are globs over model names; `usd_per_hour` is everything (amortised hardware, energy, staff);
    `busy_hours` are hours with at least one call in flight, null if unknown. The weights say how much one
    output token counts against one input token; 1 and 1 are plain tokens.
    """

    pool: str
    models: tuple[str, ...]
    charge_day: date
    usd_per_hour: Decimal
    hours: Decimal
    busy_hours: Decimal | None = None
    input_weight: Decimal = Decimal(1)
    output_weight: Decimal = Decimal(1)


def pool_days(days: Iterable[PoolDay]) -> pl.DataFrame:
    """The frame (POOL_DAYS) that `cost_lines` takes as `own`.

    Raises:
        ValueError: a pool stands twice on a day, or busy hours exceed hours.

    """
    names = list(POOL_DAYS)
    rows = [tuple(list(getattr(day, n)) if n == "models" else getattr(day, n) for n in names) for day in days]
    frame = pl.DataFrame(rows, schema=POOL_DAYS, orient="row")
    twice = frame.filter(pl.struct("pool", "charge_day").is_duplicated())
    over = frame.filter((pl.col("busy_hours") > pl.col("hours")) | (pl.col("hours") < 0))
    for bad, what in ((twice, "stands twice on"), (over, "is busy for longer than it is there on")):
        if not bad.is_empty():
            raise ValueError(f"pool {bad['pool'][0]} {what} {bad['charge_day'][0]}")
    return frame


def globs(own: pl.DataFrame | None) -> list[tuple[str, list[str]]]:
    """(pool, globs) of pools whose hourly cost is known, in the order of the frame."""
    if own is None:
        return []
    known = own.filter(pl.col("usd_per_hour").is_not_null() & pl.col("hours").is_not_null())
    return [
        (pool, sorted({glob for models in lists for glob in models}))
        for pool, lists in known.group_by("pool", maintain_order=True).agg("models").iter_rows()
    ]


def own_hardware_lines(groups: pl.DataFrame, own: pl.DataFrame) -> pl.DataFrame:
    """Lines for calls on one's own hardware, and one idle line per pool and day that has idle hours.

    Args:
        groups: calls of basis `own_hardware`, summed: PAYER, provider, model, pool, requests, reads_unknown,
            one count per meter.
        own: POOL_DAYS.

    Returns:
        Columns of COST_LINES. Calls on a day for which their pool has no hours come out unpriced.

    """
    costs = _pool_costs(own)
    work = (
        _work(groups)
        .join(costs, on=["pool", "charge_day"], how="left")
        .with_columns(_weight().alias("weight"))
    )
    whole_weight = pl.col("weight").sum().over("pool", "charge_day")
    borne = pl.col("whole_usd").is_not_null() & (whole_weight > 0)
    carried = work.filter(borne)
    lines = split(carried, amount="carried_usd", weight="weight", by=["pool", "charge_day"], into="cost_usd")
    bearing = carried.select("pool", "charge_day", pl.lit(1).alias("bears")).unique()
    return pl.concat(
        [
            _worked_lines(lines),
            _lines_without_cost(work.filter(~borne)),
            _idle_lines(costs.join(bearing, on=["pool", "charge_day"], how="left", maintain_order="left")),
        ]
    )


def _pool_costs(own: pl.DataFrame) -> pl.DataFrame:
    """Per pool and day whose cost is known: whole cost, and what calls carry of it."""
    known = own.filter(pl.col("usd_per_hour").is_not_null() & pl.col("hours").is_not_null())
    busy = pl.col("busy_hours").fill_null(pl.col("hours"))
    return known.drop("models").with_columns(
        (pl.col("usd_per_hour") * pl.col("hours")).cast(MONEY).alias("whole_usd"),
        (pl.col("usd_per_hour") * busy).cast(MONEY).alias("carried_usd"),
    )


def _work(groups: pl.DataFrame) -> pl.DataFrame:
    """One row per group and meter: input worked on (cache writes included), cache reads, output."""
    folded = groups.with_columns(
        pl.sum_horizontal("input", "cache_write_5m", "cache_write_1h", "audio_input", "image_input").alias(
            "input"
        ),
        pl.sum_horizontal("output", "reasoning", "audio_output", "image_output").alias("output"),
    )
    index = [*PAYER, "provider", "model", "pool", "requests", "reads_unknown"]
    return folded.unpivot(
        ["input", "cache_read", "output"], index=index, variable_name="meter", value_name="quantity"
    )


def _weight() -> pl.Expr:
    tokens = pl.col("quantity").cast(pl.Int128)

    def milli(column: str) -> pl.Expr:
        return (pl.col(column).fill_null(0) * _MILLI).cast(pl.Int64).cast(pl.Int128)

    return (
        pl.when(pl.col("meter") == "input")
        .then(tokens * milli("input_weight"))
        .when(pl.col("meter") == "output")
        .then(tokens * milli("output_weight"))
        .otherwise(pl.lit(0, pl.Int128))
    )


def _worked_lines(lines: pl.DataFrame) -> pl.DataFrame:
    rule = pl.format(
        "pool {}: {} USD/h, by tokens worked on, weights {} in : {} out",
        "pool",
        *(_plain(name) for name in ("usd_per_hour", "input_weight", "output_weight")),
    )
    unknown_busy = pl.when(pl.col("busy_hours").is_null()).then(
        pl.lit("busy hours unknown: idle time is included")
    )
    unknown_reads = pl.when("reads_unknown").then(
        pl.lit("cache reads unknown: whole input counted as worked on")
    )
    return lines.filter((pl.col("quantity") > 0) | (pl.col("meter") == "input")).select(
        *PAYER,
        "provider",
        "model",
        "meter",
        "requests",
        "quantity",
        pl.lit("tokens").alias("unit"),
        pl.lit(None, MONEY).alias("unit_price_usd"),
        "cost_usd",
        pl.lit("own_hardware").alias("basis"),
        pl.concat_str(rule, unknown_busy, unknown_reads, separator="; ", ignore_nulls=True).alias(
            "price_source"
        ),
    )


def _lines_without_cost(work: pl.DataFrame) -> pl.DataFrame:
    """Calls whose pool has no known hours on their day, or that worked on no token: counted, not priced."""
    return work.filter(pl.col("meter") == "input").select(
        *PAYER,
        "provider",
        "model",
        pl.lit("request").alias("meter"),
        "requests",
        pl.col("requests").alias("quantity"),
        pl.lit("requests").alias("unit"),
        pl.lit(None, MONEY).alias("unit_price_usd"),
        pl.lit(None, MONEY).alias("cost_usd"),
        pl.lit("unpriced").alias("basis"),
        pl.format("pool {}: no cost to share out on this day, or no tokens worked on", "pool").alias(
            "price_source"
        ),
    )


def _idle_lines(costs: pl.DataFrame) -> pl.DataFrame:
    """What no call carries; the whole cost of a day without work."""
    carried = (
        pl.when(pl.col("bears") == 1).then(to_pico(pl.col("carried_usd"))).otherwise(pl.lit(0, pl.Int128))
    )
    busy = pl.when(pl.col("bears") == 1).then(pl.col("busy_hours").fill_null(pl.col("hours"))).otherwise(0)
    idle = costs.with_columns(
        from_pico(to_pico(pl.col("whole_usd")) - carried).alias("cost_usd"),
        ((pl.col("hours") - busy) * 3600).round().cast(pl.Int64).alias("quantity"),
    ).filter(pl.col("cost_usd") > 0)
    return idle.select(
        "charge_day",
        *(pl.lit(None, TEXT).alias(name) for name in _IDENTITY),
        pl.lit("own").alias("provider"),
        pl.format("pool:{}", "pool").alias("model"),
        pl.lit("idle").alias("meter"),
        pl.lit(0, pl.Int64).alias("requests"),
        "quantity",
        pl.lit("seconds").alias("unit"),
        pl.lit(None, MONEY).alias("unit_price_usd"),
        "cost_usd",
        pl.lit("idle").alias("basis"),
        pl.format("pool {}: {} USD/h, hours without a call in flight", "pool", _plain("usd_per_hour")).alias(
            "price_source"
        ),
    )


def _plain(column: str) -> pl.Expr:
    """A decimal without the zeros at its end."""
    return pl.col(column).cast(TEXT).str.strip_chars_end("0").str.strip_chars_end(".")
