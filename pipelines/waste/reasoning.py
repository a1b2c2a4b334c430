"""Reasoning out of proportion: an application whose answers take far more of it than others' with the same model.

Belongs here: that rule. Does not belong here: prices of reasoning (it is part of the output).

Compared are reasoning tokens per token of answer, pooled, of calls whose reasoning is known. An application stands out
when it has `FACTOR` times what the other applications of the model have, and more reasoning than answer. Tokens: its
reasoning beyond theirs at its own length of answers; money: at the price of output. An estimate: harder tasks may need
it.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.costs.exact import times
from pipelines.waste.application_rules import Rule, where
from pipelines.waste.applications import MINIMUM_CALLS

FACTOR = 3.0

_KNOWN = pl.col("reasoning_tokens").is_not_null() & pl.col("output_tokens").is_not_null()
_ANSWER = (pl.col("output_tokens") - pl.col("reasoning_tokens")).clip(lower_bound=0)


def _others(column: str) -> pl.Expr:
    return pl.col(column).sum().over("model") - pl.col(column)


def _against_others(sums: pl.DataFrame) -> pl.DataFrame:
    """With the ratio of each application and of the others of its model; tokens and money of what lies beyond."""
    compared = sums.with_columns(
        ratio=pl.col("reasoned") / pl.col("answered").clip(lower_bound=1),
        ratio_of_others=_others("reasoned") / _others("answered").clip(lower_bound=1),
        requests_of_others=_others("requests_judged"),
    )
    beyond = (pl.col("reasoned") - pl.col("answered") * pl.col("ratio_of_others")).clip(lower_bound=0)
    tokens = beyond.floor().cast(pl.Int64)
    return compared.with_columns(tokens=tokens, usd=((pl.col("usd") * tokens) / pl.col("tokens")).cast(MONEY))


REASONING = Rule(
    kind="reasoning_share",
    basis="estimate",
    behind=_KNOWN & (pl.col("reasoning_tokens") > 0),
    among=_KNOWN,
    rows=where("output_tokens IS NOT NULL AND reasoning_tokens > 0"),
    tokens=pl.col("reasoning_tokens"),
    usd=times(pl.col("reasoning_tokens"), pl.col("list_output")),
    further=(
        pl.when(_KNOWN).then("reasoning_tokens").sum().alias("reasoned"),
        pl.when(_KNOWN).then(_ANSWER).sum().alias("answered"),
    ),
    derive=_against_others,
    material=(pl.col("requests_judged") >= MINIMUM_CALLS)
    & (pl.col("requests_of_others") >= MINIMUM_CALLS)
    & (pl.col("ratio") >= 1)
    & (pl.col("ratio") >= FACTOR * pl.col("ratio_of_others")),
)
