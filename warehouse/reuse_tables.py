"""Declarations of the marts on prompts sent again: causes of missed reads, gaps between uses, histories of sessions.

Belongs here: what each one holds, its grain and its columns; scopes are written as `tables.py` says. Does not belong here:
repetition itself and the cache curve (`waste_tables.py`), how a mart is computed (`pipelines/waste/`).
"""

from __future__ import annotations

import polars as pl

from parsers.records import COUNT, INSTANT, MONEY, REAL, TEXT, Table
from warehouse.columns import column as _c

MISSED_CAUSES = Table(
    "missed_causes",
    "Why input that had been sent before, or should have been, was not read from cache. The causes that are no estimate "
    "add up to the prefixes sent before.",
    "scope x cause",
    ("scope", "cause"),
    (
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c(
            "cause",
            TEXT,
            "Cause, as `pipelines/waste/causes.py` and `unstable_prompts.py` define it.",
            nullable=False,
        ),
        _c("requests", COUNT, "Calls with tokens under this cause.", nullable=False, minimum=0),
        _c("tokens", COUNT, "Their tokens under it.", unit="tokens", nullable=False, minimum=0),
        _c(
            "usd",
            MONEY,
            "Money lost on them; 0 where none is, null if unpriced or an estimate of tokens.",
            minimum=0,
        ),
        _c("requests_unpriced", COUNT, "Of these calls, those without money.", nullable=False, minimum=0),
        _c("is_estimate", pl.Boolean, "Whether the cause or its tokens are estimated.", nullable=False),
        _c(
            "differing_block",
            COUNT,
            "Median of the first block, from 1, that differs from the prompt before; unstable prompts only.",
            minimum=1,
        ),
        _c("tokens_before", COUNT, "Median of the tokens before that block.", unit="tokens", minimum=0),
        _c("first_at", INSTANT, "First such call."),
        _c("last_at", INSTANT, "Last such call."),
        _c("advice", TEXT, "What to change.", nullable=False),
    ),
)
REUSE_GAPS = Table(
    "reuse_gaps",
    "How long after its last use a prefix comes again, and whether a longer lifetime pays.",
    "scope x gap class, and `all` for all gaps of a scope",
    ("scope", "gap_class"),
    (
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c(
            "gap_class", TEXT, "Longest gap of the class (1 min to 24 h), `longer`, or `all`.", nullable=False
        ),
        _c("gap_order", COUNT, "Place of the class, from 0.", nullable=False, minimum=0),
        _c("reuses", COUNT, "Calls with tokens in the class.", nullable=False, minimum=0),
        _c(
            "tokens",
            COUNT,
            "Tokens that were sent before, by the gap.",
            unit="tokens",
            nullable=False,
            minimum=0,
        ),
        _c(
            "missed_tokens",
            COUNT,
            "Of these, tokens beyond the reads reported, of calls that report them.",
            unit="tokens",
            nullable=False,
            minimum=0,
        ),
        _c(
            "longer_lifetime_tokens",
            COUNT,
            "Tokens that the provider's longer lifetime would have let be read on top (`all` only).",
            unit="tokens",
            minimum=0,
        ),
        _c(
            "longer_lifetime_usd",
            MONEY,
            "Money that it saves, net of its write price; below 0 it costs. Null where there is no choice or no price.",
        ),
        _c("keep_warm_usd", MONEY, "The same by pings that keep the shorter lifetime from ending: modelled."),
    ),
)
SESSION_HISTORY = Table(
    "session_history",
    "Conversations that send a growing history again, and what would shorten it.",
    "scope x evidence",
    ("scope", "evidence"),
    (
        _c("scope", TEXT, "Scope.", nullable=False),
        _c("model", TEXT, "Model of the scope; null if it spans models."),
        _c("team", TEXT, "Team of the scope; null if it spans teams or has none."),
        _c(
            "evidence",
            TEXT,
            "hash_chain (exact) or session (ids and counts: what was sent again is an estimate, at most).",
            nullable=False,
            allowed=("hash_chain", "session"),
        ),
        _c(
            "sessions",
            COUNT,
            "Sessions of at least two calls with calls in the scope.",
            nullable=False,
            minimum=0,
        ),
        _c("requests", COUNT, "Their calls in the scope.", nullable=False, minimum=0),
        _c(
            "branches",
            COUNT,
            "Calls that begin a branch in a session: sub-agents, retries.",
            nullable=False,
            minimum=0,
        ),
        _c("rewritten", COUNT, "Calls that go on with a rewritten history.", nullable=False, minimum=0),
        _c("input_tokens", COUNT, "Their input.", unit="tokens", nullable=False, minimum=0),
        _c(
            "first_input_tokens",
            COUNT,
            "Median input of the first call of a session.",
            unit="tokens",
            minimum=0,
        ),
        _c(
            "last_input_tokens",
            COUNT,
            "Median input of the last call of a session.",
            unit="tokens",
            minimum=0,
        ),
        _c(
            "growth_tokens_per_turn",
            COUNT,
            "Median over sessions of the median growth from a call to the one that continues it.",
            unit="tokens",
        ),
        _c(
            "resent_tokens",
            COUNT,
            "Input that the session had sent before.",
            unit="tokens",
            nullable=False,
            minimum=0,
        ),
        _c("resent_ratio", REAL, "resent tokens / input tokens, pooled.", minimum=0, maximum=1),
        _c(
            "resent_read_tokens",
            COUNT,
            "Of it, read from cache; null where reads are unknown.",
            unit="tokens",
            minimum=0,
        ),
        _c("resent_paid_tokens", COUNT, "Of it, paid in full.", unit="tokens", minimum=0),
        _c(
            "requests_reads_unknown",
            COUNT,
            "Calls that do not say what they read.",
            nullable=False,
            minimum=0,
        ),
        _c(
            "window_tokens",
            COUNT,
            "What-if: input that a sliding window leaves out.",
            unit="tokens",
            minimum=0,
        ),
        _c("window_usd", MONEY, "Money that it saves; below 0 it costs, by lost cache reads."),
        _c(
            "compaction_tokens",
            COUNT,
            "What-if: input that compaction leaves out, net of writing summaries.",
            unit="tokens",
        ),
        _c("compaction_usd", MONEY, "Money that it saves, net of writing the summaries."),
        _c(
            "caching_tokens",
            COUNT,
            "What-if: tokens that could have been read and were not.",
            unit="tokens",
            minimum=0,
        ),
        _c("caching_usd", MONEY, "Money that reading them saves, net of writes.", minimum=0),
        _c("requests_unpriced", COUNT, "Calls without a price.", nullable=False, minimum=0),
        _c("assumed", TEXT, "What the what-ifs assume.", nullable=False),
        _c("first_at", INSTANT, "First such call."),
        _c("last_at", INSTANT, "Last such call."),
    ),
)
