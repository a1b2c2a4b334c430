"""Declarations of the marts of the waste stage that speak of applications and tasks.

Belongs here: what each one holds, its grain and its columns. Does not belong here: repetition, oversize prompts, retries
and findings (`waste_tables.py`), how a mart is computed (`pipelines/waste/`).

An application is a project, else a key, within a model and team; its scope is written leaf/project:NAME, leaf/key:NAME or
leaf/key_hash:HASH. Applications of fewer than fifty calls are judged together: their scope is the leaf.
"""

from __future__ import annotations

import polars as pl

from parsers.records import COUNT, INSTANT, MONEY, REAL, TEXT, Table
from warehouse.columns import column as _c

_WHO = (
    _c("scope", TEXT, "Application, else leaf.", nullable=False),
    _c("model", TEXT, "Model.", nullable=False),
    _c("team", TEXT, "Team; null if the log names none."),
    _c("application", TEXT, "Project or key; null if the log names none, or for small ones together."),
)

APPLICATION_WASTE = Table(
    "application_waste",
    "Calls of an application that a rule of waste concerns, below its threshold or not.",
    "scope x kind",
    ("scope", "kind"),
    (
        *_WHO,
        _c(
            "kind",
            TEXT,
            "abandoned_stream, truncated_output, repeated_attempt, timeout, duplicate_embedding, routing_candidate, "
            "reasoning_share, batchable, near_context, output_limit or unbounded_output.",
            nullable=False,
        ),
        _c(
            "basis",
            TEXT,
            "What usd is: exact; an estimate of what would be saved; an upper_bound of it; a what_if at list prices; or "
            "none.",
            nullable=False,
            allowed=("exact", "estimate", "upper_bound", "what_if", "none"),
        ),
        _c("requests_judged", COUNT, "Calls that could be concerned.", nullable=False, minimum=0),
        _c("requests", COUNT, "Calls that are.", nullable=False, minimum=0),
        _c("input_tokens", COUNT, "Their input; null if unknown.", minimum=0),
        _c("output_tokens", COUNT, "Their output; null if unknown for every one.", minimum=0),
        _c("tokens", COUNT, "Tokens that the rule speaks of.", minimum=0),
        _c("usd", MONEY, "Their money; null if unpriced or unknown.", minimum=0),
        _c("requests_unpriced", COUNT, "Of these calls, those without a price.", nullable=False, minimum=0),
        _c("first_at", INSTANT, "First such call."),
        _c("last_at", INSTANT, "Last such call."),
        _c("is_finding", pl.Boolean, "Whether it passes the rule's threshold.", nullable=False),
    ),
)
OUTPUT_LIMITS = Table(
    "output_limits",
    "Length of outputs, the limits that calls ask for, and the share of the context that they need.",
    "scope (application)",
    ("scope",),
    (
        *_WHO,
        _c("requests", COUNT, "Served calls that generate text.", nullable=False, minimum=0),
        _c("requests_output_unknown", COUNT, "Of these, those of unknown output.", nullable=False, minimum=0),
        *(
            _c(f"output_{stat}", COUNT, f"Output tokens, {words}.", unit="tokens", minimum=0)
            for stat, words in (("p50", "median"), ("p99", "99th percentile"), ("max", "largest"))
        ),
        _c(
            "requests_limited",
            COUNT,
            "Calls that state a limit on output; 0 says nothing where the log's format has no limits.",
            nullable=False,
            minimum=0,
        ),
        _c("limit_p50", COUNT, "Median limit of the calls that state one.", unit="tokens", minimum=0),
        _c("limit_to_p99", REAL, "limit_p50 / output_p99.", minimum=0),
        _c("input_p99", COUNT, "Input tokens, 99th percentile.", unit="tokens", minimum=0),
        _c("context_tokens", COUNT, "Context of the model; null if unknown.", minimum=0),
        _c("context_share_p99", REAL, "(input_p99 + output_p99) / context_tokens.", minimum=0),
    ),
)
KV_HELD = Table(
    "kv_held",
    "KV cache that the calls of an application hold: tokens times seconds in flight (estimate).",
    "scope (application)",
    ("scope",),
    (
        *_WHO,
        _c("requests", COUNT, "Served calls that generate text.", nullable=False, minimum=0),
        _c("requests_unknown", COUNT, "Of these, those of unknown duration.", nullable=False, minimum=0),
        _c(
            "kv_token_seconds",
            REAL,
            "Sum of (input + output / 2) x time from start of work to end; null if unknown for every call.",
            unit="token-seconds",
            minimum=0,
        ),
        _c("kv_share", REAL, "Share of what all calls of the model hold.", minimum=0, maximum=1),
        _c("requests_share", REAL, "Share of the model's calls of known duration.", minimum=0, maximum=1),
        _c("mean_kv_tokens", REAL, "KV tokens that one call holds, mean over its time in flight.", minimum=0),
        _c("is_finding", pl.Boolean, "Whether few calls hold most of the model's KV cache.", nullable=False),
        _c("first_at", INSTANT, "First call."),
        _c("last_at", INSTANT, "Last call."),
    ),
)
TTFT_BY_INPUT = Table(
    "ttft_by_input",
    "What input costs in time to first token: a robust line per model (estimate; load and queues are in it).",
    "model",
    ("model",),
    (
        _c("model", TEXT, "Model.", nullable=False),
        _c("requests", COUNT, "Calls with a measured TTFT and known input.", nullable=False, minimum=0),
        _c(
            "requests_reads_unknown",
            COUNT,
            "Of these, calls whose cache reads are unknown: all of their input counts as computed.",
            nullable=False,
            minimum=0,
        ),
        _c(
            "ttft_ms_p50",
            REAL,
            "Median TTFT less the time in queue, where it is logged.",
            unit="ms",
            minimum=0,
        ),
        _c(
            "ms_per_1k_tokens",
            REAL,
            "Slope: ms per 1,000 computed input tokens; negative = none is seen.",
            unit="ms",
        ),
        _c("ms_per_1k_tokens_low", REAL, "Lower end of its 95 % interval.", unit="ms"),
        _c("ms_per_1k_tokens_high", REAL, "Upper end of its 95 % interval.", unit="ms"),
        _c("intercept_ms", REAL, "TTFT that the line gives to no input.", unit="ms"),
    ),
)
TASK_DEMAND = Table(
    "task_demand",
    "Tokens that one task takes, beside those of a chat turn.",
    "scope x class of task",
    ("scope", "task_class"),
    (
        _c("scope", TEXT, "Scope: all, each model, team and leaf.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c(
            "task_class",
            TEXT,
            "agent: many calls, with tools or a growing history at the pace of a machine; chat: other sessions; "
            "single: calls without a session, each its own.",
            nullable=False,
            allowed=("agent", "chat", "single"),
        ),
        _c("tasks", COUNT, "Sessions, or calls without one.", nullable=False, minimum=0),
        _c("calls", COUNT, "Their served calls of known usage.", nullable=False, minimum=0),
        _c("tokens", COUNT, "Their input and output.", nullable=False, minimum=0),
        *(
            _c(f"tokens_{stat}", REAL, f"Tokens of a task, {words}.", unit="tokens", minimum=0)
            for stat, words in (
                ("mean", "mean"),
                ("p50", "median"),
                ("p90", "90th percentile"),
                ("p99", "99th percentile"),
                ("max", "largest"),
            )
        ),
        *(
            _c(f"calls_{stat}", REAL, f"Calls of a task, {words}.", minimum=0)
            for stat, words in (("p50", "median"), ("p90", "90th percentile"), ("max", "largest"))
        ),
        *(
            _c(
                f"duration_s_{stat}",
                REAL,
                f"From a task's first start to its last end, {words}.",
                unit="s",
                minimum=0,
            )
            for stat, words in (("p50", "median"), ("p90", "90th percentile"))
        ),
        *(
            _c(f"concurrency_{stat}", REAL, f"Most calls of a task in flight at once, {words}.", minimum=0)
            for stat, words in (("p50", "median"), ("max", "largest"))
        ),
        _c(
            "chat_turn_tokens",
            REAL,
            "Mean tokens of a call of the classes chat and single: of the scope where it has fifty, else of the whole "
            "log, else null.",
            unit="tokens",
            minimum=0,
        ),
        _c("forecast_tokens", REAL, "Tokens that tasks x chat_turn_tokens forecasts.", minimum=0),
        _c(
            "forecast_error",
            REAL,
            "(forecast_tokens - tokens) / tokens: -0.9 = a forecast by chat turns sees a tenth of the real demand.",
            minimum=-1,
        ),
    ),
)
APPLICATION_MARTS = (APPLICATION_WASTE, OUTPUT_LIMITS, KV_HELD, TTFT_BY_INPUT, TASK_DEMAND)
