"""What sources state in sums instead of calls, by day and model, each usage once.

Belongs here: which of several views of the same usage counts. Does not belong here: doubles of one sum
(`pipelines/ingest/`), the comparison with calls and sentences (`reports/sums.py`). Nothing here is ever added
to tokens of requests: both count the same work.
"""

from __future__ import annotations

import polars as pl

_DIMENSIONS = (
    *("provider", "organization", "team", "project", "user", "end_user", "tags", "api_key_hash"),
    *("api_key_alias", "model", "service_tier", "region", "line_item"),
)
_TOKENS = (
    *("requests", "failed_requests", "input_tokens", "cache_read_tokens"),
    *("cache_write_5m_tokens", "cache_write_1h_tokens", "output_tokens", "reasoning_tokens"),
)
_MONEY = ("cost_reported",)
_NONE = pl.lit(value=False)
GROUP = ("source", "provider", "model", "day", "cost_currency")


def counted_sums(buckets: pl.LazyFrame) -> pl.DataFrame:
    """Sums by source, provider, model, UTC day and currency.

    A source (gateway, else provider) may state the same usage in several views: tables by user, team and tag,
    pages grouped by model and by project, hours and days. Of each day, source and operation one view counts
    for tokens and one for money: not one by tag (a call may have several), one that names models, the one
    that holds the most, the one with the most dimensions, the shortest periods. Money is that of the view that
    counts for tokens, where it states any.

    Args:
        buckets: USAGE_BUCKETS.

    Returns:
        GROUP, `first_at`, `last_at` (end of the last period), `provisional_from` (start of the last period,
        which may have been growing), `requests`, `failed_requests`, tokens (`cache_write_tokens`: both lives),
        `cost_reported`; null is unknown. `sums` counts the rows, `sums_not_counted` those of other views.

    """
    rows = _with_views(buckets.collect())
    rows = _counted(rows, _TOKENS, ("input_tokens", "output_tokens"), "requests")
    rows = _counted(rows, _MONEY, ("cost_reported",), "cost_reported", pl.col(f"counts_{_TOKENS[0]}"))
    stated = [
        pl.when(f"counts_{family[0]}").then(pl.col(name)).alias(name)
        for family in (_TOKENS, _MONEY)
        for name in family
    ]
    rows = rows.with_columns(stated)
    counts = pl.col(f"counts_{_TOKENS[0]}") | pl.col(f"counts_{_MONEY[0]}")
    write = pl.sum_horizontal("cache_write_5m_tokens", "cache_write_1h_tokens")
    has_write = pl.any_horizontal(pl.col("cache_write_5m_tokens", "cache_write_1h_tokens").is_not_null())
    summed = (*_TOKENS[:4], "cache_write_tokens", *_TOKENS[6:], *_MONEY)
    return (
        rows.with_columns(
            cache_write_tokens=pl.when(has_write).then(write),
            model=pl.col("model").fill_null("unknown"),
            provisional_from=pl.col("started_at").max().over("source"),
        )
        .group_by(GROUP)
        .agg(
            pl.col("started_at").min().alias("first_at"),
            pl.coalesce("ended_at", "started_at").max().alias("last_at"),
            pl.col("provisional_from").first(),
            *(_known(name) for name in summed),
            pl.len().alias("sums"),
            (~counts).sum().alias("sums_not_counted"),
        )
        .sort(GROUP, nulls_last=True)
    )


def _known(name: str) -> pl.Expr:
    """Sum of what is known; null where nothing is."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum()).alias(name)


def _with_views(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with `source`, `day` and `view`.

    A dimension is null where a report is not grouped by it, and where a call has none: so it is the file that
    tells which ones a view has.
    """
    has = {
        name: pl.col(name).is_not_null().any().over("source_file", "report").alias(f"has_{name}")
        for name in _DIMENSIONS
    }
    rows = rows.with_columns(
        *has.values(),
        source=pl.coalesce("gateway", "provider", "source_format"),
        day=pl.col("started_at").dt.date(),
        period_s=(pl.col("ended_at") - pl.col("started_at")).dt.total_seconds().fill_null(0),
        operation=pl.col("operation").fill_null(""),
    )
    names = [pl.when(f"has_{name}").then(pl.lit(name)) for name in _DIMENSIONS]
    dimensions = pl.concat_str(*names, separator=",", ignore_nulls=True)
    return rows.with_columns(
        dimensions=pl.sum_horizontal(*(pl.col(f"has_{name}") for name in _DIMENSIONS)),
        view=pl.concat_str("report", dimensions, pl.col("period_s").cast(pl.String), separator="|"),
    )


def _counted(
    rows: pl.DataFrame,
    family: tuple[str, ...],
    amounts: tuple[str, ...],
    otherwise: str,
    favoured: pl.Expr = _NONE,
) -> pl.DataFrame:
    """Rows with `counts_<first of the family>`: whether the view they are of speaks for these columns."""
    place = ("source", "operation", "day")
    states = pl.any_horizontal(pl.col(name).is_not_null() for name in family)
    candidates = (
        rows.filter(states)
        .group_by(*place, "view")
        .agg(
            favoured.any().alias("favoured"),
            pl.col("has_tags").any(),
            pl.col("has_model").any(),
            pl.sum_horizontal(*(pl.col(name).sum() for name in amounts)).alias("amount"),
            pl.col(otherwise).sum().alias("otherwise"),
            pl.col("dimensions").first(),
            pl.col("period_s").first(),
        )
        .sort(
            *("favoured", "has_tags", "has_model", "amount", "otherwise", "dimensions", "period_s", "view"),
            descending=[True, False, True, True, True, True, False, False],
        )
        .unique(place, keep="first", maintain_order=True)
        .select(*place, pl.col("view").alias("chosen"))
    )
    joined = rows.join(candidates, on=place, how="left", maintain_order="left")
    counts = (pl.col("view") == pl.col("chosen")).fill_null(value=False) & states
    return joined.with_columns(counts.alias(f"counts_{family[0]}")).drop("chosen")
