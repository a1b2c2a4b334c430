"""What goes wrong in the example week: failures, disconnects, lost usage, a gap, an overlapping export.

Belongs here: changes to a day's calls and what of them is lost or written twice. Does not belong here: how a
failure is logged (`gateway_log.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.synth.company import KEY_NUMBER, MODEL_NUMBER, MODELS, UNKNOWN
from pipelines.synth.traffic import (
    CANCELLED,
    DAYS_PER_WEEK,
    ERROR,
    HOUR_US,
    OK,
    Bools,
    Calls,
    Day,
    Ints,
    join,
)
from pipelines.synth.waste_kinds import FAILED_ATTEMPTS


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as LiteLLM logs it."""

    http_status: int
    kind: str
    message: str
    normalized: str
    category: str | None = None


NO_FAILURE = Failure(0, "", "", "")
ERRORS = (
    NO_FAILURE,
    Failure(
        500,
        "InternalServerError",
        "litellm.InternalServerError: InternalServerError: Hosted_vllmException - Connection error.",
        "500_PROVIDER_CONNECTION_ERROR",
    ),
    Failure(
        429,
        "RateLimitError",
        "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached for requests",
        "429_RATE_LIMIT_EXCEEDED",
        "vendor_rate_limit",
    ),
    Failure(
        400,
        "ContextWindowExceededError",
        "litellm.ContextWindowExceededError: OpenAIException - the input exceeds the context window",
        "400_CONTEXT_WINDOW_EXCEEDED",
    ),
)
SERVER, RATE_LIMIT, CONTEXT = 1, 2, 3
DISCONNECT_RATIO = 0.015
USAGE_LOST_RATIO = 0.05
RETRY_500_RATIO, RETRY_429_RATIO, FALLBACK_RATIO = 0.012, 0.06, 0.006
LOST_500_RATIO, LOST_400_RATIO = 0.012, 0.03
FALLBACK_MODEL = "gpt-5-mini"

GAP_DAY = 3
GAP_START_US, GAP_END_US = 9 * HOUR_US, 14 * HOUR_US
OVERLAP_DAY = 1
OVERLAP_LINES = 240


def happen(calls: Calls, day: Day) -> Calls:
    """Let a day's share of everything go wrong; failed attempts are added as rows of their own.

    With failed attempts mended nothing fails: only clients hang up and usage goes missing.
    """
    rng = day.rng("incidents")
    portal = calls.model == MODEL_NUMBER["llama-3.3-70b"]
    people = portal & np.isin(calls.key, [KEY_NUMBER["portal-web"], KEY_NUMBER["mobile-app"]])
    _hang_up(calls, _pick(rng, people & (calls.stream == 1), DISCONNECT_RATIO), rng)
    fine = calls.outcome == OK
    mobile = fine & (calls.key == KEY_NUMBER["mobile-app"]) & (calls.stream == 1)
    lost = _pick(rng, mobile, USAGE_LOST_RATIO)
    failed: list[Calls] = []
    if FAILED_ATTEMPTS in day.waste:
        free = fine & people & ~_mask(lost, len(calls))
        fallback = _pick(rng, free, FALLBACK_RATIO)
        retried = _pick(rng, free & ~_mask(fallback, len(calls)), RETRY_500_RATIO)
        labels = fine & (calls.key == KEY_NUMBER["ticket-labels"]) & (calls.is_large == 0)
        limited = _pick(rng, labels, RETRY_429_RATIO)
        failed = [
            _first_attempts(calls, fallback, SERVER, rng),
            _first_attempts(calls, retried, SERVER, rng),
            _first_attempts(calls, limited, RATE_LIMIT, rng),
        ]
        calls.retries[np.concatenate((retried, limited))] = 1
        _fall_back(calls, fallback, rng)
        _fail(calls, _pick(rng, calls.key == KEY_NUMBER["nightly-summaries"], LOST_500_RATIO), SERVER, rng)
        _fail(calls, _pick(rng, calls.key == KEY_NUMBER["legacy-script"], LOST_400_RATIO), CONTEXT, rng)
    for name in ("input", "output", "cache_read", "cache_write", "reasoning"):
        getattr(calls, name)[lost] = UNKNOWN
    return _append(calls, failed) if failed else calls


