"""The audit finds in the example week what was planted there, with its size (`test_planted_waste.py`: each waste)."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

import polars as pl
import pytest

pytestmark = pytest.mark.slow

WITHIN = 0.02
"""Sizes of waste: bytes tell the place of a token to about a thousandth; two per cent is the promise."""
GAP_TOLERANCE = timedelta(minutes=15)
TOKENS = ("input", "uncached_input", "cache_read", "cache_write", "output", "reasoning")
SERVED = pl.col("status").is_in(["ok", "cancelled"])


def at(text):
    return datetime.fromisoformat(text)


def known(figures, names):
    """Figures with unknown as 0: the truth counts tokens that were logged, and none were."""
    return {name: figures[name] or 0 for name in names}


# ---- Totals


def test_every_line_is_accounted_for(audited):
    inputs, truth = audited.document["inputs"], audited.truth
    gateway, telemetry = (inputs["by_format"][name] for name in ("litellm_payload", "nvidia_smi_csv"))
    assert gateway["lines"] == truth["lines"]
    assert gateway["requests"] == truth["rows"]["all"]
    assert gateway["files"] == len(truth["files"])
    assert telemetry["samples"] == truth["telemetry"]["rows"] - truth["telemetry"]["duplicate_rows"]
    assert inputs["rejects"] == 0
    parts = ("requests", "samples", "rejects", "other_lines", "duplicates")
    for part in (inputs, *inputs["by_format"].values()):
        assert part["lines"] == sum(part[name] for name in parts)


def test_lines_that_were_exported_twice_count_once(audited):
    duplicates = audited.document["inputs"]["by_format"]["litellm_payload"]["duplicates"]
    assert duplicates == audited.truth["duplicate_lines"] == audited.the("overlapping_export")["requests"] > 0


def test_tokens_and_outcomes_of_the_week_are_exact(audited):
    found, truth = audited.document["tokens"], audited.truth["tokens"]
    names = (*TOKENS, *(name for name in truth if name.startswith("requests_")), "from_response_cache")
    assert {name: found[name] for name in names} == {name: truth[name] for name in names}
    assert found["failed_estimated"] == truth["failed_estimated"]


@pytest.mark.parametrize(("part", "unnamed"), [("by_model", {}), ("by_team", {"unattributed": "(none)"})])
def test_tokens_by_model_and_team_are_exact(audited, part, unnamed):
    found, truth = audited.document["tokens"][part], audited.truth[part]
    assert set(found) == {unnamed.get(name, name) for name in truth}
    for name, stated in truth.items():
        figures = found[unnamed.get(name, name)]
        assert known(figures, TOKENS) == known(stated, TOKENS)
        assert figures["requests"] == stated["requests_ok"] + stated["requests_cancelled"]
        assert figures["requests_usage_missing"] == stated["requests_usage_missing"]
        assert figures["requests_cache_unknown"] == stated["requests_cache_unknown"]
        # Nothing is known of reads where no call states them; that is not the same as none.
        assert (figures["cache_read"] is None) == (figures["requests_cache_unknown"] == figures["requests"])


# ---- Demand


def test_requests_of_the_busiest_minute_are_exact(audited):
    peaks = {
        (peak["scope"], peak["measure"]): peak for peak in audited.document["peaks"] if peak["window_s"] == 60
    }
    minutes = audited.mart("demand_minute")
    for stated in audited.truth["peaks"]:
        if stated["measure"] != "requests":
            continue
        found = peaks[stated["scope"], "requests"]
        if stated["window"] == "sliding":
            assert found["value"] == stated["value"]
            assert abs(at(found["start"]) - at(stated["start"])) <= timedelta(minutes=1)
        else:
            assert found["value"] >= stated["value"]
            inside = minutes.filter(
                (pl.col("scope") == stated["scope"]) & (pl.col("minute_at") == at(stated["start"]))
            )
            assert inside["requests"].to_list() == [stated["value"]]


def test_tokens_of_the_busiest_minute_by_start_are_exact(audited):
    rows = audited.requests().filter(SERVED & ~pl.col("response_cache_hit").fill_null(value=False))
    rows = rows.with_columns(
        minute=pl.col("started_at").dt.truncate("1m"), model=pl.coalesce("model_served", "model_requested")
    )
    sums = {"input_tokens": pl.col("input_tokens"), "output_tokens": pl.col("output_tokens")}
    sums["total_tokens"] = pl.col("input_tokens").fill_null(0) + pl.col("output_tokens").fill_null(0)
    for stated in audited.truth["peaks"]:
        if stated["measure"] in sums:
            scope = stated["scope"].removeprefix("model:")
            part = rows if scope == "all" else rows.filter(pl.col("model") == scope)
            by_minute = part.group_by("minute").agg(tokens=sums[stated["measure"]].sum())
            assert by_minute["tokens"].max() == stated["value"]
            best = by_minute.filter(pl.col("tokens") == stated["value"])["minute"].to_list()
            assert at(stated["start"]) in best


def test_the_launch_is_the_peak_of_the_own_model_with_its_size(audited):
    burst = audited.the("launch_burst")
    peaks = {(peak["scope"], peak["measure"], peak["window_s"]): peak for peak in audited.document["peaks"]}
    for measure in ("requests", "output_tokens"):
        found = peaks[f"model:{burst['model']}", measure, 60]
        assert at(burst["first_at"]) <= at(found["start"]) <= at(burst["last_at"])
    assert peaks[f"model:{burst['model']}", "requests", 60]["value"] >= burst["detail"]["peak_requests"]
    rows = audited.requests().filter(SERVED & (pl.col("api_key_alias") == burst["key_alias"]))
    assert (rows.height, rows["input_tokens"].sum()) == (burst["requests"], burst["tokens"])


def test_the_gap_is_found_where_it_is_and_is_not_quiet_time(audited):
    (gap,), window = audited.document["window"]["gaps"], audited.document["window"]
    (stated,) = audited.truth["gaps"]
    assert abs(at(gap["start"]) - at(stated["start"])) <= GAP_TOLERANCE
    assert abs(at(gap["end"]) - at(stated["end"])) <= GAP_TOLERANCE
    whole = at(window["end"]) - at(window["start"])
    missing = at(stated["end"]) - at(stated["start"])
    assert window["coverage_ratio"] == pytest.approx(1 - missing / whole, abs=2 * GAP_TOLERANCE / whole)
    minutes = audited.mart("demand_minute")["minute_at"]
    margin = GAP_TOLERANCE
    assert minutes.is_between(at(stated["start"]) + margin, at(stated["end"]) - margin).sum() == 0


# ---- Waste


def test_repeated_documents_are_found_with_their_tokens_and_their_money(audited):
    planted = audited.the("repeated_documents")
    scope = f"model:{planted['model']}/team:{planted['team']}"
    row = audited.mart("repetition").row(by_predicate=pl.col("scope") == scope, named=True)
    detail = planted["detail"]
    assert row["hash_chain_requests"] == detail["calls"]
    assert row["hash_chain_input_tokens"] == detail["input_tokens"]
    seen = planted["tokens"] + detail["system_text_again_tokens"]
    assert row["seen_before_tokens"] == pytest.approx(seen, rel=WITHIN)
    assert row["missed_tokens"] == pytest.approx(detail["missed_tokens"], rel=WITHIN)
    assert float(row["missed_usd"]) == pytest.approx(float(detail["missed_usd"]), rel=WITHIN)
    (found,) = [entry for entry in audited.findings("missed_cache") if entry["scope"] == scope]
    assert found["evidence_level"] == "hash_chain"
    assert found["tokens"] == pytest.approx(detail["missed_tokens"], rel=WITHIN)
    assert float(found["usd"]) == pytest.approx(float(detail["missed_usd"]), rel=WITHIN)
    assert found == next(entry for entry in audited.document["findings"] if entry["usd_net"] is not None)


def test_the_rows_behind_the_repetition_are_the_planted_ones(audited):
    planted = audited.the("repeated_documents")
    scope = f"model:{planted['model']}/team:{planted['team']}"
    (found,) = [entry for entry in audited.findings("missed_cache") if entry["scope"] == scope]
    with audited.warehouse.connect() as connection:
        rows = pl.DataFrame(connection.sql(found["rows_query"]).to_arrow_table())
    assert rows.height == found["requests"]
    assert rows["started_at"].max() == at(planted["last_at"])


def test_documents_that_are_read_from_the_cache_are_no_waste(audited):
    """The control: the same habit where the provider's cache works."""
    repetition = audited.mart("repetition")
    for planted in audited.planted("cached_documents"):
        scope = f"model:{planted['model']}/team:{planted['team']}"
        row = repetition.row(by_predicate=pl.col("scope") == scope, named=True)
        assert row["missed_tokens"] <= WITHIN * planted["tokens"]
        assert row["seen_before_tokens"] == pytest.approx(
            planted["tokens"] + planted["detail"]["system_text_again_tokens"], rel=WITHIN
        )
        assert not [found for found in audited.findings("missed_cache") if found["scope"] == scope]


