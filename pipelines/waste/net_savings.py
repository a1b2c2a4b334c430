"""What each finding saves on top of those that are applied before it.

Belongs here: the order of application over all findings, their net tokens and money, what they take from the load of each
model. Does not belong here: what a change does to one call (`apply_changes.py`), what the findings are (`findings.py`), the
hardware that is freed (`pipelines/sizing/freed_capacity.py`).

The order is that of `findings.STEPS`, within a step by kind, within a kind by scope. Where the calls behind findings are
known the changes are applied call by call; a finding of sums alone is applied to its leaf, as the share of the leaf's money
that those before it leave, and leaves the same share to those after it. Where the findings of a leaf would save more than
was spent there, all of them are cut evenly to that. So net figures can be added up.

Only calls behind findings are held: about 250 bytes for each finding of each call, at the peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_DOWN, Decimal, localcontext
from fractions import Fraction
from typing import Any

import polars as pl

from parsers.records import MONEY
from pipelines.waste.apply_changes import CLAIMS, apply_changes, calls_as_logged
from pipelines.waste.findings import BEHIND, DRAFTS, STEPS, Found
from pipelines.waste.scopes import known_sum
from warehouse.waste_tables import FINDING_CALLS

REMOVED = ("calls_removed", "input_removed", "computed_removed", "output_removed")
"""What a finding takes from the load: calls, and tokens of input, of computed input and of output."""
SAVINGS = pl.Schema(
    {
        **DRAFTS,
        "tokens_net": pl.Int64(),
        "usd_net": MONEY,
        "net_basis": pl.String(),
        **dict.fromkeys(REMOVED, pl.Int64()),
    }
)
"""Findings with their net figures."""
SPENT = pl.Schema({"model": pl.String(), "team": pl.String(), "usd": MONEY})
"""Money spent by leaf; no row or null = unknown."""

_KEY = ["source_file", "source_line"]
_PICO = Decimal(1).scaleb(-12)
_DIGITS = 80
"""Digits of a product of two amounts: Python's own 28 would refuse the sums of a hostile log."""

_Net = tuple[str, int | None, Decimal | None, str | None]
_NET = {"id": pl.String(), "tokens_net": pl.Int64(), "usd_net": MONEY, "net_basis": pl.String()}


def spent_by_leaf(cost_lines: pl.DataFrame) -> pl.DataFrame:
    """SPENT of the mart `cost_lines`."""
    team = pl.when(pl.col("team") != "").then("team").alias("team")
    spent = cost_lines.group_by("model", team).agg(known_sum(pl.col("cost_usd")).alias("usd"))
    return spent.select(SPENT.names()).cast(SPENT)


