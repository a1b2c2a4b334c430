"""Small habits that cost: prompts and embeddings sent again, a large model for short tasks, no batch, cut answers.

Belongs here: calls of applications that each have one or two wasteful habits, and how they are made once these are
mended. Does not belong here: long documents, agents and dumps (`sessions.py`), ordinary traffic (`traffic.py`).
"""

from __future__ import annotations

import numpy as np

from pipelines.synth.company import HABITS_WEEKLY, KEY_NUMBER, MODEL_NUMBER, UNKNOWN, Sizes
from pipelines.synth.prompts import REDACTED, TextPool, messages
from pipelines.synth.sessions import OPENAI_MINIMUM, OPENAI_STEP, Questions
from pipelines.synth.traffic import (
    DAY_US,
    DAYS_PER_WEEK,
    MINUTE_US,
    OK,
    Bools,
    Calls,
    Day,
    Ints,
    add_speed,
    calls_of,
    sizes,
)
from pipelines.synth.waste_kinds import (
    EXPIRED_HANDBOOK,
    MISSED_HANDBOOK,
    NIGHTLY_AT_FULL_PRICE,
    REPEATED_EMBEDDINGS,
    REPEATED_POLICIES,
    SHORT_TASKS,
    TRUNCATED_OUTPUTS,
)

OPENAI_TTL_US = 5 * MINUTE_US
HANDBOOK_TOKENS = OPENAI_MINIMUM + 8 * OPENAI_STEP
"""What the provider's cache can hold of policy-bot's system text, which is half a step longer."""
LARGE_MODEL, SMALL_MODEL = "claude-opus-4-1", "claude-haiku-4-5"
STAYS_ON_LARGE = 5
"""One call of so many."""
TIGHT_LIMIT, WIDE_LIMIT = 256, 2_048

_POLICIES = Questions("policy-bot", HABITS_WEEKLY["policy-bot"], "office", 25, is_capped=True, together=6)
_TITLE_IN, _TITLE_OUT = Sizes(260, 0.05, 150, 500), Sizes(24, 0.1, 10, 50)
_REVIEW_IN, _REVIEW_OUT = Sizes(600, 0.3, 200, 1_500), Sizes(120, 0.3, 40, 300)
_CLAUSE_IN, _CLAUSE_OUT = Sizes(300, 0.4, 80, 900), Sizes(240, 0.5, 40, 1_500)
_CHUNK_TOKENS, _CHANGES_EVERY = 300, 5


