"""Cost lines: trial values, the rule of the basis, tiers, unknowns, sums that agree to the last digit."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import REQUESTS
from pipelines.costs.calls import price_keys
from pipelines.costs.lines import cost_lines
from tests.pipelines.costs.conftest import totals
from warehouse.prices import unit_prices
from warehouse.tables import COST_LINES

D = Decimal
SONNET = {"provider": "anthropic", "model_served": "claude-sonnet-4-5-20250929"}
GEMINI = {"provider": "gemini", "model_served": "gemini/gemini-2.5-pro"}


def lines_of(requests, *, overrides=None, own=None):
    prices = unit_prices(price_keys(requests), overrides=overrides)
    lines = cost_lines(requests, prices, own)
    assert COST_LINES.problems(lines) == {}
    return lines


def usd(lines):
    return lines["cost_usd"].sum()


def by_meter(lines):
    return {row["meter"]: row["cost_usd"] for row in lines.iter_rows(named=True)}


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ({"input_tokens": 10_000, "cache_read_tokens": 4_000, "output_tokens": 500}, "0.025"),
        (
            SONNET
            | {
                "input_tokens": 10_000,
                "cache_read_tokens": 3_000,
                "cache_write_5m_tokens": 4_000,
                "output_tokens": 500,
            },
            "0.0324",
        ),
        (
            SONNET
            | {
                "input_tokens": 10_000,
                "cache_read_tokens": 3_000,
                "cache_write_1h_tokens": 4_000,
                "output_tokens": 500,
            },
            "0.0414",
        ),
        (GEMINI | {"input_tokens": 200_000, "output_tokens": 1_000}, "0.26"),
        (GEMINI | {"input_tokens": 200_001, "output_tokens": 1_000}, "0.5150025"),
        (GEMINI | {"input_tokens": 250_000, "cache_read_tokens": 100_000, "output_tokens": 1_000}, "0.415"),
    ],
)
def test_trial_values(make_requests, call, expected):
    """Values that genai-prices, LiteLLM and the vendors' price pages agree on."""
    assert usd(lines_of(make_requests(call))) == D(expected)


def test_a_line_by_list_price_is_quantity_times_unit_price(make_requests):
    lines = lines_of(
        make_requests(GEMINI | {"input_tokens": 200_001, "cache_read_tokens": 7, "output_tokens": 9})
    )
    for row in lines.iter_rows(named=True):
        assert row["quantity"] * row["unit_price_usd"] == row["cost_usd"]
        assert row["basis"] == "list_price"
        assert "price of input over 200000 tokens" in row["price_source"]


def test_reported_cost_wins_and_is_split_by_list_prices(make_requests):
    lines = lines_of(
        make_requests({"input_tokens": 4, "output_tokens": 1, "cost_reported": D("0.000000000003")})
    )
    assert by_meter(lines) == {"input": D("0.000000000002"), "output": D("0.000000000001")}
    assert set(lines["basis"]) == {"reported"}
    assert lines["unit_price_usd"].null_count() == lines.height


def test_reported_cost_without_a_list_price_is_one_line(make_requests):
    lines = lines_of(
        make_requests(
            {"model_served": "house-model", "input_tokens": 4, "output_tokens": 1, "cost_reported": D(2)}
        )
    )
    assert lines.select("meter", "quantity", "unit", "cost_usd").rows() == [("request", 1, "requests", D(2))]


def test_a_reported_zero_without_a_reason_is_not_believed(make_requests):
    listed = lines_of(make_requests({"input_tokens": 4, "output_tokens": 1, "cost_reported": D(0)}))
    assert set(listed["basis"]) == {"list_price"}
    assert all("cost of 0 without a reason" in text for text in listed["price_source"])
    unlisted = lines_of(
        make_requests({"model_served": "house", "input_tokens": 4, "output_tokens": 1, "cost_reported": D(0)})
    )
    assert unlisted.select("basis", "cost_usd").rows() == [("unpriced", None)]


def test_an_unknown_model_is_unpriced_and_counted(make_requests):
    call = {"model_served": "house-model", "input_tokens": 4, "output_tokens": 1}
    lines = lines_of(make_requests(call, call))
    assert lines.select("basis", "cost_usd", "requests").rows() == [("unpriced", None, 2)]
    found = totals(lines)
    assert (found.total, found.unpriced_requests) == (None, 2)


