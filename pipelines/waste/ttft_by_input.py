"""Mart `ttft_by_input`: what input costs in time to first token, as a robust line per model.

Belongs here: that line, from calls whose TTFT was measured. Does not belong here: modelled step times
(`pipelines/sizing/roofline.py`), distributions of TTFT.

Line: TTFT less the time in queue (where it is logged) over computed input (input less cache reads). Slope: the median of
the slopes between the k-th smallest input and the one half the calls further on (Theil's incomplete method: it bears
with a quarter of odd calls, and takes n log n). Interval: the order statistics of these slopes at +-1.96 standard
deviations of the sign test. A model needs `MINIMUM_CALLS` such calls, whose inputs spread by a factor of two from the
10th to the 90th percentile. Batches and load change TTFT as well: the line holds for the load that was there.
"""

from __future__ import annotations

import math

import polars as pl

from warehouse.application_tables import TTFT_BY_INPUT

MINIMUM_CALLS = 100
SPREAD = 2.0
_Z_95 = 1.96
_PER = 1_000


def ttft_by_input(calls: pl.LazyFrame) -> pl.DataFrame:
    """The mart `ttft_by_input`; no row for a model with too few calls.

    Holds input and TTFT of each such call in memory: 30 bytes.

    Args:
        calls: of `applications.judged_calls`.

    """
    read = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), "input_tokens")
    told = (
        calls.filter(pl.col("ttft_ms").is_not_null())
        .select(
            "model",
            (pl.col("input_tokens") - read).cast(pl.Float64).alias("x"),
            (pl.col("ttft_ms") - pl.col("queue_ms").fill_null(0)).clip(lower_bound=0).alias("y"),
            pl.col("cache_read_tokens").is_null().alias("reads_unknown"),
        )
        .collect(engine="streaming")
    )
    rows = [
        {"model": model, **line}
        for (model,), part in told.sort("model", "x", "y").group_by("model", maintain_order=True)
        if (line := _line(part)) is not None
    ]
    return TTFT_BY_INPUT.conform(
        pl.DataFrame(rows, schema_overrides=dict(TTFT_BY_INPUT.schema)) if rows else TTFT_BY_INPUT.empty()
    )


def _line(points: pl.DataFrame) -> dict[str, float | int] | None:
    """Slope and intercept of points that are sorted by `x`."""
    count = points.height
    x = points["x"]
    low, high = (x.quantile(at, "linear") or 0.0 for at in (0.1, 0.9))
    if count < MINIMUM_CALLS or high < SPREAD * max(low, 1.0):
        return None
    half = count // 2
    near, far = points.head(half), points.slice(count - half, half)
    pairs = pl.DataFrame({"dx": far["x"] - near["x"], "dy": far["y"] - near["y"]}).filter(pl.col("dx") > 0)
    slopes = pairs.select((pl.col("dy") / pl.col("dx")).sort().alias("slope"))["slope"]
    if slopes.len() < MINIMUM_CALLS // 2 - 1:
        return None
    slope = float(slopes.median())  # type: ignore[arg-type]
    reach = _Z_95 * math.sqrt(slopes.len()) / 2
    middle = (slopes.len() - 1) / 2
    return {
        "requests": count,
        "requests_reads_unknown": int(points["reads_unknown"].sum()),
        "ttft_ms_p50": float(points["y"].median()),  # type: ignore[arg-type]
        "ms_per_1k_tokens": _PER * slope,
        "ms_per_1k_tokens_low": _PER * slopes[max(math.floor(middle - reach), 0)],
        "ms_per_1k_tokens_high": _PER * slopes[min(math.ceil(middle + reach), slopes.len() - 1)],
        "intercept_ms": float((points["y"] - slope * points["x"]).median()),  # type: ignore[arg-type]
    }