def _pick(rng: np.random.Generator, among: Bools, ratio: float) -> Ints:
    """A share of the rows, one at least where there are ten."""
    rows = np.flatnonzero(among)
    count = max(round(len(rows) * ratio), int(len(rows) >= 10))  # noqa: PLR2004
    return np.sort(rng.choice(rows, count, replace=False))


def _mask(rows: Ints, length: int) -> Bools:
    mask = np.zeros(length, np.bool_)
    mask[rows] = True
    return mask


def _hang_up(calls: Calls, rows: Ints, rng: np.random.Generator) -> None:
    """The client goes away in the middle of the stream; what was generated until then is logged."""
    kept = rng.uniform(0.05, 0.6, len(rows))
    calls.outcome[rows] = CANCELLED
    calls.output[rows] = np.maximum(1, calls.output[rows] * kept).astype(np.int64)
    rest_us = calls.duration_us[rows] - calls.ttft_us[rows]
    calls.duration_us[rows] = calls.ttft_us[rows] + (rest_us * kept).astype(np.int64)


def _fail(calls: Calls, rows: Ints, error: int, rng: np.random.Generator) -> None:
    """No later attempt helps: the call ends with the error, and no tokens are logged for it."""
    for name in ("input", "output", "cache_read", "reasoning", "stream"):
        getattr(calls, name)[rows] = 0
    calls.outcome[rows] = ERROR
    calls.error[rows] = error
    calls.duration_us[rows] = calls.ttft_us[rows] = rng.integers(3_000, 900_000, len(rows))


def _first_attempts(calls: Calls, rows: Ints, error: int, rng: np.random.Generator) -> Calls:
    """The attempts that failed before `rows` succeeded; moves the success behind the failure."""
    failed = calls.take(rows)
    _fail(failed, np.arange(len(failed)), error, rng)
    calls.started_us[rows] += failed.duration_us + rng.integers(400_000, 2_000_000, len(rows))
    return failed


def _fall_back(calls: Calls, rows: Ints, rng: np.random.Generator) -> None:
    """Another model answers: it has nothing of this prompt in its cache and its own speed."""
    model = MODELS[MODEL_NUMBER[FALLBACK_MODEL]]
    calls.model[rows] = MODEL_NUMBER[FALLBACK_MODEL]
    calls.deployment[rows] = calls.cache_read[rows] = 0
    calls.reasoning[rows] = (calls.output[rows] * model.reasoning_ratio).astype(np.int64)
    calls.fallbacks[rows] = 1
    first_ms = (model.ttft_ms + model.ttft_ms_per_token * calls.input[rows]) * rng.uniform(
        0.9, 1.2, len(rows)
    )
    calls.ttft_us[rows] = (first_ms * 1_000).astype(np.int64)
    calls.duration_us[rows] = calls.ttft_us[rows] + (calls.output[rows] * model.tpot_ms * 1_000).astype(
        np.int64
    )


def _append(calls: Calls, failed: list[Calls]) -> Calls:
    """Add rows that belong to calls of `calls`: their row numbers already point there."""
    pointers = {
        name: np.concatenate([getattr(part, name) for part in (calls, *failed)])
        for name in ("call", "id_call", "trace_call")
    }
    together = join([calls, *failed])
    for name, values in pointers.items():
        setattr(together, name, values)
    return together


def gap_of(day: Day) -> tuple[int, int] | None:
    """Start and end of what the gateway lost on this day, in microseconds since the Unix epoch."""
    if day.number != min(GAP_DAY, day.days - 1):
        return None
    return day.start_us + GAP_START_US, day.start_us + GAP_END_US


def overlap_count(day: Day) -> int:
    """How many of this day's last lines the next day's export begins with again."""
    if day.number != OVERLAP_DAY or day.number + 1 >= day.days:
        return 0
    return max(5, round(OVERLAP_LINES * day.scale * day.days / DAYS_PER_WEEK))
