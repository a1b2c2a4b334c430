"""What every stage means by a call: its model, whether it is demand, whose money it is."""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_demand, is_in_usd, model_name, output_tokens


def answers(rule: pl.Expr, **columns: list[object]) -> list[object]:
    return pl.DataFrame(columns, strict=False).select(rule.alias("answer"))["answer"].to_list()


def test_the_model_is_the_one_that_answered_else_the_one_asked_for():
    named = {"model_served": ["a", None, None], "model_requested": ["b", "b", None]}
    assert answers(model_name(), **named) == ["a", "b", "unknown"]


def test_demand_is_what_was_served_and_not_by_the_gateways_own_cache():
    calls = {
        "status": ["ok", "cancelled", "error", "ok", "ok"],
        "response_cache_hit": [None, False, False, True, False],
    }
    assert answers(is_demand(), **calls) == [True, True, False, False, True]


def test_an_absent_output_is_none_only_of_an_operation_that_writes_none():
    calls = {"operation": ["embedding", "rerank", "chat", None, "embedding"]}
    calls["output_tokens"] = [None, None, None, None, 3]
    assert answers(output_tokens(), **calls) == [0, 0, None, None, 3]


def test_a_cost_without_a_currency_is_in_usd():
    assert answers(is_in_usd(), cost_currency=["USD", "usd", None, "EUR"]) == [True, True, True, False]
