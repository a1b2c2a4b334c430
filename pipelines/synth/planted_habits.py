"""What the small habits of the example week waste, found again in the rows that were written.

Belongs here: one finder for each kind of `habits.py`, and for questions that are asked again. Does not belong here:
making the calls (`habits.py`), the larger kinds (`planted.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipelines.synth.company import KEY_NUMBER, MODEL_NUMBER, MODELS
from pipelines.synth.habits import HANDBOOK_TOKENS, LARGE_MODEL, SMALL_MODEL, STAYS_ON_LARGE, is_alive
from pipelines.synth.planted_entry import Planted, entry
from pipelines.synth.tally import Rows, usd
from pipelines.synth.traffic import CANCELLED, DAY_US, OK
from pipelines.synth.waste_kinds import (
    EXPIRED_HANDBOOK,
    MISSED_HANDBOOK,
    NIGHTLY_AT_FULL_PRICE,
    REPEATED_EMBEDDINGS,
    REPEATED_POLICIES,
    REPEATED_QUESTIONS,
    SHORT_TASKS,
    TRUNCATED_OUTPUTS,
)

_REPEATED = (
    (REPEATED_QUESTIONS, "faq-bot", "gpt-5-mini"),
    (REPEATED_POLICIES, "policy-bot", "gpt-5-mini"),
    (REPEATED_EMBEDDINGS, "wiki-index", "text-embedding-3-small"),
)


def habits_in(rows: Rows) -> Iterator[Planted]:
    """Everything of these kinds; one that is not there gives nothing."""
    answered = rows.where((rows["outcome"] == OK) | (rows["outcome"] == CANCELLED))
    for find in (_repeated, _handbook, _short_tasks, _nightly, _truncated):
        yield from find(answered)


def _of_key(rows: Rows, alias: str) -> Rows:
    return rows.where(rows["key"] == KEY_NUMBER[alias])


def _spent(rows: Rows) -> dict[str, int | str]:
    return {"output_tokens": rows.tokens("output"), "spend_usd": usd(int(rows["cost"].sum()))}


def _repeated(answered: Rows) -> Iterator[Planted]:
    """Calls that the provider answered although it had answered the very same prompt before."""
    for kind, alias, model in _REPEATED:
        asked = _of_key(answered, alias)
        again = np.zeros(len(asked), np.bool_)
        first_us: dict[int, int] = {}
        columns = (asked[name].tolist() for name in ("prompt", "started_us", "duration_us"))
        for row, (prompt, started_us, duration_us) in enumerate(zip(*columns, strict=True)):
            again[row] = first_us.get(prompt, started_us + 1) <= started_us
            first_us[prompt] = min(first_us.get(prompt, started_us + duration_us), started_us + duration_us)
        part = asked.where(again)
        if len(part):
            yield entry(kind, part, part.tokens("input"), alias, model, **_spent(part))


def _handbook(answered: Rows) -> Iterator[Planted]:
    own = _of_key(answered, "policy-bot")
    ended_us = own["started_us"] + own["duration_us"]
    missed = own.where(is_alive(own["started_us"], ended_us, own["outcome"] == OK) & (own["cache_read"] == 0))
    price = MODELS[MODEL_NUMBER["gpt-5-mini"]].price
    is_kept = is_alive(own["started_us"], ended_us, own["outcome"] == OK, DAY_US)
    is_fresh = is_alive(own["started_us"], ended_us, own["outcome"] == OK)
    expired = own.where(is_kept & ~is_fresh & (own["cache_read"] == 0))
    if len(expired) and price:
        tokens = len(expired) * HANDBOOK_TOKENS
        saved = usd(tokens * (price.input - price.cache_read))
        yield entry(EXPIRED_HANDBOOK, expired, tokens, "policy-bot", "gpt-5-mini", expired_usd=saved)
    if len(missed) and price:
        tokens = len(missed) * HANDBOOK_TOKENS
        saved = usd(tokens * (price.input - price.cache_read))
        yield entry(
            MISSED_HANDBOOK, missed, tokens, "policy-bot", "gpt-5-mini", calls=len(own), missed_usd=saved
        )


def _short_tasks(answered: Rows) -> Iterator[Planted]:
    """Calls of one application to a large model; `what_if_usd` is saved if four of five go to the small one."""
    own = _of_key(answered, "title-maker")
    price = MODELS[MODEL_NUMBER[SMALL_MODEL]].price
    if not len(own) or price is None or (own["model"] == MODEL_NUMBER[SMALL_MODEL]).any():
        return
    small = own.tokens("input") * price.input + own.tokens("output") * price.output
    saved = (int(own["cost"].sum()) - small) * (STAYS_ON_LARGE - 1) // STAYS_ON_LARGE
    yield entry(
        SHORT_TASKS,
        own,
        own.tokens("input"),
        "title-maker",
        LARGE_MODEL,
        **_spent(own),
        what_if_usd=usd(saved),
    )


def _nightly(answered: Rows) -> Iterator[Planted]:
    """Calls at the full price that nobody waits for; a batch costs half."""
    own = _of_key(answered, "review-mining")
    part = own.where(own["is_batch"] == 0)
    if len(part):
        saved = usd(int(part["cost"].sum()) // 2)
        yield entry(
            NIGHTLY_AT_FULL_PRICE,
            part,
            part.tokens("input"),
            "review-mining",
            "gpt-5-mini",
            **_spent(part),
            batch_saves_usd=saved,
        )


def _truncated(answered: Rows) -> Iterator[Planted]:
    """Answers that end at the limit; `output_usd` is the money of their output."""
    own = _of_key(answered, "clause-drafts")
    part = own.where((own["limit"] > 0) & (own["output"] >= own["limit"]))
    price = MODELS[MODEL_NUMBER["gpt-5-mini"]].price
    # A wide limit cuts nothing; one answer in a hundred thousand may end there by chance.
    if len(part) and price:
        yield entry(
            TRUNCATED_OUTPUTS,
            part,
            part.tokens("input"),
            "clause-drafts",
            "gpt-5-mini",
            calls=len(own),
            output_tokens=part.tokens("output"),
            output_usd=usd(part.tokens("output") * price.output),
        )
