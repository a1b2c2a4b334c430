"""What each number on waste means and how it is obtained: a part of the glossary.

Belongs here: repetition, causes, caches, oversize prompts, applications, tasks. Does not belong here: findings and their
savings (`definitions.py`).
"""

from __future__ import annotations

from reports.definition import Definition

WASTE_DEFINITIONS = (
    Definition(
        "seen-before",
        "Seen before",
        "tokens",
        "Input tokens in an unbroken prefix that an earlier call of the same scope had sent. Evidence: "
        "hash chain over "
        "blocks of the prompt, or the hash of a whole prompt.",
        rows="SELECT * FROM repetition",
    ),
    Definition(
        "missed",
        "Missed cache reads",
        "tokens, USD",
        "Seen before, cacheable by the provider's rule, not yet expired, and not read from cache. Money "
        "is the "
        "difference between the price paid and the price of a cache read.",
        rows="SELECT * FROM repetition WHERE missed_tokens > 0",
    ),
    Definition(
        "missed-cause",
        "Cause of a missed read",
        "tokens, USD",
        "What became of input that an earlier call had sent: read, no miss (in flight, below the minimum, cut by the step), "
        "expired, warm elsewhere, or missed, by the first missed token of a call. The parts of a call add up to what was "
        "seen before. Estimates, marked: prompts that should have begun like an earlier one and did not.",
        rows="SELECT * FROM missed_causes",
    ),
    Definition(
        "reuse-gap",
        "Gap between uses",
        "tokens",
        "Time since a call in the same cache last sent the same prefix, from start to start.",
        rows="SELECT * FROM reuse_gaps ORDER BY scope, gap_order",
    ),
    Definition(
        "longer-lifetime",
        "Net of a longer lifetime",
        "USD",
        "What prefixes that came again after their lifetime would have saved under the longer one that the provider offers, "
        "less its higher price for all writes; by pings, less a read of what is cached in every lifetime. Below 0 it costs.",
        rows="SELECT * FROM reuse_gaps WHERE gap_class = 'all'",
    ),
    Definition(
        "session-history",
        "History sent again",
        "tokens, USD",
        "Input that an earlier call of the same session had sent. What a sliding window, compaction or caching would save "
        "are what-ifs that exclude each other; what shorter histories do to answers is not known here.",
        rows="SELECT * FROM session_history",
    ),
    Definition(
        "evidence",
        "Evidence level",
        "",
        "hash_chain (blocks of the prompt) > prompt_hash (whole prompt) > session (turns of a session) > "
        "none.",
        rows="SELECT * FROM repetition",
    ),
    Definition(
        "cache-curve",
        "Cache curve",
        "ratio",
        "Share of all prefix blocks that an LRU cache of the given capacity would have held, from stack "
        "distances.",
        rows="SELECT * FROM cache_curve ORDER BY scope, capacity_blocks",
    ),
    Definition(
        "oversize",
        "Oversize",
        "tokens",
        "Input beyond the threshold of a rule: outlier of its team and model, large for the answer it "
        "gets, above half "
        "of the context, or just above a price step. Rules overlap. KV cache that the excess holds is the excess x the time "
        "in flight; its TTFT is that of its computed part by the line of its model (both estimates).",
        rows="SELECT * FROM oversize",
    ),
    Definition(
        "retries",
        "Failed attempts",
        "calls",
        "Calls with status error, and whether a later attempt succeeded.",
        rows="SELECT * FROM requests WHERE status = 'error'",
    ),
    Definition(
        "application-waste",
        "Waste by application",
        "calls, tokens, USD",
        "Calls of applications (project, else key, in a model and team) that a rule concerns; the figures are those of "
        "applications that pass its threshold. Money is exact, an upper bound, an estimate or a what-if, as marked.",
        rows="SELECT * FROM application_waste",
    ),
    Definition(
        "kv-held",
        "KV cache held",
        "token-seconds",
        "(input + output / 2) x time from start of work to end, summed over calls; an estimate from the gateway's times.",
        rows="SELECT * FROM kv_held",
    ),
    Definition(
        "ttft-by-input",
        "TTFT by input",
        "ms",
        "Robust line (median of slopes) of measured TTFT over computed input, with its 95 % interval; load is in it.",
        rows="SELECT * FROM ttft_by_input",
    ),
    Definition(
        "task-demand",
        "Tokens of a task",
        "tokens",
        "Input and output of all calls of a session. Agent: ten calls or more with tools, or with a growing input at the "
        "pace of a machine; else chat. Forecast error: (tasks x mean tokens of a chat turn - real) / real.",
        rows="SELECT * FROM task_demand",
    ),
)
