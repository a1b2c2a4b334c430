"""Break-even by hand, and what the chart says of it."""

from __future__ import annotations

import copy
import math

import pytest

from reports.audit_json import audit_document
from reports.break_even import Line, break_even, break_even_tokens

API = Line("API", 20.0, 10e6, is_api=True)
"""2 USD per million tokens."""


@pytest.mark.parametrize(
    ("usd", "carries", "tokens"),
    [
        (1000.0, 1e9, 500e6),
        # At 2 USD per million when full: never cheaper, the same at each full unit.
        (2000.0, 1e9, 1e9),
        (3000.0, 1e9, math.inf),
    ],
)
def test_hardware_pays_from_the_tokens_on_that_its_cost_buys_at_the_api(usd, carries, tokens):
    line = Line("own", usd, carries, is_api=False)
    assert break_even_tokens(line, API) == pytest.approx(tokens)
    if tokens < math.inf:
        assert line.at(tokens) == pytest.approx(API.at(tokens))
        assert line.at(tokens / 2) > API.at(tokens / 2)


def test_hardware_costs_a_step_more_beyond_what_it_carries():
    line = Line("own", 1000.0, 1e9, is_api=False)
    assert [line.at(tokens) for tokens in (0, 1e9, 1.1e9, 2.5e9)] == [1000, 1000, 2000, 3000]


def test_the_chart_names_the_crossing_and_needs_an_api_and_hardware(week):
    options = copy.deepcopy(audit_document(week)["sizing"]["as_is"]["options"])
    chart = break_even(options, "main")
    assert chart is not None
    assert "from" in chart.title or "even at full load" in chart.title
    assert break_even([option for option in options if option["serving"] != "api"], "main") is None
    assert break_even([option for option in options if option["serving"] == "api"], "main") is None
    for option in options:
        if option["serving"] != "api":
            option["usd_per_mtok_saturated"] = "1000000"
    never = break_even(options, "main")
    assert never is not None
    assert "costs more per token than the API" in never.title
    assert all(row[3] is None for row in never.twin.rows)
