"""What is sent again and again: frequent questions, long documents, agent sessions; and prompts far too big.

Belongs here: calls that hang together, with the tokens they repeat. Does not belong here: ordinary traffic
(`traffic.py`), failures (`incidents.py`).

Prefix lengths lie in the middle of a provider's caching step (128 tokens at OpenAI, 16 in a vLLM block;
Anthropic has none), so that a reader who apportions tokens to messages by bytes finds the same number of
whole steps as the provider.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from pipelines.synth.company import (
    AGENT_MODEL,
    AGENT_WEEKLY,
    DOCUMENT_MODELS,
    DOCUMENT_WEEKLY,
    FAQ_WEEKLY,
    KEY_NUMBER,
    LABELS,
    MODEL_NUMBER,
    MODELS,
    OVERSIZE_WEEKLY,
    UNKNOWN,
    Model,
    Sizes,
)
from pipelines.synth.prompts import REDACTED, TextPool, messages
from pipelines.synth.traffic import (
    DAYS_PER_WEEK,
    HOUR_US,
    MINUTE_US,
    RESPONSE_CACHE,
    SECOND_US,
    VLLM_BLOCK,
    Calls,
    Day,
    Ints,
    add_speed,
    calls_of,
    sizes,
)
from pipelines.synth.waste_kinds import (
    AGENTS_WITHOUT_CACHE,
    OVERSIZE_PROMPTS,
    PAST_PRICE_STEP,
    REPEATED_DOCUMENTS,
    REPEATED_QUESTIONS,
)

OPENAI_MINIMUM, OPENAI_STEP = 1_024, 128
ANTHROPIC_MINIMUM = 1_024
ANTHROPIC_TTL_US = 5 * MINUTE_US
SYSTEM_TOKENS = {"contract-review": 400, "kb-search": 400, "handbook-search": 1_504}
WASTEFUL_KEY = "contract-review"
UNCACHED_AGENT = "agent-ci"
COMPACTION_TOKENS, EARLY_COMPACTION_TOKENS = 380_000, 160_000
"""The second lies below the price step of the agents' model, 200,000 tokens."""
PAUSE_RATIO = 0.04

_FAQ_SYSTEM_TOKENS = 100
_FAQ_TTL_US = HOUR_US
_ANSWER = Sizes(280, 0.5, 30, 1_200)
_TURN = Sizes(320, 0.8, 20, 3_000)


def cacheable_tokens(prefix: Ints, provider: str) -> Ints:
    """Tokens of a repeated prefix that the provider's cache can hold: whole steps above its minimum."""
    if provider == "openai":
        whole = OPENAI_MINIMUM + (prefix - OPENAI_MINIMUM) // OPENAI_STEP * OPENAI_STEP
        return np.where(prefix >= OPENAI_MINIMUM, whole, 0)
    if provider == "anthropic":
        return np.where(prefix >= ANTHROPIC_MINIMUM, prefix, 0)
    return prefix // VLLM_BLOCK * VLLM_BLOCK


