"""Sums that sources state, and what calls say of the same time: `usage_buckets` and `reconciliation`.

Belongs here: both keys of audit.json and their sentence. Does not belong here: which view of a source counts
(`pipelines/demand/sums.py`), engines' totals (`engines.py`). Sums, counters and calls count the same work:
they are compared and never added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from parsers.records import COUNT, INSTANT, MONEY, SERVED_STATUSES
from reports.json_values import instant_text, json_value, known_sum, money_text, real
from reports.numbers import exact, money, printable
from reports.strings import SUMS

_TOKEN_COLUMNS = ("input", "cache_read", "cache_write", "output", "reasoning")
SUMS_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("source", "provider", "model"), pl.String()),
        "day": pl.Date(),
        "cost_currency": pl.String(),
        **dict.fromkeys(("first_at", "last_at", "provisional_from"), INSTANT),
        **dict.fromkeys(("requests", "failed_requests"), COUNT()),
        **{f"{name}_tokens": COUNT() for name in _TOKEN_COLUMNS},
        "cost_reported": MONEY,
        "sums": pl.Int64(),
        "sums_not_counted": pl.Int64(),
    }
)
"""One row per source, provider, model, UTC day and currency."""
_HAS_COUNTED = pl.col("sums") > pl.col("sums_not_counted")
"""Rows that are more than another view of what stands elsewhere."""


def usage_buckets_part(sums: pl.DataFrame) -> dict[str, Any]:
    """Sums by source and model, by source and day, and how each source's sums were counted."""
    counted = sums.filter(_HAS_COUNTED)
    return {
        "sources": [
            {
                **entry,
                "provisional_from": instant_text(part["provisional_from"].max()),  # type: ignore[arg-type]
                "sums": int(part["sums"].sum()),
                "sums_not_counted": int(part["sums_not_counted"].sum()),
            }
            for entry, part in _by(sums, "source")
        ],
        "by_model": [entry for entry, _ in _by(counted, "source", "provider", "model")],
        "by_day": [entry for entry, _ in _by(counted, "source", "day")],
    }


def _by(sums: pl.DataFrame, *group: str) -> Iterable[tuple[dict[str, Any], pl.DataFrame]]:
    for values, part in sums.sort(group, nulls_last=True).group_by(group, maintain_order=True):
        named = zip(group, values, strict=True)
        first, last = part["first_at"].min(), part["last_at"].max()
        entry = {
            **{name: value.isoformat() if name == "day" else value for name, value in named},
            "first_at": instant_text(first),  # type: ignore[arg-type]
            "last_at": instant_text(last),  # type: ignore[arg-type]
            **_figures(part),
            "costs": _costs(part),
        }
        yield entry, part


def _figures(part: pl.DataFrame) -> dict[str, int | None]:
    columns = ("requests", "failed_requests", *(f"{name}_tokens" for name in _TOKEN_COLUMNS))
    row = part.select(known_sum(name).alias(name.removesuffix("_tokens")) for name in columns)
    return dict(row.row(0, named=True))


def _costs(part: pl.DataFrame) -> dict[str, str | None]:
    """Money by currency, as it is stated; currencies are not added up."""
    known = part.filter(pl.col("cost_reported").is_not_null())
    summed = known.group_by(pl.col("cost_currency").fill_null("")).agg(pl.col("cost_reported").sum())
    return {
        str(currency): money_text(amount) for currency, amount in summed.sort("cost_currency").iter_rows()
    }