def test_agents_without_cache_are_an_upper_bound_and_no_money(audited):
    """Their messages are redacted: sessions and counts alone say that history was sent again."""
    without, cached = audited.the("agent_sessions_without_cache"), audited.the("agent_sessions")
    bound = without["detail"]["session_upper_bound_tokens"]
    bound += cached["detail"]["session_upper_bound_tokens"] - cached["detail"]["cache_read_tokens"]
    scope = f"model:{without['model']}/team:{without['team']}"
    row = audited.mart("repetition").row(by_predicate=pl.col("scope") == scope, named=True)
    assert row["upper_bound_tokens"] == pytest.approx(bound, rel=WITHIN)
    assert (row["missed_tokens"], row["missed_usd"]) == (None, None)
    for found in audited.findings("session_resend"):
        assert (found["scope"], found["tokens"]) == (scope, row["upper_bound_tokens"])
        assert (found["evidence_level"], found["usd"]) == ("session", None)
    assert (
        audited.document["tokens"]["by_model"][without["model"]]["cache_read"]
        == (cached["detail"]["cache_read_tokens"])
    )


def test_oversize_prompts_are_found_one_by_one(audited):
    planted = audited.the("oversize_prompts")
    oversize = audited.mart("oversize").filter(pl.col("scope").str.ends_with(f"key:{planted['key_alias']}"))
    row = oversize.row(by_predicate=pl.col("rule") == "outlier", named=True)
    assert (row["requests"], row["input_tokens"]) == (planted["requests"], planted["tokens"])
    assert (row["first_at"], row["last_at"]) == (at(planted["first_at"]), at(planted["last_at"]))
    assert row["excess_tokens"] == pytest.approx(planted["tokens"], rel=WITHIN)
    found = [entry for entry in audited.findings("oversize") if entry["scope"] == row["scope"]]
    assert [entry["tokens"] for entry in found] == [row["excess_tokens"]]


