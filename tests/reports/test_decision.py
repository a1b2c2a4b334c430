"""The decision: what it says for rich and poor inputs, and that it is made from the document's figures."""

from __future__ import annotations

import copy
import dataclasses
import re
import string

import polars as pl
import pytest

from reports import numbers, page_strings, strings
from reports.audit_json import audit_document
from reports.decision import decision, decision_lines
from reports.sensitivity import flips


@pytest.fixture
def document(week):
    return copy.deepcopy(audit_document(week))


def _choose(document, rank, **changes):
    """Recommend the option of a rank in both scenarios, with some of its columns changed."""
    for scenario in ("as_is", "waste_removed"):
        for option in document["sizing"][scenario]["options"]:
            option["is_choice"] = option["rank"] == rank
            if option["is_choice"]:
                option.update(changes)


def _no_waste(document):
    document["waste"]["prefix"]["missed_tokens"] = 0
    document["findings"] = []


def test_material_waste_is_fixed_before_hardware_is_judged(document):
    found = decision(document)
    assert found.verdict == "fix"
    assert found.headline == "Fix the prompt cache first, then keep the 8 x H100 SXM you have. Do not buy."
    assert "38,900 USD a month; 24,900 USD a month after the change" in found.money_line


def test_without_waste_the_choice_of_the_load_as_it_is_stands(document):
    _no_waste(document)
    found = decision(document)
    assert (found.verdict, found.headline) == ("keep", "Keep the 8 x H100 SXM you have. Do not buy.")
    assert found.money_line == "Now 38,900 USD a month, and the same after: nothing changes."


@pytest.mark.parametrize(
    ("rank", "changes", "verdict", "headline"),
    [
        (1, {"is_today": False, "count": 12}, "buy", "Buy 4 more H100 SXM."),
        (
            1,
            {"is_today": False, "count": 6},
            "keep",
            "Keep 6 of the 8 x H100 SXM you have and release the rest.",
        ),
        (2, {}, "rent", "Rent 8 x H200."),
        (2, {"serving": "own"}, "buy", "Buy 8 x H200."),
        (4, {}, "rent", "Move to an API."),
    ],
)
def test_the_action_follows_from_the_choice_against_today(document, rank, changes, verdict, headline):
    _no_waste(document)
    today = copy.deepcopy(document["sizing"]["as_is"]["options"][0]) | {"is_choice": False, "rank": 9}
    _choose(document, rank, **changes)
    for scenario in ("as_is", "waste_removed"):
        if changes.get("is_today") is False:
            document["sizing"][scenario]["options"].append(copy.deepcopy(today))
    found = decision(document)
    assert found.verdict == verdict
    assert found.headline.startswith(headline)


def test_no_choice_says_why(document):
    _no_waste(document)
    _choose(document, None)
    found = decision(document)
    assert found.verdict == "undecided"
    assert found.headline.endswith("It meets the SLO at the peak.")
    assert found.confidence == "low"
    for option in document["sizing"]["as_is"]["options"]:
        option["reasons"] = ["No choice: no price is known"]
    assert decision(document).headline.endswith("No price is known.")
    document["fleet"] = None
    assert "no fleet.toml says what runs today" in decision(document).headline


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("nothing", "the logs hold no requests"),
        ("engine_only", "the files hold samples of devices or engines, no calls"),
        ("trace", "no fleet.toml says what runs today"),
    ],
)
def test_poor_inputs_get_sentences_on_what_is_missing_and_how_to_get_it(name, missing, request):
    found = decision(audit_document(request.getfixturevalue(name)))
    assert found.verdict == "undecided"
    assert missing in found.headline
    assert found.confidence == "low"
    assert len(found.reasons) == 3
    assert found.money.now is None
    assert "unknown" in found.money_line
    assert found.risks


def test_every_sentence_links_to_a_section(week, nothing, trace, engine_only):
    for inputs in (week, nothing, trace, engine_only):
        found = decision(audit_document(inputs))
        assert {statement.section for statement in (*found.reasons, *found.risks)} <= set(
            page_strings.SECTIONS
        )


def test_an_unknown_cache_read_is_said_and_not_written_as_zero(document):
    document["tokens"]["cache_read"] = None
    [waste, *_] = decision(document).reasons
    assert "what was read from cache is unknown. Log cached tokens." in waste.text


def test_sessions_alone_give_an_upper_bound(document):
    for level in ("hash_chain", "prompt_hash"):
        document["waste"]["prefix"]["evidence"][level] = {"requests": 0, "input_tokens": 0}
    [waste, *_] = decision(document).reasons
    assert waste.text.startswith("Up to 3.3 % of input")


def test_a_pool_without_mfu_says_why(document):
    document["costs"]["idle"] = "0"
    document["efficiency"][0]["mfu_busy"] = None
    document["efficiency"][0]["basis"] = ["no call has a duration"]
    third = decision(document).reasons[2]
    assert third.text.endswith("MFU is unknown: no call has a duration.")