def test_self_hosted_calls_never_take_a_vendors_price(make_requests):
    lines = lines_of(make_requests({"provider": "hosted_vllm", "input_tokens": 4, "output_tokens": 1}))
    assert set(lines["basis"]) == {"unpriced"}


def test_unknown_usage_is_unpriced_unless_reported(make_requests):
    lines = lines_of(make_requests({"input_tokens": None}, {"input_tokens": 3, "output_tokens": None}))
    assert lines.select("basis", "price_source", "requests").rows() == [
        ("unpriced", "token counts unknown", 2)
    ]
    assert usd(lines_of(make_requests({"input_tokens": None, "cost_reported": D("0.5")}))) == D("0.5")


def test_an_embedding_has_no_output_to_know(make_requests):
    call = {"model_served": "text-embedding-3-small", "operation": "embedding", "input_tokens": 1_000_000}
    assert usd(lines_of(make_requests(call))) == D("0.02")


def test_failed_calls_cost_only_what_the_source_states(make_requests):
    failed = {"status": "error", "input_tokens": 1000, "output_tokens": 10}
    assert lines_of(make_requests(failed)).is_empty()
    assert lines_of(make_requests(failed | {"cost_reported": D(0)})).is_empty()
    lines = lines_of(make_requests(failed | {"cost_reported": D("0.1")}))
    assert lines.select("meter", "basis", "cost_usd").rows() == [("request", "reported", D("0.1"))]


def test_answers_from_the_gateways_own_cache_cost_nothing(make_requests):
    assert lines_of(
        make_requests(
            {"response_cache_hit": True, "input_tokens": 9, "output_tokens": 9, "cost_reported": D(1)}
        )
    ).is_empty()


def test_unknown_cache_reads_make_an_upper_bound_that_says_so(make_requests):
    lines = lines_of(make_requests({"input_tokens": 10_000, "cache_read_tokens": None, "output_tokens": 0}))
    assert usd(lines) == D("0.025")
    assert "cache reads unknown: upper bound" in lines["price_source"][0]


def test_unknown_cache_writes_are_marked_where_writing_has_a_price(make_requests):
    unknown = {"cache_write_5m_tokens": None, "input_tokens": 10, "output_tokens": 0}
    sonnet, gpt = lines_of(make_requests(SONNET | unknown)), lines_of(make_requests(unknown))
    assert "lower bound" in sonnet["price_source"][0]
    assert "lower bound" not in gpt["price_source"][0]


def test_cache_tokens_beyond_the_input_never_make_a_negative_cost(make_requests):
    lines = lines_of(
        make_requests(
            {"input_tokens": 5, "cache_read_tokens": 9, "cache_write_5m_tokens": 3, "output_tokens": 0}
        )
    )
    assert lines.filter(pl.col("cost_usd") < 0).is_empty()
    assert by_meter(lines)["input"] == 0


def test_audio_has_its_own_meter_only_where_it_has_its_own_price(make_requests):
    audio = {"input_tokens": 100, "audio_input_tokens": 40, "output_tokens": 10, "audio_output_tokens": 4}
    assert set(by_meter(lines_of(make_requests(audio)))) == {"input", "output"}
    prices = pl.DataFrame(
        {
            "model": ["gpt-4o"] * 4,
            "meter": ["input", "output", "audio_input", "audio_output"],
            "usd_per_token": ["0.000001", "0.000002", "0.00001", "0.00002"],
        }
    )
    lines = lines_of(make_requests(audio), overrides=prices)
    assert dict(lines.select("meter", "quantity").iter_rows()) == {
        "input": 60,
        "audio_input": 40,
        "output": 6,
        "audio_output": 4,
    }


def test_service_tiers_take_their_price_or_say_what_was_taken(make_requests):
    call = {"input_tokens": 1_000_000, "output_tokens": 0}
    assert usd(lines_of(make_requests(call | {"service_tier": "batch"}))) == D("1.25")
    assert usd(lines_of(make_requests(call | {"operation": "batch"}))) == D("1.25")
    assert usd(lines_of(make_requests(call | {"service_tier": "Default"}))) == D("2.5")
    odd = lines_of(make_requests(call | {"service_tier": "scale"}))
    assert "no price known for service tier scale: standard price" in odd["price_source"][0]


