"""Embeddings of an input that had been embedded: the same vector, paid again.

Belongs here: that rule. Does not belong here: repeated prompts of calls that generate (`repetition.py`): their answers
may differ.

Counted are served embedding calls with a hash of their whole input, after the first of the same provider, model and
organisation had ended; exact where inputs are hashed. A vector does not change, so a store keyed by model and hash saves
each of them.
"""

from __future__ import annotations

import polars as pl

from pipelines.calls import is_demand, model_name
from pipelines.costs.exact import times
from pipelines.waste.application_rules import Rule, of_requests
from pipelines.waste.applications import app_columns

REPEATED_SHARE = 0.01
_SAME = ["provider", "organization", "model", "prompt_hash"]

DUPLICATES = Rule(
    kind="duplicate_embedding",
    basis="exact",
    behind=pl.col("is_repeat"),
    among=pl.col("prompt_hash").is_not_null(),
    tokens=pl.col("input_tokens"),
    usd=times(pl.col("input_tokens"), pl.col("list_input")),
    evidence="prompt_hash",
    step="repeated",
    change={"cut_input_tokens": pl.col("input_tokens")},
    material=of_requests(REPEATED_SHARE),
)


def embedding_calls(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Served embedding calls with known input, and `is_repeat`.

    Memory: 60 bytes per distinct input.

    Returns:
        `model, team, app_kind, app, provider, day, started_at, input_tokens, output_tokens, prompt_hash, is_repeat`.

    """
    calls = requests.filter(
        is_demand() & (pl.col("operation") == "embedding") & pl.col("input_tokens").is_not_null()
    ).select(
        model_name(),
        pl.when(pl.col("team") != "").then("team").alias("team"),
        *app_columns(),
        pl.col("started_at").dt.date().alias("day"),
        pl.coalesce("ended_at", "started_at").alias("ended_at"),
        *(
            "source_file",
            "source_line",
            "provider",
            "organization",
            "started_at",
            "input_tokens",
            "output_tokens",
            "prompt_hash",
        ),
    )
    first = (
        calls.filter(pl.col("prompt_hash").is_not_null())
        .group_by(_SAME)
        .agg(pl.col("ended_at").min().alias("first_ended_at"))
    )
    after = pl.col("first_ended_at") < pl.col("started_at")
    return calls.join(first, on=_SAME, how="left", nulls_equal=True).with_columns(
        is_repeat=after.fill_null(value=False)
    )