def test_idle_hardware_is_a_reason_where_it_is_much_of_the_cost(document):
    third = decision(document).reasons[2]
    assert third.text.startswith("76 % of the window's cost")
    assert third.section == "money"


def test_a_pool_without_a_choice_is_named_and_left_out_of_the_money(week):
    nobody = week.fleet_options.with_columns(
        pool=pl.lit("odd"), is_choice=pl.lit(value=False), reasons=pl.lit(["No choice: no price is known"])
    )
    options = pl.concat([week.fleet_options, nobody])
    found = decision(audit_document(dataclasses.replace(week, fleet_options=options)))
    assert found.headline.endswith("for main. Do not buy. odd can't be judged: no price is known.")
    assert found.money_line.startswith("Now 38,900 USD a month; 24,900 USD a month")
    assert found.money_line.endswith("Not in it: odd (no known cost).")
    assert "1 of 2 pools without a recommendation" in found.confidence_why


def test_a_choice_whose_cost_today_is_unknown_is_told_with_its_price(document):
    for scenario in ("as_is", "waste_removed"):
        options = document["sizing"][scenario]["options"]
        chosen = next(option for option in options if option["is_choice"])
        options.append(chosen | {"pool": "new", "is_today": False, "usd_per_month": "5000"})
    found = decision(document)
    assert found.money_line.endswith("Not in it: new (now unknown, 5,000 USD a month after).")
    assert " for new, if nothing carries it yet;" in found.headline
    assert found.headline.endswith("State in fleet.toml what serves it today to have that judged.")


def test_calls_without_a_model_are_not_called_unknown(document):
    for scenario in ("as_is", "waste_removed"):
        options = document["sizing"][scenario]["options"]
        options.append(
            options[0] | {"pool": "unknown", "is_choice": False, "reasons": ["No choice: no price"]}
        )
    found = decision(document)
    assert found.headline.endswith("The calls without a model's name can't be judged: no price.")
    assert found.money_line.endswith("Not in it: the calls without a model's name (no known cost).")


def test_money_that_reads_the_same_is_said_once(document):
    options = document["sizing"]["waste_removed"]["options"]
    stays = next(option for option in document["sizing"]["as_is"]["options"] if option["is_choice"])
    for option in options:
        if option["is_choice"]:
            option["usd_per_month"] = str(float(stays["usd_per_month"]) - 0.01)
    assert decision(document).money_line == "Now 38,900 USD a month, and about as much after."


@pytest.mark.parametrize(("load", "said"), [(0.5, True), (0.05, False)])
def test_only_growth_that_may_come_is_a_risk(document, load, said):
    for option in document["sizing"]["as_is"]["options"]:
        option["peak_utilisation"] = load
    assert any(risk.text.startswith("Growth of the peak above") for risk in decision(document).risks) is said


def test_money_without_options_is_the_window_scaled_to_a_month(document):
    document["sizing"] = {key: {"choice": None, "today": None, "options": []} for key in document["sizing"]}
    document["findings"] = []
    found = decision(document)
    assert "(extrapolated from 6.75 d of data)" in found.money_line
    assert "after the change: unknown" in found.money_line
    # 1136 USD in 162 h, 730 h a month.
    assert float(found.money.now) == pytest.approx(float(document["costs"]["total"]) * 730 / 162)


def test_a_window_under_a_day_is_not_scaled_to_a_month(document):
    document["sizing"] = {key: {"choice": None, "today": None, "options": []} for key in document["sizing"]}
    document["window"]["end"] = "2026-11-16T00:25:00Z"
    found = decision(document)
    assert found.money.now is None
    assert "too short to speak of a month" in found.money_line


def test_confidence_falls_with_the_points_against(document):
    document["costs"]["unpriced_requests"] = 0
    for option in document["sizing"]["as_is"]["options"]:
        option["confidence"] = "high"
    assert decision(document).confidence == "high"
    document["window"]["coverage_ratio"] = 0.9
    assert decision(document).confidence == "medium"
    document["data_quality"][0]["passed"] = False
    found = decision(document)
    assert found.confidence == "low"
    assert "1 blocking checks failed" in found.confidence_why
    assert found.risks[0].text.startswith("1 checks of the data failed")


def test_three_lines_for_the_terminal_without_control_characters(document):
    document["sizing"]["as_is"]["options"][0]["accelerator"] = "H\x1b[31m"
    document["sizing"]["waste_removed"]["options"][0]["accelerator"] = "H\x1b[31m"
    lines = decision_lines(decision(document))
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_several_pools_are_told_one_by_one(week):
    options = [
        week.fleet_options.with_columns(pool=pl.lit(f"p{number}"), is_choice=pl.col("rank") == rank)
        for number, rank in enumerate((1, 2, 1, 1, 1))
    ]
    many = dataclasses.replace(week, fleet_options=pl.concat(options), repetition=week.repetition.clear())
    found = decision(audit_document(dataclasses.replace(many, findings=week.findings.clear())))
    assert found.verdict == "rent"
    assert found.headline.startswith("Rent 8 x H200 for p1; keep the 8 x H100 SXM you have for p0;")
    assert "see the options for 2 more pools" in found.headline