def test_a_cost_in_another_currency_is_not_taken_for_dollars(make_requests):
    call = {"input_tokens": 10_000, "output_tokens": 0, "cost_reported": D(9), "cost_currency": "EUR"}
    assert set(lines_of(make_requests(call))["basis"]) == {"list_price"}
    unlisted = lines_of(make_requests(call | {"model_served": "house"}))
    assert unlisted["cost_usd"].to_list() == [None]
    assert "EUR" in unlisted["price_source"][0]


def test_the_day_is_the_utc_day_of_the_start_and_its_price_holds(make_requests):
    luna = {"model_served": "gpt-5.6-luna", "input_tokens": 1_000_000, "output_tokens": 0}
    before = luna | {"started_at": dt.datetime(2026, 7, 29, 23, 59, tzinfo=dt.UTC)}
    after = luna | {"started_at": dt.datetime(2026, 7, 30, 0, 0, tzinfo=dt.UTC)}
    lines = lines_of(make_requests(before, after))
    assert lines["charge_day"].to_list() == [dt.date(2026, 7, 29), dt.date(2026, 7, 30)]
    # A million tokens is above the tier of 272,000.
    assert lines["cost_usd"].to_list() == [D(2), D("0.4")]


def test_every_call_is_on_the_lines_of_exactly_one_basis(make_requests):
    lines = lines_of(make_requests(*({"team": "a", "input_tokens": 5, "output_tokens": 5} for _ in range(7))))
    assert set(lines["requests"]) == {7}


def test_no_rows_give_no_lines(make_requests):
    lines = lines_of(make_requests())
    assert lines.schema == COST_LINES.schema
    assert totals(lines).total is None


CALLS = st.fixed_dictionaries(
    {
        "provider": st.sampled_from([None, "openai", "anthropic", "hosted_vllm"]),
        "model_served": st.sampled_from(["gpt-4o", "claude-sonnet-4-5", "house"]),
        "team": st.sampled_from([None, "red", "blue"]),
        "api_key_hash": st.sampled_from([None, "k1"]),
        "status": st.sampled_from(["ok", "cancelled", "error"]),
        "input_tokens": st.one_of(st.none(), st.integers(0, 400_000)),
        "cache_read_tokens": st.one_of(st.none(), st.integers(0, 400_000)),
        "cache_write_5m_tokens": st.one_of(st.none(), st.integers(0, 1000)),
        "output_tokens": st.one_of(st.none(), st.integers(0, 5000)),
        "cost_reported": st.one_of(st.none(), st.decimals(0, 3, places=12)),
        "response_cache_hit": st.sampled_from([None, True, False]),
    }
)


def slow_cost(call, prices):
    """The rule of docs/decisions/0003-cost-basis.md, one call at a time; None if no cost is due."""
    reported, failed = call["cost_reported"], call["status"] == "error"
    if call["response_cache_hit"] or (failed and not reported):
        return None
    if reported:
        return ("priced", reported)
    own = {
        (row["meter"], row["context_tier_start"]): row["usd_per_token"]
        for row in prices.iter_rows(named=True)
        if (row["provider"], row["model"]) == (call["provider"], call["model_served"])
    }
    size, out = call["input_tokens"], call["output_tokens"]
    if not own or size is None or out is None:
        return ("unpriced", None)
    tier = max(start for _, start in own if start == 0 or start < size)
    read = min(call["cache_read_tokens"] or 0, size)
    write = call["cache_write_5m_tokens"] or 0
    parts = {"input": max(0, size - read - write), "cache_read": read, "cache_write_5m": write, "output": out}
    return ("priced", sum(own[meter, tier] * count for meter, count in parts.items()))


