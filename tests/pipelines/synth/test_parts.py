"""Small parts of the example week against obvious references, on random input."""

from __future__ import annotations

import json
from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.synth.company import MODEL_NUMBER
from pipelines.synth.gateway_log import costs_of, instant, money
from pipelines.synth.prompts import TextPool, messages
from pipelines.synth.sessions import cacheable_tokens
from pipelines.synth.tally import iso, usd
from pipelines.synth.traffic import Day, calls_of, join, scales

POOL = TextPool(3)
few = settings(max_examples=50, deadline=None)


@few
@given(st.integers(0, 10**15))
def test_money_is_written_exactly(nano):
    assert Decimal(money(nano)) == Decimal(usd(nano)) == Decimal(nano) / 10**9
    json.loads(money(nano))


@few
@given(st.integers(10**14, 4 * 10**15))
def test_instants_are_written_exactly(us):
    assert Decimal(instant(us)) == Decimal(us) / 10**6
    assert iso(us).endswith("Z")
    assert len(iso(us)) == 27


@few
@given(st.integers(4, 4_000), st.integers(0, 1 << 20))
def test_texts_have_exactly_the_tokens_asked_for(tokens, place):
    text = POOL.text("Document ", tokens, place)
    assert len(text.encode()) == 4 * tokens
    assert text.startswith("Document ")
    assert json.loads(messages(("user", text))) == [{"role": "user", "content": text}]


def test_a_head_longer_than_the_text_is_an_error():
    with pytest.raises(ValueError, match="2 tokens"):
        POOL.text("far too long for that", 2, 0)


@few
@given(st.integers(0, 20_000))
def test_cacheable_tokens_are_whole_steps(prefix):
    openai = max((1_024 + 128 * n for n in range(160) if 1_024 + 128 * n <= prefix), default=0)
    vllm = max(16 * n for n in range(1_251) if 16 * n <= prefix)
    assert cacheable_tokens(np.array([prefix]), "openai").tolist() == [openai]
    assert cacheable_tokens(np.array([prefix]), "hosted_vllm").tolist() == [vllm]
    assert cacheable_tokens(np.array([prefix]), "anthropic").tolist() == [prefix if prefix >= 1_024 else 0]


@example(9, 77, "people", date(2026, 5, 24))
@few
@given(
    st.integers(1, 30),
    st.integers(1, 5_000),
    st.sampled_from(["people", "office", "night"]),
    st.dates(date(2026, 1, 1), date(2026, 12, 1)),
)
def test_days_share_the_calls_without_losing_any(days, weekly, rhythm, first):
    of_day = [Day(n, first + timedelta(days=n), days, first, 1.5, 1.0, 7) for n in range(days)]
    assert sum(day.count(weekly, rhythm) for day in of_day) == round(weekly * days / 7 * 1.5)
    assert sum(day.count(weekly, rhythm, capped=True) for day in of_day) == round(weekly * days / 7)
    assert sum(day.is_launch for day in of_day) == 1


@few
@given(st.integers(100, 10_000_000), st.integers(1, 60))
def test_only_ordinary_calls_grow_beyond_the_usual_volume(requests, days):
    ordinary, capped = scales(requests, days)
    assert capped <= 1
    if capped < 1:
        assert ordinary == pytest.approx(capped)
    else:
        assert ordinary >= 1


@pytest.mark.parametrize("tokens", [1_000, 200_000, 200_001, 380_000])
def test_costs_below_and_above_the_price_cliff_are_list_prices(tokens):
    from genai_prices import Usage, calc_price

    counts = {"input": tokens, "cache_read": tokens // 2, "cache_write": tokens // 4, "output": 321}
    arrays = {name: np.array([count]) for name, count in counts.items()}
    calls = calls_of(["[]"], model=np.array([MODEL_NUMBER["claude-sonnet-4-5"]]), **arrays)
    usage = Usage(**{f"{name}_tokens": count for name, count in counts.items()})
    price = calc_price(usage, "claude-sonnet-4-5", provider_id="anthropic")
    assert Decimal(usd(int(costs_of(calls)[0]))) == price.total_price


def test_joined_calls_point_at_their_own_rows():
    parts = [calls_of(["a", "b"], model=np.array([0, 1])), calls_of(["c"], model=np.array([2]))]
    together = join(parts)
    assert together.call.tolist() == [0, 1, 2]
    assert together.bodies == ["a", "b", "c"]
    assert join([]).call.tolist() == []
    assert together.take(np.array([False, True, True])).call.tolist() == [1, 2]