def test_failed_attempts_are_counted_by_error_and_by_whether_they_were_made_good(audited):
    stated, recovered = {}, {}
    for kind in ("retried_attempts", "fallback_attempts", "failed_calls"):
        for planted in audited.planted(kind):
            error = planted["detail"]["error_kind"]
            stated[error] = stated.get(error, 0) + planted["requests"]
            if kind != "failed_calls":
                recovered[error] = recovered.get(error, 0) + planted["detail"]["calls"]
    found = audited.document["waste"]["retries"]["by_error_kind"]
    assert {error: part["attempts"] for error, part in found.items()} == stated
    assert {
        error: part["recovered_calls"] for error, part in found.items() if part["recovered_calls"]
    } == recovered
    assert audited.document["waste"]["retries"]["attempts"] == sum(stated.values())
    assert not any(part["billed_tokens"] for part in found.values())
    statuses = audited.requests().filter(pl.col("status") == "error").group_by("http_status").len()
    by_status = {}
    for kind in ("retried_attempts", "fallback_attempts", "failed_calls"):
        for planted in audited.planted(kind):
            status = planted["detail"]["http_status"]
            by_status[status] = by_status.get(status, 0) + planted["requests"]
    assert dict(statuses.iter_rows()) == by_status


def test_the_errors_that_clients_met_most_are_a_finding(week):
    """Rate limits on the ticket labels: six of a hundred calls."""
    (planted,) = [
        entry
        for entry in week.planted("retried_attempts")
        if entry["detail"]["error_kind"] == "RateLimitError"
    ]
    (found,) = [entry for entry in week.findings("failed_attempts") if planted["model"] in entry["scope"]]
    assert f"{planted['requests']} of " in found["title"]
    assert "RateLimitError" in found["title"]


