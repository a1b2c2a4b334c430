"""When calls arrive and how large they are: the ordinary traffic of the example week.

Belongs here: `Calls` (a day of calls as arrays), rhythms, sizes, speed, the launch-day burst. Does not belong
here: what is sent again and again (`sessions.py`), what goes wrong (`incidents.py`), text (`prompts.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.synth.company import (
    ALL_WEEKLY,
    BURST_WEEKLY,
    CAPPED_WEEKLY,
    KEY_NUMBER,
    MODEL_NUMBER,
    MODELS,
    PORTAL,
    REQUESTS_PER_WEEK,
    UNKNOWN,
    Sizes,
    Workload,
)
from pipelines.synth.prompts import REDACTED, TextPool, messages
from pipelines.synth.waste_kinds import ALL, UNSTATED_READS

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
DAYS_PER_WEEK, _SATURDAY = 7, 5
OK, CANCELLED, ERROR, RESPONSE_CACHE = range(4)
VLLM_BLOCK = 16
"""Tokens in a block of the own engines' prefix cache."""
LAUNCH_WEEKDAY = 2
LAUNCH_US = 15 * HOUR_US
"""The launch: Wednesday, 15:00 UTC; the rush peaks 5.5 minutes later and is over after 11."""

_RHYTHMS: dict[str, tuple[tuple[float, ...], float]] = {
    # Weight of each hour (UTC) and weight of a day of the weekend against a working day.
    "people": ((1, 0.6, 0.4, 0.4, 0.5, 1, 2, 4, 6, 7, 7, 6, 6, 7, 7, 7, 6, 6, 7, 8, 8, 6, 4, 2), 0.6),
    "office": ((0, 0, 0, 0, 0, 0, 0.3, 2, 7, 9, 9, 8, 5, 8, 9, 9, 7, 4, 1.5, 0.6, 0.3, 0, 0, 0), 0.08),
    "night": ((0, 6, 6, 3, *([0.0] * 20)), 1.0),
    "index": ((0, 0, 0, 20, 10, *([0.7] * 19)), 1.0),
    "flat": ((1.0,) * 24, 1.0),
}


