"""What each number of the report means and how it is obtained: the glossary of the section on method.

Belongs here: one definition per anchor that a number may link to; English, as `strings.py`. Does not belong
here: labels and sentences.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """A number of the report: its anchor in the section on method, unit, meaning, and how it is obtained."""

    anchor: str
    term: str
    unit: str
    meaning: str


DEFINITIONS = (
    Definition(
        "window", "Window", "UTC instants", "From the first to the last moment that the logs speak of."
    ),
    Definition(
        "coverage",
        "Coverage",
        "ratio",
        "Share of the window that is not a gap in the data. A quiet stretch is covered; a gap is not.",
    ),
    Definition(
        "requests",
        "Requests",
        "calls",
        "Upstream calls after duplicates were dropped. Served = ok or cancelled. A failed call carries no"
        " tokens "
        "into any sum.",
    ),
    Definition("input", "Input tokens", "tokens", "All prompt tokens of served calls, cached ones included."),
    Definition(
        "cache-read", "Cache reads", "tokens", "Part of the input read from a prefix cache, as reported."
    ),
    Definition(
        "cache-write", "Cache writes", "tokens", "Part of the input written to a prefix cache, as reported."
    ),
    Definition(
        "uncached-input",
        "Uncached input",
        "tokens",
        "Input - cache reads - cache writes, over the calls whose reads are known; the number of others "
        "is stated.",
    ),
    Definition(
        "output", "Output tokens", "tokens", "All generated tokens of served calls, reasoning included."
    ),
    Definition("reasoning", "Reasoning tokens", "tokens", "Part of the output spent on reasoning."),
    Definition(
        "response-cache",
        "From response cache",
        "calls, tokens",
        "Calls that the gateway answered from its own cache. They are usage: they count in tokens, and "
        "neither in "
        "demand nor in cost.",
    ),
    Definition(
        "failed-estimated",
        "Estimated for failed calls",
        "tokens",
        "What a gateway estimated for calls that failed. It stands in no sum.",
    ),
    Definition(
        "rate",
        "Tokens per second",
        "tok/s",
        "Input and output tokens worked on. Uncached input is spread over [start + queue, first token], "
        "output over "
        "[first token, end]; where a time is missing it is assumed as the peak's basis says.",
    ),
    Definition(
        "peak",
        "Peak",
        "per window",
        "Sliding-window maximum: the most that any window of that length holds. Concurrency and resident "
        "KV are means "
        "over the window; window 0 is the highest instant. Windows longer than the data are not reported.",
    ),
    Definition(
        "concurrency",
        "Concurrency",
        "calls",
        "Calls between arrival and end at once, queueing ones included.",
    ),
    Definition(
        "resident-kv",
        "Resident KV tokens",
        "tokens",
        "Input and generated output of the calls in flight. A prefix shared by calls counts once for each.",
    ),
    Definition(
        "seen-before",
        "Seen before",
        "tokens",
        "Input tokens in an unbroken prefix that an earlier call of the same scope had sent. Evidence: "
        "hash chain over "
        "blocks of the prompt, or the hash of a whole prompt.",
    ),
    Definition(
        "missed",
        "Missed cache reads",
        "tokens, USD",
        "Seen before, cacheable by the provider's rule, not yet expired, and not read from cache. Money "
        "is the "
        "difference between the price paid and the price of a cache read.",
    ),
    Definition(
        "evidence",
        "Evidence level",
        "",
        "hash_chain (blocks of the prompt) > prompt_hash (whole prompt) > session (turns of a session) > "
        "none.",
    ),
    Definition(
        "cache-curve",
        "Cache curve",
        "ratio",
        "Share of all prefix blocks that an LRU cache of the given capacity would have held, from stack "
        "distances.",
    ),
    Definition(
        "oversize",
        "Oversize",
        "tokens",
        "Input beyond the threshold of a rule: outlier of its team and model, large for the answer it "
        "gets, above half "
        "of the context, or just above a price step. Rules overlap.",
    ),
    Definition(
        "retries",
        "Failed attempts",
        "calls",
        "Calls with status error, and whether a later attempt succeeded.",
    ),
    Definition(
        "mfu",
        "MFU",
        "ratio",
        "Model FLOPs of the tokens worked on / (time x dense peak of the pool's precision); over busy "
        "time (at least "
        "one call in flight) and over wall time.",
    ),
    Definition("mbu", "MBU", "ratio", "Bytes the model had to read / (busy time x memory bandwidth)."),
    Definition(
        "tokens-per-joule",
        "Tokens per joule",
        "tok/J",
        "Output tokens / energy of the accelerators, over the hours in which both are known. The same "
        "number is tokens "
        "per second per watt.",
    ),
    Definition(
        "power",
        "Power",
        "W",
        "Mean power of a pool's accelerators: measured where device samples cover the hour, else modelled"
        " from load.",
    ),
    Definition(
        "cost",
        "Cost",
        "USD",
        "Reported cost where the source states one, else list price x tokens by class, else amortised "
        "hours of own "
        "hardware; exact decimals. Unpriced calls are counted, never 0.",
    ),
    Definition("unattributed", "Unattributed", "USD", "Cost of calls that name no team, and idle hardware."),
    Definition("idle", "Idle", "USD", "Hours of own hardware with no call in flight."),
    Definition("unpriced", "Unpriced", "calls", "Calls for which no price is known."),
    Definition(
        "month",
        "Per month",
        "USD",
        "730 hours. What the window cost is scaled by 730 h / covered hours; under a day of data nothing "
        "is scaled.",
    ),
    Definition(
        "option-cost",
        "Cost of an option",
        "USD/month, USD/Mtok",
        "Per month of 730 hours, and per million tokens (input + output) at the real load.",
    ),
    Definition(
        "latency",
        "TTFT, TPOT",
        "ms",
        "Time to first token; time per output token. For options: estimates with an interval (low, high) "
        "around p95.",
    ),
    Definition(
        "slo", "SLO", "ms", "The p95 of TTFT and TPOT that fleet.toml promises, or the default it names."
    ),
    Definition(
        "utilisation",
        "Utilisation of an option",
        "ratio",
        "Load / capacity within the SLO: mean, and at the planned peak. Above 100 % the load is not carried.",
    ),
    Definition(
        "confidence",
        "Confidence",
        "",
        "Points against: coverage under 95 % (1) or 80 % (2), under a week (1) or a day (2) of data, "
        "exact evidence for "
        "less than half of the input (1), times assumed for more than 10 % (1), the choice's own figures "
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
        "Waste comes first in the decision where removing it saves 5 % of the monthly cost, or the "
        "dearest finding is 5 % "
        "of the window's cost, or 10 % of the input are missed cache reads.",
    ),
    Definition(
        "finding",
        "Finding",
        "",
        "One thing to change, with its tokens, money, and the SQL that lists its rows.",
    ),
    Definition(
        "lines",
        "Lines",
        "lines",
        "Lines read = requests + sums + samples + rejects + other lines + duplicates. Copies of a file "
        "are not read twice.",
    ),
    Definition("checks", "Checks", "", "Rules that the data must keep; a failed one says what was found."),
)
