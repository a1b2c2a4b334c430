"""Every title, label and word of the page and its charts, by key; figures are filled in by name.

Belongs here: English words. Does not belong here: sentences of the decision (`strings.py`), which chart is drawn
(`*_charts.py`). A second language is a second set of these mappings with the same keys.
"""

from __future__ import annotations

from types import MappingProxyType

SECTIONS = MappingProxyType(
    {
        "decision": "Decision",
        "demand": "Demand",
        "waste": "Waste",
        "efficiency": "Efficiency",
        "money": "Money",
        "options": "Options",
        "sensitivity": "Sensitivity",
        "quality": "Data quality",
        "method": "Method",
    }
)

LEAD = MappingProxyType(
    {
        "demand": "Tokens are spread over the time they were worked on. Peaks are sliding-window maxima.",
        "waste": (
            "What was computed and need not have been. Money stands only where the evidence is exact. "
            "Rules overlap and are not to be added up."
        ),
        "efficiency": "What the hardware did against what it could do, by pool of fleet.toml.",
        "money": (
            "Every total is the sum of its lines. Unattributed, idle and unpriced have lines of their own."
        ),
        "options": "Ways to carry this demand, ranked by cost among those that meet the SLO.",
        "sensitivity": "What would have to change for another option to be the right one.",
        "quality": "What was read, what was not, and which checks failed.",
        "method": "What each number means and how each estimate was made.",
    }
)

ABSENT = MappingProxyType(
    {
        "demand_week": "No heatmap: it needs twelve hours with token counts.",
        "demand_series": "No series: demand per minute is unknown.",
        "demand_duration": "No duration curve: demand per minute is unknown.",
        "demand_concurrency": "No concurrency: no call has a duration.",
        "demand_lengths": "No lengths: no call has a token count.",
        "demand_kv": "No resident KV tokens: no call has both a duration and a token count.",
        "waste_waterfall": "No waterfall: input tokens or cache reads are unknown.",
        "waste_curve": "No cache curve: it needs prefix hashes. Log prompts (only keyed hashes are kept).",
        "waste_sessions": "No growth of sessions: it needs five sessions with ids that reach a third turn.",
        "waste_findings": "No finding exceeds its threshold.",
        "efficiency_mfu": (
            "No MFU or MBU: it needs fleet.toml with the architecture and accelerator of a pool."
        ),
        "efficiency_joule": "No tokens per joule: neither measured nor modelled power is known.",
        "efficiency_power": "No power against throughput: power is unknown.",
        "efficiency_busy": "No busy share: it needs fleet.toml and calls with durations.",
        "money_team": "No cost by team: nothing is priced.",
        "money_model": "No cost by model: nothing is priced.",
        "money_day": "No cost by day: nothing is priced.",
        "money_change": "No comparison of cost: now or after is unknown, or nothing changes.",
        "options_scatter": "No comparison of options: no option has both a cost and a p95 TTFT.",
        "options_cost": "No comparison of options: no option has a cost.",
        "options_break_even": (
            "No break-even: it needs hardware that meets the SLO and an API's price for the same model."
        ),
        "quality_coverage": "No coverage: the stretches with data are unknown.",
        "quality_lines": "No files were read.",
        "sensitivity_flip": "No sensitivity: it needs a recommended option and one to compare it with.",
    }
)

ESTIMATE = MappingProxyType(
    {
        "modelled_power": "estimate: power is modelled, not measured",
        "option": "estimate: step-time model; the reasons say on what it rests",
        "bound": "estimate: upper bound from sessions and counts alone",
        "sampled": "estimate: from a sample of blocks",
        "assumed": "estimate: times of {share} of the calls were assumed",
        "failed": "estimate: counted by the gateway for calls that failed",
        "month": "estimate: extrapolated to a month of 730 hours",
        "cache_unknown": "partial: calls whose cache reads are unknown are left out",
    }
)

