"""Declarations of the marts: what each one holds, its grain and its columns.

Belongs here: every table of the published DuckDB file, declared with the classes of `parsers/records.py`; those of
the waste stage stand in `waste_tables.py`, `reuse_tables.py` and `application_tables.py`. Does not belong here: how a
mart is computed (`warehouse/sql/<mart>.sql` or a module of its stage).

Scopes are written `all`, `model:NAME`, `team:NAME` or `model:NAME/team:NAME`. "model" means model_served, else
model_requested, else `unknown`; "team" is null where the log names none.
"""

from __future__ import annotations

import polars as pl

from parsers.records import COUNT, INSTANT, MONEY, REAL, TEXT, Table
from warehouse.application_tables import APPLICATION_MARTS
from warehouse.columns import column as _c
from warehouse.reuse_tables import MISSED_CAUSES, REUSE_GAPS, SESSION_HISTORY
from warehouse.waste_tables import CACHE_CURVE, FINDING_CALLS, FINDINGS, OVERSIZE, REPETITION, RETRIES

DAY = pl.Date


_USAGE = (
    _c("requests", COUNT, "Calls.", nullable=False, minimum=0),
    _c("requests_usage_missing", COUNT, "Calls whose token counts are unknown.", nullable=False, minimum=0),
    _c("requests_cache_unknown", COUNT, "Calls whose cache reads are unknown.", nullable=False, minimum=0),
    _c("input_tokens", COUNT, "Input tokens; null if unknown for every call.", minimum=0),
    _c("cache_read_tokens", COUNT, "Cache reads; null if unknown for every call.", minimum=0),
    _c("cache_write_tokens", COUNT, "Cache writes; null if unknown for every call.", minimum=0),
    _c(
        "uncached_input_tokens",
        COUNT,
        "Input - reads - writes of the calls whose reads are known; else null.",
        minimum=0,
    ),
    _c("output_tokens", COUNT, "Output tokens; null if unknown for every call.", minimum=0),
    _c("reasoning_tokens", COUNT, "Reasoning tokens; null if unknown for every call.", minimum=0),
    _c("cost_reported", MONEY, "Cost the source states; null if it states none.", minimum=0),
)
_WHO = (
    _c("gateway", TEXT, "Gateway product."),
    _c("provider", TEXT, "Vendor or engine."),
    _c("model", TEXT, "Model.", nullable=False),
    _c("team", TEXT, "Team."),
    _c("status", TEXT, "Outcome.", nullable=False),
    _c("usage_origin", TEXT, "Origin of the token counts.", nullable=False),
    _c("response_cache_hit", pl.Boolean, "Answered from the gateway's own cache."),
)

