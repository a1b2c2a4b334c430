"""Words of the findings of `application_waste.py`: one title and one advice per kind.

Belongs here: sentences. Does not belong here: spelling of figures and names (`sentences.py`), thresholds (the rules).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pipelines.waste.sentences import figure, money, percent, shown_name, who

Sums = Mapping[str, Any]


def _app(sums: Sums) -> str:
    kind = "project" if sums["app_kind"] == "project" else "key"
    return who(sums) if sums["app"] is None else f"{who(sums)}, {kind} {shown_name(sums['app'])}"


def _calls(sums: Sums) -> str:
    share = percent(sums["requests"], sums["requests_judged"])
    return f"{figure(sums['requests'])} of {figure(sums['requests_judged'])} calls ({share})"


def _tokens(sums: Sums) -> str:
    return "an unknown number of tokens" if sums["tokens"] is None else f"{figure(sums['tokens'])} tokens"


def _seconds(seconds: float) -> str:
    return f"{figure(round(seconds / 3600))} hours" if seconds >= 2 * 3600 else f"{figure(round(seconds))} s"


TITLES: Mapping[str, Callable[[Sums], str]] = {
    "abandoned_stream": lambda s: (
        f"{_app(s)}: the client was gone before the end of {_calls(s)} that had begun to answer; the output until then "
        f"is {_tokens(s)}, {money(s['usd'])}."
    ),
    "truncated_output": lambda s: (
        f"{_app(s)}: {_calls(s)} were cut off at their output limit after {_tokens(s)}, {money(s['usd'])} (upper bound: "
        "part of it may be of use)."
    ),
    "repeated_attempt": lambda s: (
        f"{_app(s)}: {_calls(s)} were answered, and a later attempt of the same call was answered too: {_tokens(s)}, "
        f"{money(s['usd'])} paid twice."
    ),
    "timeout": lambda s: (
        f"{_app(s)}: {_calls(s)} timed out, after {_seconds(s['waited_s'])} of waiting in all; whether the provider "
        "charged them is unknown."
    ),
    "duplicate_embedding": lambda s: (
        f"{_app(s)}: {_calls(s)} embed an input that had been embedded with the same model: {_tokens(s)}, "
        f"{money(s['usd'])}."
    ),
    "routing_candidate": lambda s: (
        f"{_app(s)}: {figure(s['requests'])} calls ({percent(s['simple'], s['requests_judged'])} of its calls are short and "
        f"simple); four of five of them sent to {shown_name(s['small_model'])} instead would save {money(s['usd'])} at list "
        "prices (what-if; quality is not in the log)."
    ),
    "reasoning_share": lambda s: (
        f"{_app(s)}: {s['ratio']:.3g} tokens of reasoning per token of answer, against {s['ratio_of_others']:.3g} of other "
        f"applications of the model: {_tokens(s)} more, {money(s['usd'])} (estimate: its tasks may need it)."
    ),
    "batchable": lambda s: (
        f"{_app(s)}: {figure(s['requests'])} calls that nobody seems to wait for (no streams, no sessions, "
        f"{'at a regular cadence' if s['is_regular'] else 'at night'}) at real-time prices; in batch they would cost "
        f"{money(s['usd'])} less at list prices (what-if)."
    ),
    "near_context": lambda s: (
        f"{_app(s)}: {_calls(s)} leave their answer less than a tenth of the model's context of "
        f"{figure(s['context_tokens'])} tokens (input above {figure(s['near_tokens'])})."
    ),
    "output_limit": lambda s: (
        f"{_app(s)}: the limit on output is {figure(round(s['limit_tokens']))} tokens (median of {figure(s['requests'])} "
        f"calls), while 99 % of its outputs have at most {figure(s['output_p99'])}."
    ),
    "unbounded_output": lambda s: (
        f"{_app(s)}: {figure(s['requests'])} calls without a limit on output wrote more than "
        f"{figure(s['runaway_tokens'])} tokens, far above what is usual there: {_tokens(s)} beyond it, {money(s['usd'])}."
    ),
}
ADVICE: Mapping[str, str] = {
    "abandoned_stream": (
        "Cancel the upstream call when the client goes, answer shorter or faster where people give up, and check the "
        "client's time-out."
    ),
    "truncated_output": "Raise the limit, or ask for shorter answers: what is cut off is thrown away or asked again.",
    "repeated_attempt": (
        "Cancel an attempt before the next one is sent, lengthen the client's time-out, and don't ask several deployments "
        "at once."
    ),
    "timeout": (
        "Stream long answers, set time-outs by the time that such answers take, bound retries, and hold the provider's "
        "bill against these calls."
    ),
    "duplicate_embedding": "Keep vectors by model and hash of the input, and embed only what is new or has changed.",
    "routing_candidate": (
        "Compare the small model's answers on a sample of these calls; if they hold, route them there and keep the large "
        "model for the rest."
    ),
    "reasoning_share": "Lower the reasoning effort or its budget for this application, and compare the answers.",
    "batchable": "Send them to the batch interface if an answer within a day is soon enough.",
    "near_context": (
        "Compact or trim the history before this mark, or choose a model with a longer context: beyond it calls fail or "
        "are cut off."
    ),
    "output_limit": (
        "Set the limit near the longest answer that is needed: engines may reserve KV cache for it, and providers may "
        "count it against rate limits."
    ),
    "unbounded_output": "Set a limit on output: it bounds what a runaway answer costs.",
}
