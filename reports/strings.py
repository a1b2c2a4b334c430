"""Every fixed sentence and label of the report, by key; figures are filled in by name.

Belongs here: English words. Does not belong here: which sentence is said (`decision.py`, `page.py`), how a
number is written (`numbers.py`). A second language is a second set of these mappings with the same keys.
"""

from __future__ import annotations

from types import MappingProxyType

UNKNOWN = "unknown"
NO_MODEL = "the calls without a model's name"
"""The pool of calls whose log names no model, in a sentence."""

DECISION = MappingProxyType(
    {
        "fix_then": "Fix {what} first, then {action}.",
        "act": "{action}.",
        "no_purchase": " Do not buy.",
        "fix_only": "Fix {what} first. {missing}",
        "undecided": "No change can be recommended yet. {missing}",
        "keep": "keep the {option} you have{where}",
        "keep_api": "keep the API{where}",
        "keep_part": "keep {count} of the {option} you have{where} and release the rest",
        "buy": "buy {option}{where}",
        "buy_more": "buy {count} more {accelerator}{where}",
        "rent": "rent {option}{where}",
        "rent_more": "rent {count} more {accelerator}{where}",
        "api": "move to an API{where}",
        "for_pool": " for {pool}",
        "today_unstated": " (no fleet.toml says what serves it today)",
        "more_pools": "see the options for {count} more pools",
        "keep_apis": "keep the API for {count} models",
        "pools_undecided": " {count} pools can't be judged: the options say why.",
        "pool_undecided": " {pool} can't be judged: {reason}.",
        "missing_requests": "Hardware can't be sized: the logs hold no requests. Add gateway or access logs.",
        "missing_calls": (
            "Hardware can't be sized: the files state sums by period, no calls. Peaks and sizing need logs of calls."
        ),
        "missing_fleet": (
            "Hardware can't be sized: no fleet.toml says what runs today. State the pools and pass --fleet."
        ),
        "missing_options": (
            "Hardware can't be sized: no option could be worked out from this demand. The options say why."
        ),
        "missing_choice": "No option can be recommended: {reason}.",
        "no_choice_prefix": "No choice: ",
        "missing_choice_reason": "none is known to meet the SLO at a known price",
    }
)
FIXES = MappingProxyType(
    {
        "missed_cache": "the prompt cache",
        "response_cache": "repeated prompts",
        "oversize": "oversize prompts",
        "failed_attempts": "failing calls",
    }
)
FIX_OTHERWISE = "the waste"

MONEY = MappingProxyType(
    {
        "now_after": "Now {now}; {after} a month after the change{unfixed}.",
        "how": "{now} ({basis})",
        "unfixed": " ({unfixed} if the waste stays)",
        "left_out": " Not in it: {pools} ({cost}).",
        "left_out_many": "{count} pools",
        "left_out_unknown": "no known cost",
        "left_out_after": "now unknown, {after} a month after",
        "now_only": "Now {now}; after the change: unknown, {missing}.",
        "same": "Now {now}, and the same after: nothing changes.",
        "as_much": "Now {now}, and about as much after the change.",
        "after_only": "Now: unknown, {missing}; after the change {after} a month{unfixed}.",
        "window_only": "{total} in the {length} of the window, too short to speak of a month.",
        "as_stated": "As the sources state it for the window: {stated}. No call has a price, so nothing is scaled.",
        "unknown": "Money now and after: unknown, {missing}.",
        "after_cache": "Now {now}; {after} a month if the missed cache reads were read.",
        "a_month": "{usd} a month",
        "basis_extrapolated": "extrapolated from {length} of data",
        "basis_fleet": "today's fleet as fleet.toml prices it",
        "no_price": "no call has a price; add prices or costs",
        "no_option": "no option was recommended",
    }
)

REASON = MappingProxyType(
    {
        "waste_exact": (
            "{seen} of input tokens with known prompts had been sent before; "
            "{read} of the input whose cache reads are known was read from cache."
        ),
        "waste_exact_unknown": (
            "{seen} of input tokens with known prompts had been sent before; what was read from cache "
            "is unknown. Log cached tokens."
        ),
        "waste_bound": (
            "Up to {bound} of input may be history sent again (upper bound, from sessions). "
            "Log prompts or prefix hashes for the figure."
        ),
        "waste_unknown": (
            "Repetition is unknown: the logs hold no prompts, prefix hashes or sessions. "
            "Log one of them (only keyed hashes are kept)."
        ),
        "waste_no_requests": "Waste is unknown: the logs hold no requests. Add gateway logs.",
        "demand_peak": "The real peak is {peak} for {window} ({when}), {times} x the mean.",
        "demand_peak_bare": "The real peak is {peak} for {window} ({when}).",
        "demand_carried": (
            "The real peak is {peak} for {window} ({when}): {share} of what today's fleet carries."
        ),
        "demand_requests": "The real peak is {peak} for {window} ({when}); tokens per second are unknown.",
        "demand_unknown": "The peak is unknown: no call with a time was read. Add gateway or access logs.",
        "efficiency": "Pool {pool}: MFU is {busy} while busy, {wall} over the window; {joule} ({source}).",
        "efficiency_bare": "Pool {pool}: {rate}; MFU is unknown: {basis}.",
        "efficiency_no_fleet": "MFU and energy are unknown: no fleet.toml names the hardware. Pass --fleet.",
        "efficiency_unknown": "MFU and energy are unknown: no demand on the pools of fleet.toml was found.",
        "money_total": "The window cost {total}; {unattributed} of it has no team.",
        "money_unpriced": "Cost is unknown: {count} calls have no price. Add prices, or costs to the log.",
        "money_idle": "{share} of the window's cost ({idle} of {total}) is hardware with no call in flight.",
        "money_none": "Cost is unknown: no call that costs money was read.",
    }
)

