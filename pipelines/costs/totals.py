"""Totals of cost lines: what the report, audit.json and the exports state, always the sum of their parts.

Belongs here: sums over COST_LINES. Does not belong here: rounding for display.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import polars as pl

_BASIS_WORDS = {
    "reported": "reported by the source",
    "list_price": "list prices",
    "own_hardware": "own hardware by amortised hours",
    "idle": "idle hours of own hardware",
}


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of cost lines in USD, exact.

    total = sum of `by_team` + `unattributed` = sum of `by_model`. A sum is null only if no part of it is
    priced; `unpriced_requests` stands beside it. `idle` is part of `unattributed`; idle lines stand in
    `by_model` under `pool:NAME`.
    """

    currency: str
    total: Decimal | None
    by_team: dict[str, Decimal | None]
    by_model: dict[str, Decimal | None]
    by_basis: dict[str, Decimal]
    unattributed: Decimal | None
    idle: Decimal
    unpriced_requests: int
    basis: str


def totals(lines: pl.DataFrame) -> Totals:
    """Add up COST_LINES.

    Args:
        lines: COST_LINES.

    """
    by_basis = {
        key: amount for key, amount in _sums(lines, "basis").items() if key is not None and amount is not None
    }
    teams = _sums(lines, "team")
    unpriced = int(lines.filter(pl.col("basis") == "unpriced")["requests"].sum())
    total = _sum(list(by_basis.values())) if by_basis else (None if unpriced else Decimal(0))
    return Totals(
        currency="USD",
        total=total,
        by_team={team: amount for team, amount in teams.items() if team is not None},
        by_model={model: amount for model, amount in _sums(lines, "model").items() if model is not None},
        by_basis=by_basis,
        unattributed=teams.get(None, Decimal(0)),
        idle=by_basis.get("idle", Decimal(0)),
        unpriced_requests=unpriced,
        basis=_basis_text(by_basis, unpriced),
    )


def _sums(lines: pl.DataFrame, column: str) -> dict[str | None, Decimal | None]:
    """Cost by one column, dearest first; null where no line of the group is priced."""
    cost = pl.when(pl.col("cost_usd").is_not_null().any()).then(pl.col("cost_usd").sum()).alias("cost_usd")
    summed = (
        lines.group_by(column)
        .agg(cost)
        .sort(pl.col("cost_usd"), column, descending=[True, False], nulls_last=True)
    )
    return dict(summed.iter_rows())


def _sum(amounts: list[Decimal]) -> Decimal:
    return sum(amounts, Decimal(0))


def _basis_text(by_basis: dict[str, Decimal], unpriced: int) -> str:
    whole = _sum(list(by_basis.values()))
    shares = [
        f"{_BASIS_WORDS[basis]} {amount / whole * 100:.1f} %" if whole else _BASIS_WORDS[basis]
        for basis, amount in sorted(by_basis.items(), key=lambda item: -item[1])
    ]
    left = [f"{unpriced} calls unpriced, in no sum"] if unpriced else []
    return "; ".join(shares + left) or "no call that costs money"
