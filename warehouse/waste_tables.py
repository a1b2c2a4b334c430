"""Declarations of the marts of the waste stage.

Belongs here: what each one holds, its grain and its columns; scopes are written as `tables.py` says. Does not belong here:
how a mart is computed (`pipelines/waste/`).
"""

from __future__ import annotations

import polars as pl

from parsers.records import COUNT, INSTANT, MONEY, REAL, TEXT, Table
from warehouse.columns import column as _c

REPETITION = Table(
    "repetition",
    "Prompt prefixes sent again, against the cache reads that were reported.",
    "scope (all, each model, each team, each model/team pair)",
    ("scope",),
    (
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c("requests", COUNT, "Served calls in the scope.", nullable=False, minimum=0),
        *(
            _c(f"{level}_{what}", COUNT, f"{words} with evidence {level}.", nullable=False, minimum=0)
            for level in ("hash_chain", "prompt_hash", "session", "none")
            for what, words in (("requests", "Calls"), ("input_tokens", "Input tokens"))
        ),
        _c("blocks", COUNT, "Prefix blocks seen.", minimum=0),
        _c("hit_blocks", COUNT, "Prefix blocks seen before, in an unbroken prefix.", minimum=0),
        _c(
            "seen_before_tokens",
            COUNT,
            "Input tokens in prefixes seen before (exact evidence only).",
            minimum=0,
        ),
        _c("cache_read_tokens", COUNT, "Cache reads reported by calls with exact evidence.", minimum=0),
        _c(
            "missed_tokens",
            COUNT,
            "Seen before, cacheable and not read; null where reads are unknown.",
            minimum=0,
        ),
        _c("missed_usd", MONEY, "Money lost on missed_tokens; null if unpriced or unknown.", minimum=0),
        _c(
            "requests_missed_unknown",
            COUNT,
            "Calls with exact evidence whose missed tokens are unknown: reads not reported, or no prefix cache.",
            nullable=False,
            minimum=0,
        ),
        _c(
            "requests_unpriced",
            COUNT,
            "Calls with missed tokens but without a price.",
            nullable=False,
            minimum=0,
        ),
        _c(
            "requests_rule_assumed",
            COUNT,
            "Calls with missed tokens by a caching rule that is partly assumed.",
            nullable=False,
            minimum=0,
        ),
        _c("block_hit_ratio", REAL, "hit blocks / blocks, pooled.", minimum=0, maximum=1),
        _c("token_hit_ratio", REAL, "seen-before tokens / input tokens, pooled.", minimum=0, maximum=1),
        _c(
            "mean_request_hit_ratio",
            REAL,
            "Mean over calls of the call's own token ratio.",
            minimum=0,
            maximum=1,
        ),
        _c("upper_bound_tokens", COUNT, "Estimate, upper bound, from sessions and counts alone.", minimum=0),
        _c("first_at", INSTANT, "First repeated call."),
        _c("last_at", INSTANT, "Last repeated call."),
    ),
)
CACHE_CURVE = Table(
    "cache_curve",
    "Hit ratio of block LRU caches by capacity, on one and on several replicas.",
    "scope x replicas x routing x capacity",
    ("scope", "replicas", "routing", "capacity_blocks"),
    (
        _c("scope", TEXT, "`all`, or `model:NAME` of the models with most blocks.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("replicas", COUNT, "Caches side by side, of equal size.", nullable=False, minimum=1),
        _c(
            "routing",
            TEXT,
            "Which replica a call goes to; basis says the rule.",
            nullable=False,
            allowed=("single", "round_robin", "session_sticky", "prefix_aware"),
        ),
        _c(
            "capacity_blocks", COUNT, "Blocks that the cache of one replica holds.", nullable=False, minimum=0
        ),
        _c("mark", TEXT, "Name of this capacity: today's pool or a usual memory; null for the others."),
        _c("capacity_tokens", COUNT, "Tokens of one replica, at the mean block size.", minimum=0),
        _c(
            "capacity_bytes",
            COUNT,
            "Bytes of KV cache of one replica; null if the model is unknown.",
            minimum=0,
        ),
        _c("total_capacity_tokens", COUNT, "Tokens of all replicas together.", minimum=0),
        _c("total_capacity_bytes", COUNT, "Bytes of all replicas together; null if unknown.", minimum=0),
        _c("block_hit_ratio", REAL, "Hits / all blocks, pooled.", nullable=False, minimum=0, maximum=1),
        _c(
            "block_hit_ratio_error",
            REAL,
            "Standard error of block_hit_ratio by sampling; 0 where every block was followed.",
            nullable=False,
            minimum=0,
        ),
        _c(
            "token_hit_ratio",
            REAL,
            "Tokens in hits / input, pooled; null without input.",
            minimum=0,
            maximum=1,
        ),
        _c(
            "busiest_replica_ratio",
            REAL,
            "Blocks sent to the busiest replica / mean per replica: 1 is even.",
            nullable=False,
            minimum=1,
        ),
        _c(
            "sample_ratio",
            REAL,
            "Share of the distinct blocks followed.",
            nullable=False,
            minimum=0,
            maximum=1,
        ),
        _c("is_sampled", pl.Boolean, "Whether it was estimated from a sample.", nullable=False),
        _c("basis", TEXT, "Routing rule, sampling and bytes per token, in words.", nullable=False),
    ),
)
OVERSIZE = Table(
    "oversize",
    "Prompts far larger than is usual for their model and team.",
    "scope x rule",
    ("scope", "rule"),
    (
        _c("scope", TEXT, "Leaf, or leaf/project:NAME, leaf/key:NAME.", nullable=False),
        _c("model", TEXT, "Model.", nullable=False),
        _c("team", TEXT, "Team; null if the log names none."),
        _c("rule", TEXT, "outlier, input_output_ratio, context_share or price_cliff.", nullable=False),
        _c("threshold_tokens", COUNT, "Input above which a prompt counts.", nullable=False, minimum=0),
        _c("typical_tokens", COUNT, "Median input of the scope.", minimum=0),
        _c("requests", COUNT, "Calls over the threshold.", nullable=False, minimum=0),
        _c("input_tokens", COUNT, "Their input.", nullable=False, minimum=0),
        _c("excess_tokens", COUNT, "Their input beyond the threshold.", nullable=False, minimum=0),
        _c("excess_usd", MONEY, "Money for the excess; null if unpriced.", minimum=0),
        _c("requests_unpriced", COUNT, "Of these calls, those without a price.", nullable=False, minimum=0),
        _c(
            "excess_kv_token_seconds",
            REAL,
            "KV cache that the excess held: excess x time in flight (estimate); null if no time is known.",
            unit="tokens x s",
            minimum=0,
        ),
        _c(
            "excess_ttft_s",
            REAL,
            "Time to first token that the excess took, in all, by the model's line in ttft_by_input (estimate); null "
            "without one.",
            unit="s",
            minimum=0,
        ),
        _c("first_at", INSTANT, "First such call."),
        _c("last_at", INSTANT, "Last such call."),
    ),
)
RETRIES = Table(
    "retries",
    "Failed attempts and what they carried.",
    "scope x error kind",
    ("scope", "error_kind"),
    (
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("error_kind", TEXT, "Class of error; `unknown` if not logged.", nullable=False),
        _c("attempts", COUNT, "Failed attempts.", nullable=False, minimum=0),
        _c("calls", COUNT, "Calls they belong to.", nullable=False, minimum=0),
        _c("recovered_calls", COUNT, "Calls of which a later attempt succeeded.", nullable=False, minimum=0),
        _c("billed_tokens", COUNT, "Tokens that failed attempts report as used.", minimum=0),
        _c("estimated_tokens", COUNT, "Tokens estimated by the gateway for failed attempts.", minimum=0),
        _c("cost_usd", MONEY, "Cost reported for failed attempts.", minimum=0),
    ),
)
FINDINGS = Table(
    "findings",
    "What to change, ranked by the money it saves on top of what is to be done before it.",
    "one row per finding",
    ("id",),
    (
        _c("id", TEXT, "Stable identifier, kind and scope.", nullable=False),
        _c("kind", TEXT, "Kind of finding.", nullable=False),
        _c(
            "severity",
            TEXT,
            "Share of the money that usd_net is: high from 5 %, medium from 1 %, low from 0.1 %, else info; "
            "without money the share of input tokens, and then never high.",
            nullable=False,
            allowed=("high", "medium", "low", "info"),
        ),
        _c("title", TEXT, "One sentence with its figures.", nullable=False),
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c("application", TEXT, "Project or key of the scope; null if it spans several or has none."),
        _c(
            "evidence_level",
            TEXT,
            "hash_chain, prompt_hash, session, counts, measured or modelled.",
            nullable=False,
        ),
        _c("requests", COUNT, "Calls behind it: as many as rows_query lists.", nullable=False, minimum=0),
        _c("tokens", COUNT, "Tokens concerned, whatever other findings concern.", minimum=0),
        _c("usd", MONEY, "Money it would save alone, over the window; null if unknown.", minimum=0),
        _c(
            "application_order",
            COUNT,
            "Step at which it is applied (1 first); of one step by kind; null if it claims no saving.",
            minimum=1,
        ),
        _c("tokens_net", COUNT, "Tokens concerned that the changes before it have left.", minimum=0),
        _c(
            "usd_net",
            MONEY,
            "Money saved on top of the changes before it: these add up; null if unknown.",
            minimum=0,
        ),
        _c(
            "net_basis",
            TEXT,
            "How net figures were reached: call by call, as a share of what is left in the leaf, or cut to what "
            "was spent in the leaf.",
            allowed=("calls", "leaf_share", "cut_to_spent"),
        ),
        _c(
            "gpu_seconds",
            REAL,
            "Accelerator-seconds of one's own pool that its tokens take, after the changes before it (modelled).",
            unit="s",
            minimum=0,
        ),
        _c(
            "replicas",
            REAL,
            "Replicas of today's pool that it frees at the planned peak, after the changes before it (modelled).",
            minimum=0,
        ),
        _c(
            "capacity_basis",
            TEXT,
            "modelled where gpu_seconds and replicas are known; null where no pool of one's own serves it.",
            allowed=("modelled",),
        ),
        _c("first_at", INSTANT, "First seen."),
        _c("last_at", INSTANT, "Last seen."),
        _c(
            "rows_query",
            TEXT,
            "SQL over the facts and finding_calls that lists the calls behind it.",
            nullable=False,
        ),
        _c("advice", TEXT, "What to do.", nullable=False),
    ),
)
FINDING_CALLS = Table(
    "finding_calls",
    "The calls behind each finding, and what its change saves on each.",
    "finding x call",
    ("finding", "source_file", "source_line"),
    (
        _c("finding", TEXT, "Identifier of the finding.", nullable=False),
        _c("source_file", TEXT, "File of the call.", nullable=False),
        _c("source_line", COUNT, "Line of the call.", nullable=False, minimum=1),
        _c(
            "tokens_net",
            COUNT,
            "Tokens of the call that it concerns, after the changes before it.",
            minimum=0,
        ),
        _c("usd_net", MONEY, "Money it saves on the call, after the changes before it, at list prices."),
    ),
)
