"""Sums instead of calls: pages of buckets as vendors' APIs give them, days, and what identifies a sum.

Belongs here: what formats that fill `usage_buckets` share. Does not belong here: the fields of one report
(`formats/`), the meaning of counts (`normalise.py`).
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from parsers.fields import Fields, Read
    from parsers.format import Head, Structure

GROUP = (
    *("gateway", "provider", "organization", "team", "project", "user", "end_user", "tags", "api_key_hash"),
    *("api_key_alias", "model", "service_tier", "operation", "region", "line_item"),
)
"""Columns of USAGE_BUCKETS that say whose sum it is."""
_OPENING = re.compile(r'\s*+\[?\s*+\{\s*+"(?:object|data|has_more|next_page|results?|start|end)\w*"')


def is_page(head: Head, *needed: str) -> bool:
    """Whether a head begins like a page or a bucket and has all these patterns, unescaped: not within a text."""
    text = head.text
    patterns = (r'"results?"\s*:', *needed)
    return bool(_OPENING.match(text)) and all(re.search(rf"(?<!\\){part}", text) for part in patterns)


def page_structure(start: str, end: str) -> Structure:
    """The fields of a page (`data`: its buckets) or of a bucket that stands alone.

    OpenAI's specification calls the list of results `result`, its answers `results`.
    """
    return {"data": "JSON", "results": "JSON", "result": "JSON", start: "VARCHAR", end: "VARCHAR"}


def page_records(start: str, end: str, result: Structure) -> str:
    """SQL that gives one record per result of a bucket; `quiet` where a bucket has none.

    What is neither page nor bucket (an API's error in place of a page) is a record without anything.
    """
    bucket = json.dumps([{start: "VARCHAR", end: "VARCHAR", "results": "JSON", "result": "JSON"}])
    return f"""
SELECT "{start}", "{end}", quiet, unnest(found, recursive := true) FROM (
    SELECT "{start}", "{end}", quiet, unnest(
        CASE WHEN json_type(results) = 'ARRAY' AND NOT quiet
        THEN from_json(results, '{json.dumps([result])}') ELSE [NULL] END
    ) AS found FROM (
        SELECT *, coalesce(json_array_length(results) = 0, false) AS quiet FROM (
            SELECT bucket."{start}", bucket."{end}", coalesce(bucket.results, bucket.result) AS results FROM (
                SELECT unnest(from_json(data, '{bucket}')) AS bucket FROM document WHERE json_type(data) = 'ARRAY'
            )
            UNION ALL
            SELECT "{start}", "{end}", coalesce(results, result) FROM document WHERE coalesce(json_type(data), '') <> 'ARRAY'
        )
    )
)
"""


def day(fields: Fields, *names: str) -> tuple[Read, pl.Expr]:
    """Start and end of a sum of a UTC day that is written as a date, with or without a time behind it."""
    fields.frame = fields.frame.with_columns(fields.text(*names).str.head(10).alias("date"))
    start = fields.instant("date", unit="%Y-%m-%d").needed("date")
    return start, start.value + pl.duration(days=1)


def keyed(rows: pl.DataFrame, report: str | pl.Expr, *further: str) -> pl.DataFrame:
    """Rows with `report` and `record_key`: the report, the period, and every column that says whose sum it is.

    Args:
        rows: as `Fields.rows` gives them.
        report: who sums what.
        further: columns of `rows` that are part of the group and no columns of the table; they are dropped.

    """
    group = [name for name in (*GROUP, *further) if name in rows.columns]
    parts = [_as_text(name, rows.schema[name]).fill_null("") for name in ("started_at", "ended_at", *group)]
    named = rows.with_columns(report=pl.lit(report) if isinstance(report, str) else report)
    return named.with_columns(record_key=pl.concat_str("report", *parts, separator="|")).drop(further)


def _as_text(name: str, dtype: pl.DataType) -> pl.Expr:
    if isinstance(dtype, pl.List):
        return pl.col(name).list.join(",")
    return pl.col(name).dt.strftime("%Y-%m-%dT%H:%M:%SZ") if dtype == pl.Datetime else pl.col(name)
