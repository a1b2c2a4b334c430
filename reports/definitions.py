"""What each number of the report means and how it is obtained: the glossary of the section on method.

Belongs here: one definition per anchor that a number may link to; English, as `strings.py`. Does not belong
here: labels and sentences.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """A number of the report: its anchor in the section on method, unit, meaning, and how it is obtained.

    `rows` is the SQL that lists the rows behind it in the warehouse's DuckDB file; empty where the number is made
    of others on the page.
    """

    anchor: str
    term: str
    unit: str
    meaning: str
    rows: str = ""


DEFINITIONS = (
    Definition(
        "window",
        "Window",
        "UTC instants",
        "From the first to the last moment that the logs speak of.",
        rows="SELECT * FROM coverage ORDER BY start_at",
    ),
    Definition(
        "coverage",
        "Coverage",
        "ratio",
        "Share of the window that is not a gap in the data. A quiet stretch is covered; a gap is not.",
        rows="SELECT * FROM coverage ORDER BY start_at",
    ),
    Definition(
        "requests",
        "Requests",
        "calls",
        "Upstream calls after duplicates were dropped. Served = ok or cancelled. A failed call carries no"
        " tokens "
        "into any sum.",
        rows="SELECT * FROM requests",
    ),
    Definition(
        "input",
        "Input tokens",
        "tokens",
        "All prompt tokens of served calls, cached ones included.",
        rows="SELECT * FROM requests WHERE status IN ('ok', 'cancelled')",
    ),
    Definition(
        "cache-read",
        "Cache reads",
        "tokens",
        "Part of the input read from a prefix cache, as reported.",
        rows="SELECT * FROM requests WHERE cache_read_tokens > 0",
    ),
    Definition(
        "cache-write",
        "Cache writes",
        "tokens",
        "Part of the input written to a prefix cache, as reported.",
        rows="SELECT * FROM requests WHERE cache_write_5m_tokens > 0 OR cache_write_1h_tokens > 0",
    ),
    Definition(
        "uncached-input",
        "Uncached input",
        "tokens",
        "Input - cache reads - cache writes, over the calls whose reads are known; the number of others "
        "is stated.",
        rows="SELECT * FROM requests WHERE status IN ('ok', 'cancelled') AND cache_read_tokens IS NOT NULL",
    ),
    Definition(
        "output",
        "Output tokens",
        "tokens",
        "All generated tokens of served calls, reasoning included.",
        rows="SELECT * FROM requests WHERE status IN ('ok', 'cancelled')",
    ),
    Definition(
        "reasoning",
        "Reasoning tokens",
        "tokens",
        "Part of the output spent on reasoning.",
        rows="SELECT * FROM requests WHERE reasoning_tokens > 0",
    ),
    Definition(
        "response-cache",
        "From response cache",
        "calls, tokens",
        "Calls that the gateway answered from its own cache. They are usage: they count in tokens, and "
        "neither in "
        "demand nor in cost.",
        rows="SELECT * FROM requests WHERE response_cache_hit",
    ),
    Definition(
        "failed-estimated",
        "Estimated for failed calls",
        "tokens",
        "What a gateway estimated for calls that failed. It stands in no sum.",
        rows="SELECT * FROM requests WHERE status = 'error' AND usage_origin = 'estimated'",
    ),
    Definition(
        "rate",
        "Tokens per second",
        "tok/s",
        "Input and output tokens worked on. Uncached input is spread over [start + queue, first token], "
        "output over "
        "[first token, end]; where a time is missing it is assumed as the peak's basis says.",
        rows="SELECT * FROM demand_minute ORDER BY scope, minute_at",
    ),
    Definition(
        "peak",
        "Peak",
        "per window",
        "Sliding-window maximum: the most that any window of that length holds. Concurrency and resident "
        "KV are means "
        "over the window; window 0 is the highest instant. Windows longer than the data are not reported.",
        rows="SELECT * FROM demand_peaks ORDER BY scope, measure, window_s",
    ),
    Definition(
        "concurrency",
        "Concurrency",
        "calls",
        "Calls between arrival and end at once, queueing ones included.",
        rows="SELECT * FROM demand_minute ORDER BY concurrency_max DESC",
    ),
    Definition(
        "resident-kv",
        "Resident KV tokens",
        "tokens",
        "Input and generated output of the calls in flight. A prefix shared by calls counts once for each.",
        rows="SELECT * FROM demand_minute ORDER BY resident_kv_tokens_max DESC",
    ),
    Definition(
        "length",
        "Lengths",
        "tokens",
        "Input and output tokens of each call that an engine or a provider worked on. Quantiles are lengths that "
        "occur; calls of unknown length are left out.",
        rows="SELECT * FROM requests WHERE status IN ('ok', 'cancelled') ORDER BY input_tokens DESC",
    ),
    Definition(
        "session-growth",
        "Growth of sessions",
        "tokens",
        "Input of the n-th call of a session, over the sessions of two calls or more that come so far.",
        rows="SELECT * FROM requests WHERE session_id IS NOT NULL ORDER BY session_id, started_at",
    ),
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
        "of the context, or just above a price step. Rules overlap.",
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
        "mfu",
        "MFU",
        "ratio",
        "Model FLOPs of the tokens worked on / (time x dense peak of the pool's precision); over busy "
        "time (at least "
        "one call in flight) and over wall time.",
        rows="SELECT * FROM efficiency_hourly ORDER BY scope, hour_at",
    ),
    Definition(
        "mbu",
        "MBU",
        "ratio",
        "Bytes the model had to read / (busy time x memory bandwidth).",
        rows="SELECT * FROM efficiency_hourly ORDER BY scope, hour_at",
    ),
    Definition(
        "tokens-per-joule",
        "Tokens per joule",
        "tok/J",
        "Output tokens / energy of the accelerators, over the hours in which both are known. The same "
        "number is tokens "
        "per second per watt.",
        rows="SELECT * FROM efficiency_hourly WHERE energy_j > 0",
    ),
    Definition(
        "power",
        "Power",
        "W",
        "Mean power of a pool's accelerators: measured where device samples cover the hour, else modelled"
        " from load.",
        rows="SELECT * FROM efficiency_hourly WHERE power_w_mean IS NOT NULL",
    ),
    Definition(
        "cost",
        "Cost",
        "USD",
        "Reported cost where the source states one, else list price x tokens by class, else amortised "
        "hours of own "
        "hardware; exact decimals. Unpriced calls are counted, never 0.",
        rows="SELECT * FROM cost_lines",
    ),
    Definition(
        "unattributed",
        "Unattributed",
        "USD",
        "Cost of calls that name no team, and idle hardware.",
        rows="SELECT * FROM cost_lines WHERE team IS NULL",
    ),
    Definition(
        "idle",
        "Idle",
        "USD",
        "Hours of own hardware with no call in flight.",
        rows="SELECT * FROM cost_lines WHERE basis = 'idle'",
    ),
    Definition(
        "unpriced",
        "Unpriced",
        "calls",
        "Calls for which no price is known.",
        rows="SELECT * FROM cost_lines WHERE basis = 'unpriced'",
    ),
    Definition(
        "month",
        "Per month",
        "USD",
        "730 hours. What the window cost is scaled by 730 h / covered hours; under a day of data nothing "
        "is scaled.",
        rows="SELECT * FROM fleet_options WHERE is_today OR is_choice",
    ),
    Definition(
        "option-cost",
        "Cost of an option",
        "USD/month, USD/Mtok",
        "Per month of 730 hours, and per million tokens (input + output) at the real load.",
        rows="SELECT * FROM fleet_options ORDER BY scenario, pool, rank",
    ),
    Definition(
        "break-even",
        "Break-even",
        "tokens/month",
        "Tokens a month at which hardware costs what the API costs for them, if that many fit on it within the SLO.",
        rows="SELECT * FROM fleet_options WHERE scenario = 'as_is' AND usd_per_mtok IS NOT NULL",
    ),
    Definition(
        "latency",
        "TTFT, TPOT",
        "ms",
        "Time to first token; time per output token. For options: estimates with an interval (low, high) "
        "around p95.",
        rows="SELECT * FROM fleet_options WHERE ttft_ms_p95 IS NOT NULL",
    ),
    Definition(
        "slo", "SLO", "ms", "The p95 of TTFT and TPOT that fleet.toml promises, or the default it names."
    ),
    Definition(
        "utilisation",
        "Utilisation of an option",
        "ratio",
        "Load / capacity within the SLO: mean, and at the planned peak. Above 100 % the load is not carried.",
        rows="SELECT * FROM fleet_options WHERE peak_utilisation_ratio IS NOT NULL",
    ),
    Definition(
        "confidence",
        "Confidence",
        "",
        "Points against: coverage under 95 % (1) or 80 % (2), under a week (1) or a day (2) of data, "
        "exact evidence for "
        "less than half of the input (1), the first token or the end assumed for more than 10 % of the calls (1), "
        "the choice's own figures "
        "medium (1) or "
        "low (2), cache reads unknown for more than 20 % (1), more than 5 % of calls without a "
        "price (1), no choice (3) or not for every pool (1), a"
        " blocking "
        "check failed (3). 0 = high, 1 or 2 = medium, more = low.",
    ),
    Definition(
        "material",
        "Fix first",
        "",
        "Waste comes first in the decision where 10 % of the input are missed cache reads, or the dearest "
        "finding or all waste together is 5 % of the cost, and where it is worth 100 USD a month (100 M tokens a "
        "month where they have no price). Less than a day of data counts as a day. What is below is a note.",
    ),
    Definition(
        "enough",
        "Enough data to size by",
        "",
        "A change of hardware is advised from 1,000 calls and a day of data on; with less than a day only where what "
        "runs today does not carry the load. Where nothing of one's own runs yet, the load must fill 1 % of what "
        "would be bought or rented.",
    ),
    Definition(
        "finding",
        "Finding",
        "",
        "One thing to change, with its tokens, money, and the SQL that lists its rows.",
        rows="SELECT * FROM findings",
    ),
    Definition(
        "lines",
        "Lines",
        "lines",
        "Lines read = requests + sums + samples + rejects + other lines + duplicates. Copies of a file "
        "are not read twice.",
    ),
    Definition(
        "checks",
        "Checks",
        "",
        "Rules that the data must keep; a failed one says what was found.",
        rows="SELECT * FROM data_quality",
    ),
)
