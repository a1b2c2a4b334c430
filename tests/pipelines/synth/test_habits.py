"""Small habits of the example week: their sizes in truth.json against a plain reading of the lines, and how they are mended."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from parsers.errors import SiteConfigError
from pipelines.synth import waste_kinds as kinds
from pipelines.synth.week import write_week

REPEATED = {
    "faq-bot": kinds.REPEATED_QUESTIONS,
    "policy-bot": kinds.REPEATED_POLICIES,
    "wiki-index": kinds.REPEATED_EMBEDDINGS,
}
LIFETIME_S = 300


def alias(row):
    return row["metadata"]["user_api_key_alias"]


def answered(rows, key):
    """Calls of a key that its provider answered."""
    return [row for row in rows if alias(row) == key and row["status"] == "success" and not row["cache_hit"]]


def cost(rows):
    return sum((Decimal(repr(row["response_cost"])) for row in rows), Decimal())


def lines_of(folder):
    return [
        json.loads(line) for path in sorted(folder.iterdir()) for line in path.read_text("ascii").splitlines()
    ]


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """Lines and truth of the same week with everything mended."""
    out = tmp_path_factory.mktemp("clean") / "week"
    truth = write_week(out, requests=2_000, waste=frozenset())
    rows = lines_of(out / "gateway")
    return rows, truth


@pytest.mark.parametrize("key", REPEATED)
def test_whole_prompts_that_are_answered_again_are_counted(week, records, clean, key):
    planted = week[1].of_kind(REPEATED[key])
    first_end, again = {}, []
    for row in answered(records, key):
        prompt = json.dumps(row["messages"])
        if first_end.get(prompt, row["startTime"] + 1) <= row["startTime"]:
            again.append(row)
        first_end[prompt] = min(first_end.get(prompt, row["endTime"]), row["endTime"])
    assert (planted.requests, planted.tokens) == (len(again), sum(row["prompt_tokens"] for row in again))
    assert Decimal(planted.detail["spend_usd"]) == cost(again)
    prompts = [json.dumps(row["messages"]) for row in answered(clean[0], key)]
    assert len(prompts) == pytest.approx(len(set(prompts)), abs=1 + 0.05 * len(prompts))


def test_the_handbook_is_missed_where_another_call_had_just_sent_it(week, records, clean):
    planted = week[1].of_kind(kinds.MISSED_HANDBOOK)
    calls = answered(records, "policy-bot")
    missed = [
        row
        for row in calls
        if any(
            other["endTime"] <= row["startTime"] and row["startTime"] - other["startTime"] <= LIFETIME_S
            for other in calls
        )
    ]
    assert planted.requests == len(missed) > len(calls) / 2
    assert planted.tokens == 2_048 * len(missed)
    assert Decimal(planted.detail["missed_usd"]) == planted.tokens * Decimal("0.000000225")
    reads = [
        row["metadata"]["usage_object"]["prompt_tokens_details"]["cached_tokens"]
        for row in answered(clean[0], "policy-bot")
    ]
    assert set(reads) <= {0, 2_048}


def test_short_tasks_go_to_the_large_model_until_they_are_routed(week, records, clean):
    planted = week[1].of_kind(kinds.SHORT_TASKS)
    calls = answered(records, "title-maker")
    assert {row["model"] for row in calls} == {"claude-opus-4-1"}
    assert (planted.requests, Decimal(planted.detail["spend_usd"])) == (len(calls), cost(calls))
    at_small = sum(row["prompt_tokens"] + 5 * row["completion_tokens"] for row in calls) * Decimal("0.000001")
    what_if = (cost(calls) - at_small) * 4 / 5
    assert Decimal(planted.detail["what_if_usd"]) == pytest.approx(what_if, abs=Decimal("1e-8"))
    models = [row["model"] for row in answered(clean[0], "title-maker")]
    assert models.count("claude-haiku-4-5") == pytest.approx(0.8 * len(models), rel=0.1)


def test_nightly_calls_cost_half_as_a_batch(week, records, clean):
    planted = week[1].of_kind(kinds.NIGHTLY_AT_FULL_PRICE)
    calls, batch = (answered(rows, "review-mining") for rows in (records, clean[0]))
    assert planted.requests == len(calls) == len(batch)
    assert Decimal(planted.detail["batch_saves_usd"]) == cost(calls) - cost(batch)
    assert {row["response"].get("service_tier") for row in calls} == {None}
    assert {row["response"].get("service_tier") for row in batch} == {"batch"}


def test_answers_end_at_the_limit_that_is_too_tight(week, records, clean):
    planted = week[1].of_kind(kinds.TRUNCATED_OUTPUTS)
    calls, free = (answered(rows, "clause-drafts") for rows in (records, clean[0]))
    cut = [row for row in calls if row["response"]["choices"][0]["finish_reason"] == "length"]
    assert planted.requests == len(cut) > 0
    assert planted.detail["output_tokens"] == sum(row["completion_tokens"] for row in cut)
    assert {row["completion_tokens"] for row in cut} == {
        row["model_parameters"]["max_tokens"] for row in calls
    }
    assert {row["response"]["choices"][0]["finish_reason"] for row in free} == {"stop"}


def test_the_price_step_costs_what_the_same_tokens_cost_below_it(tmp_path):
    truth = write_week(tmp_path / "week", requests=6_000)
    planted = truth.of_kind(kinds.PAST_PRICE_STEP)
    rows = lines_of(tmp_path / "week" / "gateway")
    over = {
        row["id"]: row
        for row in rows
        if row["model"] == "claude-sonnet-4-5" and row["prompt_tokens"] > planted.detail["step_tokens"]
    }
    assert planted.requests == len(over) > 0
    # Input, cached or not, costs twice above the step, output one and a half times.
    extra = sum(
        (Decimal(repr(row["response_cost"])) - row["completion_tokens"] * Decimal("0.0000225")) / 2
        + row["completion_tokens"] * Decimal("0.0000075")
        for row in over.values()
    )
    assert Decimal(planted.detail["extra_usd"]) == extra


def test_kinds_are_named_one_by_one_or_all_or_none():
    assert kinds.kinds_of("all") == kinds.ALL
    assert kinds.kinds_of("none") == frozenset()
    assert kinds.kinds_of("oversize_prompts, failed_attempts") == {
        kinds.OVERSIZE_PROMPTS,
        kinds.FAILED_ATTEMPTS,
    }
    with pytest.raises(SiteConfigError, match=r"no kind of waste: sloth.*oversize_prompts"):
        kinds.kinds_of("sloth")


def test_with_everything_mended_no_kind_of_waste_is_there(clean):
    names = {"retried_attempts", "fallback_attempts", "failed_calls", *kinds.ALL}
    assert not {planted.kind for planted in clean[1].planted} & names
    assert clean[1].waste == []