def net_savings(
    found: Found, requests: pl.LazyFrame, prices: pl.DataFrame, spent: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Apply all findings in their order.

    Args:
        found: the findings of all kinds.
        requests: rows of `requests`.
        prices: frame of `row_prices.PRICES_SCHEMA`.
        spent: SPENT.

    Returns:
        SAVINGS in the order of application (those that claim nothing last), and the rows of `finding_calls`.

    Raises:
        ValueError: a finding has neither calls nor its own count and query.

    """
    ordered = _in_order(found.rows)
    calls = _one_by_one(found.calls, ordered["id"], requests, prices)
    rows = ordered.join(_by_finding(calls), on="id", how="left", maintain_order="left")
    own = pl.col("requests").is_not_null() & pl.col("query").is_not_null()
    unlisted = rows.filter(pl.col("behind").is_null() & ~own)["id"].to_list()
    if unlisted:
        msg = f"findings without calls must state requests and query: {', '.join(unlisted)}"
        raise ValueError(msg)
    budgets = {(model, team): usd for model, team, usd in spent.iter_rows()}
    leaves: dict[tuple[str | None, str | None], list[dict[str, Any]]] = {}
    for row in rows.iter_rows(named=True):
        leaves.setdefault((row["model"], row["team"]), []).append(row)
    nets = [net for leaf, group in leaves.items() for net in _within_leaf(group, budgets.get(leaf))]
    net = pl.DataFrame(nets, schema=_NET, orient="row")
    savings = rows.with_columns(requests=pl.coalesce("behind", "requests")).drop("tokens_net", "usd_net")
    savings = savings.join(net, on="id", how="left", maintain_order="left")
    return savings.select(SAVINGS.names()).cast(SAVINGS), FINDING_CALLS.conform(calls)


def alone(requests: pl.LazyFrame, prices: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """What each finding would save if it were the only one.

    Args:
        requests: rows of `requests`.
        prices: frame of `row_prices.PRICES_SCHEMA`.
        calls: calls behind findings, BEHIND.

    Returns:
        Per finding `id, requests, tokens, usd` (null if unknown).

    """
    sums = _by_finding(_applied(calls, calls.with_columns(turn=pl.lit(0)), requests, prices))
    return sums.select("id", requests="behind", tokens="tokens_net", usd="usd_net")


def removed_by_model(savings: pl.DataFrame) -> pl.DataFrame:
    """What all findings together take from each model: `model`, `usd` (0 where unknown) and `REMOVED`."""
    sums = [pl.col("usd_net").sum().alias("usd"), *(pl.col(name).sum() for name in REMOVED)]
    return savings.filter(pl.col("model").is_not_null()).group_by("model").agg(*sums).sort("model")


def _in_order(rows: pl.DataFrame) -> pl.DataFrame:
    places = pl.DataFrame({"step": list(STEPS)}).with_row_index("place")
    return rows.join(places, on="step", how="left").sort("place", "kind", "id", nulls_last=True).drop("place")


def _one_by_one(
    behind: pl.DataFrame, order: pl.Series, requests: pl.LazyFrame, prices: pl.DataFrame
) -> pl.DataFrame:
    """`_applied`, the changes of each call in the order of their findings."""
    places = pl.DataFrame({"finding": order.cast(BEHIND["finding"])}).with_row_index("place")
    in_order = _claiming(behind).join(places, on="finding").sort(*_KEY, "place")
    row = pl.int_range(pl.len())
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(1)) for name in _KEY)
    first = pl.when(~same).then(row).forward_fill()
    return _applied(behind, in_order.with_columns(turn=row - first), requests, prices)


def _claiming(behind: pl.DataFrame) -> pl.DataFrame:
    return behind.filter(pl.any_horizontal(pl.col(CLAIMS).is_not_null()))


def _applied(
    behind: pl.DataFrame, turns: pl.DataFrame, requests: pl.LazyFrame, prices: pl.DataFrame
) -> pl.DataFrame:
    """`finding`, key and net figures of each call behind a finding; null where nothing is claimed."""
    claiming = _claiming(turns)
    keys = claiming.select(_KEY).unique(maintain_order=True).with_row_index("call")
    changes = claiming.join(keys, on=_KEY, maintain_order="left").select("finding", "call", "turn", *CLAIMS)
    applied = apply_changes(calls_as_logged(requests, prices, keys), changes).join(keys, on="call")
    listed = behind.select("finding", *_KEY)
    return listed.join(
        applied.drop("call", "failed"), on=["finding", *_KEY], how="left", maintain_order="left"
    )


def _by_finding(calls: pl.DataFrame) -> pl.DataFrame:
    usd = pl.col("usd_net")
    # Zeros of calls that nothing is left of must not turn an unknown sum into a measured zero.
    unknown = (usd.sum() == 0) & (usd.is_null() & pl.col("tokens_net").is_not_null()).any()
    return calls.group_by(pl.col("finding").cast(pl.String).alias("id")).agg(
        pl.len().cast(pl.Int64).alias("behind"),
        known_sum(pl.col("tokens_net")).alias("tokens_net"),
        pl.when(~unknown).then(known_sum(usd)).alias("usd_net"),
        *(pl.col(name).sum() for name in REMOVED),
    )


def _within_leaf(rows: list[dict[str, Any]], spent: Decimal | None) -> list[_Net]:
    """Net tokens, money and their basis of the findings of a leaf, which are in order."""
    with localcontext(prec=_DIGITS):
        nets = list(_one_after_another(rows, spent))
        total = sum((usd for _, _, usd, _ in nets if usd is not None), Decimal(0))
        if spent is None or total <= spent:
            return nets
        kept = Fraction(spent) / Fraction(total)
        return [
            (name, tokens, _money(usd, kept), basis if usd is None else "cut_to_spent")
            for name, tokens, usd, basis in nets
        ]


def _one_after_another(rows: list[dict[str, Any]], spent: Decimal | None) -> Iterator[_Net]:
    left, kept = Fraction(spent or 0), Fraction(1)
    for row in rows:
        if row["step"] is None:
            yield row["id"], None, None, None
            continue
        by_call = row["behind"] is not None
        share = kept if by_call else left / Fraction(spent) if spent else None
        usd = _money(row["usd_net" if by_call else "usd"], share)
        tokens = _tokens(row["tokens_net" if by_call else "tokens"], share)
        if not by_call and usd:
            # Calls that come later are not known to be others: each keeps the share that its leaf keeps.
            kept *= 1 - Fraction(usd) / left
        left = max(left - Fraction(usd or 0), Fraction(0))
        yield row["id"], tokens, usd, "calls" if by_call else "leaf_share"


def _money(usd: Decimal | None, share: Fraction | None) -> Decimal | None:
    if usd is None or share is None:
        return None
    return (usd * share.numerator / share.denominator).quantize(_PICO, ROUND_DOWN)


def _tokens(count: int | None, share: Fraction | None) -> int | None:
    return None if count is None or share is None else int(count * share)
