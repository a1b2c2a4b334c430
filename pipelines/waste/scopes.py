"""Scopes: how a slice of the log is named, and the four groupings that every waste mart reports.

Belongs here: the spelling of `all`, `model:NAME`, `team:NAME`, `model:NAME/team:NAME` and the grouping by
them. Does not belong here: what is computed per scope.

A leaf is a pair of model and team; every call is in exactly one. Calls of no team are in `model:NAME/team:`.
Names come from logs and are hostile: a part of one that would read as the next part of a scope (`/team:`,
`/project:`, `/key:`) has its colon percent-encoded, so that two scopes never share a name.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl


def encoded(name: pl.Expr) -> pl.Expr:
    """A name as it stands in a scope; the empty string where there is none."""
    escaped = name.fill_null("").str.replace_all("%(25|3A)", "%25${1}")
    return escaped.str.replace_all("/(team|project|key|key_hash):", "/${1}%3A")


def leaf_scope() -> pl.Expr:
    """Scope name of the model and team of a row (columns `model`, `team`)."""
    return pl.format("model:{}/team:{}", encoded(pl.col("model")), encoded(pl.col("team"))).alias("scope")


def by_scope(rows: pl.DataFrame, measures: Sequence[pl.Expr], extra_keys: Sequence[str] = ()) -> pl.DataFrame:
    """Aggregate rows for the whole log, each model, each team and each leaf.

    Args:
        rows: frame with `model` (never null) and `team`.
        measures: aggregations, each with its own name.
        extra_keys: further keys of the grain, kept as columns.

    Returns:
        `scope, model, team`, the extra keys and the measures; `model` and `team` are null where the scope
        spans several. No rows in, no rows out.

    """
    read = {name for measure in measures for name in measure.meta.root_names()}
    rows = rows.select(sorted(read | {"model", "team", *extra_keys}))
    nothing = pl.lit(None, pl.String)
    of_model, of_team = (pl.format(f"{name}:{{}}", encoded(pl.col(name))) for name in ("model", "team"))
    groupings: tuple[tuple[list[str], pl.Expr], ...] = (
        ([], pl.lit("all").alias("scope")),
        (["model"], of_model.alias("scope")),
        (["team"], of_team.alias("scope")),
        (["model", "team"], leaf_scope()),
    )
    parts = []
    for names, scope in groupings:
        keys = [*names, *extra_keys]
        grouped = rows.group_by(keys).agg(*measures) if keys else rows.select(*measures).head(rows.height)
        if names == ["team"]:
            grouped = grouped.filter(pl.col("team").is_not_null())
        missing = [nothing.alias(name) for name in ("model", "team") if name not in names]
        parts.append(grouped.with_columns(*missing).with_columns(scope))
    columns = ["scope", "model", "team", *extra_keys]
    ordered = [part.select(*columns, pl.exclude(columns)) for part in parts]
    return pl.concat(ordered).sort("scope", *extra_keys)


def known_sum(value: pl.Expr) -> pl.Expr:
    """Sum of the known values; null (unknown) where no value is known. Polars alone would say 0."""
    return pl.when(value.count() > 0).then(value.sum())
