"""Applications: who sends one kind of prompt, and the calls that are judged by application.

Belongs here: what an application is, the name of its scope, the calls that generate text, and both as SQL. Does not
belong here: any rule (`application_rules.py`, `oversize.py`).

An application is a project, else a key, within a model and team. Applications of fewer than `MINIMUM_CALLS` judged calls
have no statistics of their own: they are judged together, as the rest of their leaf (its `app` is null).
"""

from __future__ import annotations

import polars as pl

from parsers.records import SERVED_STATUSES
from pipelines.calls import is_demand, model_name
from pipelines.costs.calls import PROCESSING
from pipelines.waste.evidence import NOT_GENERATING
from pipelines.waste.rows_query import Leaf, text_literal
from pipelines.waste.scopes import encoded, leaf_scope

MINIMUM_CALLS = 50
APP = ["model", "team", "app_kind", "app"]
KINDS = ("project", "api_key_alias", "api_key_hash")

_FACTS = (
    *("source_file", "source_line"),
    *("provider", "source_format", "session_id", "status", "finish_reason", "stream", "prompt_hash"),
    *("started_at", "first_token_at", "ended_at", "ttft_ms", "queue_ms", "duration_ms"),
    *("input_tokens", "cache_read_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens"),
    *("output_tokens", "reasoning_tokens", "max_output_tokens"),
)
JUDGED = (
    f"status IN ({', '.join(text_literal(status) for status in SERVED_STATUSES)}) "
    "AND NOT coalesce(response_cache_hit, FALSE) AND input_tokens > 0 AND (operation IS NULL OR "
    f"operation NOT IN ({', '.join(text_literal(operation) for operation in NOT_GENERATING)}))"
)
"""`judged_calls` as a condition of SQL."""
_WHENS = " ".join(f"WHEN {name} IS NOT NULL THEN '{name}'" for name in KINDS)
_KIND = f"CASE {_WHENS} END"


def app_columns() -> list[pl.Expr]:
    """`app_kind` (project, api_key_alias, api_key_hash or null) and `app`, its name."""
    kind = pl.lit(None, pl.String)
    for name in reversed(KINDS):
        kind = pl.when(pl.col(name).is_not_null()).then(pl.lit(name)).otherwise(kind)
    return [kind.alias("app_kind"), pl.coalesce(KINDS).alias("app")]


def app_scope() -> pl.Expr:
    """Scope of an application: that of its leaf and `/project:NAME`, `/key:NAME` or `/key_hash:HASH`."""
    app = encoded(pl.col("app"))
    names = {"project": "project", "api_key_alias": "key", "api_key_hash": "key_hash"}
    suffix = pl.lit("")
    for kind, name in names.items():
        suffix = pl.when(pl.col("app_kind") == kind).then(pl.format(f"/{name}:{{}}", app)).otherwise(suffix)
    return (leaf_scope() + suffix).alias("scope")


def judged_calls(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Served calls that generate text, with input above 0, each with its application.

    Args:
        requests: rows of `requests`.

    Returns:
        `model, team, app_kind, app, day` (UTC), `processing` (as priced) and the facts that rules need. Lazy, so that
        sums over it hold no call in memory.

    """
    generating = ~pl.col("operation").is_in(NOT_GENERATING).fill_null(value=False)
    calls = requests.filter(is_demand() & generating & (pl.col("input_tokens") > 0)).select(
        model_name(),
        pl.when(pl.col("team") != "").then("team").alias("team"),
        *app_columns(),
        pl.col("started_at").dt.date().alias("day"),
        PROCESSING.alias("processing"),
        *_FACTS,
    )
    counts = calls.group_by(APP).agg(pl.len().alias("app_calls"))
    large = pl.col("app_calls") >= MINIMUM_CALLS
    return calls.join(counts, on=APP, how="left", nulls_equal=True).with_columns(
        pl.when(large).then(pl.col("app_kind", "app"))
    )


def rows_of(app: dict[str, object], condition: str, among: str = JUDGED) -> str:
    """SQL that lists the judged calls of an application for which `condition` (SQL over `requests`) holds.

    Args:
        app: `model`, `team`, `app_kind` and `app` of a row of `judged_calls`.
        condition: over columns of `requests`.
        among: other calls than the judged ones, as a condition; then small applications are not taken together.

    """
    leaf = Leaf(str(app["model"]), None if app["team"] is None else str(app["team"]))
    name = f"coalesce({', '.join(KINDS)})"
    rest = f"(app IS NULL OR app_calls < {MINIMUM_CALLS:d})" if among == JUDGED else "app IS NULL"
    whose = (
        rest
        if app["app"] is None
        else f"app_kind = {text_literal(str(app['app_kind']))} AND app = {text_literal(str(app['app']))}"
    )
    return (
        "SELECT source_file, source_line, started_at, input_tokens, output_tokens FROM (SELECT *, "
        f"{_KIND} AS app_kind, {name} AS app, count(*) OVER (PARTITION BY {_KIND}, {name}) AS app_calls "
        f"FROM requests WHERE {among} AND {leaf.of_model} AND {leaf.of_team}) AS calls "
        f"WHERE {whose} AND ({condition}) ORDER BY started_at, source_file, source_line"
    )