@settings(max_examples=60, deadline=None)
@given(calls=st.lists(CALLS, max_size=12))
def test_sums_agree_to_the_last_digit_with_each_other_and_with_a_slow_reference(make_requests, calls):
    requests = make_requests(*calls)
    prices = unit_prices(price_keys(requests))
    lines = cost_lines(requests, prices)
    found = totals(lines)

    due = [(call, slow_cost(call, prices)) for call in calls]
    expected = [cost for _, cost in due if cost is not None]
    total = sum((cost for kind, cost in expected if kind == "priced"), D(0))
    assert (found.total or 0) == total
    assert found.unpriced_requests == sum(kind == "unpriced" for kind, _ in expected)
    assert sum((v or 0 for v in found.by_team.values()), found.unattributed or D(0)) == total
    assert sum((v or 0 for v in found.by_model.values()), D(0)) == total
    assert sum(found.by_basis.values(), D(0)) == total
    for team in ("red", "blue"):
        of_team = [cost for call, cost in due if cost and cost[0] == "priced" and call["team"] == team]
        assert (found.by_team.get(team) or 0) == sum((cost for _, cost in of_team), D(0))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        # ../shared/cases/accounting_cases.csv, counts made inclusive.
        (
            {
                "model_served": "claude-3-7-sonnet-20250219",
                "input_tokens": 12_307,
                "cache_write_5m_tokens": 12_304,
                "output_tokens": 550,
            },
            "0.054399",
        ),
        (
            {
                "model_served": "claude-haiku-4-5",
                "input_tokens": 129_282,
                "cache_read_tokens": 72_960,
                "output_tokens": 87,
            },
            "0.064053",
        ),
        (
            {
                "model_served": "claude-opus-5",
                "input_tokens": 344_139,
                "cache_write_1h_tokens": 344_139,
                "output_tokens": 0,
            },
            "3.44139",
        ),
        (
            {
                "model_served": "claude-sonnet-4-5",
                "input_tokens": 1_000_000,
                "cache_write_1h_tokens": 1_000_000,
                "output_tokens": 0,
            },
            "12",
        ),
    ],
    ids=["B001", "B014", "B023", "B026"],
)
def test_public_accounting_faults_are_not_repeated(make_requests, call, expected):
    assert usd(lines_of(make_requests(call | {"provider": "anthropic"}))) == D(expected)


def test_cached_input_is_priced_once_b018(make_requests):
    call = {
        "provider": "openai",
        "model_served": "gpt-5-mini",
        "input_tokens": 2_746,
        "cache_read_tokens": 2_208,
        "output_tokens": 197,
    }
    assert usd(lines_of(make_requests(call))) == D("0.0005837")


def test_the_tier_is_chosen_by_the_whole_prompt_b045(make_requests):
    """100,000 uncached and 200,000 cached tokens are above a tier of 272,000; each alone is not."""
    call = {
        "model_served": "gpt-5.6-luna",
        "input_tokens": 300_000,
        "cache_read_tokens": 200_000,
        "output_tokens": 0,
    }
    assert usd(lines_of(make_requests(call))) == D("0.0000004") * 100_000 + D("0.00000004") * 200_000


def test_recorded_gateway_spend_is_found_again_to_the_last_digit(shared):
    """LiteLLM's own spend log: what it states is the cost, and its gpt-4o cost is the list price."""
    spend = pl.read_csv(shared / "data/real/litellm/LiteLLM_SpendLogs.csv.gz", infer_schema=False)
    stated = spend.select(
        pl.lit("litellm").alias("source_format"),
        pl.lit("spend").alias("source_file"),
        pl.int_range(1, pl.len() + 1).alias("source_line"),
        pl.col("startTime").str.slice(0, 19).str.to_datetime(time_zone="UTC").alias("started_at"),
        pl.col("custom_llm_provider").alias("provider"),
        pl.col("model").alias("model_served"),
        pl.when(pl.col("status") == "success").then(pl.lit("ok")).otherwise(pl.lit("error")).alias("status"),
        pl.lit("reported").alias("usage_origin"),
        pl.col("prompt_tokens").alias("input_tokens"),
        pl.col("completion_tokens").alias("output_tokens"),
        (pl.col("cache_hit") == "True").alias("response_cache_hit"),
        pl.col("spend").cast(pl.Float64).round(12).cast(pl.Decimal(38, 12)).alias("cost_reported"),
    )
    billed = stated.filter((pl.col("cost_reported") > 0) & ~pl.col("response_cache_hit"))
    lines = lines_of(REQUESTS.conform(stated).lazy())
    assert usd(lines.filter(pl.col("basis") == "reported")) == billed["cost_reported"].sum()
    gpt = lines.filter((pl.col("model") == "openai/gpt-4o") & (pl.col("basis") == "reported"))
    listed = {"input": D("0.0000025"), "output": D("0.00001")}
    assert usd(gpt) == sum(row["quantity"] * listed[row["meter"]] for row in gpt.iter_rows(named=True))