@dataclass(frozen=True)
class Questions:
    """Questions that are asked again and again, some more often than others, `together` of them within minutes."""

    what: str
    weekly: int
    rhythm: str
    different: int
    is_capped: bool = False
    together: int = 1

    def of_day(self, day: Day) -> tuple[np.random.Generator, Ints, Ints]:
        """When they are asked on a day, and which; the generator goes on from there."""
        rng = day.rng(self.what)
        count = day.count(self.weekly, self.rhythm, capped=self.is_capped)
        started = day.arrivals(rng, -(-count // self.together), self.rhythm).repeat(self.together)[:count]
        if self.together > 1:
            after = rng.integers(25 * SECOND_US, 75 * SECOND_US, count) * (np.arange(count) % self.together)
            started = np.sort(started + after)
        weights = 1 / np.arange(1, self.different + 1)
        return rng, started, rng.choice(self.different, count, p=weights / weights.sum())

    def answer_from_cache(self, day: Day, calls: Calls, asked: Ints, life_us: int | None) -> None:
        """Let the gateway's response cache answer what was answered less than `life_us` ago; None = ever before."""
        rng = day.rng(f"{self.what} cache")
        is_kept = life_us is None
        earlier = [self.of_day(ago)[2].tolist() for ago in day.before()] if is_kept else []
        kept = {question for questions in earlier for question in questions}
        answered: dict[int, int] = {}
        for row, question in enumerate(asked.tolist()):
            first = row if question in kept else answered.get(question, -1)
            age_us = int(calls.started_us[row] - calls.ended_us[first])
            if question in kept or (first >= 0 and age_us >= 0 and (life_us is None or age_us < life_us)):
                calls.outcome[row] = RESPONSE_CACHE
                calls.id_call[row] = first
                calls.duration_us[row] = calls.ttft_us[row] = rng.integers(1_500, 6_000)
            elif first < 0 or age_us >= 0:
                answered[question] = row


FAQ = Questions("faq", FAQ_WEEKLY, "people", 40)


def faq(day: Day, pool: TextPool) -> Calls:
    """Frequent questions: a second call within an hour is answered from the gateway's response cache.

    With the waste mended that cache keeps an answer for the whole week.
    """
    rng, started, asked = FAQ.of_day(day)
    count = len(asked)
    tokens = 12 + asked % 20
    system = pool.text("You answer frequent questions. ", _FAQ_SYSTEM_TOKENS, 77_000)
    bodies = [
        messages(
            ("system", system), ("user", pool.text(f"Question {number}: ", 12 + number % 20, number * 991))
        )
        for number in asked.tolist()
    ]
    calls = calls_of(
        bodies,
        started_us=started,
        key=np.full(count, KEY_NUMBER["faq-bot"]),
        model=np.full(count, MODEL_NUMBER["gpt-5-mini"]),
        input=_FAQ_SYSTEM_TOKENS + tokens,
        output=80 + asked * 3,
        prompt=asked + 1,
    )
    add_speed(calls, rng)
    FAQ.answer_from_cache(day, calls, asked, _FAQ_TTL_US if REPEATED_QUESTIONS in day.waste else None)
    return calls


@dataclass
class _Rows:
    """Rows of sessions as they are made, one after the other."""

    bodies: list[str] = field(default_factory=list)
    columns: dict[str, list[int]] = field(default_factory=dict)

    def add(self, body: str, **values: int) -> None:
        self.bodies.append(body)
        for name, value in values.items():
            self.columns.setdefault(name, []).append(value)

    def calls(self) -> Calls:
        columns = self.columns or {"model": []}
        return calls_of(self.bodies, **{name: np.array(column, np.int64) for name, column in columns.items()})


def documents(day: Day, alias: str, pool: TextPool) -> Calls:
    """Sessions of questions on one long document each: system text, document, question, again and again.

    `contract-review` never asks its provider to cache, so nothing is read although the leading messages are
    equal to the byte and minutes apart; with the waste mended it writes each document once and reads it from
    then on. The other keys are the control: what can be read from a cache is read and reported.
    """
    rng = day.rng(alias)
    count = day.count(DOCUMENT_WEEKLY[alias], "office", capped=True)
    starts = iter(rng.permutation(day.arrivals(rng, count, "office")).tolist())
    model = MODELS[MODEL_NUMBER[DOCUMENT_MODELS[alias]]]
    system_tokens = SYSTEM_TOKENS[alias]
    system = pool.text(f"You serve {alias}. ", system_tokens, len(alias) * 7_001)
    caches = alias != WASTEFUL_KEY or REPEATED_DOCUMENTS not in day.waste
    rows = _Rows()
    while len(rows.bodies) < count:
        session = len(rows.bodies)
        prefix = _prefix_tokens(rng, model)
        at, place = next(starts), int(rng.integers(0, 1 << 20))
        for turn in range(min(int(rng.integers(3, 9)), count - session)):
            question = int(rng.integers(24, 90))
            body = messages(
                ("system", system),
                ("user", pool.text(f"Document {day.number}-{session}. ", prefix - system_tokens, place)),
                ("user", pool.text(f"Question {session}-{turn}: ", question, place + turn)),
            )
            # The system text was sent by an earlier session, except for the first call of the week.
            seen = prefix if turn else system_tokens if session + day.number else 0
            read = _whole_steps(seen, model) if caches else 0
            writes = caches and model.name == DOCUMENT_MODELS[WASTEFUL_KEY]
            rows.add(
                body,
                started_us=at,
                key=KEY_NUMBER[alias],
                model=MODEL_NUMBER[model.name],
                input=prefix + question,
                output=int(sizes(rng, 1, _ANSWER)[0]),
                cache_read=read,
                cache_write=prefix - read if writes else 0 if model.states_cache_writes else UNKNOWN,
                trace_call=session,
                prefix=prefix,
                system=system_tokens,
            )
            # Longer than any answer takes to begin, far shorter than any cache's life.
            at += int(rng.integers(25 * SECOND_US, 75 * SECOND_US))
    return add_speed(rows.calls(), rng)


def _whole_steps(tokens: int, model: Model) -> int:
    return int(cacheable_tokens(np.array(tokens), model.provider))


def _prefix_tokens(rng: np.random.Generator, model: Model) -> int:
    tokens = int(rng.integers(2_400, 6_400))
    if model.provider == "openai":
        return tokens // OPENAI_STEP * OPENAI_STEP + OPENAI_STEP // 2
    if model.provider == "anthropic":
        return tokens
    return tokens // VLLM_BLOCK * VLLM_BLOCK + 3 * VLLM_BLOCK // 4


def agents(day: Day, alias: str) -> Calls:
    """Coding-agent sessions on Claude whose context grows to hundreds of thousands of tokens.

    Each turn reads what the turn before wrote to the cache, writes what is new, and leaves a few tokens
    uncached; after a pause longer than the cache's life everything is written again. `agent-ci` never asks
    for caching, unless that is mended; contexts stay below the model's price step only if that is mended.
    """
    rng = day.rng(alias)
    count = day.count(AGENT_WEEKLY[alias], "office", capped=True)
    caches = alias != UNCACHED_AGENT or AGENTS_WITHOUT_CACHE not in day.waste
    most = COMPACTION_TOKENS if PAST_PRICE_STEP in day.waste else EARLY_COMPACTION_TOKENS
    rows = _Rows()
    while len(rows.bodies) < count:
        session = len(rows.bodies)
        at = day.start_us + int(rng.integers(8 * HOUR_US, 17 * HOUR_US))
        growth = Sizes(float(rng.choice([1_500, 2_600, 4_000])), 0.8, 60, 30_000)
        context = int(rng.integers(12_000, 18_000))
        cached, last_at = 0, at
        for _ in range(min(int(rng.integers(30, 100)), count - session)):
            if context > most:
                # The client compacts: system text and tools stay, the rest becomes a summary.
                context, cached = int(rng.integers(24_000, 36_000)), min(cached, 11_000)
            tail = int(rng.integers(3, 9))
            read = cached if caches and at - last_at < ANTHROPIC_TTL_US else 0
            write = context - read - tail if caches else 0
            output = int(sizes(rng, 1, _TURN)[0])
            rows.add(
                REDACTED,
                started_us=at,
                key=KEY_NUMBER[alias],
                model=MODEL_NUMBER[AGENT_MODEL],
                input=context,
                output=output,
                cache_read=read,
                cache_write=write,
                stream=1,
                trace_call=session,
                in_session=1,
            )
            cached, last_at = context - tail, at
            at += _turn_us(rng, context - read, output, has_pauses=alias != UNCACHED_AGENT)
            context += output + int(sizes(rng, 1, growth)[0])
    return add_speed(rows.calls(), rng)


def _turn_us(rng: np.random.Generator, uncached: int, output: int, *, has_pauses: bool) -> int:
    """From the start of one turn to that of the next: answer, tools, sometimes a person who thinks."""
    model = MODELS[MODEL_NUMBER[AGENT_MODEL]]
    slowest_ms = 1.6 * (model.ttft_ms + model.ttft_ms_per_token * uncached + model.tpot_ms * output)
    is_pause = has_pauses and rng.random() < PAUSE_RATIO
    pause_s = rng.uniform(360, 1_200) if is_pause else rng.uniform(2, 25)
    return int(slowest_ms * 1_000 + pause_s * SECOND_US)


def oversize(day: Day) -> Calls:
    """Dumps of 60 to 150 thousand tokens, pasted to get one label each; three a log at least.

    With the waste mended they are as long as other tickets.
    """
    rng = day.rng("oversize")
    least = 3 * DAYS_PER_WEEK / (day.days * day.capped_scale)
    count = day.count(max(OVERSIZE_WEEKLY, least), "office", capped=True)
    given, is_large = rng.integers(60_000, 150_000, count), OVERSIZE_PROMPTS in day.waste
    if not is_large:
        given = sizes(day.rng("trimmed"), count, LABELS.input) + LABELS.system_tokens
    calls = calls_of(
        [REDACTED] * count,
        started_us=day.arrivals(rng, count, "office"),
        key=np.full(count, KEY_NUMBER["ticket-labels"]),
        model=np.full(count, MODEL_NUMBER[LABELS.model]),
        input=given,
        output=sizes(rng, count, LABELS.output),
        is_large=np.full(count, int(is_large)),
    )
    return add_speed(calls, rng)
