"""What was planted in the example week, found again in the rows that were written.

Belongs here: one finder for each kind. Does not belong here: planting (`sessions.py`, `incidents.py`), small habits
(`planted_habits.py`).

Tokens of `repeated_documents` and `cached_documents` are those of the leading messages that an earlier call
of the same session sent byte for byte; of all other kinds the input tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pipelines.synth.company import (
    AGENT_MODEL,
    DOCUMENT_MODELS,
    INTRANET,
    KEY_NUMBER,
    MODEL_NUMBER,
    MODELS,
    UNKNOWN,
)
from pipelines.synth.incidents import ERRORS
from pipelines.synth.planted_entry import Planted, entry
from pipelines.synth.planted_habits import habits_in
from pipelines.synth.sessions import ANTHROPIC_TTL_US, UNCACHED_AGENT, WASTEFUL_KEY, cacheable_tokens
from pipelines.synth.tally import Rows, iso, usd
from pipelines.synth.traffic import CANCELLED, ERROR, MINUTE_US, RESPONSE_CACHE, Bools, Ints
from pipelines.synth.waste_kinds import PAST_PRICE_STEP, UNSTATED_READS


def planted_in(rows: Rows) -> Iterator[Planted]:
    """Everything that was planted, by kind; a kind that is not there gives nothing."""
    for find in (_documents, _agents, _price_step, _unstated, habits_in, _simple, _failures):
        yield from find(rows)


def _of_key(rows: Rows, alias: str) -> Rows:
    return rows.where(rows["key"] == KEY_NUMBER[alias])


def _is_first(trace: Ints) -> Bools:
    """Whether a row is the first of its trace; rows are in order of their start."""
    first = np.zeros(len(trace), np.bool_)
    first[np.unique(trace, return_index=True)[1]] = True
    return first


def _documents(rows: Rows) -> Iterator[Planted]:
    for alias, model_name in DOCUMENT_MODELS.items():
        own = _of_key(rows, alias)
        if not len(own):
            continue
        repeated = own.where(~_is_first(own["trace_call"]) & (own["prefix"] > 0))
        model = MODELS[MODEL_NUMBER[model_name]]
        cacheable = cacheable_tokens(repeated["prefix"], model.provider)
        missed = np.maximum(cacheable - repeated["cache_read"], 0)
        saving = model.price.input - model.price.cache_read if model.price else 0
        # Each document has to be written to the cache once before it can be read; where that costs more than
        # plain input, it comes off.
        premium = max(model.price.cache_write - model.price.input, 0) if model.price else 0
        is_waste = alias == WASTEFUL_KEY and not own.tokens("cache_read")
        written = int(cacheable[_is_first(repeated["trace_call"])].sum()) if premium and is_waste else 0
        if is_waste and not len(repeated):
            continue
        # Calls that repeat no document repeat the system text alone, all but the first.
        alone = len(own) - len(repeated) - 1
        yield entry(
            "repeated_documents" if is_waste else "cached_documents",
            repeated,
            int(repeated["prefix"].sum()),
            alias,
            model_name,
            calls=len(own),
            input_tokens=own.tokens("input"),
            cacheable_tokens=int(cacheable.sum()),
            cache_read_tokens=own.tokens("cache_read"),
            missed_tokens=int(missed.sum()),
            missed_usd=usd(int(missed.sum()) * saving - written * premium),
            written_once_tokens=written,
            system_text_again_tokens=alone * int(own["system"].max()),
        )


def _agents(rows: Rows) -> Iterator[Planted]:
    in_session = rows.where((rows["in_session"] == 1) & (rows["outcome"] != ERROR))
    for alias in ("agent-cli", UNCACHED_AGENT):
        own = _of_key(in_session, alias)
        if not len(own):
            continue
        own = Rows(
            {
                name: column[np.argsort(own["trace_call"], kind="stable")]
                for name, column in own.columns.items()
            }
        )
        same = own["trace_call"][1:] == own["trace_call"][:-1]
        gap = own["started_us"][1:] - own["started_us"][:-1]
        grown = own["input"][1:] >= own["input"][:-1]
        again = np.minimum(own["input"][1:], own["input"][:-1] + own["output"][:-1])
        bound = np.where(same & grown & (gap <= ANTHROPIC_TTL_US), again, 0)
        cliff = MODELS[MODEL_NUMBER[AGENT_MODEL]].price
        over = own["input"] > (cliff.cliff_tokens or 0) if cliff else np.zeros(len(own), np.bool_)
        has_cache = bool(own["cache_write"].max() > 0)
        yield entry(
            "agent_sessions" if has_cache else "agent_sessions_without_cache",
            own,
            own.tokens("input"),
            alias,
            AGENT_MODEL,
            sessions=len(np.unique(own["trace_call"])),
            largest_input_tokens=int(own["input"].max()),
            cache_read_tokens=own.tokens("cache_read"),
            cache_write_tokens=own.tokens("cache_write"),
            session_upper_bound_tokens=int(bound.sum()),
            turns_after_cache_expiry=int((same & (gap > ANTHROPIC_TTL_US)).sum()),
            above_price_cliff_requests=int(over.sum()),
            above_price_cliff_input_tokens=int(own["input"][over].sum()),
            spend_usd=usd(int(own["cost"].sum())),
        )


def _price_step(rows: Rows) -> Iterator[Planted]:
    """Calls that paid the higher price for all of their tokens, and what the step alone cost them.

    `near_saved_usd` is what those just above the step save if they are sent as long as the step is, less of everything.
    """
    price = MODELS[MODEL_NUMBER[AGENT_MODEL]].price
    if price is None or price.above is None or price.cliff_tokens is None:
        return
    own = rows.served.where(rows.served["model"] == MODEL_NUMBER[AGENT_MODEL])
    part = own.where(own["input"] > price.cliff_tokens)
    if not len(part):
        return
    read, write = part["cache_read"], part["cache_write"]
    given = (part["input"] - read - write) * price.input + read * price.cache_read + write * price.cache_write
    returned = part["output"] * price.output
    extra = part["cost"] - given - returned
    saved = part["cost"] - given * price.cliff_tokens // part["input"] - returned
    near = part["input"] <= price.cliff_tokens * 105 // 100
    yield entry(
        PAST_PRICE_STEP,
        part,
        part.tokens("input"),
        None,
        AGENT_MODEL,
        step_tokens=price.cliff_tokens,
        extra_usd=usd(int(extra.sum())),
        near_requests=int(near.sum()),
        near_excess_tokens=int((part["input"] - price.cliff_tokens)[near].sum()),
        near_extra_usd=usd(int(extra[near].sum())),
        near_saved_usd=usd(int(saved[near].sum())),
    )


def _unstated(rows: Rows) -> Iterator[Planted]:
    """Calls to an own engine that does not say what it read from its cache, though they share a system text."""
    model = MODELS[MODEL_NUMBER[INTRANET.model]]
    part = rows.served.where(rows.served["model"] == MODEL_NUMBER[model.name])
    part = part.where((part["input"] != UNKNOWN) & (part["cache_read"] == UNKNOWN))
    if len(part):
        cacheable = int(cacheable_tokens(np.array(INTRANET.system_tokens), model.provider)) * (len(part) - 1)
        alias = INTRANET.keys[0]
        yield entry(UNSTATED_READS, part, part.tokens("input"), alias, model.name, cacheable_tokens=cacheable)


def _simple(rows: Rows) -> Iterator[Planted]:
    """What a mask and a sum describe."""
    served = rows.served
    found: tuple[tuple[str, Bools, str | None, str | None], ...] = (
        ("oversize_prompts", served["is_large"] == 1, "ticket-labels", "gpt-5-mini"),
        ("launch_burst", served["key"] == KEY_NUMBER["launch-page"], "launch-page", "llama-3.3-70b"),
        ("response_cache_hits", served["outcome"] == RESPONSE_CACHE, "faq-bot", "gpt-5-mini"),
        ("client_disconnects", served["outcome"] == CANCELLED, None, "llama-3.3-70b"),
        ("usage_missing", served["input"] == UNKNOWN, "mobile-app", "llama-3.3-70b"),
        ("unattributed_key", served["key"] == KEY_NUMBER["legacy-script"], "legacy-script", "gpt-5-mini"),
        (
            "unpriced_model",
            served["model"] == MODEL_NUMBER["acme-support-tuned-2"],
            "support-tuned",
            "acme-support-tuned-2",
        ),
    )
    for kind, mask, alias, model in found:
        part = served.where(mask)
        if len(part):
            given, output = part.tokens("input"), part.tokens("output")
            detail: dict[str, Any] = {
                "input_tokens": given,
                "output_tokens": output,
                "spend_usd": usd(int(part["cost"].sum())),
            }
            if kind == "launch_burst":
                minutes, calls = np.unique(part["started_us"] // MINUTE_US, return_counts=True)
                best = int(calls.argmax())
                detail |= {
                    "peak_minute": iso(int(minutes[best]) * MINUTE_US),
                    "peak_requests": int(calls[best]),
                }
            yield entry(kind, part, given, alias, model, **detail)


def _failures(rows: Rows) -> Iterator[Planted]:
    """Failed attempts: those that a retry or a fallback made good, and those that nothing did, by error."""
    served = rows.served
    retried = np.isin(rows["call"], served["call"][served["retries"] > 0])
    fallen = np.isin(rows["call"], served["call"][served["fallbacks"] > 0])
    failed = rows["outcome"] == ERROR
    groups: tuple[tuple[str, Bools], ...] = (
        ("retried_attempts", failed & retried),
        ("fallback_attempts", failed & fallen),
        ("failed_calls", failed & ~retried & ~fallen),
    )
    for kind, mask in groups:
        for number, error in enumerate(ERRORS):
            part = rows.where(mask & (rows["error"] == number))
            if len(part):
                models = {MODELS[model].name for model in part["model"].tolist()}
                model = models.pop() if len(models) == 1 else None
                detail = {"http_status": error.http_status, "error_kind": error.kind}
                yield entry(kind, part, 0, None, model, calls=len(np.unique(part["call"])), **detail)
