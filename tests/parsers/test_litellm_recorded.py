"""A recorded LiteLLM proxy: its payload log and its SpendLogs table add up to what was counted beside them."""

from __future__ import annotations

from decimal import Decimal

import polars as pl
import pytest

from parsers.sources import find_sources


@pytest.fixture(scope="module")
def recorded(shared, read_source, tmp_path_factory):
    def run(name):
        path = shared / "data/real/litellm" / name
        if not path.is_file():
            pytest.skip(f"{name} is not in the shared folder")
        return read_source(find_sources([path])[0], tmp_path_factory.mktemp("work"), name="input")

    return run


@pytest.fixture(scope="module")
def payload(recorded):
    return recorded("standard_logging_payload.jsonl.gz")


@pytest.fixture(scope="module")
def spend(recorded):
    return recorded("LiteLLM_SpendLogs.csv.gz")


def served(rows):
    return rows.filter(pl.col("status").is_in(["ok", "cancelled"]))


def test_payload_has_a_row_per_attempt_and_adds_up(payload):
    assert (payload.format, payload.rows.height, payload.rejects.height) == ("litellm_payload", 429, 0)
    rows = served(payload.rows)
    assert payload.rows["call_id"].n_unique() == 414
    assert rows.select(pl.sum("input_tokens", "output_tokens")).row(0) == (53_866, 13_291)
    assert payload.rows["cost_reported"].sum() == Decimal("0.03139492")
    assert (payload.rows["status"] == "cancelled").sum() == 3


def test_payload_rows_of_the_response_cache_are_marked(payload):
    cached = payload.rows.filter("response_cache_hit")
    assert cached.height == 63
    assert cached.select(pl.sum("input_tokens", "output_tokens")).row(0) == (4582, 1487)
    assert not payload.rows["request_id"].str.contains("_cache_hit").any()


def test_payload_keeps_no_text_and_hashes_every_prompt_it_has(payload):
    rows = payload.rows.filter(pl.col("prompt_hash").is_not_null())
    assert rows.height > 400
    assert (rows["prefix_hashes"].list.last() == rows["prompt_hash"]).all()
    counted = rows.filter(pl.col("prefix_token_counts").is_not_null())
    assert (counted["prefix_token_counts"].list.last() == counted["input_tokens"]).all()


def test_spend_logs_add_up(spend):
    assert (spend.format, spend.rows.height, spend.rejects.height) == ("litellm_spend_logs_csv", 412, 0)
    rows = served(spend.rows)
    assert rows.height == 392
    assert rows.select(pl.sum("input_tokens", "output_tokens")).row(0) == (49_676, 12_285)


def test_spend_logs_of_failures_hold_estimates_and_say_so(spend):
    failed = spend.rows.filter(pl.col("status") == "error")
    assert failed["input_tokens"].sum() == 14_167
    assert set(failed.filter(pl.col("input_tokens").is_not_null())["usage_origin"]) == {"estimated"}


def test_the_two_exports_of_one_proxy_agree_call_by_call(payload, spend):
    """Every served call of the table is in the payloads under the same id; the table rounds times to milliseconds."""
    calls = served(payload.rows).select("gateway", "call_id", "started_at", "input_tokens", "cost_reported")
    both = served(spend.rows).join(calls, on=["gateway", "call_id"], suffix="_payload")
    assert both.height == both["call_id"].n_unique() == 392
    apart = (pl.col("started_at") - pl.col("started_at_payload")).dt.total_microseconds().abs()
    assert both.select(apart.max()).item() <= 500
    assert both["input_tokens"].equals(both["input_tokens_payload"], check_names=False)
    assert both["cost_reported"].equals(both["cost_reported_payload"], check_names=False)
