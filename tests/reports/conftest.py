"""A made-up week for the report: plausible frames of every mart, with a gap, unknowns and hostile names."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from parsers.records import FILES
from reports.audit_json import AuditInputs
from warehouse import tables
from warehouse.application_tables import TASK_DEMAND

START = datetime(2026, 11, 16, tzinfo=UTC)
DAYS = 7
HOSTILE = "</script><img src=x onerror=alert(1)>\u2028{{7*7}}\u202e\x1b[31m"
MODELS = ("llama-3.3-70b", f"m{HOSTILE}")
TEAMS = ("search", "support", f"t{HOSTILE}", None)
GAP = (START + timedelta(days=2, hours=3), START + timedelta(days=2, hours=9))
FLEET = {
    "site": {"name": "ACME", "timezone": "UTC", "pue": 1.4, "electricity_usd_per_kwh": Decimal("0.12")},
    "slo": {"ttft_p95_ms": 2000.0, "tpot_p95_ms": 100.0},
    "pools": ({"name": "main", "accelerator": "H100 SXM", "accelerators": 8, "models": ("llama*",)},),
    "basis": ("site.growth_per_year = 0.0 (no growth is assumed; not stated in the fleet file)",),
}


def _load(minute: datetime) -> float:
    """Relative load: office hours on weekdays, and one spike."""
    hour = minute.hour + minute.minute / 60
    day = math.exp(-(((hour - 14) / 4) ** 2)) * (1.0 if minute.weekday() < 5 else 0.25) + 0.05
    spike = 3.0 if (minute.weekday(), minute.hour) == (1, 14) and 5 <= minute.minute < 9 else 1.0
    return day * spike


def _minutes() -> list[datetime]:
    every = [START + timedelta(minutes=index) for index in range(DAYS * 24 * 60)]
    return [minute for minute in every if not GAP[0] <= minute < GAP[1]]


def demand_minute() -> pl.DataFrame:
    rows = []
    for scope, part in (("all", 1.0), (f"model:{MODELS[0]}", 0.7), (f"model:{MODELS[1]}", 0.3)):
        for minute in _minutes():
            level = _load(minute) * part
            rows.append(
                {
                    "scope": scope,
                    "minute_at": minute,
                    "input_tokens": 600_000 * level,
                    "uncached_input_tokens": 500_000 * level,
                    "output_tokens": 90_000 * level,
                    "requests": round(60 * level),
                    "concurrency_mean": 12 * level,
                    "concurrency_max": round(30 * level),
                    "resident_kv_tokens_max": 240_000 * level,
                }
            )
    return tables.DEMAND_MINUTE.conform(pl.DataFrame(rows))


def usage(frame_of: str) -> pl.DataFrame:
    rows = []
    steps = DAYS if frame_of == "day" else DAYS * 24
    for step in range(steps):
        for m, model in enumerate(MODELS):
            for t, team in enumerate(TEAMS):
                calls = 900 // (1 + m + t) // (1 if frame_of == "day" else 24)
                row = {
                    "gateway": "litellm",
                    "provider": "vllm",
                    "model": model,
                    "team": team,
                    "status": "ok",
                    "usage_origin": "reported",
                    "requests": calls,
                    "requests_usage_missing": 0,
                    "requests_cache_unknown": 100 // (1 + t) if m else 0,
                    "input_tokens": calls * 4000,
                    "cache_read_tokens": calls * 480,
                    "cache_write_tokens": 0,
                    "uncached_input_tokens": calls * 2100 if m else calls * 3520,
                    "output_tokens": calls * 600,
                    "reasoning_tokens": None,
                    "cost_reported": None,
                    "api_key_alias": f"key {HOSTILE}",
                    "operation": "chat",
                }
                at = (
                    {"day": (START + timedelta(days=step)).date()}
                    if frame_of == "day"
                    else {"hour_at": START + timedelta(hours=step)}
                )
                rows.append(row | at)
        rows += [
            row | at | {"requests": 7, "status": "cancelled", "team": "search"},
            row
            | at
            | {"requests": 11, "response_cache_hit": True, "input_tokens": 44_000, "output_tokens": 0},
            row | at | {"requests": 5, "status": "error", "usage_origin": "estimated", "input_tokens": 9_999},
            row
            | at
            | {
                "requests": 3,
                "status": "error",
                "usage_origin": "missing",
                "requests_usage_missing": 3,
                **dict.fromkeys(
                    ("input_tokens", "output_tokens", "cache_read_tokens", "uncached_input_tokens")
                ),
            },
        ]
    table = tables.USAGE_DAILY if frame_of == "day" else tables.USAGE_HOURLY
    return table.conform(pl.DataFrame(rows, infer_schema_length=None))


def demand_peaks() -> pl.DataFrame:
    at = START + timedelta(days=1, hours=14, minutes=5)
    rows = [
        {
            "scope": scope,
            "measure": measure,
            "window_s": window,
            "value": rate * window if window and sums else rate,
            "per_s": rate if window and sums else None,
            "start_at": at,
            "assumed_ratio": 0.04,
            "basis": "first tokens of 4 % of the calls were assumed",
        }
        for scope in ("all", f"model:{MODELS[0]}")
        for measure, sums, rates in (
            ("input_tokens", True, (44_000, 40_000, 36_000, 34_000, 12_000)),
            ("output_tokens", True, (9_000, 8_000, 5_200, 5_000, 2_000)),
            ("total_tokens", True, (52_000, 47_000, 41_000, 38_000, 14_000)),
            ("requests", True, (40, 12, 3.1, 3.0, 1.1)),
            ("concurrency", False, (96, 92, 88, 80, 30)),
            ("resident_kv_tokens", False, (800_000, 790_000, 760_000, 700_000, 240_000)),
        )
        for window, rate in zip((1, 10, 60, 300, 3600), rates, strict=True)
    ]
    return tables.DEMAND_PEAKS.conform(pl.DataFrame(rows))


def repetition() -> pl.DataFrame:
    whole = {
        "requests": 20_000,
        "hash_chain_requests": 18_000,
        "hash_chain_input_tokens": 72_000_000,
        "prompt_hash_requests": 0,
        "prompt_hash_input_tokens": 0,
        "session_requests": 1_500,
        "session_input_tokens": 6_000_000,
        "none_requests": 500,
        "none_input_tokens": 2_000_000,
        "blocks": 4_500_000,
        "hit_blocks": 3_195_000,
        "seen_before_tokens": 51_120_000,
        "cache_read_tokens": 8_640_000,
        "missed_tokens": 38_000_000,
        "missed_usd": Decimal("1520.123456789012"),
        "block_hit_ratio": 0.71,
        "token_hit_ratio": 0.71,
        "mean_request_hit_ratio": 0.66,
        "upper_bound_tokens": 3_000_000,
        "first_at": START,
        "last_at": START + timedelta(days=6),
    }
    rows = [
        {"scope": "all", **whole},
        {"scope": f"model:{MODELS[0]}", "model": MODELS[0], **whole},
        {"scope": f"team:{TEAMS[2]}", "team": TEAMS[2], **whole, "missed_tokens": None, "missed_usd": None},
    ]
    return tables.REPETITION.conform(pl.DataFrame(rows, infer_schema_length=None))


def cost_lines() -> pl.DataFrame:
    rows = []
    for day in range(DAYS):
        for m, model in enumerate(MODELS):
            for t, team in enumerate(TEAMS):
                for meter, quantity, price in (
                    ("input", 3_600_000, "0.000002"),
                    ("output", 540_000, "0.000008"),
                ):
                    count = quantity // (1 + m + t) + 1
                    rows.append(
                        {
                            "charge_day": (START + timedelta(days=day)).date(),
                            "team": team,
                            "provider": "vllm",
                            "model": model,
                            "meter": meter,
                            "requests": 900 // (1 + m + t),
                            "quantity": count,
                            "unit": "tokens",
                            "unit_price_usd": Decimal(price),
                            "cost_usd": Decimal(price) * count,
                            "basis": "list_price",
                            "price_source": "price table of 2026-11-01",
                        }
                    )
        base = {"charge_day": (START + timedelta(days=day)).date(), "team": None, "provider": None}
        rows.append(
            base
            | {
                "model": "pool:main",
                "meter": "idle",
                "requests": 0,
                "quantity": None,
                "unit": "hours",
                "unit_price_usd": None,
                "cost_usd": Decimal("123.456789012345"),
                "basis": "idle",
                "price_source": "pool main: 20 USD/h",
            }
        )
        rows.append(
            base
            | {
                "team": "search",
                "model": "unheard-of",
                "meter": "request",
                "requests": 12,
                "quantity": 12,
                "unit": "requests",
                "unit_price_usd": None,
                "cost_usd": None,
                "basis": "unpriced",
                "price_source": "no price known",
            }
        )
    frame = pl.DataFrame(
        rows, schema_overrides={"cost_usd": pl.Decimal(38, 12), "unit_price_usd": pl.Decimal(38, 12)}
    )
    return tables.COST_LINES.conform(frame)


def efficiency_hourly() -> pl.DataFrame:
    rows = []
    for hour in range(DAYS * 24):
        at = START + timedelta(hours=hour)
        if GAP[0] <= at < GAP[1]:
            continue
        level = _load(at)
        rows.append(
            {
                "scope": "pool:main",
                "hour_at": at,
                "accelerators": 8,
                "input_tokens": 36e6 * level,
                "uncached_input_tokens": 30e6 * level,
                "output_tokens": 5.4e6 * level,
                "flops": 5e18 * level,
                "bytes": 4e15 * level,
                "busy_s": min(3600.0, 5000 * level),
                "wall_s": 3600.0,
                "mfu_busy_ratio": 0.14 + 0.05 * level,
                "mfu_wall_ratio": 0.14 * min(1.0, 1.4 * level),
                "mbu_busy_ratio": 0.31,
                "energy_j": (1200 + 3600 * level) * 3600,
                "power_w_mean": 1200 + 3600 * level,
                "power_source": "modelled",
                "tokens_per_j": 5.4e6 * level / ((1200 + 3600 * level) * 3600),
                "basis": "FLOPs by formula; power modelled from load",
            }
        )
    return tables.EFFICIENCY_HOURLY.conform(pl.DataFrame(rows))


def fleet_options() -> pl.DataFrame:
    names = ("H100 SXM", "H200", "L40S", None)
    rows = []
    for scenario, scale in (("as_is", 1.0), ("waste_removed", 0.64)):
        for rank, accelerator in enumerate(names, start=1):
            cost = Decimal(str(round(38_900 * scale * (1 + 0.18 * (rank - 1)))))
            ttft = 700.0 + 420 * rank
            rows.append(
                {
                    "scenario": scenario,
                    "pool": "main",
                    "rank": rank,
                    "is_choice": rank == 1,
                    "is_today": rank == 1,
                    "model": "llama-3.3-70b",
                    "accelerator": accelerator,
                    "count": None if accelerator is None else 8,
                    "replicas": None if accelerator is None else 4,
                    "parallelism": None if accelerator is None else "TP2",
                    "precision": None if accelerator is None else "fp8",
                    "serving": "api" if accelerator is None else ("own" if rank == 1 else "cloud"),
                    "usd_per_month": cost,
                    "usd_per_mtok": cost / 20_000,
                    "usd_per_mtok_saturated": cost / 50_000,
                    "power_kw": None if accelerator is None else 6.1,
                    "tokens_per_j": None if accelerator is None else 0.4,
                    "utilisation_ratio": None if accelerator is None else 0.12 * scale,
                    "peak_utilisation_ratio": None if accelerator is None else 0.62 * scale,
                    "ttft_ms_p50": None if accelerator is None else ttft / 2,
                    "ttft_ms_p95": None if accelerator is None else ttft,
                    "ttft_ms_low": None if accelerator is None else ttft * 0.7,
                    "ttft_ms_high": None if accelerator is None else ttft * 1.6,
                    "tpot_ms_p50": None if accelerator is None else 20.0,
                    "tpot_ms_p95": None if accelerator is None else 31.0,
                    "tpot_ms_low": None if accelerator is None else 24.0,
                    "tpot_ms_high": None if accelerator is None else 40.0,
                    "meets_slo": None if accelerator is None else rank < 4,
                    "breaks_first": None if accelerator is None else "bandwidth",
                    "confidence": "medium",
                    "reasons": ["It meets the SLO at the peak"],
                }
            )
    return tables.FLEET_OPTIONS.conform(pl.DataFrame(rows, infer_schema_length=None))


def lengths() -> pl.DataFrame:
    """Inputs and outputs by length; some outputs are empty."""
    bins = [
        ("input", 512, 724, 100, 900),
        ("input", 724, 1024, 500, 900),
        ("input", 1448, 2048, 50, 900),
        ("output", 0, 1, 10, 40),
        ("output", 32, 45, 640, 40),
    ]
    names = ("measure", "from_tokens", "to_tokens", "calls", "p50")
    frame = pl.DataFrame(bins, schema=names, orient="row")
    return frame.with_columns(pl.col("to_tokens").alias(name) for name in ("p95", "p99", "max"))


def _small() -> dict[str, pl.DataFrame]:
    """The marts of few rows."""
    end = START + timedelta(days=DAYS)
    stretches = [
        (START, GAP[0], False, None),
        (*GAP, True, "no file speaks of it"),
        (GAP[1], end, False, None),
    ]
    coverage = pl.DataFrame(stretches, schema=tables.COVERAGE.schema, orient="row")
    curve = pl.DataFrame(
        [
            {
                "scope": scope,
                "replicas": replicas,
                "routing": routing,
                "capacity_blocks": 2**power,
                "mark": "80 GB HBM" if power == 16 and scope != "all" else None,
                "capacity_tokens": 16 * 2**power,
                "capacity_bytes": 2**20 * 2**power if scope != "all" else None,
                "total_capacity_tokens": replicas * 16 * 2**power,
                "block_hit_ratio": most * (1 - math.exp(-(2**power) / 40_000)),
                "block_hit_ratio_error": 0.0,
                "is_sampled": False,
            }
            for scope in ("all", f"model:{MODELS[0]}")
            for replicas, routing, most in (
                (1, "single", 0.71),
                (8, "round_robin", 0.3),
                (8, "prefix_aware", 0.7),
            )
            for power in range(8, 21)
        ]
    )
    oversize = pl.DataFrame(
        [
            {
                "scope": f"model:{MODELS[0]}/team:{team}",
                "rule": rule,
                "threshold_tokens": 40_000,
                "typical_tokens": 3_900,
                "requests": 120,
                "input_tokens": 7_000_000,
                "excess_tokens": 2_200_000,
                "excess_usd": Decimal("4.4"),
                "first_at": START,
                "last_at": end,
            }
            for rule in ("outlier", "context_share")
            for team in ("search", "support")
        ]
    )
    retries = pl.DataFrame(
        [
            {
                "scope": "all",
                "error_kind": kind,
                "attempts": 30,
                "calls": 20,
                "recovered_calls": 15,
                "billed_tokens": billed,
                "estimated_tokens": 9_999,
                "cost_usd": None,
            }
            for kind, billed in (("rate_limit", None), (f"k{HOSTILE}", 1_000))
        ]
    )
    findings = pl.DataFrame(
        [
            {
                "id": f"{kind}/{number}",
                "kind": kind,
                "severity": "high",
                "title": f"{MODELS[1]}, team {TEAMS[2]}: 12 M input tokens had been sent before.",
                "scope": f"team:{TEAMS[2]}",
                "model": MODELS[1],
                "team": TEAMS[2],
                "evidence_level": "hash_chain",
                "requests": 300,
                "tokens": 12_000_000 // (number + 1),
                "usd": usd,
                "application_order": None if usd is None else 4 - number,
                "tokens_net": None if usd is None else 12_000_000 // (number + 1),
                "usd_net": usd,
                "net_basis": None if usd is None else "calls",
                "first_at": START,
                "last_at": end,
                "rows_query": f"SELECT * FROM requests WHERE team = '{TEAMS[2]}'",
                "advice": "Put what is stable first.",
            }
            for number, (kind, usd) in enumerate(
                (("missed_cache", Decimal("910.5")), ("oversize", Decimal(60)), ("session_resend", None))
            )
        ],
        schema_overrides={"usd": pl.Decimal(38, 12)},
    )
    quality = pl.DataFrame(
        [
            {
                "check": "lines are accounted for",
                "severity": "error",
                "passed": True,
                "detail": "17,433 of 17,433",
            },
            {"check": "gaps", "severity": "warning", "passed": False, "detail": "6 h are missing"},
        ]
    )
    frames = {
        "coverage": coverage,
        "cache_curve": curve,
        "oversize": oversize,
        "retries": retries,
        "findings": findings,
        "data_quality": quality,
    }
    return {
        name: next(t for t in tables.MARTS if t.name == name).conform(frame) for name, frame in frames.items()
    }


def manifest() -> pl.DataFrame:
    base = {
        "size_bytes": 1000,
        "content_sha256": "0" * 64,
        "detected_by": "content",
        "first_at": START,
        "last_at": START + timedelta(days=DAYS),
        "ingested_at": START + timedelta(days=8),
    }
    rows = [
        {
            "path": "a.jsonl",
            "format": "litellm",
            "target": "requests",
            "lines": 15_010,
            "rows": 15_000,
            "rejects": 7,
            "other_lines": 3,
        },
        {
            "path": "b.jsonl",
            "format": "litellm",
            "target": "requests",
            "lines": 2_000,
            "rows": 2_000,
            "rejects": 0,
            "other_lines": 0,
        },
        {
            "path": f"c{HOSTILE}.log",
            "format": "vllm",
            "target": "engine_samples",
            "lines": 400,
            "rows": 350,
            "rejects": 0,
            "other_lines": 50,
        },
        {
            "path": "d.txt",
            "format": None,
            "target": None,
            "lines": 23,
            "rows": 0,
            "rejects": 0,
            "other_lines": 23,
            "problem": "cut off",
        },
        {
            "path": "copy.jsonl",
            "format": "litellm",
            "target": "requests",
            "copy_of": "b.jsonl",
            "lines": 2_000,
            "rows": 0,
            "rejects": 0,
            "other_lines": 0,
        },
    ]
    return FILES.conform(pl.DataFrame([base | row for row in rows], infer_schema_length=None))


def task_demand() -> pl.DataFrame:
    """An agent's tasks, chats, and calls by themselves."""
    sizes = {"agent": (40, 2_000, 9_000_000, 2e5, 9e5), "chat": (900, 3_100, 4_000_000, 3_200.0, 9_500.0)}
    rows = [
        {
            "scope": "all",
            "task_class": name,
            "tasks": tasks,
            "calls": calls,
            "tokens": tokens,
            "tokens_mean": tokens / tasks,
            "tokens_p50": p50,
            "tokens_p90": p90,
            "tokens_p99": 2 * p90,
            "chat_turn_tokens": 1_200.0,
            "forecast_tokens": 1_200.0 * tasks,
            "forecast_error": 1_200.0 * tasks / tokens - 1,
        }
        for name, (tasks, calls, tokens, p50, p90) in sizes.items()
    ]
    return TASK_DEMAND.conform(pl.DataFrame(rows))