ENGINE = MappingProxyType(
    {
        "tokens": (
            "Engine {name}: by its own count {generated} tokens generated, {prompt} prompt tokens "
            "({basis}, {source})."
        ),
        "unknown": "Engine {name}: its samples hold no token counts ({source}).",
        "counters": "increase of its counters",
        "windows": "sum of its statistics lines; newer vLLM leaves cached prompt tokens out of them",
        "not_counted": "Another series speaks for the same engine (counters come first); it is not added.",
        "against": (
            "{model}: engines generated {engine} tokens, gateways logged {gateway} in the same hours: "
            "{difference} {more} at the engines. Both count the same work; they are not added."
        ),
        "more": "more",
        "fewer": "fewer",
    }
)

SUMS = MappingProxyType(
    {
        "only": (
            "These files state sums by period and hold no calls: tokens and money by model and day are as stated; "
            "peaks, latencies, waste and sizing need logs of calls."
        ),
        "provisional": "Sums of {source} are provisional from {since} on: the last period may have been growing.",
        "views": (
            "{left} of {sums} sums of {source} are other views of the same usage (by tag, team, key ...): not added."
        ),
        "never_added": (
            "Sums, counters and calls count the same work and are never added. Difference = sums - calls; calls "
            "stand in the hour they began in."
        ),
        "table": "What sources state in sums",
        "days_table": "Sums by day",
        "against_table": "What calls say of the same time",
        "all_models": "all models",
        "from_engines": "engines' counters",
    }
)

RISK = MappingProxyType(
    {
        "gaps": "{count} gaps, {length} in all, are missing from the logs (first: {first}).",
        "one_gap": "{length} are missing from the logs ({first}).",
        "short": "The logs span {length}: a week's peak may be higher. Audit a whole week.",
        "assumed": "The times of {share} of the calls were assumed.",
        "unpriced": "{count} calls have no price and are in no sum.",
        "cache_unknown": "Cache reads are unknown for {share} of the calls. Log cached tokens.",
        "cache_unknown_cost": "Cache reads are unknown for {share} of the calls: their cost is a bound.",
        "usage_missing": "Token counts are missing for {share} of the calls.",
        "headroom": "Growth of the peak above {growth} exceeds what the choice for {pool} carries.",
        "spare_none": "One replica of {pool}: nothing carries the load while it is down.",
        "spare_none_many": "One replica of {pool} and of {count} more: nothing carries the load while it is down.",
        "slo_interval": "The upper end of the estimated p95 TTFT of {pool} ({high}) breaks the SLO ({limit}).",
        "failed_checks": "{count} checks of the data failed ({names}).",
        "bad_files": "{count} files were not read, or not to their end.",
        "impossible": "{problem}.",
        "none": "No risk stands out in the data.",
        "no_requests": "Without requests neither demand nor waste nor cost can be told.",
    }
)

CONFIDENCE = MappingProxyType(
    {
        "coverage": "{coverage} of the window has data",
        "coverage_unknown": "the coverage of the window is unknown",
        "short": "the logs span less than a week",
        "evidence": "exact prompt evidence for {share} of the input",
        "assumed": "times assumed for {share} of the calls",
        "choice": "the recommended hardware's figures are of {level} confidence",
        "no_choice": "no option could be recommended",
        "some_choice": "{count} of {pools} pools without a recommendation",
        "checks": "{count} blocking checks failed",
        "unpriced": "{count} calls without a price",
        "cache_unknown": "cache reads unknown for {share} of the calls",
        "all_good": "a whole window, exact evidence, measured inputs",
    }
)

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
        "demand_kv": "No resident KV tokens: no call has both a duration and a token count.",
        "waste_waterfall": "No waterfall: input tokens or cache reads are unknown.",
        "waste_curve": "No cache curve: it needs prefix hashes. Log prompts (only keyed hashes are kept).",
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
        "money_change": "No comparison of cost: the cost now or after is unknown.",
        "options_scatter": "No comparison of options: no option has both a cost and a p95 TTFT.",
        "options_cost": "No comparison of options: no option has a cost.",
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
        "change_none": "{now} a month, now and after",
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
        "assumed": "times assumed",
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
