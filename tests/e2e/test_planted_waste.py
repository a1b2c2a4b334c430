"""Each kind of waste that `tokenworks synth` plants is found with its size; where it is mended nothing is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from pipelines.synth import waste_kinds as kinds

pytestmark = pytest.mark.slow

WITHIN = 0.02
"""The promise; most are exact to the digit."""
CARE = "model:gpt-5-mini/team:customer-care"
POLICIES = "model:gpt-5-mini/team:workplace"
AGENTS = "model:claude-sonnet-4-5/team:engineering"


@dataclass(frozen=True)
class Said:
    """What a finding must say: names of the truth's figures that its own have to be; None = it must claim none."""

    kind: str
    scope: str
    requests: str | None = "requests"
    tokens: tuple[str, ...] = ("tokens",)
    usd: str | None = None
    beside: tuple[tuple[str, str, int], ...] = field(default=())
    """What else the scope holds: kind of the truth, its figure, and the sign."""


SAID = {
    kinds.REPEATED_DOCUMENTS: Said(
        "missed_cache", "model:claude-opus-4-1/team:legal", None, ("missed_tokens",), "missed_usd"
    ),
    kinds.AGENTS_WITHOUT_CACHE: Said(
        "session_resend",
        AGENTS,
        None,
        ("session_upper_bound_tokens",),
        beside=(
            ("agent_sessions", "session_upper_bound_tokens", 1),
            ("agent_sessions", "cache_read_tokens", -1),
        ),
    ),
    kinds.OVERSIZE_PROMPTS: Said("oversize", f"{CARE}/key:ticket-labels", usd="spend_usd"),
    kinds.REPEATED_QUESTIONS: Said(
        "response_cache", CARE, tokens=("tokens", "output_tokens"), usd="spend_usd"
    ),
    kinds.PAST_PRICE_STEP: Said(
        "oversize", f"{AGENTS}/key:agent-cli", "near_requests", ("near_excess_tokens",), "near_saved_usd"
    ),
    kinds.UNSTATED_READS: Said(
        "cache_unreported", "model:hosted_vllm/qwen3-8b/team:workplace", None, ("cacheable_tokens",)
    ),
    kinds.MISSED_HANDBOOK: Said("missed_cache", POLICIES, usd="missed_usd"),
    kinds.EXPIRED_HANDBOOK: Said("longer_lifetime", POLICIES, usd="expired_usd"),
    kinds.REPEATED_POLICIES: Said(
        "response_cache", POLICIES, tokens=("tokens", "output_tokens"), usd="spend_usd"
    ),
    kinds.REPEATED_EMBEDDINGS: Said(
        "duplicate_embedding",
        "model:text-embedding-3-small/team:engineering/key:wiki-index",
        usd="spend_usd",
    ),
    kinds.SHORT_TASKS: Said(
        "routing_candidate",
        "model:claude-opus-4-1/team:workplace/key:title-maker",
        tokens=("tokens", "output_tokens"),
        usd="what_if_usd",
    ),
    kinds.NIGHTLY_AT_FULL_PRICE: Said(
        "batchable",
        "model:gpt-5-mini/team:data/key:review-mining",
        tokens=("tokens", "output_tokens"),
        usd="batch_saves_usd",
    ),
    kinds.TRUNCATED_OUTPUTS: Said(
        "truncated_output",
        "model:gpt-5-mini/team:legal/key:clause-drafts",
        tokens=("output_tokens",),
        usd="output_usd",
    ),
}
"""All kinds but failed attempts, which are many findings (`test_example_week.py`)."""


def test_every_kind_that_is_planted_is_looked_for():
    assert {*SAID, kinds.FAILED_ATTEMPTS} == kinds.ALL


def figure(planted, name):
    return planted[name] if name in planted else planted["detail"][name]


SMALL_SHARE = (kinds.AGENTS_WITHOUT_CACHE,)
"""In the small week it lies below the least share of input that is worth a finding."""


@pytest.mark.parametrize("kind", SAID)
@pytest.mark.parametrize("name", ["week", "small"])
def test_a_planted_waste_is_found_with_its_size(name, kind, request):
    if name == "small" and kind in SMALL_SHARE:
        pytest.skip("below the least share of input there")
    said, audited = SAID[kind], request.getfixturevalue(name)
    planted = audited.the(kind)
    (found,) = [entry for entry in audited.findings(said.kind) if entry["scope"] == said.scope]
    tokens = sum(figure(planted, name) for name in said.tokens)
    tokens += sum(sign * figure(audited.the(other), name) for other, name, sign in said.beside)
    assert found["tokens"] == pytest.approx(tokens, rel=WITHIN)
    if said.requests is not None:
        assert found["requests"] == figure(planted, said.requests)
    if said.usd is None:
        assert found["usd"] is None
    else:
        assert float(found["usd"]) == pytest.approx(float(figure(planted, said.usd)), rel=WITHIN)


def test_what_a_price_step_costs_is_exact(audited):
    """To the last digit: what the log says was paid, less what the same tokens cost below the step."""
    planted = audited.the(kinds.PAST_PRICE_STEP)
    steps = audited.mart("oversize").filter(rule="price_cliff")
    assert (steps["requests"].sum(), steps["excess_tokens"].sum(), steps["excess_usd"].sum()) == (
        planted["detail"]["near_requests"],
        planted["detail"]["near_excess_tokens"],
        Decimal(planted["detail"]["near_extra_usd"]),
    )


def test_nothing_at_all_is_found_where_everything_is_mended(clean):
    """False positives over all kinds of findings: none."""
    assert clean.truth["waste"] == []
    assert [(found["kind"], found["scope"]) for found in clean.document["findings"]] == []
    assert clean.mart("oversize").is_empty()
    assert clean.document["waste"]["retries"]["attempts"] == 0
    assert clean.decision.verdict != "fix"