CHART = MappingProxyType(
    {
        "week": "The busiest hour runs {rate} ({when})",
        "week_tenth": (
            "The busiest hour runs {rate} ({when}); a tenth of the hours hold {share} of the tokens"
        ),
        "week_note": "Framed: the busiest hour. Hatched: no data.",
        "week_note_cut": "Framed: the busiest hour. Hatched: no data. The last {days} days.",
        "series": "{share} of the minutes run under half the peak",
        "series_flat": "No minute runs under half the peak",
        "series_none": "No token was worked on",
        "series_note": "One point per minute. Hatched: no data. The table holds hours.",
        "series_note_thinned": (
            "Highest minute of every {minutes} min. Hatched: no data. The table holds hours."
        ),
        "peak_minute": "peak minute {rate}",
        "duration": "Nine tenths of the time need at most {rate}",
        "duration_peak": "Nine tenths of the time need at most {rate}; the peak is {peak}",
        "duration_note": "Minutes sorted by rate.",
        "mean": "mean {rate}",
        "load": "At most {top} at once",
        "load_held": "At most {top} at once; a mean of {mean} for {window} ({when})",
        "waterfall": "{share} of the input was computed though it had been sent before",
        "waterfall_none": "{share} of the input was read from cache",
        "waterfall_note": (
            "Response cache left out. Missed reads are known for calls with exact evidence only; "
            "calls whose cache reads are unknown count as computed."
        ),
        "curve": "A cache of {capacity} reaches {ratio} of blocks, nine tenths of the best ({best})",
        "curve_note": "Block LRU over the calls with prefix hashes. Every first sight of a block is a miss.",
        "curve_sampled": "Estimated from a sample of blocks.",
        "findings_usd": "The dearest finding concerns {usd} of the window",
        "findings_tokens": "The largest finding concerns {tokens} tokens; its money is unknown",
        "findings_note": (
            "Findings may overlap: they are not to be added up. {left} without known money are left out."
        ),
        "findings_note_all": "Findings may overlap: they are not to be added up.",
        "mfu": "MFU is {busy} while busy and {wall} over the window ({pool})",
        "mfu_note": "By hour. Hatched: no data.",
        "joule": "{rate} output tokens per joule ({pool}, power {source})",
        "power": "Power runs from {low} to {high} ({pool})",
        "power_note": "One point per hour. Power {source}.",
        "busy": "Pool {pool} had calls in flight for {busy} of the covered time",
        "team": "{name} costs the most: {usd}, {share} of the window",
        "model": "{name} costs the most: {usd}, {share} of the window",
        "day": "The dearest day is {day}: {usd}",
        "change": "Now {now} a month, {after} after",
        "change_note": "Estimates; the sections on money and options say what they rest on.",
        "scatter": "{name} is the cheapest per token that is known to meet the SLO",
        "scatter_none": "No option is known to meet the SLO at a known price",
        "scatter_note": (
            "The {count} best options for {pool} and what runs today. Whiskers: interval of the estimated "
            "p95 TTFT. Dashed: the SLO."
        ),
        "cost": "{name} is recommended at {usd} a month",
        "cost_none": "No option is recommended",
        "cost_note": "The twelve best by rank for {pool} and what runs today, as the load is.",
        "break_even": "{name} costs no more than the API from {tokens} a month on; today's load is {share} of it",
        "break_even_never": "{name} costs more per token than the API ({api} per million) even at full load",
        "break_even_today": "today {tokens}",
        "break_even_note": (
            "For {pool}, at the load's own mix. Hardware costs the same up to what it carries within the SLO, then a "
            "step more; an API costs by the token. The precision and latency of a hosted API may differ."
        ),
        "lengths": "Half of the {measure}s have at most {p50} tokens, 5 % more than {p95}.",
        "lengths_note": "Share of the calls by length.",
        "lengths_note_empty": (
            "Share of the calls by length. {empty} lengths of zero tokens are in the table alone."
        ),
        "growth": (
            "At turn {turn} the median input is {last} tokens, {first} at the first; {share} of the sessions come so far"
        ),
        "growth_note": "Line: median of the sessions at that turn; band: up to p90. Turns of at least {least} sessions.",
        "coverage": "{share} of the window has data",
        "coverage_whole": "The whole window has data",
        "lines": "{share} of the lines that were read became requests, sums or samples",
        "rejects": "{share} of the lines were rejected",
        "others": "{count} others",
        "flip": "The nearest change that flips the choice: {what} by {size}",
        "flip_note": "Estimates, from the options as the load is.",
    }
)
LABEL = MappingProxyType(
    {
        "rate": "tokens per second",
        "rate_mean": "tok/s, mean",
        "rate_high": "tok/s, highest minute",
        "rate_least": "at least this many tokens per second",
        "time_share": "share of the covered time",
        "time": "time ({zone})",
        "hour_of_day": "hour of day ({zone})",
        "day": "day ({zone})",
        "hour": "hour",
        "hour_at": "hour",
        "month_tokens": "tokens a month, input and output",
        "carried_tokens": "tokens a month that it carries",
        "break_even": "costs no more than the API from, tokens a month",
        "api_today": "API, as paid today",
        "api_hosted": "API, list price",
        "own": "owned",
        "cloud": "rented",
        "tokens_of_a_call": "tokens of a call",
        "input_of_a_call": "input tokens of a call",
        "share_of_calls": "share of the calls",
        "below": "below",
        "calls": "calls",
        "output": "output",
        "turn": "turn of the session",
        "sessions": "sessions that came so far",
        "input_p50": "input tokens, median",
        "input_p90": "p90",
        "input_max": "highest",
        "concurrency": "calls in flight, highest",
        "kv": "tokens in KV caches, highest",
        "input": "input",
        "cache_read": "read from cache",
        "computed": "computed",
        "missed": "computed again",
        "needed": "first sight or not judged",
        "tokens": "tokens",
        "step": "step",
        "capacity": "capacity of the cache, tokens",
        "capacity_blocks": "capacity, blocks",
        "block_hits": "blocks found in cache",
        "finding": "finding",
        "money": "USD in the window",
        "money_exact": "USD",
        "pool": "pool",
        "measure": "measure",
        "ratio": "ratio",
        "mfu_busy": "MFU, busy",
        "mfu_wall": "MFU, wall",
        "mbu_busy": "MBU, busy",
        "joule": "output tokens per joule",
        "power": "power of the pool, W",
        "output_rate": "output tokens per second",
        "busy": "calls in flight",
        "no_call": "no call in flight",
        "team": "team",
        "model": "model",
        "charge_day": "day (UTC)",
        "unattributed": "no team",
        "idle": "idle hardware",
        "idle_of": "{pool}, idle",
        "unpriced": "unpriced",
        "month": "USD a month",
        "now": "now",
        "after": "after the change",
        "unfixed": "if the waste stays",
        "option": "option",
        "mtok": "USD per million tokens",
        "ttft": "p95 TTFT, ms",
        "low": "low",
        "high": "high",
        "slo": "meets the SLO",
        "choice": "recommended",
        "today": "today",
        "from": "from",
        "to": "to",
        "state": "state",
        "with_data": "data",
        "gap": "gap",
        "reason": "reason",
        "format": "format",
        "lines": "lines",
        "requests": "requests",
        "samples": "samples",
        "buckets": "sums",
        "rejects": "rejects",
        "other_lines": "other lines",
        "duplicates": "duplicates",
    }
)

