"""Which models have curves of their own, and that nothing of the others is lost."""

from __future__ import annotations

import polars as pl
import pytest

from pipelines.demand.largest import MOST_MODELS, OTHER_MODELS, largest_models
from pipelines.demand.scopes import scopes
from pipelines.demand.spread import work_intervals

MANY = 300


def calls_of(models, facts):
    rows = [
        {"at": n, "end": n + 2, "model_served": f"m{n:03}", "input_tokens": 1000 - n, "output_tokens": 10}
        for n in range(models)
    ]
    return facts(*rows)


def test_the_largest_by_tokens_have_their_own_and_the_rest_is_one(facts):
    work = work_intervals(calls_of(MANY, facts))
    found = {name: calls for names, calls in scopes(work) for name in names}
    assert len(found) == MOST_MODELS + 2
    assert set(found) == {"all", OTHER_MODELS, *(f"model:m{n:03}" for n in range(MOST_MODELS))}
    whole = found.pop("all")
    assert len(whole) == MANY == sum(map(len, found.values()))
    assert sum(calls.input.sum() for calls in found.values()) == whole.input.sum()
    assert sum(calls.output.sum() for calls in found.values()) == whole.output.sum()
    assert found["model:m007"].input.tolist() == [993]


@pytest.mark.parametrize("models", [1, 2, MOST_MODELS])
def test_few_models_have_all_their_own(facts, models):
    found = [names for names, _ in scopes(work_intervals(calls_of(models, facts)))]
    assert not any(OTHER_MODELS in names for names in found)
    assert len(found) == (models + 1 if models > 1 else 1)


def test_among_equals_more_calls_count_and_then_the_name():
    calls = pl.DataFrame(
        {
            "model": ["b", "a", "c", "c", "d"],
            "input_tokens": [5, 5, 2, 3, None],
            "output_tokens": [None, None, 0, 0, None],
        },
        schema_overrides={"output_tokens": pl.Int64},
    )
    assert largest_models(calls.lazy()) == ["c", "a", "b", "d"]


def test_a_model_with_load_stays_its_own_beside_twenty_thousand_names():
    names = [f"x{n}" for n in range(20_000)] + ["loaded"]
    calls = pl.DataFrame({"model": names, "input_tokens": [1] * 20_000 + [9], "output_tokens": 1}).lazy()
    found = largest_models(calls)
    assert (len(found), found[0]) == (MOST_MODELS, "loaded")