def reconciliation(
    sums: pl.DataFrame, usage_hourly: pl.DataFrame, engines: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """What calls say beside what sources sum, for each source, and for each model that both name.

    Args:
        sums: SUMS_SCHEMA.
        usage_hourly: the mart; calls stand in the hour they began in.
        engines: `engines_against_gateway`, whose counters are sums too.

    Returns:
        entries with `source`, `model` (null: all of the source), `first_at`, `last_at`, `hours` (that the sums
        span, on days that have any), `hours_with_calls`, and for each measure
        `{calls, sums, difference, ratio}` (sums - calls, calls / sums), null where one is unknown.

    """
    sources = sums.filter(_HAS_COUNTED).sort("source").group_by(["source"], maintain_order=True)
    rows = [entry for (source,), part in sources for entry in _of_source(str(source), part, usage_hourly)]
    return rows + [
        {
            "source": "engines",
            "model": row["model"],
            "first_at": None,
            "last_at": None,
            "hours": row["hours"],
            "hours_with_calls": row["hours"],
            **dict.fromkeys(("requests", "input", "cost_usd"), _compared(None, None)),
            "output": _compared(row["gateway_output_tokens"], row["engine_generated_tokens"]),
        }
        for row in engines
    ]


def _of_source(source: str, sums: pl.DataFrame, hourly: pl.DataFrame) -> list[dict[str, Any]]:
    calls = _calls_of(source, sums, hourly)
    if calls.is_empty():
        return []
    lower = pl.col("model").str.to_lowercase()
    shared = sorted(set(sums.select(lower).to_series()) & set(calls.select(lower).to_series()) - {"unknown"})
    compared = [(None, sums, calls)]
    compared += [(name, sums.filter(lower == name), calls.filter(lower == name)) for name in shared]
    return [
        {
            "source": source,
            "model": name,
            "first_at": instant_text(of_sums["first_at"].min()),  # type: ignore[arg-type]
            "last_at": instant_text(of_sums["last_at"].max()),  # type: ignore[arg-type]
            "hours": _hours(of_sums),
            "hours_with_calls": of_calls["hour_at"].n_unique(),
            **_measures(of_sums, of_calls),
        }
        for name, of_sums, of_calls in compared
    ]


def _calls_of(source: str, sums: pl.DataFrame, hourly: pl.DataFrame) -> pl.DataFrame:
    """Calls that a source's sums must hold: it was the gateway, or the provider (then not from a cache before it).

    Of calls that name neither, those of the source's models; all within the days and the span of the sums.
    """
    models = sums["model"].str.to_lowercase().unique().to_list()
    first, last = sums["first_at"].min(), sums["last_at"].max()
    by_gateway = (pl.col("gateway").str.to_lowercase() == source.lower()).fill_null(value=False)
    by_provider = (pl.col("provider").str.to_lowercase() == source.lower()).fill_null(value=False)
    nameless = (
        pl.col("provider").is_null()
        & pl.col("gateway").is_null()
        & pl.col("model").str.to_lowercase().is_in(models)
    )
    reached = ~pl.col("response_cache_hit").fill_null(value=False)
    return hourly.filter(
        by_gateway | ((by_provider | nameless) & reached),
        pl.col("hour_at").dt.date().is_in(sums["day"].unique().to_list()),
        pl.col("hour_at") >= pl.lit(first).dt.truncate("1h"),
        pl.col("hour_at") < pl.lit(last),
    )


def _hours(sums: pl.DataFrame) -> int:
    """Hours from the first sum to the end of the last, on the days that have any."""
    day = pl.col("day").cast(INSTANT)
    spans = sums.select(
        "day",
        start=pl.max_horizontal(day, pl.col("first_at").min()),
        end=pl.min_horizontal(day + pl.duration(days=1), pl.col("last_at").max()),
    ).unique("day")
    hours = spans.select(((pl.col("end") - pl.col("start")).dt.total_seconds() / 3600).ceil().sum()).item()
    return int(hours)


def _measures(sums: pl.DataFrame, calls: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Failed calls are in a source's count where it states them; their tokens are in no sum."""
    told = _figures(sums)
    served = calls.filter(pl.col("status").is_in(SERVED_STATUSES))
    counted = served if told["failed_requests"] is None else calls
    usd = sums.filter(pl.col("cost_currency") == "USD").select(known_sum("cost_reported")).item()
    cost = calls.select(known_sum("cost_reported")).item()
    return {
        "requests": _compared(int(counted["requests"].sum()), told["requests"]),
        **{
            name: _compared(served.select(known_sum(f"{name}_tokens")).item(), told[name])
            for name in ("input", "output")
        },
        "cost_usd": _compared(cost, usd),
    }


def _compared(calls: Any, sums: Any) -> dict[str, Any]:
    known = calls is not None and sums is not None
    difference = sums - calls if known else None
    ratio = real(float(calls / sums)) if known and sums else None
    return {
        **{key: json_value(value) for key, value in (("calls", calls), ("sums", sums))},
        "difference": json_value(difference),
        "ratio": ratio,
    }


def costs_as_stated(document: Mapping[str, Any]) -> str:
    """Money by source, in words; empty where none states any. Not added up: a gateway and a vendor may state the same."""
    stated = [
        f"{printable(row['source'], 40)} {money(amount, printable(currency, 10))}"
        for row in document["usage_buckets"]["sources"]
        for currency, amount in row["costs"].items()
    ]
    return ", ".join(stated)


def has_sums_only(document: Mapping[str, Any]) -> bool:
    """Whether the sources state sums and no calls."""
    return bool(document["usage_buckets"]["sources"]) and not document["inputs"]["requests"]


def sums_sentences(document: Mapping[str, Any]) -> list[str]:
    """What has to be known to read the two tables."""
    sources = document["usage_buckets"]["sources"]
    lines = [SUMS["only"]] if has_sums_only(document) else []
    for row in sources:
        lines.append(
            SUMS["provisional"].format(source=printable(row["source"], 60), since=row["provisional_from"])
        )
        if row["sums_not_counted"]:
            lines.append(
                SUMS["views"].format(
                    source=printable(row["source"], 60),
                    left=exact(row["sums_not_counted"]),
                    sums=exact(row["sums"]),
                )
            )
    if document["reconciliation"]:
        lines.append(SUMS["never_added"])
    return lines