def test_answers_of_the_gateways_own_cache_are_usage_but_no_demand(audited):
    planted = audited.the("response_cache_hits")
    found = audited.document["tokens"]["from_response_cache"]
    stated = {"requests": planted["requests"], "input": planted["tokens"]}
    assert found == stated | {"output": planted["detail"]["output_tokens"]}
    everything = audited.mart("demand_minute").filter(pl.col("scope") == "all")["requests"].sum()
    served = audited.truth["tokens"]["requests_ok"] + audited.truth["tokens"]["requests_cancelled"]
    assert everything == served - planted["requests"]


def test_disconnects_and_lost_usage_are_shown_and_not_guessed(audited):
    rows = audited.requests()
    gone, lost = audited.the("client_disconnects"), audited.the("usage_missing")
    cancelled = rows.filter(pl.col("status") == "cancelled")
    assert (cancelled.height, cancelled["input_tokens"].sum(), cancelled["output_tokens"].sum()) == (
        gone["requests"],
        gone["tokens"],
        gone["detail"]["output_tokens"],
    )
    missing = rows.filter(SERVED & (pl.col("usage_origin") == "missing"))
    assert missing.height == lost["requests"] == audited.document["tokens"]["requests_usage_missing"]
    assert missing["input_tokens"].null_count() == missing.height
    assert missing["api_key_alias"].unique().to_list() == [lost["key_alias"]]


# ---- Money


def test_spend_is_what_the_log_states_to_the_last_digit(audited):
    costs, truth = audited.document["costs"], audited.truth
    assert Decimal(costs["by_basis"]["reported"]) == Decimal(truth["spend_usd"])
    for model, stated in truth["by_model"].items():
        if Decimal(stated["spend_usd"]):
            assert Decimal(costs["by_model"][model]) == Decimal(stated["spend_usd"])
    lines = audited.mart("cost_lines").filter(pl.col("basis") == "reported")
    by_team = dict(lines.group_by("team").agg(pl.col("cost_usd").sum()).iter_rows())
    for team, stated in truth["by_team"].items():
        named = None if team == "unattributed" else team
        assert by_team.get(named, Decimal(0)) == Decimal(stated["spend_usd"])


def test_every_total_is_the_sum_of_its_parts_to_the_last_digit(audited):
    costs = audited.document["costs"]
    total = Decimal(costs["total"])
    by_team = sum(Decimal(usd) for usd in costs["by_team"].values())
    assert by_team + Decimal(costs["unattributed"]) == total
    for part in ("by_model", "by_day", "by_meter", "by_basis"):
        assert sum(Decimal(usd) for usd in costs[part].values() if usd is not None) == total
    assert audited.mart("cost_lines")["cost_usd"].sum() == total
    assert Decimal(costs["idle"]) == Decimal(costs["by_basis"]["idle"])


