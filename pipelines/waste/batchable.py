"""Traffic that nobody waits for, sent at real-time prices though the price list has a batch price.

Belongs here: how an application shows that no one waits, and what the batch price would save. Does not belong here:
prices (`warehouse/prices.py`), whether an answer within a day is soon enough: only its owner knows.

An application is non-interactive when none of its calls is streamed (in a log that says so of others) or in a session,
on two days at least, and it either
    works at night: `NIGHT_SHARE` of its calls start in the eight hours in a row in which the log has the fewest streamed
        calls (hours of UTC; only where people show: a hundred streamed calls, few of them at night), or
    keeps a cadence: its calls come in runs (pauses over half an hour part them), and the times between the starts of
        runs differ by less than a twentieth (median absolute deviation / median).
Money: the difference at list prices of the day between standard and batch processing, counts as they are.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.waste.application_rules import Rule
from pipelines.waste.applications import APP, MINIMUM_CALLS

NIGHT_HOURS = 8
NIGHT_SHARE = 0.9
LEAST_STREAMED = 100
QUIET_SHARE = 0.2
"""Most streamed calls that a night may have for it to be one."""
PAUSE_S = 1_800
LEAST_RUNS = 5
CADENCE_SPREAD = 0.05
LEAST_DAYS = 2

_ALONE = ~pl.col("stream").fill_null(value=False) & pl.col("session_id").is_null()

BATCHABLE = Rule(
    kind="batchable",
    basis="what_if",
    behind=_ALONE & (pl.col("processing") == "standard") & (pl.col("batch_usd") < pl.col("list_usd")),
    usd=pl.col("list_usd") - pl.col("batch_usd"),
    evidence="modelled",
    step="batched",
    change={"price_ratio": (pl.col("batch_usd") / pl.col("list_usd")).cast(MONEY)},
    further=(
        (~_ALONE).sum().alias("attended"),
        pl.col("states_stream").all().alias("states_stream"),
        pl.col("is_night").sum().alias("at_night"),
        pl.col("is_regular").fill_null(value=False).any().alias("is_regular"),
        pl.col("day").n_unique().alias("days"),
    ),
    material=(pl.col("requests") >= MINIMUM_CALLS)
    & (pl.col("attended") == 0)
    & pl.col("states_stream")
    & (pl.col("days") >= LEAST_DAYS)
    & (pl.col("is_regular") | (pl.col("at_night") >= NIGHT_SHARE * pl.col("requests_judged"))),
)


def night_hours(calls: pl.LazyFrame) -> list[int]:
    """The UTC hours of the night, as streamed calls tell; none where too few tell.

    Args:
        calls: `started_at, stream`.

    """
    streamed = (
        calls.filter(pl.col("stream"))
        .group_by(pl.col("started_at").dt.hour().cast(pl.Int64).alias("hour"))
        .agg(calls=pl.len().cast(pl.Int64))
        .collect(engine="streaming")
    )
    by_hour = dict(streamed.iter_rows())
    total = sum(by_hour.values())
    if total < LEAST_STREAMED:
        return []
    windows = [[(start + step) % 24 for step in range(NIGHT_HOURS)] for start in range(24)]
    inside = [sum(by_hour.get(hour, 0) for hour in hours) for hours in windows]
    quietest = min(inside)
    return windows[inside.index(quietest)] if quietest <= QUIET_SHARE * total else []


def regular_applications(calls: pl.LazyFrame) -> pl.DataFrame:
    """APP and `is_regular` of the applications without streams: whether their runs keep a cadence.

    Holds the starts of their calls in memory: about 30 bytes each.

    Args:
        calls: APP, `started_at, stream, session_id`.

    """
    attended = (~_ALONE).any()
    alone = calls.group_by(APP).agg(attended.alias("attended")).filter(~pl.col("attended")).drop("attended")
    starts = (
        calls.select(*APP, "started_at")
        .join(alone, on=APP, how="inner", nulls_equal=True)
        .collect()
        .sort("started_at")
    )
    pause = pl.col("started_at").diff().over(APP)
    runs = starts.filter((pause.is_null()) | (pause.dt.total_seconds() > PAUSE_S))
    between = runs.select(
        *APP, pl.col("started_at").diff().over(APP).dt.total_seconds().alias("s")
    ).drop_nulls("s")
    median = pl.col("s").median()
    return (
        between.group_by(APP)
        .agg(
            (pl.len() + 1).alias("runs"),
            ((pl.col("s") - median).abs().median() / median).alias("spread"),
        )
        .select(*APP, is_regular=(pl.col("runs") >= LEAST_RUNS) & (pl.col("spread") < CADENCE_SPREAD))
    )
