"""Net savings: equal to a plain replay call by call, never more than was spent, nothing twice."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.waste.findings import STEPS, Finding, Found, conformed
from pipelines.waste.net_savings import SPENT, alone, net_savings, removed_by_model, spent_by_leaf
from warehouse.tables import COST_LINES

PRICE = {"input": "3", "cache_read": "0.3", "cache_write_5m": "3.75", "cache_write_1h": "6", "output": "15"}
USD = {meter: Decimal(price) / 10**6 for meter, price in PRICE.items()}
KINDS = {
    "failed": "failed_attempts",
    "repeated": "response_cache",
    "trimmed": "oversize",
    "read": "missed_cache",
    "kept_longer": "longer_lifetime",
    "routed": "routing",
    "batched": "batch",
}


def finding(kind: str, step: str | None, scope: str = "model:gpt-4o/team:search", **what: Any) -> Finding:
    stated = {
        "model": "gpt-4o",
        "team": "search",
        "title": "t",
        "evidence_level": "counts",
        "advice": "a",
        "tokens": None,
        "usd": None,
        "first_at": None,
        "last_at": None,
    }
    return Finding(**{**stated, "kind": kind, "step": step, "scope": scope, **what})


def behind(name: str, line: int, **claims: Any) -> dict[str, Any]:
    return {"finding": name, "source_file": "log", "source_line": line, **claims}


def found(findings: list[Finding], calls: list[dict[str, Any]]) -> Found:
    types = {"extra_usd": pl.Decimal(38, 12), "price_ratio": pl.Decimal(38, 12)}
    return Found.of(findings, pl.DataFrame(calls, schema_overrides=types, infer_schema_length=None))


def spent(usd: str | None) -> pl.DataFrame:
    money = None if usd is None else Decimal(usd)
    return pl.DataFrame([("gpt-4o", "search", money)], schema=SPENT, orient="row")


def net(parts: Found, frame: pl.DataFrame, prices: pl.DataFrame, budget: str | None = None) -> dict[str, Any]:
    savings, _ = net_savings(parts, frame.lazy(), prices, spent(budget))
    return {row["kind"]: row for row in savings.iter_rows(named=True)}


# ---- Against a replay that knows no frames

TOKENS = st.integers(0, 5000)
PRICES_OF_A_CHANGE = st.sampled_from(["0", "0.2", "0.5", "1"]).map(Decimal)


@st.composite
def calls_and_changes(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[tuple[str, int, dict[str, Any]]]]:
    calls, changes = [], []
    for line in range(1, draw(st.integers(1, 5)) + 1):
        whole = draw(TOKENS)
        read = draw(st.integers(0, whole))
        written = draw(st.integers(0, whole - read))
        output = draw(TOKENS)
        calls.append(
            {
                "input_tokens": whole,
                "cache_read_tokens": read,
                "cache_write_5m_tokens": written,
                "output_tokens": output,
            }
        )
        changed: dict[str, st.SearchStrategy[dict[str, Any]]] = {
            "repeated": st.just({"cut_input_tokens": whole, "cut_output_tokens": output}),
            "trimmed": st.fixed_dictionaries(
                {"cut_input_tokens": st.integers(0, whole), "cut_output_tokens": st.integers(0, output)}
            ),
            "read": st.fixed_dictionaries(
                {
                    "read_tokens": st.integers(0, whole),
                    "extra_usd": st.integers(-3000, 0).map(lambda micro: Decimal(micro) / 10**6),
                }
            ),
            "kept_longer": st.fixed_dictionaries({"read_tokens": st.integers(0, whole)}),
            "routed": st.fixed_dictionaries({"price_ratio": PRICES_OF_A_CHANGE}),
            "batched": st.fixed_dictionaries({"price_ratio": PRICES_OF_A_CHANGE}),
        }
        changes += [(step, line, draw(what)) for step, what in changed.items() if draw(st.booleans())]
    return calls, draw(st.permutations(changes))


def cost(state: dict[str, Any]) -> Decimal:
    at_prices = (
        state["computed"] * USD["input"] + state["read"] * USD["cache_read"] + state["output"] * USD["output"]
    )
    return state["ratio"] * (at_prices + state["writes"])


def changed(
    call: dict[str, Any], state: dict[str, Any], change: dict[str, Any]
) -> tuple[dict[str, Any], int, Decimal]:
    """The call after a change, the tokens it concerns and the money it saves."""
    after = dict(state)
    whole, left = call["input_tokens"], state["computed"] + state["read"]
    cut = min(change.get("cut_input_tokens", 0) * left // whole, left) if whole else 0
    from_read = state["read"] * cut // left if left else 0
    after["read"] -= from_read
    after["computed"] -= cut - from_read
    rest = after["computed"] + after["read"]
    gain = min(change.get("read_tokens", 0) * rest // whole, after["computed"]) if whole else 0
    after["computed"] -= gain
    after["read"] += gain
    output = call["output_tokens"]
    less = change.get("cut_output_tokens", 0) * state["output"] // output if output else 0
    after["output"] -= less
    if cut and not rest:
        after["writes"] = Decimal(0)
    extra = change.get("extra_usd", Decimal(0)) * state["ratio"]
    after["ratio"] *= change.get("price_ratio", 1)
    # Both ways round once, to a picodollar, wherever a share is not whole.
    saved = cost(state) - cost(after) + (extra * left / whole if whole else extra)
    tokens = rest + after["output"] if "price_ratio" in change else cut + gain + less
    return (after, tokens, saved) if saved >= 0 else (state, 0, Decimal(0))


def replayed(
    calls: list[dict[str, Any]], changes: list[tuple[str, int, dict[str, Any]]]
) -> dict[str, list[Any]]:
    sums: dict[str, list[Any]] = {}
    for line, call in enumerate(calls, start=1):
        state = {
            "computed": call["input_tokens"] - call["cache_read_tokens"],
            "read": call["cache_read_tokens"],
            "output": call["output_tokens"],
            "writes": call["cache_write_5m_tokens"] * (USD["cache_write_5m"] - USD["input"]),
            "ratio": Decimal(1),
        }
        mine = [(step, change) for step, at, change in changes if at == line]
        for step, change in sorted(mine, key=lambda entry: STEPS.index(entry[0])):  # type: ignore[arg-type]
            state, tokens, saved = changed(call, state, change)
            total = sums.setdefault(step, [0, Decimal(0)])
            total[0] += tokens
            total[1] += saved
    return sums


@given(calls_and_changes())
@settings(max_examples=60, deadline=None)
def test_net_figures_equal_changes_made_call_by_call_and_priced_again(requests_of, prices_of, drawn):
    calls, changes = drawn
    frame = requests_of(calls)
    prices = prices_of(frame, **PRICE)
    steps = sorted({step for step, _, _ in changes})
    findings = [finding(KINDS[step], step) for step in steps]
    names = {step: own.id for step, own in zip(steps, findings, strict=True)}
    rows = [behind(names[step], line, **change) for step, line, change in changes]
    by_kind = net(found(findings, rows or [behind("none", 1)]), frame, prices)
    expected = replayed(calls, changes)
    slack = Decimal(len(changes)) / 10**11
    whole = sum(
        (
            (call["input_tokens"] - call["cache_read_tokens"]) * USD["input"]
            + call["cache_read_tokens"] * USD["cache_read"]
            + call["output_tokens"] * USD["output"]
            + call["cache_write_5m_tokens"] * (USD["cache_write_5m"] - USD["input"])
            for call in calls
        ),
        Decimal(0),
    )
    for step in steps:
        tokens, usd = expected[step]
        assert by_kind[KINDS[step]]["tokens_net"] == tokens, step
        assert abs(by_kind[KINDS[step]]["usd_net"] - usd) <= slack, step
    assert sum((row["usd_net"] for row in by_kind.values()), Decimal(0)) <= whole + slack


# ---- One by one


def one_call(requests_of, prices_of, **what):
    frame = requests_of([{"input_tokens": 1000, "cache_read_tokens": 0, "output_tokens": 100, **what}])
    return frame, prices_of(frame, **PRICE)


def test_a_call_that_is_not_made_leaves_nothing_to_others(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    kinds = [
        finding("missed_cache", "read"),
        finding("response_cache", "repeated"),
        finding("batch", "batched"),
    ]
    missed, repeated, batch = (kind.id for kind in kinds)
    calls = [
        behind(missed, 1, read_tokens=800),
        behind(repeated, 1, cut_input_tokens=1000, cut_output_tokens=100),
        behind(batch, 1, price_ratio=Decimal("0.5")),
    ]
    by_kind = net(found(kinds, calls), frame, prices)
    assert by_kind["response_cache"]["usd_net"] == Decimal("0.0045")
    assert by_kind["response_cache"]["calls_removed"] == 1
    for kind in ("missed_cache", "batch"):
        assert (by_kind[kind]["tokens_net"], by_kind[kind]["usd_net"]) == (0, 0)
    gross = {row["id"]: row for row in alone(frame.lazy(), prices, conformed(pl.DataFrame(calls))).to_dicts()}
    assert gross[missed]["usd"] == 800 * (USD["input"] - USD["cache_read"])
    assert gross[batch]["usd"] == Decimal("0.00225")
    assert gross[batch]["tokens"] == 1100


def test_lifetimes_and_reads_are_of_different_tokens_until_none_are_left(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    kinds = [finding("missed_cache", "read"), finding("longer_lifetime", "kept_longer")]
    calls = [behind(kinds[0].id, 1, read_tokens=700), behind(kinds[1].id, 1, read_tokens=600)]
    by_kind = net(found(kinds, calls), frame, prices)
    assert by_kind["missed_cache"]["tokens_net"] == 700
    assert by_kind["longer_lifetime"]["tokens_net"] == 300
    removed = removed_by_model(net_savings(found(kinds, calls), frame.lazy(), prices, spent(None))[0])
    assert removed.row(0, named=True) == {
        "model": "gpt-4o",
        "usd": 1000 * (USD["input"] - USD["cache_read"]),
        "calls_removed": 0,
        "input_removed": 0,
        "computed_removed": 1000,
        "output_removed": 0,
    }


def test_without_prices_tokens_are_known_and_money_is_not(requests_of, no_prices):
    frame = requests_of([{"input_tokens": 1000, "output_tokens": 100}] * 2)
    kinds = [finding("missed_cache", "read"), finding("response_cache", "repeated")]
    calls = [
        behind(kinds[0].id, 1, read_tokens=700),
        behind(kinds[0].id, 2, read_tokens=700),
        behind(kinds[1].id, 2, cut_input_tokens=1000, cut_output_tokens=100),
    ]
    by_kind = net(found(kinds, calls), frame, no_prices)
    assert (by_kind["missed_cache"]["tokens_net"], by_kind["missed_cache"]["usd_net"]) == (700, None)
    assert (by_kind["response_cache"]["tokens_net"], by_kind["response_cache"]["usd_net"]) == (1100, None)


def test_what_claims_no_saving_has_no_net_figures_and_lists_its_calls(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    silent = finding("cache_unreported", None, tokens=900)
    savings, calls = net_savings(found([silent], [behind(silent.id, 1)]), frame.lazy(), prices, spent("1"))
    row = savings.row(0, named=True)
    assert (row["requests"], row["tokens"], row["tokens_net"], row["net_basis"]) == (1, 900, None, None)
    assert calls.to_dicts() == [behind(silent.id, 1, tokens_net=None, usd_net=None)]


def test_a_failed_attempt_saves_what_the_log_says_it_cost(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of, status="error")
    failed = finding("failed_attempts", "failed")
    change = {"cut_input_tokens": 1100, "extra_usd": Decimal("0.2")}
    row = net(found([failed], [behind(failed.id, 1, **change)]), frame, prices)["failed_attempts"]
    assert (row["tokens_net"], row["usd_net"], row["input_removed"]) == (1100, Decimal("0.2"), 0)


def test_savings_of_a_leaf_are_cut_to_what_was_spent_there(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    kinds = [finding("oversize", "trimmed"), finding("batch", "batched")]
    calls = [
        behind(kinds[0].id, 1, cut_input_tokens=1000),
        behind(kinds[1].id, 1, price_ratio=Decimal("0.5")),
    ]
    full = net(found(kinds, calls), frame, prices, "0.0045")
    assert (full["oversize"]["usd_net"], full["batch"]["usd_net"]) == (Decimal("0.003"), Decimal("0.00075"))
    cut = net(found(kinds, calls), frame, prices, "0.00125")
    assert (cut["oversize"]["usd_net"], cut["batch"]["usd_net"]) == (Decimal("0.001"), Decimal("0.00025"))
    assert {row["net_basis"] for row in cut.values()} == {"cut_to_spent"}


def test_without_calls_a_finding_saves_its_share_of_what_its_leaf_has_left(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    sums = {"tokens": 400, "usd": Decimal("0.0015"), "requests": 1, "query": "SELECT 1"}
    kinds = [
        finding("failed_attempts", "trimmed", **sums),
        finding("oversize", "trimmed"),
        finding("batch", "batched"),
    ]
    calls = [
        behind(kinds[1].id, 1, cut_input_tokens=500),
        behind(kinds[2].id, 1, price_ratio=Decimal(0)),
    ]
    by_kind = net(found(kinds, calls), frame, prices, "0.0045")
    first, trimmed, rest = (by_kind[kind.kind] for kind in kinds)
    assert (first["net_basis"], first["tokens_net"], first["usd_net"]) == (
        "leaf_share",
        400,
        Decimal("0.0015"),
    )
    assert trimmed["usd_net"] == pytest.approx(Decimal("0.001"), abs=Decimal("1e-11"))
    assert rest["usd_net"] == pytest.approx(Decimal("0.002"), abs=Decimal("1e-11"))
    unknown = net(found(kinds, calls), frame, prices, None)["failed_attempts"]
    assert (unknown["tokens_net"], unknown["usd_net"]) == (None, None)


def test_a_finding_without_calls_must_say_how_many_and_where(requests_of, prices_of):
    frame, prices = one_call(requests_of, prices_of)
    nowhere = finding("oversize", "trimmed", requests=3)
    with pytest.raises(ValueError, match="oversize/model:gpt-4o/team:search"):
        net_savings(Found.of([nowhere]), frame.lazy(), prices, spent(None))


def test_money_spent_is_by_leaf_and_no_team_is_a_leaf():
    lines = [("a", "t", "1"), ("a", "t", "2"), ("a", "", "4"), ("a", None, "8"), ("b", "t", None)]
    frame = pl.DataFrame(
        [(model, team, None if usd is None else Decimal(usd)) for model, team, usd in lines],
        schema={"model": pl.String, "team": pl.String, "cost_usd": pl.Decimal(38, 12)},
        orient="row",
    )
    by_leaf = {row[:2]: row[2] for row in spent_by_leaf(COST_LINES.conform(frame)).iter_rows()}
    assert by_leaf == {("a", "t"): 3, ("a", None): 12, ("b", "t"): None}