def test_a_key_without_team_and_a_model_without_price_are_lines_of_their_own(audited):
    key, tuned, lost = (audited.the(kind) for kind in ("unattributed_key", "unpriced_model", "usage_missing"))
    costs, lines = audited.document["costs"], audited.mart("cost_lines")
    idle = Decimal(costs["idle"])
    assert Decimal(costs["unattributed"]) == idle + Decimal(key["detail"]["spend_usd"])
    of_key = lines.filter(pl.col("team").is_null() & (pl.col("basis") != "idle"))
    assert of_key["api_key_alias"].unique().to_list() == [key["key_alias"]]
    assert audited.document["tokens"]["by_team"]["(none)"]["input"] == key["tokens"]
    unpriced = lines.filter(pl.col("model") == tuned["model"])
    assert unpriced["cost_usd"].null_count() == unpriced.height > 0
    assert costs["by_model"][tuned["model"]] is None
    assert costs["unpriced_requests"] == tuned["requests"] + lost["requests"]


def test_own_hardware_costs_the_same_in_the_costs_and_in_the_options(audited):
    """What a pool cost in the covered time, made a month, is what its row of today says."""
    lines = audited.mart("cost_lines")
    today = {row["pool"]: row for row in options(audited, "as_is") if row["is_today"]}
    for entry in audited.document["efficiency"]:
        pool = entry["scope"].removeprefix("pool:")
        models = [name for name in audited.truth["by_model"] if name.endswith(f"/{MODEL_OF[pool]}")]
        mine = lines.filter(pl.col("model").is_in([*models, entry["scope"]]))
        month = float(mine["cost_usd"].sum()) / entry["wall_s"] * 730 * 3600
        assert month == pytest.approx(float(today[pool]["usd_per_month"]), rel=1e-3)
        assert entry["power_source"] == "measured"


MODEL_OF = {"llama-70b": "llama-3.3-70b", "qwen-8b": "qwen3-8b"}


def test_power_is_that_of_the_telemetry(audited):
    watts = audited.truth["telemetry"]["power_w_mean"]
    pools = {pool["name"]: pool["devices"] for pool in audited.document["fleet"]["pools"]}
    for entry in audited.document["efficiency"]:
        stated = sum(watts[device] for device in pools[entry["scope"].removeprefix("pool:")])
        assert entry["power_w_mean"] == pytest.approx(stated, rel=WITHIN)


# ---- Sizing and decision


def options(audited, scenario):
    return audited.document["sizing"][scenario]["options"]


def test_removing_waste_never_costs_more(audited):
    as_is, removed = (
        {row["pool"]: row for row in options(audited, scenario) if row["is_choice"]}
        for scenario in ("as_is", "waste_removed")
    )
    assert as_is.keys() == removed.keys()
    for pool, row in as_is.items():
        assert Decimal(removed[pool]["usd_per_month"]) <= Decimal(row["usd_per_month"])
    saved = sum(
        Decimal(as_is[pool]["usd_per_month"]) - Decimal(removed[pool]["usd_per_month"]) for pool in as_is
    )
    window = audited.document["efficiency"][0]["wall_s"]
    planted = float(audited.the("repeated_documents")["detail"]["missed_usd"]) / window * 730 * 3600
    assert float(saved) >= (1 - WITHIN) * planted


def test_money_of_the_decision_is_the_sum_of_the_pools(audited):
    def together(scenario, flag):
        stated = [row["usd_per_month"] for row in options(audited, scenario) if row[flag]]
        return sum(Decimal(usd) for usd in stated if usd is not None)

    money, fixes = audited.decision.money, audited.decision.verdict == "fix"
    assert money.now == together("as_is", "is_today")
    assert money.after == together("waste_removed" if fixes else "as_is", "is_choice")
    assert money.unfixed == (together("as_is", "is_choice") if fixes else None)