USAGE_DAILY = Table(
    "usage_daily",
    "Calls and tokens by day and by who made them.",
    "day x gateway x provider x model x team x key x operation x status x origin x response cache",
    (),
    (
        _c("day", DAY, "UTC day.", nullable=False),
        *_WHO,
        _c("project", TEXT, "Project or application."),
        _c("api_key_hash", TEXT, "Hash of the key."),
        _c("api_key_alias", TEXT, "Name of the key."),
        _c("operation", TEXT, "Kind of call."),
        *_USAGE,
    ),
)
USAGE_HOURLY = Table(
    "usage_hourly",
    "Calls and tokens by hour.",
    "hour x gateway x provider x model x team x status x origin x response cache",
    (),
    (_c("hour_at", INSTANT, "Start of the hour.", nullable=False), *_WHO, *_USAGE),
)
COVERAGE = Table(
    "coverage",
    "Stretches of the window with data and without.",
    "one row per stretch, in order of time, without overlap",
    ("start_at",),
    (
        _c("start_at", INSTANT, "Start of the stretch.", nullable=False),
        _c("end_at", INSTANT, "End of the stretch.", nullable=False),
        _c("is_gap", pl.Boolean, "Whether data is missing there (not: traffic was low).", nullable=False),
        _c("reason", TEXT, "Why the stretch is held to be a gap."),
    ),
)
DEMAND_MINUTE = Table(
    "demand_minute",
    "Tokens worked on per minute, spread over the time they were worked on; load at each moment.",
    "scope x minute; minutes of a gap in the data have no row, quiet minutes have zeros",
    ("scope", "minute_at"),
    (
        _c("scope", TEXT, "`all`, `model:NAME`, or `other models` for all but the largest.", nullable=False),
        _c("minute_at", INSTANT, "Start of the minute.", nullable=False),
        _c("input_tokens", REAL, "Input tokens.", minimum=0),
        _c("uncached_input_tokens", REAL, "Uncached input; null where cache reads are unknown.", minimum=0),
        _c("output_tokens", REAL, "Output tokens.", minimum=0),
        _c("requests", COUNT, "Calls that started.", nullable=False, minimum=0),
        _c("requests_usage_missing", COUNT, "Of them, token counts unknown.", nullable=False, minimum=0),
        _c("requests_cache_unknown", COUNT, "Of them, uncached input unknown.", nullable=False, minimum=0),
        _c("concurrency_mean", REAL, "Mean number of calls in flight; null without durations.", minimum=0),
        _c("concurrency_max", COUNT, "Most calls in flight at once; null without durations.", minimum=0),
        _c("resident_kv_tokens_max", REAL, "Most tokens held in KV caches at once.", minimum=0),
    ),
)
DEMAND_PEAKS = Table(
    "demand_peaks",
    "Sliding-window maxima. Tokens and requests: the sum inside the window. Concurrency and resident KV: the "
    "mean over the window; window 0 is the highest instant.",
    "scope x measure x window",
    ("scope", "measure", "window_s"),
    (
        _c("scope", TEXT, "`all`, `model:NAME`, or `other models` for all but the largest.", nullable=False),
        _c(
            "measure",
            TEXT,
            "What is summed or averaged.",
            nullable=False,
            allowed=(
                "input_tokens",
                "uncached_input_tokens",
                "output_tokens",
                "total_tokens",
                "requests",
                "concurrency",
                "resident_kv_tokens",
            ),
        ),
        _c("window_s", REAL, "Length of the window; 0 = instant.", nullable=False, minimum=0),
        _c("value", REAL, "The maximum.", nullable=False, minimum=0),
        _c("per_s", REAL, "value / window_s for sums; null for means.", minimum=0),
        _c("start_at", INSTANT, "Where the window with the maximum begins.", nullable=False),
        _c("assumed_ratio", REAL, "Share of the requests whose times were assumed.", minimum=0, maximum=1),
        _c("basis", TEXT, "How tokens were placed in time, in words.", nullable=False),
    ),
)
EFFICIENCY_HOURLY = Table(
    "efficiency_hourly",
    "Work done against what the hardware could do.",
    "scope (pool:NAME) x hour",
    ("scope", "hour_at"),
    (
        _c("scope", TEXT, "`pool:NAME` of fleet.toml.", nullable=False),
        _c("hour_at", INSTANT, "Start of the hour.", nullable=False),
        _c("accelerators", COUNT, "Accelerators in the pool.", nullable=False, minimum=0),
        _c("input_tokens", REAL, "Input tokens.", minimum=0),
        _c(
            "uncached_input_tokens", REAL, "Uncached input tokens (input where reads are unknown).", minimum=0
        ),
        _c("output_tokens", REAL, "Output tokens.", minimum=0),
        _c("flops", REAL, "Model FLOPs.", minimum=0),
        _c("bytes", REAL, "Bytes the model had to read.", unit="bytes", minimum=0),
        _c("busy_s", REAL, "Seconds with at least one call in flight.", unit="s", minimum=0),
        _c("wall_s", REAL, "Seconds covered by data.", unit="s", nullable=False, minimum=0),
        _c("mfu_busy_ratio", REAL, "FLOPs / (busy time x dense peak).", minimum=0),
        _c("mfu_wall_ratio", REAL, "FLOPs / (wall time x dense peak).", minimum=0),
        _c("mbu_busy_ratio", REAL, "Bytes / (busy time x bandwidth).", minimum=0),
        _c("energy_j", REAL, "Energy used by the accelerators.", unit="J", minimum=0),
        _c("power_w_mean", REAL, "Mean power of the pool.", unit="W", minimum=0),
        _c("power_source", TEXT, "measured or modelled.", allowed=("measured", "modelled")),
        _c("tokens_per_j", REAL, "Output tokens per joule.", minimum=0),
        _c("basis", TEXT, "How FLOPs, bytes and power were obtained.", nullable=False),
    ),
)
COST_LINES = Table(
    "cost_lines",
    "Money, line by line; every total is a sum of these lines.",
    "day x team x project x key x provider x model x meter x basis",
    (),
    (
        _c("charge_day", DAY, "UTC day.", nullable=False),
        _c("organization", TEXT, "Organisation."),
        _c("team", TEXT, "Team; null = unattributed."),
        _c("project", TEXT, "Project."),
        _c("api_key_hash", TEXT, "Hash of the key."),
        _c("api_key_alias", TEXT, "Name of the key."),
        _c("provider", TEXT, "Provider."),
        _c("model", TEXT, "Model.", nullable=False),
        _c(
            "meter",
            TEXT,
            "input, cache_read, cache_write_5m, cache_write_1h, output, request, idle.",
            nullable=False,
        ),
        _c(
            "requests",
            COUNT,
            "Calls behind the line (counted on every meter's line).",
            nullable=False,
            minimum=0,
        ),
        _c("quantity", COUNT, "Quantity consumed.", minimum=0),
        _c("unit", TEXT, "Unit of the quantity.", nullable=False),
        _c("unit_price_usd", MONEY, "Price of one unit; null if unpriced or not uniform.", minimum=0),
        _c("cost_usd", MONEY, "Cost; null if unpriced.", minimum=0),
        _c(
            "basis",
            TEXT,
            "Where the price comes from.",
            nullable=False,
            allowed=("list_price", "reported", "own_hardware", "idle", "unpriced"),
        ),
        _c("price_source", TEXT, "Price table, its date, and the rule; or why there is none."),
    ),
)
FLEET_OPTIONS = Table(
    "fleet_options",
    "Ways to carry the demand, with what each costs and how it would perform.",
    "scenario x pool x option",
    ("scenario", "pool", "rank"),
    (
        _c("scenario", TEXT, "as_is or waste_removed.", nullable=False, allowed=("as_is", "waste_removed")),
        _c("pool", TEXT, "Pool of fleet.toml, or the model's name where there is no fleet.", nullable=False),
        _c("rank", pl.Int32, "1 = best by cost among those that meet the SLO.", nullable=False, minimum=1),
        _c("is_choice", pl.Boolean, "Whether this is the recommended one.", nullable=False),
        _c("is_today", pl.Boolean, "Whether this is what runs today.", nullable=False),
        _c("model", TEXT, "Model architecture.", nullable=False),
        _c("accelerator", TEXT, "Accelerator; null for an API."),
        _c("count", COUNT, "Accelerators in all; null for an API.", minimum=0),
        _c("replicas", COUNT, "Replicas, the spare one included; null for an API.", minimum=0),
        _c("parallelism", TEXT, "e.g. TP2."),
        _c("precision", TEXT, "e.g. fp8."),
        _c(
            "serving",
            TEXT,
            "How it is paid.",
            nullable=False,
            allowed=("own", "cloud", "reserved", "spot", "api"),
        ),
        _c("usd_per_month", MONEY, "Cost per month of 730 hours; null if no price is known.", minimum=0),
        _c("usd_per_mtok", MONEY, "Cost per million tokens (input + output) at the real load.", minimum=0),
        _c("usd_per_mtok_saturated", MONEY, "The same at the highest load that meets the SLO.", minimum=0),
        _c("power_kw", REAL, "Mean power at the wall, host and PUE included.", unit="kW", minimum=0),
        _c("tokens_per_j", REAL, "Output tokens per joule of accelerator energy.", minimum=0),
        _c("utilisation_ratio", REAL, "Mean load / capacity at the SLO.", minimum=0),
        _c("peak_utilisation_ratio", REAL, "Peak load / capacity at the SLO.", minimum=0),
        *(
            _c(f"{what}_ms_{stat}", REAL, f"{words}, {stat}.", unit="ms", minimum=0)
            for what, words in (("ttft", "Time to first token"), ("tpot", "Time per output token"))
            for stat in ("p50", "p95", "low", "high")
        ),
        _c("meets_slo", pl.Boolean, "Whether the SLO is met at the peak; null if it can't be told."),
        _c("breaks_first", TEXT, "What limits it: compute, bandwidth, memory or latency."),
        _c("confidence", TEXT, "Confidence of the data it rests on: high, medium or low."),
        _c("reasons", pl.List(TEXT), "Why it is (not) chosen, and what it rests on."),
    ),
)
DATA_QUALITY = Table(
    "data_quality",
    "Checks of the data and what they found.",
    "one row per check",
    ("check",),
    (
        _c("check", TEXT, "Name of the check.", nullable=False),
        _c("severity", TEXT, "What a failure means.", nullable=False, allowed=("error", "warning", "info")),
        _c("passed", pl.Boolean, "Outcome.", nullable=False),
        _c("detail", TEXT, "What was found, with figures.", nullable=False),
    ),
)

MARTS = (
    USAGE_DAILY,
    USAGE_HOURLY,
    COVERAGE,
    DEMAND_MINUTE,
    DEMAND_PEAKS,
    REPETITION,
    CACHE_CURVE,
    MISSED_CAUSES,
    REUSE_GAPS,
    SESSION_HISTORY,
    OVERSIZE,
    RETRIES,
    *APPLICATION_MARTS,
    EFFICIENCY_HOURLY,
    COST_LINES,
    FLEET_OPTIONS,
    FINDINGS,
    FINDING_CALLS,
    DATA_QUALITY,
)

REPORTED = tuple(table for table in MARTS if table is not FINDING_CALLS)
"""Marts that a report is made from; the calls behind findings are as many as the log has, and are for queries."""
