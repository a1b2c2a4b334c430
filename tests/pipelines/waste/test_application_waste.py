"""Rules on applications: each on rows where the answer is known, silence on usual rows, and the rows behind them."""

from __future__ import annotations

import datetime as dt
from decimal import ROUND_HALF_UP, Decimal
from importlib.resources import files

import duckdb
import polars as pl
import pytest

from parsers.records import MONEY, REQUESTS
from pipelines.pricing import prices_of
from pipelines.waste.application_waste import Prices, application_waste, price_lists
from pipelines.waste.applications import judged_calls
from pipelines.waste.findings import Found
from pipelines.waste.limits import application_lengths, output_limits
from pipelines.waste.oversize import CONTEXTS_SCHEMA
from pipelines.waste.routing_candidates import listed_models
from warehouse.application_tables import APPLICATION_WASTE, OUTPUT_LIMITS
from warehouse.prices import load_price_table

NO_CONTEXTS = pl.DataFrame(schema=CONTEXTS_SCHEMA)


def usual(count: int, **what: object) -> list[dict[str, object]]:
    """Streamed calls of a project, none of them odd: too long to be routed."""
    return [
        {
            "input_tokens": 2_000 + 10 * k,
            "output_tokens": 300 + k % 50,
            "project": "chat",
            "stream": True,
            "finish_reason": "stop",
            **what,
        }
        for k in range(count)
    ]


def measured(
    frame: pl.DataFrame, prices: Prices | None = None, contexts: pl.DataFrame = NO_CONTEXTS
) -> tuple[pl.DataFrame, Found]:
    requests = frame.lazy()
    lists = prices or price_lists(requests, prices_of(requests), None)
    waste, found = application_waste(requests, lists, application_lengths(judged_calls(requests), contexts))
    assert APPLICATION_WASTE.problems(waste) == {}
    return waste, found


def only(found: Found, kind: str) -> dict[str, object]:
    rows = found.rows.filter(pl.col("kind") == kind)
    assert rows.height == 1, found.rows["title"].to_list()
    return rows.row(0, named=True)


def lines(frame: pl.DataFrame, finding: dict[str, object], found: Found) -> list[int]:
    """Lines behind a finding: those kept with it, else those that its query lists."""
    kept = found.calls.filter(pl.col("finding").cast(pl.String) == finding["id"])
    if finding["query"] is None:
        return sorted(kept["source_line"].to_list())
    con = duckdb.connect()
    con.execute("set timezone = 'UTC'")
    con.register("frame", frame.to_arrow())
    con.execute("CREATE VIEW requests AS SELECT * FROM frame")
    return sorted(row[1] for row in con.execute(str(finding["query"])).fetchall())


def test_usual_calls_give_no_finding(requests_of):
    waste, found = measured(requests_of(usual(300) + usual(300, project="other")))
    assert found.rows.is_empty()
    assert not waste["is_finding"].any()
    empty, nothing = measured(REQUESTS.empty())
    assert (empty.schema, empty.height, nothing.rows.height) == (APPLICATION_WASTE.schema, 0, 0)


def test_streams_that_nobody_waited_for(requests_of):
    gone = usual(12, status="cancelled", output_tokens=100)
    before_output = usual(5, status="cancelled", output_tokens=0)
    frame = requests_of(usual(100) + gone + before_output)
    _, found = measured(frame)
    finding = only(found, "abandoned_stream")
    assert (finding["requests"], finding["tokens"], finding["step"]) == (12, 1_200, None)
    assert finding["usd"] == 1_200 * Decimal("0.00001"), "gpt-4o: 10 USD per million"
    assert lines(frame, finding, found) == list(range(101, 113))
    few = requests_of(usual(400) + gone)
    assert measured(few)[1].rows.is_empty(), "3 % of streams is what people do"