FLIP = MappingProxyType(
    {
        "growth": "growth of the peak",
        "price": "price of the choice",
        "growth_detail": "beyond it the peak exceeds what {option} carries within the SLO",
        "price_detail": "beyond it {other} is cheaper",
        "waste_detail": "without the waste the choice is {option}{cost}",
        "waste": "waste removed",
        "at": " at {usd} a month",
        "named": "{what}, {pool}",
    }
)

PAGE = MappingProxyType(
    {
        "product": "tokenworks audit",
        "window": "{start} .. {end} ({zone})",
        "coverage": "coverage",
        "requests": "requests",
        "tokens": "tokens",
        "confidence": "confidence",
        "why": "Why",
        "risks": "Risks",
        "contents": "Contents",
        "table": "Table of the figures",
        "no_script": "Charts need scripts; the tables hold the same figures.",
        "chart_failed": "This chart could not be drawn; the table holds its figures.",
        "definition": "definition",
        "rows": "SQL that lists the rows",
        "rows_note": (
            "After a definition: the SQL that lists the rows behind its numbers, to be run on marts.duckdb; requests is "
            "read_parquet('facts/requests/**/*.parquet') beside it."
        ),
        "more_rows": "{count} more rows stand in audit.json.",
        "estimate": "est.",
        "tokens_table": "Tokens of served calls",
        "tokens_note": (
            "Cache reads are unknown for {cache} of {served} served calls, token counts for {usage}. From the"
            " response "
            "cache: {cached_requests} calls, {cached_input} input, {cached_output} output tokens (in the "
            "sums). Estimated "
            "for failed calls: {failed_requests} calls, {failed_input} input tokens (in no sum)."
        ),
        "peaks_table": "Peaks of all calls",
        "peaks_other": "Peaks by model",
        "prefix": "Repeated prefixes",
        "evidence_table": "By evidence",
        "oversize_table": "Oversize prompts by rule",
        "retries_table": "Failed attempts by kind of error",
        "findings_table": "Findings",
        "pools_table": "Pools",
        "teams_table": "By team",
        "keys_table": "By API key",
        "engines": "What the engines counted themselves",
        "key": "key",
        "no_key": "no key",
        "no_key_idle": "no key, idle hardware included",
        "models_table": "By model",
        "total": "Total of the window",
        "as_is_table": "Options for the load as it is",
        "waste_removed_table": "Options with the waste removed",
        "flips_table": "What flips the choice",
        "checks_table": "Checks",
        "files_table": "Files with problems",
        "lines_sum": (
            "{lines} lines = {requests} requests + {buckets} sums + {samples} samples + {rejects} rejects "
            "+ {other_lines} other lines "
            "+ {duplicates} duplicates; {files} files, {copies} of them copies."
        ),
        "definitions": "Definitions",
        "assumptions": "Assumptions about the site",
        "sources": "Prices",
        "bases": "How estimates were made",
        "versions": "tokenworks {version}, audit.json schema {schema}",
        "none": "none",
        "scope": "scope",
        "measure": "measure",
        "window_s": "window",
        "value": "value",
        "per_s": "per second",
        "start": "begins",
        "assumed": "first token or end assumed",
        "evidence": "evidence",
        "input": "input",
        "uncached_input": "uncached input",
        "cache_read": "cache read",
        "cache_write": "cache write",
        "output": "output",
        "reasoning": "reasoning",
        "rule": "rule",
        "excess": "excess tokens",
        "money": "USD",
        "error_kind": "kind of error",
        "attempts": "attempts",
        "calls": "calls",
        "recovered": "recovered",
        "billed": "billed tokens",
        "estimated": "estimated tokens",
        "severity": "severity",
        "advice": "What to do",
        "accelerators": "accelerators",
        "power": "mean power",
        "source": "power",
        "stated_by": "source",
        "provider": "provider",
        "model": "model",
        "day": "day",
        "costs": "cost as stated",
        "sums": "sums",
        "hours_with_calls": "hours with calls / of the sums",
        "difference": "difference",
        "covered": "calls / sums",
        "output_rate": "output tok/s",
        "busy": "busy",
        "kw": "kW at the wall",
        "load": "peak load",
        "ttft": "TTFT p95",
        "tpot": "TPOT p95",
        "slo": "meets SLO",
        "reasons": "Reasons: recommended, and what runs today",
        "reasons_others": "Reasons, other options",
        "nobody": "no team",
        "nobody_idle": "no team, idle hardware included",
        "lever": "what changes",
        "flips_at": "flips at",
        "consequence": "then",
        "check": "check",
        "passed": "passed",
        "failed": "failed",
        "detail": "found",
        "path": "file",
        "problem": "problem",
        "unit": "unit",
        "choice": "recommended",
        "today": "today",
    }
)
