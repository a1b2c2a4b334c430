"""audit.json: its keys, its types, and the sums that must hold."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsers.records import FILES
from reports.audit_json import NO_TEAM, AuditInputs, audit_document, inputs_part, tokens_part
from reports.audit_parts import costs_part, efficiency_part
from reports.json_values import ratio
from warehouse import tables

KEYS = {
    "": "schema_version tokenworks_version window inputs tokens peaks waste efficiency costs sizing findings "
    "data_quality demand",
    "demand": "source burstiness lengths_together rhythm peak_confidence growth cannot_show unmet from_counters",
    "window": "start end coverage_ratio gaps",
    "inputs": "files lines requests rejects other_lines duplicates by_format",
    "tokens": "input uncached_input cache_read cache_write output reasoning requests_ok requests_error "
    "requests_cancelled requests_usage_missing requests_cache_unknown from_response_cache failed_estimated "
    "by_model by_team",
    "waste": "prefix cache_curve cache_curve_replicas oversize retries",
    "costs": "currency total by_team by_key by_model unattributed unpriced_requests basis",
    "sizing": "as_is waste_removed",
}
OPTION = (
    "model accelerator count parallelism precision serving usd_per_month usd_per_mtok power_kw utilisation "
    "ttft_ms tpot_ms meets_slo reasons"
)


@pytest.mark.parametrize("name", ["week", "nothing", "trace", "engine_only"])
def test_the_document_has_the_keys_of_the_contract_and_is_plain_json(name, request):
    document = audit_document(request.getfixturevalue(name))
    json.dumps(document, allow_nan=False)
    for part, keys in KEYS.items():
        assert set(keys.split()) <= set(document[part] if part else document), part
    assert document["schema_version"] == "1"
    assert set(document["waste"]["prefix"]["evidence"]) == {"hash_chain", "prompt_hash", "session", "none"}


def test_options_peaks_and_findings_have_the_keys_of_the_contract(week):
    document = audit_document(week)
    assert set(OPTION.split()) <= set(document["sizing"]["as_is"]["options"][0])
    assert set(OPTION.split()) <= set(document["sizing"]["as_is"]["choice"])
    assert {"scope", "measure", "window_s", "value", "start"} <= set(document["peaks"][0])
    assert {"id", "severity", "title", "evidence_level", "tokens", "usd", "rows_query"} <= set(
        document["findings"][0]
    )
    assert {"check", "severity", "passed", "detail"} == set(document["data_quality"][0])
    efficiency = "scope mfu_busy mfu_wall mbu_busy tokens_per_j tokens_per_s power_w_mean power_source"
    assert set(efficiency.split()) <= set(document["efficiency"][0])


def _walk(value: Any, path: str = ""):
    match value:
        case dict():
            for key, item in value.items():
                yield from _walk(item, f"{path}.{key}")
        case list():
            for item in value:
                yield from _walk(item, f"{path}[]")
        case _:
            yield path, value


def test_counts_are_integers_money_is_text_ratios_lie_in_0_to_1_instants_end_in_z(week):
    for path, value in _walk(audit_document(week)):
        leaf = path.rsplit(".", 1)[-1]
        if value is None or path.startswith(".fleet"):
            continue
        if leaf.endswith("_tokens") or (path.startswith(".tokens") and leaf != "unknown"):
            assert isinstance(value, int), path
        if leaf in {"usd", "total"} or leaf.startswith("usd_per") or leaf.endswith("_usd"):
            assert isinstance(value, str), path
            Decimal(value)
        if leaf.endswith("_ratio") or leaf.startswith(("mfu", "mbu")):
            assert 0 <= value <= 1, path
        if leaf in {"start", "end"} or leaf.endswith("_at"):
            assert value.endswith("Z"), path


def test_a_ratio_outside_0_to_1_is_unknown_and_the_pool_says_why(week):
    assert [ratio(value) for value in (None, float("nan"), -0.1, 1.1, 0.5)] == [None, None, None, None, 0.5]
    broken = week.efficiency_hourly.with_columns(mfu_busy_ratio=pl.lit(1.7))
    [entry] = efficiency_part(broken)
    assert entry["mfu_busy"] is None
    assert "mfu_busy above 1" in entry["problem"]


def test_nothing_read_gives_unknown_sums_and_zero_counts(nothing):
    document = audit_document(nothing)
    assert document["tokens"]["input"] is None
    assert document["tokens"]["requests_ok"] == 0
    assert document["costs"]["total"] is None
    assert document["window"] == {"start": None, "end": None, "coverage_ratio": None, "gaps": []}
    assert document["waste"]["prefix"]["missed_tokens"] is None


def test_coverage_is_the_share_without_gaps(week):
    window = audit_document(week)["window"]
    assert window["coverage_ratio"] == pytest.approx((7 * 24 - 6) / (7 * 24))
    assert [gap["start"] for gap in window["gaps"]] == ["2026-11-18T03:00:00Z"]


# ---- lines


_counts = st.integers(0, 50)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["litellm", "vllm", None]), _counts, _counts, _counts, st.booleans(), _counts
        ),
        max_size=8,
    )
)
@settings(max_examples=40, deadline=None)
def test_every_line_is_a_request_a_sample_a_reject_a_duplicate_or_other(files):
    """Lines = requests + samples + rejects + other lines + duplicates, in all and by format."""
    target = {"litellm": "requests", "vllm": "engine_samples", None: None}
    rows, dropped = [], {}
    for number, (name, seen, bad, other, copied, twice) in enumerate(files):
        good = seen if name else 0
        rows.append(
            {
                "path": str(number),
                "format": name,
                "target": target[name],
                "copy_of": "0" if copied else None,
                "lines": good + bad + other,
                "rows": good,
                "rejects": bad,
                "other_lines": other,
            }
        )
        if name and not copied:
            dropped[name] = dropped.get(name, 0) + min(twice, good)
    frame = FILES.conform(pl.DataFrame(rows, infer_schema_length=None)) if rows else FILES.empty()
    duplicates = pl.DataFrame(
        {"format": list(dropped), "rows": list(dropped.values())},
        schema={"format": pl.String, "rows": pl.Int64},
    )
    found = inputs_part(frame, duplicates)
    for part in (found, *found["by_format"].values()):
        kinds = ("requests", "samples", "rejects", "other_lines", "duplicates")
        assert part["lines"] == sum(part[kind] for kind in kinds)
    assert found["lines"] == sum(row["lines"] for row in rows if row["copy_of"] is None)
    assert found["requests"] >= 0
    assert found["files"] == len(rows)


# ---- tokens


def test_tokens_of_the_week_follow_the_rules(week):
    """Failed calls carry nothing into sums; the response cache is in the sums and named."""
    tokens = audit_document(week)["tokens"]
    usage = week.usage_daily
    served = usage.filter(pl.col("status") != "error")
    assert tokens["input"] == served["input_tokens"].sum()
    assert tokens["failed_estimated"] == {"requests": 35, "input": 9_999 * 7, "output": 180 * 600 * 7}
    assert tokens["from_response_cache"] == {"requests": 77, "input": 44_000 * 7, "output": 0}
    assert tokens["requests_error"] == 8 * 7
    assert tokens["reasoning"] is None
    assert tokens["uncached_input"] == served["uncached_input_tokens"].sum()
    assert tokens["uncached_input"] < tokens["input"] - tokens["cache_read"]
    assert NO_TEAM in tokens["by_team"]
    for who in ("by_team", "by_model"):
        assert sum(part["input"] for part in tokens[who].values()) == tokens["input"]
        assert sum(part["requests"] for part in tokens[who].values()) == (
            tokens["requests_ok"] + tokens["requests_cancelled"]
        )


_maybe = st.one_of(st.none(), st.integers(0, 1000))
_row = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ok", "error", "cancelled"]),
        "usage_origin": st.sampled_from(["reported", "estimated", "missing"]),
        "response_cache_hit": st.sampled_from([None, False, True]),
        "team": st.sampled_from([None, "a", "b"]),
        "model": st.sampled_from(["m", "n"]),
        "requests": st.integers(1, 9),
        "input_tokens": _maybe,
        "uncached_input_tokens": _maybe,
        "cache_read_tokens": _maybe,
        "output_tokens": _maybe,
    }
)


def _slow_sum(rows, key):
    known = [row[key] for row in rows if row[key] is not None]
    return sum(known) if known else None


@given(st.lists(_row, max_size=12))
@settings(max_examples=40, deadline=None)
def test_token_sums_equal_a_slow_reference(rows):
    base = {"day": date(2026, 11, 16), "requests_usage_missing": 0, "requests_cache_unknown": 1}
    usage = tables.USAGE_DAILY.empty()
    if rows:
        frame = pl.DataFrame([row | base for row in rows], infer_schema_length=None)
        usage = tables.USAGE_DAILY.conform(frame)
    tokens = tokens_part(usage)
    served = [row for row in rows if row["status"] != "error"]
    names = {
        "input": "input_tokens",
        "uncached_input": "uncached_input_tokens",
        "cache_read": "cache_read_tokens",
    }
    for name, column in names.items():
        assert tokens[name] == _slow_sum(served, column)
    assert tokens["requests_ok"] == sum(row["requests"] for row in rows if row["status"] == "ok")
    cached = [row for row in served if row["response_cache_hit"]]
    expected = _slow_sum(cached, "output_tokens") if cached else 0
    assert tokens["from_response_cache"]["output"] == expected
    for team in ("a", "b", None):
        mine = [row for row in served if row["team"] == team]
        if mine:
            assert tokens["by_team"][team or NO_TEAM]["output"] == _slow_sum(mine, "output_tokens")


def test_uncached_input_is_what_the_mart_says_and_stays_unknown_where_no_row_tells_it():
    base = {
        "day": date(2026, 11, 16),
        "model": "m",
        "status": "ok",
        "usage_origin": "reported",
        "requests": 2,
        "requests_usage_missing": 0,
        "input_tokens": 100,
    }
    known = {"requests_cache_unknown": 0, "cache_read_tokens": 30, "uncached_input_tokens": 65}
    usage = tables.USAGE_DAILY.conform(pl.DataFrame([base | known, base | {"requests_cache_unknown": 2}]))
    assert tokens_part(usage)["uncached_input"] == 65
    assert tokens_part(usage.filter(pl.col("requests_cache_unknown") == 2))["uncached_input"] is None


# ---- money

_cent = st.integers(0, 10**24).map(lambda pico: Decimal(pico).scaleb(-12))
_line = st.fixed_dictionaries(
    {
        "team": st.sampled_from([None, "a", "b", "(none)"]),
        "api_key_alias": st.sampled_from([None, "batch", "web"]),
        "api_key_hash": st.sampled_from([None, "0a1b", "2c3d"]),
        "model": st.sampled_from(["m", "pool:p"]),
        "basis": st.sampled_from(["list_price", "reported", "idle", "unpriced"]),
        "cost_usd": _cent,
        "requests": st.integers(0, 5),
    }
)


@given(st.lists(_line, max_size=12))
@settings(max_examples=40, deadline=None)
def test_the_total_is_the_sum_of_its_parts_to_the_last_digit(lines):
    for line in lines:
        if line["basis"] == "unpriced":
            line["cost_usd"] = None
    base = {"charge_day": date(2026, 11, 16), "meter": "request", "unit": "requests"}
    frame = tables.COST_LINES.empty()
    if lines:
        raw = pl.DataFrame(
            [base | line for line in lines],
            schema_overrides={"cost_usd": pl.Decimal(38, 12)},
            infer_schema_length=None,
        )
        frame = tables.COST_LINES.conform(raw)
    costs = costs_part(frame)
    with localcontext(prec=60):
        priced = [line["cost_usd"] for line in lines if line["cost_usd"] is not None]
        expected = sum(priced, Decimal(0))
        teams = sum((Decimal(usd) for usd in costs["by_team"].values() if usd is not None), Decimal(0))
        models = sum((Decimal(usd) for usd in costs["by_model"].values() if usd is not None), Decimal(0))
        keys = {name: Decimal(usd) for name, usd in costs["by_key"].items() if usd is not None}
        slow: dict[str, Decimal] = {}
        for line in lines:
            if line["cost_usd"] is not None:
                name = line["api_key_alias"] or line["api_key_hash"] or "(none)"
                slow[name] = slow.get(name, Decimal(0)) + line["cost_usd"]
        assert keys == slow
        if priced:
            assert Decimal(costs["total"]) == expected == models == sum(keys.values(), Decimal(0))
            assert expected == teams + Decimal(costs["unattributed"] or 0)
        else:
            assert costs["total"] is None
    assert costs["unpriced_requests"] == sum(
        line["requests"] for line in lines if line["basis"] == "unpriced"
    )


def test_several_pools_add_up_and_a_pool_without_a_choice_makes_the_sum_unknown(week):
    other = week.fleet_options.with_columns(pool=pl.lit("second"))
    both = AuditInputs(title="x", fleet_options=pl.concat([week.fleet_options, other]))
    choice = audit_document(both)["sizing"]["as_is"]["choice"]
    assert (choice["count"], choice["usd_per_month"], choice["accelerator"]) == (16, "77800", "H100 SXM")
    unchosen = other.with_columns(is_choice=pl.lit(value=False))
    partly = AuditInputs(title="x", fleet_options=pl.concat([week.fleet_options, unchosen]))
    choice = audit_document(partly)["sizing"]["as_is"]["choice"]
    assert (choice["usd_per_month"], choice["pools_without"]) == (None, ["second"])


def test_mbu_over_wall_time_and_the_busy_histogram_follow_from_the_hours():
    row = {
        "scope": "pool:p",
        "accelerators": 8,
        "wall_s": 3600.0,
        "basis": "b",
        "mfu_busy_ratio": 0.2,
        "mbu_busy_ratio": 0.4,
    }
    hours = [
        row | {"hour_at": datetime(2026, 11, 16, hour, tzinfo=UTC), "busy_s": busy}
        for hour, busy in enumerate((900.0, 2700.0, 3600.0, None))
    ]
    frame = tables.EFFICIENCY_HOURLY.conform(pl.DataFrame(hours, infer_schema_length=None))
    [entry] = efficiency_part(frame)
    assert entry["mbu_wall"] == pytest.approx(0.4 * 7200 / 10_800)
    assert entry["against_marks"] == "below_30"
    filled = {bin_["from_ratio"]: bin_["wall_s"] for bin_ in entry["busy_histogram"] if bin_["wall_s"]}
    assert filled == {0.2: 3600.0, 0.7: 3600.0, 0.9: 3600.0}
    assert len(entry["busy_histogram"]) == 10
