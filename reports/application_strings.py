"""Words of the page's tables and chart on applications and tasks.

Belongs here: titles, heads and notes. Does not belong here: the words of the rest of the page (`page_strings.py`), titles
and advice of findings (they come with the figures).
"""

from __future__ import annotations

from types import MappingProxyType

APPLICATIONS = MappingProxyType(
    {
        "heading": "What applications do with their calls",
        "waste_table": "Calls of applications that a rule of waste concerns",
        "held_table": "Who holds the KV cache, in tokens times seconds",
        "ttft_table": "What 1,000 computed input tokens cost in time to first token",
        "tasks_table": "Tokens that a task takes, against a forecast by chat turns",
        "oversize_table": "Oversize prompts by rule",
        "oversize_estimate": "estimate from times of the calls",
        "excess_kv": "KV token-seconds of it",
        "excess_ttft": "s to first token for it",
        "rule": "rule",
        "excess": "excess tokens",
        "input": "input tokens",
        "kind": "kind",
        "findings": "findings",
        "applications": "applications",
        "calls": "calls",
        "tokens": "tokens",
        "usd": "USD",
        "scope": "application",
        "share_of_kv": "share of the model's KV",
        "share_of_calls": "share of its calls",
        "mean_kv": "KV tokens of a call",
        "model": "model",
        "slope": "ms per 1,000 tokens",
        "low": "low (95 %)",
        "high": "high (95 %)",
        "at_none": "ms at no input",
        "class": "class",
        "tasks": "tasks",
        "calls_p50": "calls of a task, p50",
        "p50": "tokens p50",
        "p90": "p90",
        "p99": "p99",
        "mean": "mean",
        "turn": "chat turn",
        "error": "forecast error",
        "held_estimate": "estimate from times of the gateway",
        "upper_bound": "upper bound",
        "estimate": "estimate",
        "what_if": "what-if at list prices",
        "tasks_note": (
            "A forecast of tasks x tokens of a chat turn ({turn}) gives {forecast}; the log has {real}: an error of {error}."
        ),
    }
)

TASKS = MappingProxyType(
    {
        "absent": "No tokens of tasks: no call names its session.",
        "axis": "tokens",
        "what": "what",
        "turn": "chat turn, mean",
        "chat": "chat, {quantile}",
        "agent": "agent's task, {quantile}",
        "chat_title": "A chat takes {p50} at the median, {p90} in one of ten",
        "agent_title": "An agent's task takes {p50} at the median, {p90} in one of ten",
        "against": ": on the mean {turns} times a chat turn of {turn}",
        "note": "Input and output of all calls of a session. What plans by chat turns does not see agents.",
    }
)
