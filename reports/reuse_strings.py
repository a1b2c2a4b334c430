"""Words of the page's tables on prompts sent again.

Belongs here: titles, heads and notes of those tables. Does not belong here: the words of the rest of the page
(`page_strings.py`), what to change by cause (it comes with the figures).
"""

from __future__ import annotations

from types import MappingProxyType

REUSE = MappingProxyType(
    {
        "heading": "Why input was not read from cache, and when it came again",
        "note": (
            "Every token of a prompt that had been sent before stands under one cause. Money of expired and switched "
            "prefixes is before what keeping them costs; what prompts would gain by a stable beginning is an estimate and "
            "has no money."
        ),
        "causes_table": "What became of input that had been sent before",
        "gaps_table": "How long after its last use a prefix came again",
        "lifetimes_table": "Longer lifetimes and pings: what they would save, net",
        "histories_table": "Sessions that send their history again, and what would shorten it",
        "cause": "cause",
        "requests": "calls",
        "tokens": "tokens",
        "usd": "USD",
        "parts_at": "parts at",
        "change": "what to change",
        "where": "block {block}, after {tokens} tokens",
        "gap": "gap",
        "up_to": "up to {gap}",
        "seen_before": "tokens seen before",
        "not_read": "of these not read",
        "scope": "scope",
        "more_read": "tokens read on top",
        "longer_usd": "USD by the longer lifetime",
        "keep_warm_usd": "USD by pings",
        "sessions": "sessions",
        "growth": "tokens added a turn",
        "resent": "sent again",
        "resent_paid": "paid in full again",
        "window": "tokens less by a window",
        "window_usd": "USD by a window",
        "compaction": "tokens less by compaction",
        "compaction_usd": "USD by compaction",
        "caching_usd": "USD by caching",
        "estimated_cause": (
            "at most: what would have been seen had the prompt not changed there; evicted: by how deep the cache was read"
        ),
        "pings": "modelled: one read of the prefix each lifetime until its next use",
        "by_counts": "at most: from session ids and counts",
        "what_if": "what-if: {assumed}",
    }
)
