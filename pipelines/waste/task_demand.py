"""Mart `task_demand`: tokens that a task takes, beside those of a chat turn.

Belongs here: what a task is, whether an agent or a person drives it, its size as a distribution, and how wrong a forecast
by chat turns is. Does not belong here: demand over time (`pipelines/demand/`), growth of histories and what would shrink
them.

A task is a session; a call without a session is a task of its own (class `single`). Of a scope that holds only a part of a
session (one of its models, say) the task is that part; its class is that of the whole session.

A session is driven by an agent when it has at least `AGENT_CALLS` calls and either
    tools: at least `TOOL_SHARE` of its calls end in a call of a tool (where finish reasons are logged), or
    pace and growth: half of its calls start within `PACE_S` of the end of the call before (people read and type longer),
        and its input grows: from one call to the next more often than not, and to twice the first at least.
All other sessions are chats. Calls count that generate text, were served, reached a model and whose usage is known.

The forecast that is judged: number of tasks x mean tokens of a chat turn, a call of the classes chat and single.
"""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_demand, model_name
from pipelines.waste.evidence import NOT_GENERATING
from pipelines.waste.routing_candidates import TOOL_CALLS
from pipelines.waste.scopes import encoded, leaf_scope
from warehouse.application_tables import TASK_DEMAND

AGENT_CALLS = 10
TOOL_SHARE = 0.2
PACE_S = 30.0
GROWTH = 2.0
CHAT_TURNS = 50
"""Fewest calls whose mean says what a chat turn is."""

_GROUPINGS: tuple[tuple[str, ...], ...] = ((), ("model",), ("team",), ("model", "team"))


def task_demand(requests: pl.LazyFrame) -> pl.DataFrame:
    """The mart `task_demand`.

    Holds the calls that are in sessions in memory, about 100 bytes each; of the others sums and one number each.

    Args:
        requests: rows of `requests`.

    """
    calls = _calls(requests)
    in_sessions = calls.filter(pl.col("session_id").is_not_null()).collect().sort("session_id", "started_at")
    classed = in_sessions.join(_classes(in_sessions), on="session_id", how="left", maintain_order="left")
    alone = (
        calls.filter(pl.col("session_id").is_null())
        .select("model", "team", "tokens", "start_s", "end_s")
        .collect()
    )
    rows = pl.concat([part for names in _GROUPINGS for part in _of_scopes(classed, alone, names)])
    return TASK_DEMAND.conform(_with_forecast(rows).sort("scope", "task_class"))


def _calls(requests: pl.LazyFrame) -> pl.LazyFrame:
    seconds = [
        (at.cast(pl.Int64) / 1_000_000).alias(name)
        for name, at in (
            ("start_s", pl.col("started_at")),
            ("end_s", pl.coalesce("ended_at", "first_token_at", "started_at")),
        )
    ]
    generating = ~pl.col("operation").is_in(NOT_GENERATING).fill_null(value=False)
    return (
        requests.filter(
            is_demand()
            & generating
            & pl.col("input_tokens").is_not_null()
            & pl.col("output_tokens").is_not_null()
        )
        .select(
            model_name(),
            pl.when(pl.col("team") != "").then("team").alias("team"),
            pl.when(pl.col("session_id") != "").then("session_id").alias("session_id"),
            *seconds,
            "started_at",
            "input_tokens",
            "output_tokens",
            pl.col("finish_reason").str.to_lowercase().is_in(TOOL_CALLS).alias("calls_tool"),
        )
        .with_columns(tokens=pl.col("input_tokens") + pl.col("output_tokens"))
    )


def _classes(calls: pl.DataFrame) -> pl.DataFrame:
    """`session_id, task_class`, of calls in the order of sessions and starts."""
    before = {name: pl.col(name).shift(1).over("session_id") for name in ("end_s", "input_tokens")}
    steps = calls.select(
        "session_id",
        "calls_tool",
        "input_tokens",
        pause=pl.col("start_s") - before["end_s"],
        grows=pl.col("input_tokens") > before["input_tokens"],
    )
    given = pl.col("input_tokens")
    sessions = steps.group_by("session_id").agg(
        calls=pl.len(),
        tools=pl.col("calls_tool").sum() / pl.len(),
        # A call that starts while the one before it runs is no person's either.
        pause=pl.col("pause").median(),
        growing=pl.col("grows").mean(),
        growth=given.max() / pl.max_horizontal(given.first(), pl.lit(1)),
    )
    by_pace = (pl.col("pause") <= PACE_S) & (pl.col("growing") > 0.5) & (pl.col("growth") >= GROWTH)  # noqa: PLR2004
    is_agent = (pl.col("calls") >= AGENT_CALLS) & (
        (pl.col("tools") >= TOOL_SHARE) | by_pace.fill_null(value=False)
    )
    return sessions.select(
        "session_id", task_class=pl.when(is_agent).then(pl.lit("agent")).otherwise(pl.lit("chat"))
    )


