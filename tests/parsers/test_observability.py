"""Recorded accounting mistakes that concern exports of observability products and hosted gateways."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

AT = "2026-05-04T09:20:46.847Z"


def langfuse(read, usage, **more):
    plain = {"id": "o", "traceId": "t", "type": "GENERATION", "startTime": AT, "parentObservationId": None}
    return read(json.dumps({**plain, "usageDetails": usage} | more) + "\n").rows.row(0, named=True)


@pytest.mark.parametrize(
    ("usage", "whole", "flags"),
    [
        # B009, with the sender's total and without
        ({"input": 1999, "input_cached_tokens": 1792, "output": 1, "total": 2000}, 1999, []),
        ({"input": 1999, "input_cached_tokens": 1792, "output": 1}, 1999, ["cache_taken_as_inside_input"]),
        ({"input": 207, "input_cached_tokens": 1792, "output": 1}, 1999, []),
        # B010
        (
            {"input": 130_213, "input_cached_tokens": 130_208, "output": 0, "total": 260_421},
            130_213,
            ["cache_taken_as_inside_input"],
        ),
        # B004: reads and writes are parts of the whole
        (
            {"input": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 12_304, "output": 1},
            12_407,
            [],
        ),
        # nothing tells
        ({"input": 3000, "input_cached_tokens": 1024, "output": 1}, 4024, ["cache_may_be_inside_input"]),
    ],
)
def test_cached_tokens_are_counted_once(read, usage, whole, flags):
    """Cases B004, B009 and B010."""
    row = langfuse(read, usage)
    assert (row["input_tokens"], row["flags"]) == (whole, flags)


def test_a_key_that_nobody_knows_is_flagged(read):
    """Case B010: an unknown name of a count is not added in silence."""
    assert langfuse(read, {"input": 5, "input_new_tokens": 2, "output": 1})["flags"] == ["unknown_usage_key"]


def test_a_call_that_the_provider_refused_costs_nothing_and_its_count_is_an_estimate(read):
    """Case B125: priced at $5, billed $1."""
    row = langfuse(
        read,
        {"input": 250_000, "output": 0},
        level="ERROR",
        statusMessage="Error code: 529 - overloaded",
        costDetails={"total": 5},
    )
    assert (row["cost_reported"], row["usage_origin"], row["http_status"]) == (Decimal(0), "estimated", 529)


def test_reasoning_left_out_by_a_translation_shows_in_the_total(read):
    """Case B041: completion is the candidates only."""
    body = {"model": "gemini", "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 150}}
    record = {"ai_org": "google", "ai_model": "gemini", "req_units": 100, "res_units": 20, "created_at": AT}
    row = read(json.dumps({**record, "response": {"body": body}}) + "\n").rows.row(0, named=True)
    assert (row["output_tokens"], row["flags"]) == (50, ["hidden_reasoning"])


def test_portkey_states_cents_and_every_token_of_claude_is_in_one_class(read):
    """Case B001: $0.054399 for 3 + 12,304 written + 550."""
    counts = {"prompt_tokens": 3, "completion_tokens": 550, "total_tokens": 12_857}
    usage = {**counts, "cache_creation_input_tokens": 12_304, "cache_read_input_tokens": 0}
    record = {"ai_org": "anthropic", "ai_model": "claude", "req_units": 3, "res_units": 550, "created_at": AT}
    record |= {"cost": 5.4399, "cost_currency": "USD", "response": {"body": {"usage": usage}}}
    row = read(json.dumps(record) + "\n").rows.row(0, named=True)
    assert row["cost_reported"] == Decimal("0.054399")
    assert (row["input_tokens"], row["cache_write_5m_tokens"], row["output_tokens"]) == (12_307, 12_304, 550)


def test_the_tier_of_a_run_is_read_from_the_names_of_its_details(read):
    """Case B042: a tier is a property of the whole call."""
    record = {"id": "r", "trace_id": "r", "dotted_order": "x", "run_type": "llm", "start_time": AT}
    record |= {"prompt_tokens": 10, "completion_tokens": 5, "completion_token_details": {"flex_reasoning": 4}}
    record["prompt_token_details"] = {"flex": 10}
    row = read(json.dumps(record) + "\n").rows.row(0, named=True)
    assert (row["service_tier"], row["reasoning_tokens"], row["output_tokens"]) == ("flex", 4, 5)


def test_the_cost_of_a_key_of_ones_own_is_the_vendors_and_the_fee(read):
    """Case B145: what the provider says it cost comes before any price list."""
    record = {"id": "g", "created_at": AT, "native_tokens_prompt": 1, "native_tokens_completion": 1}
    record |= {"is_byok": True, "total_cost": 0.0001, "upstream_inference_cost": 0.0043}
    row = read(json.dumps({"data": record}) + "\n").rows.row(0, named=True)
    assert row["cost_reported"] == Decimal("0.0044")