def policies(day: Day, pool: TextPool) -> Calls:
    """Questions on one handbook, many of them asked before: neither read from the cache nor kept with their answer."""
    rng, started, asked = _POLICIES.of_day(day)
    question = 24 + asked % 20
    handbook = pool.text("You answer from the handbook. ", HANDBOOK_TOKENS + OPENAI_STEP // 2, 31_000)
    bodies = [
        messages(("system", handbook), ("user", pool.text(f"Policy {number}: ", tokens, number * 677)))
        for number, tokens in zip(asked.tolist(), question.tolist(), strict=True)
    ]
    calls = _of_key(
        "policy-bot",
        "gpt-5-mini",
        bodies,
        started_us=started,
        input=HANDBOOK_TOKENS + OPENAI_STEP // 2 + question,
        output=60 + asked * 4,
        prompt=asked + 1,
    )
    add_speed(calls, rng)
    if REPEATED_POLICIES not in day.waste:
        _POLICIES.answer_from_cache(day, calls, asked, None)
    if MISSED_HANDBOOK not in day.waste:
        asks = calls.outcome == OK
        found = is_alive(calls.started_us, calls.ended_us, asks)
        if EXPIRED_HANDBOOK not in day.waste:
            # The first call of a day finds what the day before has sent.
            found = is_alive(calls.started_us, calls.ended_us, asks, DAY_US) | (day.number > 0)
        calls.cache_read = np.where(found, HANDBOOK_TOKENS, 0)
    return calls


def is_alive(started_us: Ints, ended_us: Ints, asks: Bools, lifetime_us: int = OPENAI_TTL_US) -> Bools:
    """Whether a call that reaches the provider finds there what another has sent that ended before, in its lifetime."""
    found = np.zeros(len(started_us), np.bool_)
    for row in np.flatnonzero(asks):
        others = asks & (ended_us <= started_us[row]) & (started_us[row] - started_us <= lifetime_us)
        found[row] = bool(others.any())
    return found


def titles(day: Day, pool: TextPool) -> Calls:
    """Titles of a few words for texts cut to one length, asked of the largest model; their messages are redacted."""
    del pool
    rng, started = _arrivals(day, "title-maker", "office")
    count = len(started)
    models = np.full(count, MODEL_NUMBER[LARGE_MODEL])
    if SHORT_TASKS not in day.waste:
        sent = sum(len(_arrivals(ago, "title-maker", "office")[1]) for ago in day.before())
        models[(sent + np.arange(count)) % STAYS_ON_LARGE != 0] = MODEL_NUMBER[SMALL_MODEL]
    calls = _of_key(
        "title-maker",
        LARGE_MODEL,
        [REDACTED] * count,
        started_us=started,
        input=sizes(rng, count, _TITLE_IN),
        output=sizes(rng, count, _TITLE_OUT),
        cache_write=np.zeros(count, np.int64),
    )
    calls.model = models
    return add_speed(calls, rng)


def embeddings(day: Day, pool: TextPool) -> Calls:
    """Every night all parts of a wiki are embedded, though one in five has changed since the night before."""
    rng = day.rng("wiki-index")
    parts = np.arange(
        max(round(HABITS_WEEKLY["wiki-index"] / DAYS_PER_WEEK * day.capped_scale), 2 * _CHANGES_EVERY)
    )
    version = np.maximum(day.number - (day.number - parts) % _CHANGES_EVERY, 0)
    started = day.arrivals(rng, len(parts), "index")
    if REPEATED_EMBEDDINGS not in day.waste:
        is_new = version == day.number
        parts, version, started = parts[is_new], version[is_new], started[is_new]
    tokens = _CHUNK_TOKENS + parts % 50
    bodies = [
        messages(("user", pool.text(f"Part {part}, version {number}. ", size, part * 131)))
        for part, number, size in zip(parts.tolist(), version.tolist(), tokens.tolist(), strict=True)
    ]
    unstated = np.full(len(parts), UNKNOWN)
    return add_speed(
        _of_key(
            "wiki-index",
            "text-embedding-3-small",
            bodies,
            started_us=started,
            input=tokens,
            cache_read=unstated,
            prompt=version * 10_000 + parts + 1,
        ),
        rng,
    )


def reviews(day: Day, pool: TextPool) -> Calls:
    """Reviews of the day, read every night by a job that nobody waits for, one call after the other."""
    rng, started = _arrivals(day, "review-mining", "night")
    count = len(started)
    tokens = sizes(rng, count, _REVIEW_IN)
    return add_speed(
        _of_key(
            "review-mining",
            "gpt-5-mini",
            _bodies(day, pool, "Review", tokens),
            started_us=started,
            input=tokens,
            output=sizes(rng, count, _REVIEW_OUT),
            is_batch=np.full(count, int(NIGHTLY_AT_FULL_PRICE not in day.waste)),
        ),
        rng,
    )


def clauses(day: Day, pool: TextPool) -> Calls:
    """Drafts of clauses under a limit that is too tight for many of them."""
    rng, started = _arrivals(day, "clause-drafts", "office")
    count, limit = len(started), TIGHT_LIMIT if TRUNCATED_OUTPUTS in day.waste else WIDE_LIMIT
    tokens = sizes(rng, count, _CLAUSE_IN)
    return add_speed(
        _of_key(
            "clause-drafts",
            "gpt-5-mini",
            _bodies(day, pool, "Clause", tokens),
            started_us=started,
            input=tokens,
            output=np.minimum(sizes(rng, count, _CLAUSE_OUT), limit),
            limit=np.full(count, limit),
        ),
        rng,
    )


HABITS = (policies, titles, embeddings, reviews, clauses)


def _arrivals(day: Day, alias: str, rhythm: str) -> tuple[np.random.Generator, Ints]:
    rng = day.rng(alias)
    return rng, day.arrivals(rng, day.count(HABITS_WEEKLY[alias], rhythm, capped=True), rhythm)


def _of_key(alias: str, model: str, bodies: list[str], **given: Ints) -> Calls:
    count = len(bodies)
    who = {"key": np.full(count, KEY_NUMBER[alias]), "model": np.full(count, MODEL_NUMBER[model])}
    return calls_of(bodies, **who, **given)


def _bodies(day: Day, pool: TextPool, what: str, tokens: Ints) -> list[str]:
    """One message each, none like another."""
    return [
        messages(("user", pool.text(f"{what} {day.number}-{row}: ", size, row * 389)))
        for row, size in enumerate(tokens.tolist())
    ]