def test_options_are_ranked_and_consistent(audited):
    tokens = audited.document["tokens"]["by_model"]
    for scenario in ("as_is", "waste_removed"):
        by_pool = {}
        for row in options(audited, scenario):
            by_pool.setdefault(row["pool"], []).append(row)
        for pool, rows in by_pool.items():
            assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
            usd = [float(row["usd_per_month"]) for row in rows if row["meets_slo"]]
            assert usd == sorted(usd)
            assert sum(row["is_choice"] for row in rows) <= 1
            if scenario == "as_is" and pool in MODEL_OF:
                figures = next(part for name, part in tokens.items() if name.endswith(f"/{MODEL_OF[pool]}"))
                window = next(
                    entry["wall_s"]
                    for entry in audited.document["efficiency"]
                    if entry["scope"] == f"pool:{pool}"
                )
                month = (figures["input"] + figures["output"]) / window * 730 * 3600 / 1e6
                for row in rows:
                    assert float(row["usd_per_mtok"]) * month == pytest.approx(
                        float(row["usd_per_month"]), rel=1e-3, abs=1e-3 * month
                    )


def test_own_rented_and_api_stand_side_by_side_for_the_own_models(audited):
    for pool in MODEL_OF:
        rows = [row for row in options(audited, "as_is") if row["pool"] == pool]
        assert {row["serving"] for row in rows} == {"own", "cloud", "api"}
        (api,) = [row for row in rows if row["serving"] == "api"]
        assert Decimal(api["usd_per_month"]) > 0
        assert not api["is_choice"]
        assert api["meets_slo"] is None
        assert any(reason.startswith("List price of the same open weights") for reason in api["reasons"])


def test_agents_that_resend_without_cache_are_a_finding(week):
    assert len(week.findings("session_resend")) == 1


def test_the_fleet_that_carried_the_launch_is_kept_and_the_cache_is_fixed_first(week):
    (today,) = [row for row in options(week, "as_is") if row["pool"] == "llama-70b" and row["is_today"]]
    assert today["is_choice"]
    assert today["meets_slo"]
    assert today["reasons"][0].startswith("It carried the peak: observed p95 TTFT")
    slo = week.document["fleet"]["slo"]
    assert today["ttft_ms"]["p95"] <= slo["ttft_p95_ms"]
    assert today["tpot_ms"]["p95"] <= slo["tpot_p95_ms"]
    assert week.decision.verdict == "fix"
    assert week.decision.headline.startswith("Fix the prompt cache first, then keep the 4 x H100")


def test_observed_latency_at_the_peak_is_that_of_the_calls_there(week):
    """The figures of today's row against a plain reading of the calls in the window that the reason names."""
    (today,) = [row for row in options(week, "as_is") if row["pool"] == "llama-70b" and row["is_today"]]
    start = at(today["reasons"][0].partition(" s from ")[2].partition(" UTC")[0] + "+00:00")
    calls = week.requests().filter(
        SERVED
        & pl.col("model_served").str.contains("llama-3.3-70b")
        & (pl.col("output_tokens") > 1)
        & (pl.col("first_token_at") < pl.col("ended_at"))
    )
    ttft = (pl.col("first_token_at") - pl.col("started_at")).dt.total_microseconds() / 1e3
    for shift_ms in range(0, 1001, 50):
        begin = start + timedelta(milliseconds=shift_ms)
        inside = calls.filter(pl.col("started_at").is_between(begin, begin + timedelta(seconds=60)))
        if inside.select(ttft.quantile(0.95, "higher")).item() == pytest.approx(
            today["ttft_ms"]["p95"], rel=0.05
        ):
            return
    pytest.fail("no window that begins within the named second has this p95")


# ---- What must not change


def test_the_same_week_gives_the_same_document(small, small_again):
    assert small.document == small_again.document