@pytest.mark.parametrize("reason", ["length", "MAX_TOKENS", "max_output_tokens"])
def test_answers_cut_off_at_their_limit(requests_of, reason):
    cut = usual(15, finish_reason=reason, max_output_tokens=500, output_tokens=500)
    labels = usual(20, finish_reason=reason, max_output_tokens=1, output_tokens=1)
    frame = requests_of(usual(100, max_output_tokens=500) + cut + labels)
    _, found = measured(frame)
    finding = only(found, "truncated_output")
    assert (finding["requests"], finding["tokens"]) == (15, 7_500)
    assert lines(frame, finding, found) == list(range(101, 116)), "one-token labels are meant so"


def test_an_answered_attempt_that_is_repeated_is_paid_twice(requests_of):
    rows = usual(100)
    for k in range(12):
        rows += usual(2, call_id=f"c{k}", input_tokens=1_000, output_tokens=400)
        rows[-2] |= {"attempt": 1}
        rows[-1] |= {"attempt": 2}
    failed = usual(20, call_id="f", attempt=1, status="error")
    frame = requests_of(rows + failed)
    _, found = measured(frame)
    finding = only(found, "repeated_attempt")
    assert (finding["requests"], finding["tokens"], finding["step"]) == (12, 12 * 1_400, "failed")
    assert finding["usd"] == 12 * (1_000 * Decimal("0.0000025") + 400 * Decimal("0.00001"))
    assert lines(frame, finding, found) == list(range(101, 124, 2)), "the first of each pair"


def test_time_outs_are_waited_for_and_their_charge_is_unknown(requests_of):
    """Case B126: a time-out after dispatch has an estimate, and its cost is in no sum."""
    late = {"status": "error", "usage_origin": "estimated", "duration_ms": 60_000.0, "output_tokens": 0}
    rows = usual(6, **late, http_status=408) + usual(6, **late, error_kind="APITimeoutError")
    turned_away = usual(30, status="error", http_status=429, error_kind="RateLimitError")
    frame = requests_of(usual(200) + rows + turned_away)
    _, found = measured(frame)
    finding = only(found, "timeout")
    assert (finding["requests"], finding["usd"]) == (12, None)
    assert finding["tokens"] == 2 * sum(2_000 + 10 * k for k in range(6))
    assert "720 s" in str(finding["title"])
    assert lines(frame, finding, found) == list(range(201, 213))


def test_inputs_embedded_again(requests_of):
    def embedding(number: int, second: float) -> dict[str, object]:
        return {
            "operation": "embedding",
            "model_served": "text-embedding-3-small",
            "prompt_hash": number,
            "input_tokens": 1_000,
            "s": second,
            "ready": None,
            "ended_at": dt.datetime(2026, 9, 1, 12, tzinfo=dt.UTC) + dt.timedelta(seconds=second + 1),
        }

    rows = [embedding(k, k) for k in range(100)] + [embedding(k, 200 + k) for k in range(15)]
    in_flight = [embedding(99, 99.5)]
    frame = requests_of(rows + in_flight)
    _, found = measured(frame)
    finding = only(found, "duplicate_embedding")
    assert (finding["requests"], finding["tokens"], finding["step"]) == (15, 15_000, "repeated")
    assert finding["usd"] == 15_000 * Decimal("0.00000002")
    assert lines(frame, finding, found) == list(range(101, 116))
    assert found.calls["cut_input_tokens"].to_list() == [1_000] * 15


def test_short_simple_calls_to_a_large_model_could_go_to_its_small_one(requests_of):
    simple = usual(100, input_tokens=500, output_tokens=50)
    hard = usual(10) + usual(10, input_tokens=500, output_tokens=50, finish_reason="tool_calls")
    frame = requests_of(simple + hard)
    _, found = measured(frame)
    finding = only(found, "routing_candidate")
    assert lines(frame, finding, found) == list(range(1, 101))
    large = 500 * Decimal("0.0000025") + 50 * Decimal("0.00001")
    small = 500 * Decimal("0.00000015") + 50 * Decimal("0.0000006")
    assert finding["usd"] == 80 * (large - small), "four fifths of a hundred"
    ratio = (small * 4 / 5 + large / 5) / large
    assert set(found.calls["price_ratio"]) == {ratio.quantize(Decimal("1e-12"), ROUND_HALF_UP)}
    mixed = requests_of(simple + usual(60))
    assert measured(mixed)[1].rows.is_empty(), "not nearly all of its calls are simple"
    assert measured(requests_of([row | {"model_served": "gpt-4o-mini"} for row in simple]))[1].rows.is_empty()


