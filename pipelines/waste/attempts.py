"""Attempts that were paid twice, and attempts that were waited for in vain.

Belongs here: the rules on attempts of calls. Does not belong here: sums over failed attempts and what they cost
(`retries.py`), linking attempts to calls (ingest fills `call_id` and `attempt`).

    repeated_attempt: an attempt that was served, and after which another attempt of the same call was served: the client
        gave up too early, or asked every deployment at once. All of its tokens at list prices, exact.
    timeout: a failed attempt that timed out (status 408, 504 or 524, or an error named so), as a share of all attempts.
        Its tokens are those that the gateway estimated for it: the provider may have worked on them and may charge them,
        so its money is unknown. What failed attempts report as used stands in `retries`.
"""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_served, model_name, reached_a_model
from pipelines.waste.application_rules import Rule, of_requests
from pipelines.waste.applications import app_columns, rows_of
from pipelines.waste.call_prices import call_usd

REPEATED_SHARE = 0.01
TIMEOUT_SHARE = 0.02
TIMEOUT_STATUSES = (408, 504, 524)
TIMEOUT_WORDS = ("timeout", "timed out", "timed_out", "time_out", "deadline")

_TIMED_OUT = (pl.col("status") == "error") & (
    pl.col("http_status").is_in(TIMEOUT_STATUSES).fill_null(value=False)
    | pl.col("error_kind").str.contains(f"(?i){'|'.join(TIMEOUT_WORDS)}").fill_null(value=False)
)
_WORDS = " OR ".join(f"position('{word}' IN lower(error_kind)) > 0" for word in TIMEOUT_WORDS)
_CONDITION = f"(http_status IN ({', '.join(map(str, TIMEOUT_STATUSES))}) OR {_WORDS})"

REPEATED = Rule(
    kind="repeated_attempt",
    basis="exact",
    behind=pl.col("is_served") & (pl.col("attempt") < pl.col("last_served")),
    among=pl.col("is_served"),
    usd=call_usd("list"),
    step="failed",
    change={
        "cut_input_tokens": pl.col("input_tokens"),
        "cut_output_tokens": pl.col("output_tokens"),
    },
    material=of_requests(REPEATED_SHARE),
)
TIMEOUT = Rule(
    kind="timeout",
    basis="none",
    behind=pl.col("timed_out"),
    rows=lambda sums: rows_of(
        sums, _CONDITION, among="status = 'error' AND NOT coalesce(response_cache_hit, FALSE)"
    ),
    tokens=pl.when(pl.col("usage_origin") == "estimated").then(
        pl.sum_horizontal("input_tokens", "output_tokens")
    ),
    further=((pl.when("timed_out").then("duration_ms").sum() / 1000).alias("waited_s"),),
    material=of_requests(TIMEOUT_SHARE),
)


def attempts(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Every attempt that reached a model.

    Memory: the calls of more than one attempt.

    Returns:
        `model, team, app_kind, app, provider, day`, the facts that the rules read, `is_served`, `timed_out`,
        `last_served` (the number of the last attempt of its call that was served, if it has several).

    """
    made = requests.filter(reached_a_model()).with_columns(is_served=is_served(), timed_out=_TIMED_OUT)
    again = (
        made.filter(pl.col("is_served") & (pl.col("attempt") > 1) & pl.col("call_id").is_not_null())
        .group_by("call_id")
        .agg(pl.col("attempt").max().alias("last_served"))
    )
    return made.join(again, on="call_id", how="left").select(
        model_name(),
        pl.when(pl.col("team") != "").then("team").alias("team"),
        *app_columns(),
        pl.col("started_at").dt.date().alias("day"),
        *(
            "source_file",
            "source_line",
            "provider",
            "status",
            "attempt",
            "usage_origin",
        ),
        *(
            "started_at",
            "duration_ms",
            "is_served",
            "timed_out",
            "last_served",
            "input_tokens",
            "cache_read_tokens",
        ),
        *("cache_write_5m_tokens", "cache_write_1h_tokens", "output_tokens"),
    )
