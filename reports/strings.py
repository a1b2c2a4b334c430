"""Every fixed sentence of the report, by key; figures are filled in by name.

Belongs here: English sentences of the decision and its grounds. Does not belong here: titles, labels and words of
the page (`page_strings.py`), which sentence is said (`decision.py`, `decision_grounds.py`), how a number is written
(`numbers.py`). A second language is a second set of these mappings with the same keys.
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
        "fix_only": "Fix {what} first.",
        "undecided": "No change can be recommended yet.",
        "keep": "keep the {option} you have{where}",
        "keep_api": "keep the API{where}",
        "keep_part": "keep {count} of the {option} you have{where} and release the rest",
        "buy": "buy {option}{where}",
        "buy_more": "buy {count} more {accelerator}{where}",
        "rent": "rent {option}{where}",
        "rent_more": "rent {count} more {accelerator}{where}",
        "api": "move to an API{where}",
        "for_pool": " for {pool}",
        "today_unstated": ", if nothing carries it yet",
        "state_fleet": "State in fleet.toml what serves it today to have that judged.",
        "more_pools": "see the options for {count} more pools",
        "keep_apis": "keep the API for {count} models",
        "pools_undecided": "{count} pools can't be judged; {pool}: {reason}. The options tell the others.",
        "pool_undecided": "{pool} can't be judged: {reason}.",
        "missing_requests": "Hardware can't be sized: the logs hold no requests. Add gateway or access logs.",
        "missing_calls": (
            "Hardware can't be sized: the files state sums by period, no calls. Peaks and sizing need logs of calls."
        ),
        "missing_calls_meters": (
            "Hardware can't be sized: the files hold samples of devices or engines, no calls. Add gateway or access logs "
            "of the same time."
        ),
        "missing_calls_engines": (
            "Hardware can't be sized: the files hold engines' own counters, no calls. They tell tokens and load; "
            "peaks, lengths, latencies and waste need gateway or access logs of the same time."
        ),
        "missing_served": (
            "Hardware can't be sized: {calls} failed and none was served. See the failed attempts by kind of error."
        ),
        "missing_times": (
            "Hardware can't be sized: no call has a time. Log when each call began, got its first token and ended."
        ),
        "missing_fleet": (
            "Hardware can't be sized: no fleet.toml says what runs today. State the pools and pass --fleet."
        ),
        "missing_options": (
            "Hardware can't be sized: no option could be worked out from this demand. The options say why."
        ),
        "missing_choice": "{reason}.",
        "missing_choice_fleet": "{reason}; no fleet.toml says what runs today.",
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
        "fix_worth": "Now {now}; the fix is worth up to {after} of it.",
        "same": "Now {now}, and the same after: nothing changes.",
        "as_much": "Now {now}, and about as much after.",
        "after_only": "Now: unknown, {missing}; after the change {after} a month{unfixed}.",
        "window_only": "{total} in the {length} of the window, too short to speak of a month.",
        "as_stated": "As the sources state it for the window: {stated}. No call has a price, so nothing is scaled.",
        "unknown": "Now and after: unknown, {missing}.",
        "after_cache": "Now {now}; {after} a month if the missed cache reads were read.",
        "a_month": "{usd} a month",
        "basis_extrapolated": "extrapolated from {length} of data",
        "basis_fleet": "today's fleet as fleet.toml prices it",
        "no_price": "no call has a price; log costs, or name a CSV of prices in fleet.toml",
        "no_calls": "no call was read",
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
        "waste_missed": " Missed reads cost {usd} a month.",
        "waste_note": " Missed reads cost {usd} a month: too little to come first.",
        "waste_bound": (
            "Up to {bound} of input may be history sent again (upper bound, from sessions). "
            "Log prompts or prefix hashes for the figure."
        ),
        "waste_unknown": (
            "Repetition is unknown: the logs hold no prompts, prefix hashes or sessions. "
            "Log one of them (only keyed hashes are kept)."
        ),
        "failed_all": "All of the {count} calls failed, {part} of them by {kind}: no work was done.",
        "waste_no_served": "Waste is unknown: no call was served.",
        "waste_no_requests": "Waste is unknown: the logs hold no requests. Add gateway logs.",
        "demand_peak": "The real peak is {peak} for {window} ({when}), {times} x the mean.",
        "demand_peak_bare": "The real peak is {peak} for {window} ({when}).",
        "demand_carried": (
            "The real peak is {peak} for {window} ({when}): {share} of what today's fleet carries."
        ),
        "demand_requests": "The real peak is {peak} for {window} ({when}); tokens per second are unknown.",
        "demand_unknown": "The peak is unknown: no call with a time was read. Add gateway or access logs.",
        "demand_engines": (
            "Engines counted {generated} tokens generated and {prompt} prompt tokens; at most {running} calls ran at "
            "once on one of them. The peak over all is unknown."
        ),
        "demand_short": "A peak needs a minute of data at least; the logs span {length}.",
        "efficiency": "Pool {pool}: MFU is {busy} while busy, {wall} over the window; {joule} ({source}).",
        "efficiency_bare": "Pool {pool}: {rate}; MFU is unknown: {basis}.",
        "efficiency_no_fleet": "MFU and energy are unknown: no fleet.toml names the hardware. Pass --fleet.",
        "efficiency_unknown": "MFU and energy are unknown: no demand on the pools of fleet.toml was found.",
        "money_total": "The window cost {total}; {unattributed} of it has no team.",
        "money_all_teams": "The window cost {total}; every part of it has a team.",
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
        "failed": "{share} of the calls failed ({kind} the most).",
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
        "assumed": "first token or end assumed for {share} of the calls",
        "choice": "the recommended hardware's figures are of {level} confidence",
        "no_choice": "no option could be recommended",
        "some_choice": "{count} of {pools} pools without a recommendation",
        "checks": "{count} blocking checks failed",
        "unpriced": "{count} calls without a price",
        "cache_unknown": "cache reads unknown for {share} of the calls",
        "all_good": "a whole window, exact evidence, measured inputs",
    }
)