def test_flips_are_the_quotients_that_the_options_state(document):
    price, growth = flips(document)
    assert growth.size == pytest.approx(1 / 0.62 - 1)
    assert price.size == pytest.approx(45_902 / 38_900 - 1, rel=1e-3)


def test_every_sentence_fills_in_with_names_that_some_code_gives():
    """A template holds only named fields, so that a translation may put them in another order."""
    catalogues = (
        strings.DECISION,
        strings.MONEY,
        strings.REASON,
        strings.RISK,
        strings.CONFIDENCE,
        page_strings.CHART,
    )
    for catalogue in catalogues:
        for key, template in catalogue.items():
            fields = [field for _, field, _, _ in string.Formatter().parse(template) if field is not None]
            assert all(field.isidentifier() for field in fields), key


def _small_week(document, *, finding_usd):
    """A week whose waste is large by share, worth the given amounts in it."""
    document["window"] |= {
        "start": "2026-11-16T00:00:00Z",
        "end": "2026-11-23T00:00:00Z",
        "coverage_ratio": 1.0,
    }
    document["costs"]["total"] = "4"
    document["waste"]["prefix"] |= {
        "missed_tokens": document["tokens"]["input"] // 2,
    }
    missed, *others = document["findings"]
    missed["usd_net"] = finding_usd
    for found in others:
        found["usd_net"] = None
    for scenario in ("as_is", "waste_removed"):
        document["sizing"][scenario]["options"] = []


def test_waste_that_is_worth_next_to_nothing_is_a_note(document):
    """Half of the input and of four dollars, but 9 USD a month."""
    _small_week(document, finding_usd="2")
    found = decision(document)
    assert found.verdict == "undecided"
    assert "Missed reads cost 8.69 USD a month: too little to come first." in found.reasons[0].text
    _small_week(document, finding_usd="200")
    found = decision(document)
    assert found.headline.startswith("Fix the prompt cache first.")
    assert found.reasons[0].text.endswith("Missed reads cost 869 USD a month.")


def test_waste_without_a_price_counts_by_its_tokens(document):
    _small_week(document, finding_usd=None)
    scope = {"scope": "model:own", "missed_usd": None, "missed_tokens": 30_000_000}
    document["waste"]["prefix"]["by_scope"] = [scope, scope | {"scope": "model:own/team:a"}]
    assert decision(document).verdict == "fix"
    scope["missed_tokens"] = 3_000_000
    assert decision(document).verdict == "undecided"


def test_a_waste_that_no_option_holds_is_told_by_its_worth(document):
    document["waste"]["prefix"]["missed_tokens"] = 0
    document["findings"][0] |= {"kind": "response_cache", "usd_net": "5000"}
    options = document["sizing"]
    options["waste_removed"] = copy.deepcopy(options["as_is"])
    found = decision(document)
    assert found.headline.startswith("Fix repeated prompts first, then keep")
    assert re.fullmatch(
        r"Now 38,900 USD a month; the fix is worth up to [\d,]+ USD of it\.", found.money_line
    )


def test_calls_that_all_failed_are_no_demand(document):
    document["tokens"] |= {"requests_ok": 0, "requests_cancelled": 0, "requests_error": 60}
    document["peaks"], document["sizing"]["as_is"]["options"] = [], []
    document["sizing"]["waste_removed"]["options"] = document["findings"] = []
    document["waste"]["prefix"]["missed_tokens"] = None
    document["waste"]["retries"]["by_error_kind"] = {
        "rate_limit": {"attempts": 45},
        "timeout": {"attempts": 15},
    }
    found = decision(document)
    assert "60 calls failed and none was served" in found.caveat
    assert [reason.text for reason in found.reasons[:2]] == [
        "Waste is unknown: no call was served.",
        "All of the 60 calls failed, 75 % of them by rate_limit: no work was done.",
    ]
    assert any(risk.text == "100 % of the calls failed (rate_limit the most)." for risk in found.risks)


def test_a_log_of_seconds_has_no_peak_and_a_log_without_a_clock_no_date(document):
    document["peaks"] = []
    document["window"] |= {
        "start": "2026-11-16T00:00:00Z",
        "end": "2026-11-16T00:00:05Z",
        "coverage_ratio": 1.0,
    }
    assert decision(document).reasons[1].text == "A peak needs a minute of data at least; the logs span 5 s."
    assert numbers.weekday_instant("2000-01-01T00:50:00Z") == "00:50 after the start"
    assert numbers.instant("2000-01-03T03:10:00Z") == "2 d 03:10 after the start"
