"""What to change, by the cause of a missed cache read.

Belongs here: one sentence or two per cause. Does not belong here: deciding on the cause (`causes.py`,
`unstable_prompts.py`), advice on findings (`sentences.py`).
"""

from __future__ import annotations

WHAT_TO_CHANGE = {
    "read": "Nothing: these tokens were read from cache.",
    "in_flight": (
        "No miss: the first call with this prefix was still being worked on. Where many calls start together, send one "
        "ahead and the others after its first token."
    ),
    "below_minimum": "Nothing to gain: the provider caches no prefix this short. Do not pad prompts to reach it.",
    "step": "Nothing to gain: the provider cuts cached prefixes to whole steps, and computes the last token always.",
    "no_prefix_cache": "The provider offered no prefix cache on these days: use a model or a route that does.",
    "reads_unknown": "Log cached tokens, so that it can be told what was read.",
    "expired": (
        "The prefix came again after its lifetime. See the gaps between uses: choose the longer lifetime where the net "
        "figure is above 0, or let calls of one prefix follow each other sooner."
    ),
    "model_switch": (
        "The prefix was warm at another model. Keep a conversation on one model; switch between conversations, not within."
    ),
    "region_switch": "The prefix was warm in another region. Pin an application or a session to one region.",
    "account_spread": (
        "The prefix was warm at another provider or organisation. Route calls that share a prefix to one account."
    ),
    "no_cache_control": (
        "The provider caches on request only and these calls did not ask. Mark the end of the stable part (tools, system, "
        "history) with cache_control, or name its cache key."
    ),
    "beyond_breakpoint": (
        "The last breakpoint comes too early: what follows it was sent before and is paid anew each time. Set a breakpoint "
        "at the end of the history, too."
    ),
    "cache_off": (
        "No call to this model reads from the engine's prefix cache. Switch it on (vLLM: --enable-prefix-caching), or let "
        "the engine report cached tokens."
    ),
    "replica_spread": (
        "The prefix was warm at another instance or key. Route by session or by prefix, or share the KV cache between "
        "instances."
    ),
    "evicted": (
        "Other prompts pushed it out. See the cache curve for the room that pays: a larger KV cache, offloading to host "
        "memory, or prefix-aware routing."
    ),
    "unexplained": (
        "It could have been read and was not, and the log shows no reason. Name a cache or routing key where the provider "
        "has one, and compare with the provider's own counts."
    ),
    "volatile_head": (
        "A prompt of the same layout came before, and differs early on: a time, an id or a name stands before what is "
        "stable. Move it to the end of the prompt."
    ),
    "reordered_tools": (
        "The same tools came before in another order. Sort them by name before sending: the order is part of the prefix."
    ),
    "changed_history": (
        "The history was rewritten: edited, cut or summarised. Append only, and compact rarely and in large steps."
    ),
}
