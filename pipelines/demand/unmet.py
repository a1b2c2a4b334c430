"""Demand that was not served: calls that failed for want of capacity, and the range that puts on the demand.

Belongs here: naming what censors the demand, counting each unmet call once, the corrected range. Does not
belong here: linking attempts of one call (`pipelines/ingest`), what failures cost (`pipelines/waste/retries.py`).

The log shows what was asked of today's service. Calls that were refused are demand that no token count holds;
calls that waited moved demand to later. The low end of the range is what was served; the high end adds every
call that failed for want of capacity and never came through, once, however often it was tried. A refusal by a
budget or a quota looks like one by a full engine, so the truth lies between. Tokens that an unmet call does
not state are taken as the mean of its model's served calls, and marked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipelines.calls import failed_for_capacity, is_demand, model_name, output_tokens, reached_a_model
from pipelines.demand import sweep
from pipelines.demand.spread import started_us

WINDOWS_S = (60, 3600)
FULL_KV_RATIO = 0.95
"""KV cache in use at which an engine has no room for another call."""

KINDS = ("rate_limited", "overloaded", "timed_out", "server_error")
_RATE_LIMITED, _TIMED_OUT, _OVERLOADED = 429, (408, 504), (503, 529)


def _kind() -> pl.Expr:
    status, said = pl.col("http_status"), pl.col("error_kind").fill_null("").str.to_lowercase()
    return (
        pl.when((status == _RATE_LIMITED) | said.str.contains("rate.?limit|too.?many"))
        .then(pl.lit(KINDS[0]))
        .when(status.is_in(_OVERLOADED) | said.str.contains("overload|capacity"))
        .then(pl.lit(KINDS[1]))
        .when(status.is_in(_TIMED_OUT) | said.str.contains("time.?out"))
        .then(pl.lit(KINDS[2]))
        .otherwise(pl.lit(KINDS[3]))
    )


def unmet_calls(requests: pl.LazyFrame) -> pl.DataFrame:
    """Attempts that failed for want of capacity, one row each.

    Returns:
        `model`, `started_us`, `kind` (of KINDS), `call` (call_id; null: linked to no other attempt),
        `input_tokens`, `is_met` (another attempt of the call was served).

    """
    attempts = requests.filter(reached_a_model())
    failed = attempts.filter(failed_for_capacity())
    served = requests.filter(is_demand() & pl.col("call_id").is_not_null()).select(
        "call_id", pl.lit(value=True).alias("is_met")
    )
    met = served.join(failed.select("call_id"), on="call_id", how="semi").unique("call_id")
    return (
        failed.join(met, on="call_id", how="left")
        .select(
            model_name(),
            started_us(),
            _kind().alias("kind"),
            pl.col("call_id").alias("call"),
            pl.col("input_tokens").cast(pl.Float64),
            pl.col("is_met").fill_null(value=False),
        )
        .sort("started_us", "model", "call", nulls_last=True)
        .collect()
    )


def unmet_demand(requests: pl.LazyFrame, engine_samples: pl.LazyFrame) -> dict[str, Any]:
    """Correct the demand for calls that were refused.

    Returns:
        `failed_attempts` and `by_kind` (attempts), `unlinked_attempts` (linked to no other attempt: if clients
        tried again unseen, each counts as a call), `met_later_calls`, `unmet_calls`; `requests` and
        `total_tokens`, each `{low, high}` (low = served; tokens null where unknown), `assumed_token_calls`
        (unmet calls whose tokens were assumed); `peaks` of requests: `window_s, served, with_unmet, start_us`;
        `saturation` (signs of it); and `basis`.

    """
    attempts = unmet_calls(requests)
    linked = attempts.filter(pl.col("call").is_not_null())
    lost = attempts.filter(~pl.col("is_met")).with_columns(
        pl.coalesce("call", pl.format("#{}", pl.int_range(pl.len()))).alias("call")
    )
    # The first try is when the call was wanted.
    unmet = lost.unique("call", keep="first", maintain_order=True)
    arrived = requests.filter(is_demand()).select(model_name(), started_us(), "input_tokens", output_tokens())
    served = arrived.select("started_us").collect()["started_us"].to_numpy()
    means = (
        arrived.group_by("model")
        .agg(
            pl.len().alias("calls"),
            pl.col("input_tokens", "output_tokens").mean().name.suffix("_mean"),
            pl.col("input_tokens", "output_tokens").sum(),
        )
        .collect()
    )
    known = [value for row in means.select("input_tokens", "output_tokens").rows() for value in row]
    tokens_served = int(sum(known)) if len(means) and not means["input_tokens_mean"].is_null().all() else None
    sized = unmet.join(means, on="model", how="left", suffix="_served")
    each = pl.coalesce("input_tokens", "input_tokens_mean") + pl.col("output_tokens_mean")
    added = sized.select(each).to_series()
    high = None if tokens_served is None or added.null_count() else tokens_served + round(added.sum())
    return {
        "failed_attempts": attempts.height,
        "by_kind": {kind: int((attempts["kind"] == kind).sum()) for kind in KINDS},
        "unlinked_attempts": attempts.height - linked.height,
        "met_later_calls": linked.filter("is_met")["call"].n_unique(),
        "unmet_calls": unmet.height,
        "requests": {"low": len(served), "high": len(served) + unmet.height},
        "total_tokens": {"low": tokens_served, "high": high},
        "assumed_token_calls": unmet.height,
        "peaks": _peaks(served, unmet["started_us"].to_numpy()),
        "saturation": saturation(requests, engine_samples),
        "basis": "low = served calls; high = served + calls that failed for want of capacity (429, 408, 5xx or no "
        "status) and never came through, each once at its first try; output of these, and input where it is not "
        "stated, taken as the mean of the model's served calls",
    }


def _peaks(served: sweep.Instants, unmet: sweep.Instants) -> list[dict[str, Any]]:
    everything = np.concatenate((served, unmet))
    if not len(everything):
        return []
    first, last = int(everything.min()), int(everything.max())
    rows = []
    for window_s in WINDOWS_S:
        width = window_s * 1_000_000
        if width > last - first:
            continue
        limits = (width, first, last + 1 - width)
        value, start = sweep.busiest_window(_points(everything), *limits)
        low = sweep.busiest_window(_points(served), *limits)[0] if len(served) else 0.0
        rows.append(
            {"window_s": window_s, "served": round(low), "with_unmet": round(value), "start_us": start}
        )
    return rows


def _points(at: sweep.Instants) -> sweep.Curve:
    return sweep.evenly(at, at, np.ones(len(at)))


def saturation(requests: pl.LazyFrame, engine_samples: pl.LazyFrame) -> dict[str, Any]:
    """Signs that the service was full, each null where the sources do not tell it.

    Returns:
        `queue_known_calls`, `queue_share` (time in queue / time of these calls), `engine_samples`,
        `waiting_share` (samples with calls waiting), `kv_full_share` (samples with the KV cache full).

    """
    lasted = (pl.col("ended_at") - pl.col("started_at")).dt.total_microseconds() / 1000
    both = requests.filter(is_demand() & pl.col("queue_ms").is_not_null() & (lasted > 0))
    calls, queued, whole = (
        both.select(pl.len(), pl.col("queue_ms").sum(), lasted.sum().alias("lasted")).collect().row(0)
    )
    waiting, kv = pl.col("waiting"), pl.col("kv_usage_ratio")
    samples, waits, full = (
        engine_samples.select(pl.len(), (waiting > 0).mean().alias("w"), (kv >= FULL_KV_RATIO).mean())
        .collect()
        .row(0)
    )
    return {
        "queue_known_calls": calls,
        "queue_share": min(queued / whole, 1.0) if whole else None,
        "engine_samples": samples,
        "waiting_share": waits,
        "kv_full_share": full,
    }