def test_an_application_that_routes_is_no_candidate(requests_of):
    left = usual(60, input_tokens=500, output_tokens=50)
    moved = [row | {"model_served": "gpt-4o-mini-2024-07-18"} for row in left * 4]
    assert measured(requests_of(left + moved))[1].rows.is_empty()
    others = [row | {"project": "other"} for row in moved]
    assert only(measured(requests_of(left + others))[1], "routing_candidate")["requests"] == 60


def test_small_models_are_found_by_the_names_of_the_price_list():
    keys = [
        ("anthropic", "claude-opus-4-1-20250805", "claude-haiku-4-5"),
        ("azure", "gpt-4o-2024-08-06", "gpt-4o-mini"),
        ("hosted_vllm", "llama-3.3-70b", None),
        ("openai", "gpt-5-mini", None),
    ]
    listed = listed_models(pl.DataFrame(keys, schema=["provider", "model", "small"], orient="row"))
    found = listed.select("provider", "model", "small_model").rows()
    assert found == keys


def test_every_small_model_is_on_the_price_list():
    prices = load_price_table().prices
    priced = set(prices.filter(pl.col("meter") == "input").select("provider", "model").unique().iter_rows())
    folder = files("warehouse") / "reference" / "small_models.csv"
    pairs = pl.read_csv(folder.read_bytes(), comment_prefix="#", infer_schema=False)
    assert set(pairs.select("provider", "small_model").iter_rows()) <= priced


def test_reasoning_out_of_proportion(requests_of):
    calm = usual(100, reasoning_tokens=100, output_tokens=300)
    deep = usual(60, reasoning_tokens=900, output_tokens=1_000, project="deep")
    frame = requests_of(calm + deep)
    _, found = measured(frame)
    finding = only(found, "reasoning_share")
    beyond = 60 * 900 - 60 * 100 // 2
    assert (finding["application"], finding["requests"], finding["tokens"]) == ("deep", 60, beyond)
    assert finding["usd"] == beyond * Decimal("0.00001")
    assert lines(frame, finding, found) == list(range(101, 161))
    alone = measured(requests_of(deep))[1]
    assert alone.rows.is_empty(), "nothing to compare with"