def demand_profile() -> dict[str, Any]:
    quantiles = {"known": 90, "p50": 100, "p90": 900, "p95": 1500, "p99": 4000, "max": 9000}
    cell = {"input_most": 127, "output_most": 63, "calls": 90, "input_tokens": 9000, "output_tokens": 900}
    start_us = int(START.timestamp() * 1e6)
    clock = {
        "seen": 7,
        "minutes": 420,
        "requests_per_s": 1.5,
        "tokens_per_s": None,
        "busiest_minute_requests": 200,
    }
    tail = {"days": 7, "observed_max": 610.0, "p99": 400.0, "p99_low": 390.0, "p99_high": 420.0, "blocks": 5}
    return {
        "source": "requests",
        "burstiness": [
            {
                "scope": f"model:{HOSTILE}",
                "window_s": 60,
                "windows": 9000,
                "mean_requests": 90.5,
                "dispersion": 120.0,
                "dispersion_within_hour": None,
                "count_cv2": 1.3,
                "interarrival_cv2_p50": 0.9,
                "interarrival_cv2_p90": 1.2,
            }
        ],
        "lengths_together": [
            {
                "scope": "all",
                "calls": 100,
                "quantiles": dict.fromkeys(("input", "uncached_input", "output"), quantiles),
                "rank_correlation": {"input_output": 0.5, "uncached_input_output": None},
                "classes": [cell | {"uncached_input_tokens": None}],
            }
        ],
        "rhythm": {"hour_of_day": [{"hour": 9, **clock}], "weekday": [{"weekday": 1, **clock}]},
        "peak_confidence": [
            {
                "scope": "all",
                "measure": "requests",
                **tail,
                "expected_max": 700.0,
                "expected_max_low": 600.0,
                "expected_max_high": 900.0,
                "factor": 1.475,
                "method": "gumbel",
                "basis": "Gumbel tail of 5 daily maxima",
            }
        ],
        "growth": [
            {
                "measure": "requests_per_s",
                "days": 3,
                "growth_per_week": None,
                "low": None,
                "high": None,
                "basis": "unknown: 3 whole days with demand, a trend needs 4",
            }
        ],
        "cannot_show": [{"what": "month end", "why": "no last day of a month was seen"}],
        "unmet": {
            "failed_attempts": 12,
            "by_kind": {"rate_limited": 10, "overloaded": 2, "timed_out": 0, "server_error": 0},
            "unlinked_attempts": 1,
            "met_later_calls": 5,
            "unmet_calls": 4,
            "requests": {"low": 100, "high": 104},
            "total_tokens": {"low": 9900, "high": None},
            "assumed_token_calls": 4,
            "peaks": [{"window_s": 60, "served": 50, "with_unmet": 52, "start_us": start_us}],
            "saturation": {
                "queue_known_calls": 0,
                "queue_share": None,
                "engine_samples": 90,
                "waiting_share": 0.2,
                "kv_full_share": 0.01,
            },
            "basis": "low = served calls",
        },
        "from_counters": [
            {
                "scope": "all",
                "measure": "generated_tokens",
                "window_s": 60.0,
                "value": 900.0,
                "per_s": 15.0,
                "start_us": start_us,
                "resolution_s": 15.0,
                "left_out": 0.0,
                "basis": "spread evenly between samples: a lower bound",
            }
        ],
    }


