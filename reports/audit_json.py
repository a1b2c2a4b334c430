"""audit.json: every figure of an audit in one document, and the only source of the page's sentences.

Belongs here: `AuditInputs` (what a report is made from) and `audit_document` (window, inputs, tokens,
peaks, and the parts of `audit_parts.py` put together). Does not belong here: sentences (`decision.py`),
what a stage computes (`pipelines/`).

Rules of the document: token counts are integers, money is a decimal string, ratios lie in 0..1, instants
are ISO 8601 with Z, unknown is null. Keys are added, never renamed: `schema_version` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from typing import Any

import polars as pl

from parsers.records import FILES, REQUESTS, SERVED_STATUSES, USAGE_BUCKETS
from reports import audit_parts
from reports.application_parts import application_parts, tasks_part
from reports.demand_profile import EMPTY_PROFILE, demand_part
from reports.engines import ENGINES_SCHEMA, against_gateway, engines_part
from reports.finding_parts import findings_part, savings_part
from reports.json_values import instant_text, known_sum, ratio, real
from reports.reuse_parts import reuse_parts
from reports.shape_charts import GROWTH_SCHEMA, LENGTHS_SCHEMA, lengths_part
from reports.sums import SUMS_SCHEMA, reconciliation, usage_buckets_part
from warehouse import application_tables, reuse_tables, tables, waste_tables

SCHEMA_VERSION = "1"
NO_TEAM = "(none)"
"""Key of `tokens.by_team` for calls that name no team."""

DUPLICATES_SCHEMA = pl.Schema({"format": pl.String, "rows": pl.Int64})
"""Rows that were dropped because their record had been seen before, by the format that read them."""

_KINDS = {REQUESTS.name: "requests", USAGE_BUCKETS.name: "buckets"}
"""What rows of a target are called in `inputs`; all others are samples."""

SERVED = pl.col("status").is_in(SERVED_STATUSES)
_FROM_RESPONSE_CACHE = pl.col("response_cache_hit").fill_null(value=False)


@dataclass(frozen=True, kw_only=True)
class AuditInputs:
    """What a report is made from: the manifest, the marts it tells, and the site's own words.

    Each frame is brought to its declared columns; a mart that is left out is an empty one. `fleet` is
    fleet.toml as a plain mapping (`site`, `slo`, `pools`, and `basis`: sentences on what was assumed), or
    None where there is none. `window` is what the audit was asked for; without it the window is that of the
    data.
    """

    title: str
    files: pl.DataFrame = field(default_factory=FILES.empty)
    duplicates: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DUPLICATES_SCHEMA))
    fleet: Mapping[str, Any] | None = None
    window: tuple[datetime, datetime] | None = None
    usage_daily: pl.DataFrame = field(default_factory=tables.USAGE_DAILY.empty)
    usage_hourly: pl.DataFrame = field(default_factory=tables.USAGE_HOURLY.empty)
    coverage: pl.DataFrame = field(default_factory=tables.COVERAGE.empty)
    demand_minute: pl.DataFrame = field(default_factory=tables.DEMAND_MINUTE.empty)
    demand_peaks: pl.DataFrame = field(default_factory=tables.DEMAND_PEAKS.empty)
    repetition: pl.DataFrame = field(default_factory=waste_tables.REPETITION.empty)
    cache_curve: pl.DataFrame = field(default_factory=waste_tables.CACHE_CURVE.empty)
    missed_causes: pl.DataFrame = field(default_factory=reuse_tables.MISSED_CAUSES.empty)
    reuse_gaps: pl.DataFrame = field(default_factory=reuse_tables.REUSE_GAPS.empty)
    session_history: pl.DataFrame = field(default_factory=reuse_tables.SESSION_HISTORY.empty)
    oversize: pl.DataFrame = field(default_factory=waste_tables.OVERSIZE.empty)
    retries: pl.DataFrame = field(default_factory=waste_tables.RETRIES.empty)
    application_waste: pl.DataFrame = field(default_factory=application_tables.APPLICATION_WASTE.empty)
    output_limits: pl.DataFrame = field(default_factory=application_tables.OUTPUT_LIMITS.empty)
    kv_held: pl.DataFrame = field(default_factory=application_tables.KV_HELD.empty)
    ttft_by_input: pl.DataFrame = field(default_factory=application_tables.TTFT_BY_INPUT.empty)
    task_demand: pl.DataFrame = field(default_factory=application_tables.TASK_DEMAND.empty)
    efficiency_hourly: pl.DataFrame = field(default_factory=tables.EFFICIENCY_HOURLY.empty)
    cost_lines: pl.DataFrame = field(default_factory=tables.COST_LINES.empty)
    fleet_options: pl.DataFrame = field(default_factory=tables.FLEET_OPTIONS.empty)
    findings: pl.DataFrame = field(default_factory=waste_tables.FINDINGS.empty)
    data_quality: pl.DataFrame = field(default_factory=tables.DATA_QUALITY.empty)
    engines: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=ENGINES_SCHEMA))
    sums: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SUMS_SCHEMA))
    demand: Mapping[str, Any] = field(default_factory=lambda: EMPTY_PROFILE)
    lengths: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=LENGTHS_SCHEMA))
    session_growth: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=GROWTH_SCHEMA))

    def __post_init__(self) -> None:
        """Bring every frame to its declared columns and types."""
        for table in (FILES, *tables.REPORTED):
            object.__setattr__(self, table.name, table.conform(getattr(self, table.name)))
        shapes = {
            "duplicates": DUPLICATES_SCHEMA,
            "engines": ENGINES_SCHEMA,
            "sums": SUMS_SCHEMA,
            "lengths": LENGTHS_SCHEMA,
            "session_growth": GROWTH_SCHEMA,
        }
        for name, schema in shapes.items():
            object.__setattr__(self, name, getattr(self, name).select(schema.names()).cast(schema))


def audit_document(inputs: AuditInputs) -> dict[str, Any]:
    """Put the figures of an audit into one document.

    Args:
        inputs: frames of the manifest and of the marts.

    Returns:
        A mapping of plain values that `json.dumps(..., allow_nan=False)` accepts; its keys are those of the
        contract's section on audit.json, plus `title`, `fleet` and further keys inside its parts.

    """
    engines_and_calls = against_gateway(inputs.engines, inputs.usage_hourly)
    return {
        "schema_version": SCHEMA_VERSION,
        "tokenworks_version": _version(),
        "title": inputs.title,
        "window": window_part(inputs),
        "inputs": inputs_part(inputs.files, inputs.duplicates),
        "tokens": tokens_part(inputs.usage_daily),
        "peaks": peaks_part(inputs.demand_peaks),
        "demand": demand_part(inputs.demand),
        "lengths": lengths_part(inputs.lengths),
        "session_growth": inputs.session_growth.to_dicts(),
        "waste": audit_parts.waste_part(
            inputs.repetition, inputs.cache_curve, inputs.oversize, inputs.retries
        )
        | {"savings": savings_part(inputs.findings)}
        | reuse_parts(inputs.missed_causes, inputs.reuse_gaps, inputs.session_history)
        | application_parts(
            inputs.application_waste, inputs.output_limits, inputs.kv_held, inputs.ttft_by_input
        ),
        "tasks": tasks_part(inputs.task_demand),
        "efficiency": audit_parts.efficiency_part(inputs.efficiency_hourly),
        "engines": engines_part(inputs.engines),
        "engines_against_gateway": engines_and_calls,
        "usage_buckets": usage_buckets_part(inputs.sums),
        "reconciliation": reconciliation(inputs.sums, inputs.usage_hourly, engines_and_calls),
        "costs": audit_parts.costs_part(inputs.cost_lines),
        "sizing": audit_parts.sizing_part(inputs.fleet_options),
        "findings": findings_part(inputs.findings),
        "data_quality": inputs.data_quality.to_dicts(),
        "fleet": audit_parts.plain(inputs.fleet),
    }


def _version() -> str:
    try:
        return metadata.version("tokenworks")
    except metadata.PackageNotFoundError:
        return "unknown"


def window_part(inputs: AuditInputs) -> dict[str, Any]:
    """Window of the audit: its bounds, the share of it that has data, and its gaps.

    Without the mart `coverage` the bounds are those of the files' rows, and the share is unknown.
    """
    stretches = inputs.coverage.sort("start_at")
    bounds = inputs.window
    if bounds is None and not stretches.is_empty():
        bounds = (stretches["start_at"].min(), stretches["end_at"].max())  # type: ignore[assignment]
    # A sum's row stands at the start of its period.
    ends = pl.concat([inputs.files["last_at"], inputs.sums["last_at"]])
    of_files: tuple[Any, ...] = (inputs.files["first_at"].min(), ends.max())
    start, end = bounds or of_files
    gaps = stretches.filter("is_gap")
    return {
        "start": instant_text(start),
        "end": instant_text(end),
        "coverage_ratio": _coverage(stretches, start, end),
        "gaps": [
            {
                "start": instant_text(row["start_at"]),
                "end": instant_text(row["end_at"]),
                "reason": row["reason"],
            }
            for row in gaps.to_dicts()
        ],
    }


def _coverage(stretches: pl.DataFrame, start: datetime | None, end: datetime | None) -> float | None:
    """Share of the window that lies in stretches with data; null without stretches or without length."""
    if stretches.is_empty() or start is None or end is None or end <= start:
        return None
    inside = stretches.filter(~pl.col("is_gap")).select(
        length=pl.min_horizontal("end_at", pl.lit(end)) - pl.max_horizontal("start_at", pl.lit(start))
    )
    covered = inside.select(pl.col("length").dt.total_microseconds().clip(lower_bound=0).sum()).item()
    return ratio(min(covered / ((end - start).total_seconds() * 1_000_000), 1.0))


def inputs_part(files: pl.DataFrame, duplicates: pl.DataFrame) -> dict[str, Any]:
    """What was read, line by line: lines = requests + buckets + samples + rejects + other lines + duplicates.

    Copies of a file that was read are counted as files, their lines are not: nobody read them.
    """
    read = files.filter(pl.col("copy_of").is_null()).with_columns(pl.col("format").fill_null("unknown"))
    dropped = dict(duplicates.group_by("format").agg(pl.col("rows").sum()).iter_rows())
    by_format = {
        name: _lines(part, dropped.get(name, 0)) for (name,), part in sorted(_groups(read, "format"))
    }
    whole = {key: sum(part[key] for part in by_format.values()) for key in _lines(read.clear(), 0)}
    return {
        **whole,
        "files": files.height,
        "copies": files.height - read.height,
        "files_with_problems": files.filter(pl.col("problem").is_not_null()).height,
        "by_format": by_format,
    }


def _groups(frame: pl.DataFrame, column: str) -> list[tuple[tuple[Any, ...], pl.DataFrame]]:
    return list(frame.group_by(column))


def _lines(files: pl.DataFrame, duplicates: int) -> dict[str, int]:
    """Counts of files of one format; its duplicates were rows of it before they were dropped."""
    kind = pl.col("target").replace_strict(_KINDS, default="samples").fill_null("samples")
    of_kind = dict(files.group_by(kind).agg(pl.col("rows").sum()).iter_rows())
    rows, left = {}, duplicates
    for name in ("requests", "buckets", "samples"):
        dropped = min(left, of_kind.get(name, 0))
        rows[name], left = of_kind.get(name, 0) - dropped, left - dropped
    rejects, other, lines = files.select(pl.col("rejects", "other_lines", "lines").sum()).row(0)
    return {
        "files": files.height,
        "lines": lines,
        **rows,
        "rejects": rejects,
        "other_lines": other,
        "duplicates": duplicates,
    }


def tokens_part(usage: pl.DataFrame) -> dict[str, Any]:
    """Sums over served calls (ok and cancelled), with what they leave out named beside them.

    A sum is null only where every part is unknown. `uncached_input` covers the calls whose cache reads are
    known; `requests_cache_unknown` counts the served others. Tokens that a gateway estimated for failed
    calls stand apart.
    """
    served = usage.filter(SERVED)
    cached = served.filter(_FROM_RESPONSE_CACHE)
    failed = usage.filter((pl.col("status") == "error") & (pl.col("usage_origin") == "estimated"))
    of_status = dict(usage.group_by("status").agg(pl.col("requests").sum()).iter_rows())
    totals = _usage(served)
    return {
        **{key: value for key, value in totals.items() if key != "requests"},
        "requests_ok": of_status.get("ok", 0),
        "requests_error": of_status.get("error", 0),
        "requests_cancelled": of_status.get("cancelled", 0),
        "from_response_cache": _three(cached),
        "failed_estimated": _three(failed),
        "by_model": _usage_by(served, "model"),
        "by_team": _usage_by(served.with_columns(pl.col("team").fill_null(NO_TEAM)), "team"),
    }


def _usage_by(usage: pl.DataFrame, column: str) -> dict[str, dict[str, int | None]]:
    """The same for each value of a column, in one query: a log may name any number of models and teams."""
    rows = usage.group_by(column).agg(_USAGE_SUMS).sort(column).iter_rows(named=True)
    return {row.pop(column): row for row in rows}


_USAGE_SUMS = (
    pl.col("requests").sum(),
    *(
        known_sum(f"{name}_tokens").alias(name)
        for name in ("input", "uncached_input", "cache_read", "cache_write", "output", "reasoning")
    ),
    pl.col("requests_usage_missing").sum(),
    pl.col("requests_cache_unknown").sum(),
)


def _usage(usage: pl.DataFrame) -> dict[str, int | None]:
    """Calls and token sums of a part of `usage_daily`."""
    row = usage.select(_USAGE_SUMS).row(0, named=True)
    # No calls at all: nothing was measured, so the sums are unknown and the counts are zero.
    return dict(row)


def _three(usage: pl.DataFrame) -> dict[str, int | None]:
    """Calls, input and output; zero tokens where there is no such call."""
    figures = _usage(usage)
    empty = figures["requests"] == 0
    return {key: 0 if empty else figures[key] for key in ("requests", "input", "output")}


def peaks_part(peaks: pl.DataFrame) -> list[dict[str, Any]]:
    """Sliding-window maxima; sums of tokens and calls are integers, concurrency is a mean."""
    rows = peaks.sort("scope", "measure", "window_s").to_dicts()
    return [
        {
            "scope": row["scope"],
            "measure": row["measure"],
            "window_s": real(row["window_s"]),
            "value": real(row["value"]) if row["measure"] == "concurrency" else round(row["value"]),
            "start": instant_text(row["start_at"]),
            "per_s": real(row["per_s"]),
            "assumed_ratio": ratio(row["assumed_ratio"]),
            "basis": row["basis"],
        }
        for row in rows
    ]