@dataclass
class Calls:
    """Calls as parallel arrays of one length; `call`, `id_call`, `trace_call` are row numbers of this object.

    Attributes:
        bodies: the messages as JSON text.
        started_us: microseconds since the Unix epoch; ttft_us and duration_us: microseconds from there.
        key, model: numbers in KEYS and MODELS.
        deployment: number in the model's deployments.
        input, cache_read, cache_write, output, reasoning: tokens, -1 where the log states none.
        outcome: OK, CANCELLED, ERROR or RESPONSE_CACHE; error: number in ERRORS of `incidents.py`.
        call: attempts of one call share it. id_call: the call whose response id it has.
        trace_call: the call whose trace it is in; in_session: 1 if that trace is a session.
        prefix: tokens of the leading messages (system text, document) that a session sends every time.
        system: the part of prefix that all sessions of the key share.
        is_large: 1 for a prompt far too big for its task.
        limit: most output tokens that the call allows; 0 where it does not say. is_batch: 1 for a call of a batch.
        prompt: number of the whole prompt, the same for calls of one key that send the same; 0 where none does.

    """

    bodies: list[str]
    started_us: Ints
    ttft_us: Ints
    duration_us: Ints
    key: Ints
    model: Ints
    deployment: Ints
    input: Ints
    cache_read: Ints
    cache_write: Ints
    output: Ints
    reasoning: Ints
    stream: Ints
    outcome: Ints
    error: Ints
    retries: Ints
    fallbacks: Ints
    call: Ints
    id_call: Ints
    trace_call: Ints
    in_session: Ints
    prefix: Ints
    system: Ints
    is_large: Ints
    prompt: Ints
    limit: Ints
    is_batch: Ints

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.bodies)

    def take(self, rows: Ints | Bools) -> Calls:
        """The rows named by an index or a mask; row numbers inside keep pointing at this object's rows."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Calls(
            [self.bodies[row] for row in index], **{name: getattr(self, name)[index] for name in ARRAYS}
        )

    @property
    def ended_us(self) -> Ints:
        """When the calls ended, in microseconds since the Unix epoch."""
        return self.started_us + self.duration_us


ARRAYS = tuple(item.name for item in fields(Calls) if item.name != "bodies")
_POINTERS = ("call", "id_call", "trace_call")


def calls_of(bodies: list[str], **given: Ints) -> Calls:
    """Calls with the arrays that are given; the others say that nothing special happened."""
    rows = len(bodies)
    arrays = {name: np.zeros(rows, np.int64) for name in ARRAYS}
    arrays |= {name: np.arange(rows) for name in _POINTERS}
    arrays["cache_write"] = np.full(rows, UNKNOWN)
    return Calls(bodies, **(arrays | given))


def join(parts: list[Calls]) -> Calls:
    """All rows on end; row numbers are moved along."""
    offsets = np.concatenate(([0], np.cumsum([len(part) for part in parts])))
    columns: dict[str, Any] = {}
    for name in ARRAYS:
        shift = offsets if name in _POINTERS else np.zeros(len(offsets), np.int64)
        columns[name] = np.concatenate(
            [getattr(part, name) + shift[number] for number, part in enumerate(parts)]
            or [np.empty(0, np.int64)]
        )
    return Calls([body for part in parts for body in part.bodies], **columns)


@dataclass(frozen=True)
class Day:
    """One UTC day of the week, and how much of everything falls on it.

    `capped_scale` is that of the calls with long contexts: these stay at the usual volume where more is wanted, so that
    a large log has lines of ordinary length. `waste`: the kinds of `waste_kinds.py` that are planted.
    """

    number: int
    day: date
    days: int
    first: date
    scale: float
    capped_scale: float
    seed: int
    waste: frozenset[str] = ALL

    @property
    def start_us(self) -> int:
        """Midnight, in microseconds since the Unix epoch."""
        midnight = datetime(self.day.year, self.day.month, self.day.day, tzinfo=UTC)
        return int(midnight.timestamp()) * SECOND_US

    @property
    def is_launch(self) -> bool:
        """Whether the launch is today: on the first Wednesday, or on the last day if there is none."""
        ahead = (LAUNCH_WEEKDAY - self.first.weekday()) % DAYS_PER_WEEK
        return self.number == min(ahead, self.days - 1)

    def before(self) -> list[Day]:
        """The days before this one."""
        return [
            replace(self, number=number, day=self.first + timedelta(days=number))
            for number in range(self.number)
        ]

    def rng(self, what: str) -> np.random.Generator:
        """Random numbers for one purpose on one day, independent of all others."""
        return np.random.default_rng([self.seed, 1 + self.number, *what.encode()])

    def count(self, weekly: float, rhythm: str, *, capped: bool = False) -> int:
        """Calls of today out of `weekly` at the usual volume."""
        weekend = _RHYTHMS[rhythm][1]
        weights = [
            weekend if (self.first + timedelta(days=number)).weekday() >= _SATURDAY else 1.0
            for number in range(self.days)
        ]
        total = weekly * self.days / DAYS_PER_WEEK * (self.capped_scale if capped else self.scale)
        # Shares first: that of the last day is 1 exactly, so no half call is rounded twice.
        before, after = (sum(weights[:day]) / sum(weights) for day in (self.number, self.number + 1))
        return round(total * after) - round(total * before)

    def arrivals(self, rng: np.random.Generator, count: int, rhythm: str) -> Ints:
        """Sorted instants of `count` calls over the day, in microseconds since the Unix epoch."""
        weights = np.array(_RHYTHMS[rhythm][0])
        hours = rng.choice(24, size=count, p=weights / weights.sum())
        return np.sort(self.start_us + hours * HOUR_US + rng.integers(0, HOUR_US, count))


def scales(requests: int, days: int) -> tuple[float, float]:
    """Volume of ordinary and of capped calls over the usual one, for a log of about `requests` rows."""
    wanted = requests / (REQUESTS_PER_WEEK * days / DAYS_PER_WEEK)
    capped = min(wanted, 1.0)
    share = CAPPED_WEEKLY / ALL_WEEKLY
    return (wanted - capped * share) / (1 - share), capped


def sizes(rng: np.random.Generator, count: int, of: Sizes) -> Ints:
    """Token counts drawn from `of`."""
    if of.high == 0:
        return np.zeros(count, np.int64)
    drawn = np.exp(rng.normal(np.log(of.median), of.sigma, count))
    return np.clip(np.rint(drawn), of.low, of.high).astype(np.int64)


def add_speed(calls: Calls, rng: np.random.Generator) -> Calls:
    """Fill deployment, ttft_us, duration_us and reasoning from the model, without queueing; in place."""
    count = len(calls)

    def of_model(value: str) -> NDArray[np.float64]:
        return np.array([float(getattr(model, value)) for model in MODELS])[calls.model]

    uncached = calls.input - np.maximum(calls.cache_read, 0)
    first_ms = (of_model("ttft_ms") + of_model("ttft_ms_per_token") * uncached) * np.exp(
        rng.normal(0, 0.12, count)
    )
    rest_ms = of_model("tpot_ms") * np.exp(rng.normal(0, 0.08, count)) * np.maximum(calls.output - 1, 0)
    calls.ttft_us = np.rint(first_ms * 1_000).astype(np.int64)
    calls.duration_us = calls.ttft_us + np.rint(rest_ms * 1_000).astype(np.int64)
    calls.reasoning = np.floor(of_model("reasoning_ratio") * calls.output).astype(np.int64)
    deployments = np.array([len(model.deployments) for model in MODELS])[calls.model]
    calls.deployment = np.arange(count) % deployments
    return calls


def ordinary(day: Day, work: Workload, pool: TextPool) -> Calls:
    """Calls of one workload on one day."""
    rng = day.rng(work.name)
    count = day.count(work.weekly, work.rhythm)
    started = day.arrivals(rng, count, work.rhythm)
    keys = np.array([KEY_NUMBER[alias] for alias in work.keys])[rng.integers(0, len(work.keys), count)]
    asked = sizes(rng, count, work.input)
    bodies = [REDACTED] * count
    if work.body == "short":
        bodies = _short_bodies(day, work, pool, asked.tolist(), rng.integers(0, 1 << 20, count).tolist())
    given = asked + work.system_tokens
    calls = calls_of(
        bodies,
        started_us=started,
        key=keys,
        model=np.full(count, MODEL_NUMBER[work.model]),
        input=given,
        output=sizes(rng, count, work.output),
        stream=(rng.random(count) < work.stream_ratio).astype(np.int64),
        cache_read=_cache_reads(day, rng, given, work),
    )
    return add_speed(calls, rng)


def _short_bodies(day: Day, work: Workload, pool: TextPool, asked: list[int], places: list[int]) -> list[str]:
    system = pool.text(f"You serve {work.name}. ", work.system_tokens, len(work.name) * 1_000)
    return [
        messages(("system", system), ("user", pool.text(f"{day.number}-{row} ", tokens, place)))
        for row, (tokens, place) in enumerate(zip(asked, places, strict=True))
    ]


def _cache_reads(day: Day, rng: np.random.Generator, given: Ints, work: Workload) -> Ints:
    model = MODELS[MODEL_NUMBER[work.model]]
    if model.is_own and not model.states_cache_reads and UNSTATED_READS not in day.waste:
        return np.full(len(given), work.system_tokens // VLLM_BLOCK * VLLM_BLOCK)
    if not model.states_cache_reads:
        return np.full(len(given), UNKNOWN)
    share = rng.beta(2, 2, len(given)) * 2 * work.cached_ratio
    blocks = np.minimum(np.floor(given * share / VLLM_BLOCK), (given - 1) // VLLM_BLOCK)
    return blocks.astype(np.int64) * VLLM_BLOCK


def burst(day: Day) -> Calls:
    """The rush after the launch: eleven minutes on the own 70B model."""
    rng = day.rng("launch")
    count = max(30, round(BURST_WEEKLY * day.scale * day.days / DAYS_PER_WEEK))
    started = np.sort(rng.triangular(0, 5.5 * MINUTE_US, 11 * MINUTE_US, count)).astype(np.int64)
    given = sizes(rng, count, PORTAL.input)
    calls = calls_of(
        [REDACTED] * count,
        started_us=day.start_us + LAUNCH_US + started,
        key=np.full(count, KEY_NUMBER["launch-page"]),
        model=np.full(count, MODEL_NUMBER[PORTAL.model]),
        input=given,
        output=sizes(rng, count, PORTAL.output),
        stream=np.ones(count, np.int64),
        cache_read=_cache_reads(day, rng, given, PORTAL),
    )
    return add_speed(calls, rng)