@pytest.fixture(scope="session")
def week() -> AuditInputs:
    """Everything known: a whole week with one gap."""
    return AuditInputs(
        title=f"ACME {HOSTILE}",
        files=manifest(),
        duplicates=pl.DataFrame({"format": ["litellm"], "rows": [500]}),
        fleet=FLEET,
        usage_daily=usage("day"),
        usage_hourly=usage("hour"),
        demand_minute=demand_minute(),
        demand_peaks=demand_peaks(),
        repetition=repetition(),
        efficiency_hourly=efficiency_hourly(),
        cost_lines=cost_lines(),
        fleet_options=fleet_options(),
        demand=demand_profile(),
        lengths=lengths(),
        task_demand=task_demand(),
        session_growth=pl.DataFrame(
            {
                "turn": [1, 2, 3, 8, 16],
                "sessions": [900, 900, 500, 60, 2],
                "input_p50": [800, 1500, 2300, 6100, 14_000],
                "input_p90": [1900, 3000, 4800, 13_000, 29_000],
                "input_max": [9000, 12_000, 15_000, 31_000, 40_000],
            }
        ),
        **_small(),
    )


@pytest.fixture(scope="session")
def nothing() -> AuditInputs:
    """No file, no row, no fleet."""
    return AuditInputs(title="nothing")