@pytest.mark.parametrize("regular", [True, False])
def test_traffic_that_nobody_waits_for_has_a_batch_price(requests_of, regular):
    day, hour = 86_400.0, 3_600.0
    since = 80 * day  # the price list has batch prices from November on
    people = [row | {"s": since + k * 0.02 * hour} for k, row in enumerate(usual(400))]
    runs = range(7)
    starts = [since + run * (day / 4 if regular else day) for run in runs]
    if not regular:  # at some hour after midnight
        starts = [start + (12 + 3 * run % 5) * hour for run, start in zip(runs, starts, strict=True)]
    job = [
        row | {"s": starts[k // 10] + 0.1 * (k % 10) * hour, "ready": None}
        for k, row in enumerate(usual(70, project="job", stream=False, model_served="gpt-5-mini"))
    ]
    frame = requests_of(people + job)
    _, found = measured(frame)
    finding = only(found, "batchable")
    assert (finding["application"], finding["requests"], finding["step"]) == ("job", 70, "batched")
    assert ("cadence" in str(finding["title"])) == regular
    whole = sum(
        row["input_tokens"] * Decimal("0.00000025") + row["output_tokens"] * Decimal("0.000002")
        for row in job
    )
    assert finding["usd"] == whole / 2
    assert lines(frame, finding, found) == list(range(401, 471))
    in_sessions = requests_of(people + [row | {"session_id": "s"} for row in job])
    assert measured(in_sessions)[1].rows.is_empty()
    silent = requests_of([row | {"stream": None} for row in people + job])
    assert measured(silent)[1].rows.is_empty(), "a log that never says what is streamed says nothing"


def test_prompts_that_leave_the_answer_no_room(requests_of):
    full = usual(12, input_tokens=9_000)
    frame = requests_of([row | {"input_tokens": 2_000} for row in usual(100)] + full)
    contexts = pl.DataFrame([("gpt-4o", 10_000)], schema=CONTEXTS_SCHEMA, orient="row")
    _, found = measured(frame, contexts=contexts)
    finding = only(found, "near_context")
    assert lines(frame, finding, found) == list(range(101, 113))
    lengths = application_lengths(judged_calls(frame.lazy()), contexts)
    p99 = lengths["output_p99"].item()
    assert finding["tokens"] == 12 * (9_000 - (9_000 - p99))
    mart = output_limits(lengths)
    assert OUTPUT_LIMITS.problems(mart) == {}
    assert mart["context_share_p99"].item() == pytest.approx((9_000 + p99) / 10_000)


def test_limits_far_above_use(requests_of):
    frame = requests_of(usual(60, max_output_tokens=32_000))
    _, found = measured(frame)
    finding = only(found, "output_limit")
    assert (finding["requests"], finding["tokens"], finding["usd"]) == (60, None, None)
    assert len(lines(frame, finding, found)) == 60
    assert measured(requests_of(usual(60, max_output_tokens=2_000)))[1].rows.is_empty()


def test_runaway_answers_without_a_limit(requests_of):
    limited = usual(60, max_output_tokens=1_000, project="limited")
    runaway = usual(4, output_tokens=60_000)
    frame = requests_of(limited + usual(200) + runaway)
    _, found = measured(frame)
    finding = only(found, "unbounded_output")
    mark = application_lengths(judged_calls(frame.lazy()), NO_CONTEXTS).filter(pl.col("app") == "chat")
    beyond = 60_000 - mark["runaway_tokens"].item()
    assert (finding["requests"], finding["tokens"], finding["step"]) == (4, 4 * beyond, "trimmed")
    assert lines(frame, finding, found) == list(range(261, 265))
    assert measured(requests_of(usual(200) + runaway))[1].rows.is_empty(), (
        "no call states a limit: they may be unlogged"
    )


def test_small_applications_are_judged_together_and_their_rows_are_listed(requests_of):
    rows = [row | {"project": f"p{k % 30}"} for k, row in enumerate(usual(300))]
    gone = [
        row | {"project": f"p{k}"} for k, row in enumerate(usual(20, status="cancelled", output_tokens=9))
    ]
    frame = requests_of(rows + gone + usual(100, project="large"))
    _, found = measured(frame)
    finding = only(found, "abandoned_stream")
    assert (finding["scope"], finding["application"]) == ("model:gpt-4o/team:search", None)
    assert lines(frame, finding, found) == list(range(301, 321))


def test_hostile_names_stay_text(requests_of):
    name = "x'; DROP TABLE requests; --/team:y"
    frame = requests_of(
        usual(60, project=name, team=name) + usual(20, project=name, team=name, status="cancelled")
    )
    _, found = measured(frame)
    finding = only(found, "abandoned_stream")
    assert len(lines(frame, finding, found)) == finding["requests"] == 20


def test_money_is_decimal_and_unknown_prices_stay_unknown(requests_of):
    gone = usual(20, status="cancelled", model_served="somebody's-own")
    waste, found = measured(requests_of(gone + usual(60, model_served="somebody's-own")))
    row = waste.filter(pl.col("kind") == "abandoned_stream").row(0, named=True)
    assert (row["usd"], row["requests_unpriced"]) == (None, 20)
    assert waste.schema["usd"] == MONEY
    assert only(found, "abandoned_stream")["usd"] is None
