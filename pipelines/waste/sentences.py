"""Words of the waste findings: figures, names from logs, reasons and advice.

Belongs here: how a count, an amount and a hostile name are spelled in one line of plain text, and the fixed
    texts.
Does not belong here: escaping for HTML or SQL (`reports`, `rows_query.py`), and the choice of what is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_NAME_LENGTH = 80
_DIGITS = 3

OVERSIZE_REASON = {
    "outlier": "far above what is usual there",
    "input_output_ratio": "far above other prompts, for short answers",
    "context_share": "above half of the model's context",
    "price_cliff": "just above the model's price step",
}
ADVICE = {
    "missed_cache/fleet": (
        "Turn on the engine's prefix cache, give it the room that the cache curve asks for, and route calls "
        "that share a prefix to one instance."
    ),
    "missed_cache/marked": (
        "Mark the stable beginning of the prompt (tools, system, history) for caching and keep it the same "
        "byte for byte. The figure is net of the cost of cache writes."
    ),
    "missed_cache/automatic": (
        "Put what is stable (tools, system, history) first and what changes (time, ids, user) last, and send "
        "calls that share a prefix through one account and region."
    ),
    "rule_assumed": " The provider's caching rule is partly assumed.",
    "cache_unreported": (
        "Log cached tokens; until then check that the prefix cache is on and compare with the engine's "
        "hit counters."
    ),
    "session_resend": (
        "Log prefix hashes to turn this bound into a figure, and keep the beginning of the history unchanged "
        "from turn to turn."
    ),
    "response_cache": (
        "Where the same answer may be given again (same parameters, temperature 0, no personal data), answer from the "
        "gateway's cache."
    ),
    "oversize/outlier": (
        "Find what puts so much into single prompts (whole files, unbounded history, traces) and bound it."
    ),
    "oversize/input_output_ratio": (
        "Send only the passages that the answer needs: retrieve, trim or summarise before the call."
    ),
    "oversize/context_share": (
        "Compact the history or retrieve passages; long contexts cost KV cache and latency as well as money."
    ),
    "oversize/price_cliff": (
        "Trim these prompts by a few per cent: below the step every token costs the lower price."
    ),
    "failed_attempts": (
        "Back off on rate limits, bound retries and time-outs, and spread load over time or deployments."
    ),
}


def figure(value: int) -> str:
    """A count in three significant digits with its SI prefix: 1.24 M."""
    if value < 10**_DIGITS:
        return str(value)
    size, prefix = float(f"{value:.{_DIGITS - 1}e}"), ""
    for larger in ("k", "M", "G", "T"):
        if size < 10**_DIGITS:
            break
        size, prefix = size / 10**3, larger
    whole = len(str(int(size)))
    return f"{size:.{max(_DIGITS - whole, 0)}f} {prefix}"


def shown_name(name: str) -> str:
    """A name from a log for a sentence: printable characters only, cut to 80."""
    printable = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in name)
    return printable if len(printable) <= _NAME_LENGTH else printable[: _NAME_LENGTH - 1] + "…"


def who(row: Mapping[str, Any]) -> str:
    """Model and team of a leaf."""
    team = "no team" if row["team"] is None else f"team {shown_name(row['team'])}"
    return f"{shown_name(row['model'])}, {team}"


def money(usd: Decimal | None) -> str:
    """An amount to the cent."""
    return "money unknown" if usd is None else f"{usd:,.2f} USD"


def percent(part: float, whole: float) -> str:
    """A share in three significant digits."""
    return f"{100 * part / whole:.3g} %" if whole else "0 %"