@pytest.fixture(scope="session")
def trace() -> AuditInputs:
    """A trace like Azure's: arrivals and counts; no cache, model, duration, team, price or fleet."""
    end = START + timedelta(hours=1)
    calls = {
        "model": "unknown",
        "status": "ok",
        "usage_origin": "reported",
        "requests": 19_000,
        "requests_usage_missing": 0,
        "requests_cache_unknown": 19_000,
        "input_tokens": 39_000_000,
        "output_tokens": 530_000,
    }
    minutes = [
        {
            "scope": "all",
            "minute_at": START + timedelta(minutes=index),
            "input_tokens": 650_000.0,
            "output_tokens": 8_800.0,
            "requests": 316,
        }
        for index in range(60)
    ]
    peaks = [
        {
            "scope": "all",
            "measure": "total_tokens",
            "window_s": 60,
            "value": 900_000.0,
            "per_s": 15_000.0,
            "start_at": START + timedelta(minutes=7),
            "assumed_ratio": 1.0,
            "basis": "no durations: tokens stand at the arrival",
        }
    ]
    unpriced = {
        "charge_day": START.date(),
        "model": "unknown",
        "meter": "request",
        "requests": 19_000,
        "quantity": 19_000,
        "unit": "requests",
        "basis": "unpriced",
        "price_source": "the model is unknown",
    }
    return AuditInputs(
        title="Azure trace",
        usage_daily=tables.USAGE_DAILY.conform(pl.DataFrame([calls | {"day": START.date()}])),
        usage_hourly=tables.USAGE_HOURLY.conform(pl.DataFrame([calls | {"hour_at": START}])),
        coverage=pl.DataFrame([(START, end, False, None)], schema=tables.COVERAGE.schema, orient="row"),
        demand_minute=tables.DEMAND_MINUTE.conform(pl.DataFrame(minutes)),
        demand_peaks=tables.DEMAND_PEAKS.conform(pl.DataFrame(peaks)),
        cost_lines=tables.COST_LINES.conform(pl.DataFrame([unpriced])),
    )


@pytest.fixture(scope="session")
def engine_only() -> AuditInputs:
    """Engine logs alone: samples, no request."""
    base = {
        "path": "vllm.log",
        "size_bytes": 10,
        "content_sha256": "0" * 64,
        "format": "vllm",
        "target": "engine_samples",
        "lines": 100,
        "rows": 90,
        "rejects": 0,
        "other_lines": 10,
        "first_at": START,
        "last_at": START + timedelta(minutes=25),
        "ingested_at": START,
    }
    return AuditInputs(title="engine", files=FILES.conform(pl.DataFrame([base])), fleet=FLEET)