def _of_scopes(classed: pl.DataFrame, alone: pl.DataFrame, names: tuple[str, ...]) -> list[pl.DataFrame]:
    """Rows of one grouping: of sessions, and of calls without one."""
    keys = [*names, "task_class"]
    tasks = (
        _with_concurrency(classed, [*names, "session_id"])
        .group_by(*keys, "session_id")
        .agg(
            calls=pl.len().cast(pl.Int64),
            tokens=pl.col("tokens").sum(),
            duration_s=pl.col("end_s").max() - pl.col("start_s").min(),
            concurrency=pl.col("in_flight").max().cast(pl.Int64),
        )
    )
    single = alone.select(
        *names,
        pl.lit("single").alias("task_class"),
        pl.lit(1, pl.Int64).alias("calls"),
        "tokens",
        (pl.col("end_s") - pl.col("start_s")).alias("duration_s"),
        pl.lit(1, pl.Int64).alias("concurrency"),
    )
    measures = _measures()
    return [_named(frame.group_by(keys).agg(*measures), names) for frame in (tasks, single)]


def _with_concurrency(calls: pl.DataFrame, task: list[str]) -> pl.DataFrame:
    """Adds `in_flight`: calls of the task that are in flight when this one starts, itself among them."""
    bare = calls.select(*task, "start_s", "end_s").with_row_index("row")
    # Of one instant, ends come first: intervals are half open. A call without a duration counts for itself.
    ends = bare.select(
        *task, at=pl.max_horizontal("end_s", "start_s"), change=pl.lit(-1), row=pl.lit(None, pl.UInt32)
    )
    starts = bare.select(*task, at=pl.col("start_s"), change=pl.lit(1), row=pl.col("row"))
    swept = pl.concat([ends, starts]).sort("at", "change", maintain_order=True)
    level = swept.with_columns(in_flight=pl.col("change").cum_sum().over(task)).drop_nulls("row").sort("row")
    return calls.hstack(level.select(pl.col("in_flight").clip(lower_bound=1)))


def _measures() -> list[pl.Expr]:
    tokens = pl.col("tokens")
    return [
        pl.len().cast(pl.Int64).alias("tasks"),
        pl.col("calls").sum().alias("all_calls"),
        tokens.sum().alias("all_tokens"),
        tokens.mean().alias("tokens_mean"),
        *(tokens.quantile(at, "linear").alias(f"tokens_{name}") for name, at in _QUANTILES.items()),
        tokens.max().alias("tokens_max"),
        *(pl.col("calls").quantile(at, "linear").alias(f"calls_{name}") for name, at in _HALF.items()),
        pl.col("calls").max().alias("calls_max"),
        *(
            pl.col("duration_s").quantile(at, "linear").alias(f"duration_s_{name}")
            for name, at in _HALF.items()
        ),
        pl.col("concurrency").median().alias("concurrency_p50"),
        pl.col("concurrency").max().alias("concurrency_max"),
    ]


_HALF = {"p50": 0.5, "p90": 0.9}
_QUANTILES = {**_HALF, "p99": 0.99}


def _named(rows: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    """With `scope, model, team`; calls of no team are in no scope of a team alone."""
    if names == ("team",):
        rows = rows.filter(pl.col("team").is_not_null())
    scopes = {
        (): pl.lit("all"),
        ("model",): pl.format("model:{}", encoded(pl.col("model"))),
        ("team",): pl.format("team:{}", encoded(pl.col("team"))),
        ("model", "team"): leaf_scope(),
    }
    own = [
        pl.col(name) if name in names else pl.lit(None, pl.String).alias(name) for name in ("model", "team")
    ]
    return rows.with_columns(scopes[names].alias("scope")).select(
        "scope",
        *own,
        "task_class",
        pl.exclude("scope", "model", "team", "task_class", "all_calls", "all_tokens"),
        pl.col("all_calls").alias("calls"),
        pl.col("all_tokens").alias("tokens"),
    )


def _with_forecast(rows: pl.DataFrame) -> pl.DataFrame:
    turns = pl.col("task_class") != "agent"
    mean = pl.col("tokens").filter(turns).sum() / pl.col("calls").filter(turns).sum()
    told = pl.when(pl.col("calls").filter(turns).sum() >= CHAT_TURNS).then(mean)
    of_all = rows.filter(pl.col("scope") == "all").select(told.alias("mean"))["mean"]
    log_mean = of_all.item() if of_all.len() else None
    forecast = pl.col("tasks") * pl.col("chat_turn_tokens")
    return rows.with_columns(
        chat_turn_tokens=pl.coalesce(told.over("scope"), pl.lit(log_mean, pl.Float64)),
    ).with_columns(
        forecast_tokens=forecast,
        forecast_error=pl.when(pl.col("tokens") > 0).then((forecast - pl.col("tokens")) / pl.col("tokens")),
    )
