"""Changes applied to calls one after another, and each call priced again after each.

Belongs here: what a call consists of (its state), what a change does to it, what that saves. Does not belong here: which
changes there are (`findings.py`), their order and their sums (`net_savings.py`).

State of a call: computed input, input read from cache, output, what its cache writes cost above input, and a price ratio
(1 until it is routed or batched). Changes state their tokens on the call as it was logged; of a prompt that is shorter by
now they have the same share, in whole tokens rounded down. Money = tokens x list price, exact.
    cut input: evenly out of the cached and the computed part. Cache writes cost nothing more once no input is left.
    read: computed input that becomes a cache read, at most what is left of it.
    cut output: output that is no longer generated.
    price ratio: what is left costs this share of its price.
A change that would cost more than it saves on a call leaves the call as it is. Unknown prices leave money unknown; tokens
change all the same. A failed attempt saves what the log says it cost (`extra_usd`), since no list tells it.
"""

from __future__ import annotations

import polars as pl

from parsers.records import MONEY
from pipelines.calls import model_name
from pipelines.waste.call_prices import METERS, meters
from pipelines.waste.findings import BEHIND
from pipelines.waste.row_prices import with_unit_prices

_TOKENS = ("cut_input_tokens", "read_tokens", "cut_output_tokens")
CLAIMS = (*_TOKENS, "extra_usd", "price_ratio")
"""Columns of `BEHIND` that say what a change does; a row that has none of them changes nothing."""

_CALL = ["source_file", "source_line"]
_FACTS = (
    *("provider", "status", "input_tokens", "cache_read_tokens", "output_tokens"),
    *("cache_write_5m_tokens", "cache_write_1h_tokens"),
)
_STATE = ("computed", "read", "output", "writes_usd", "ratio")
_NOTHING = pl.lit(0).cast(MONEY)


def calls_as_logged(requests: pl.LazyFrame, prices: pl.DataFrame, keys: pl.DataFrame) -> pl.DataFrame:
    """State of calls before any change.

    Args:
        requests: rows of `requests`.
        prices: frame of `row_prices.PRICES_SCHEMA`.
        keys: `source_file` (Categorical), `source_line` and `call`, a number, of distinct calls.

    Returns:
        Per call `call, failed`, the state, `whole_input, whole_output`, and prices per token.

    """
    facts = requests.select(
        pl.col("source_file").cast(pl.Categorical),
        "source_line",
        *_FACTS,
        model_name(),
        pl.col("started_at").dt.date().alias("day"),
    )
    calls = facts.join(keys.lazy(), on=_CALL, how="inner").drop(_CALL).collect()
    priced = with_unit_prices(calls, prices, METERS)
    tokens = meters()
    premium = [
        pl.when(tokens[life] == 0)
        .then(_NOTHING)
        .otherwise(tokens[life] * (pl.col(f"usd_per_{life}_token") - pl.col("usd_per_input_token")))
        for life in ("cache_write_5m", "cache_write_1h")
    ]
    return priced.select(
        "call",
        (pl.col("status") == "error").fill_null(value=False).alias("failed"),
        (pl.col("input_tokens") - tokens["cache_read"]).alias("computed"),
        tokens["cache_read"].alias("read"),
        pl.col("output_tokens").alias("output"),
        pl.sum_horizontal(premium, ignore_nulls=False).cast(MONEY).alias("writes_usd"),
        pl.lit(1).cast(MONEY).alias("ratio"),
        pl.col("input_tokens").alias("whole_input"),
        pl.col("output_tokens").alias("whole_output"),
        "usd_per_input_token",
        "usd_per_cache_read_token",
        "usd_per_output_token",
    )


def apply_changes(calls: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Apply changes to calls and say what each one saves on what those before it have left.

    Args:
        calls: calls of `calls_as_logged`.
        changes: columns `finding, call, turn` and `CLAIMS`; turn 0 comes first. A call has each turn once, none left out.

    Returns:
        Per change `finding, call, failed`, `tokens_net`, `usd_net` (null if unknown), and what it takes from the load:
        `calls_removed` (0 or 1), `input_removed`, `computed_removed`, `output_removed` (tokens).

    """
    done = []
    left = calls
    for turn in range(_turns(changes)):
        mine = changes.filter(pl.col("turn") == turn)
        applied = _applied(mine.drop("turn").join(left, on="call"))
        done.append(applied.select(_RESULT))
        left = applied.select(
            pl.col(f"{name}_after").alias(name) if name in _STATE else name for name in calls.columns
        )
    return pl.concat(done) if done else pl.DataFrame(schema=_RESULT_SCHEMA)


_RESULT_SCHEMA = pl.Schema(
    {
        "finding": BEHIND["finding"],
        "call": pl.UInt32(),
        "failed": pl.Boolean(),
        "tokens_net": pl.Int64(),
        "usd_net": MONEY,
        "calls_removed": pl.Int64(),
        "input_removed": pl.Int64(),
        "computed_removed": pl.Int64(),
        "output_removed": pl.Int64(),
    }
)
_RESULT = _RESULT_SCHEMA.names()


def _turns(changes: pl.DataFrame) -> int:
    return 0 if changes.is_empty() else int(changes["turn"].max()) + 1  # type: ignore[arg-type]


def _applied(rows: pl.DataFrame) -> pl.DataFrame:
    """Changes, each with its call as it is; adds the state after it and `_RESULT`."""
    shorter = _shortened(rows)
    # What it saves must be known before it is known whether it is made.
    saved = shorter.with_columns(usd_net=_saved())
    made = (pl.col("usd_net") >= 0).fill_null(value=True)
    kept = [pl.when(made).then(f"{name}_after").otherwise(name).alias(f"{name}_after") for name in _STATE]
    return saved.with_columns(
        *kept,
        usd_net=pl.when(made).then("usd_net").otherwise(_NOTHING),
        tokens_net=pl.when(made).then(_concerned()).otherwise(0),
    ).with_columns(*_removed())


def _shortened(rows: pl.DataFrame) -> pl.DataFrame:
    """Adds the state after the change, as if it were made."""
    input_left, output = pl.col("computed") + pl.col("read"), pl.col("output")
    cut = _of_the_rest("cut_input_tokens", input_left, pl.col("whole_input"))
    rows = rows.with_columns(
        cut=cut,
        cut_output=_of_the_rest("cut_output_tokens", output, pl.col("whole_output")),
        input_share=pl.when(pl.col("whole_input") > 0).then(input_left.cast(MONEY) / pl.col("whole_input")),
    )
    rows = rows.with_columns(cut_read=_part(pl.col("read"), pl.col("cut"), input_left).fill_null(0))
    rows = rows.with_columns(
        computed_after=pl.col("computed") - pl.col("cut") + pl.col("cut_read"),
        read_after=pl.col("read") - pl.col("cut_read"),
    )
    rest = pl.col("computed_after") + pl.col("read_after")
    readable = _of_the_rest("read_tokens", rest, pl.col("whole_input"))
    rows = rows.with_columns(gain=pl.min_horizontal(readable, "computed_after"))
    nothing_left = (pl.col("cut") > 0) & (rest == 0)
    return rows.with_columns(
        computed_after=pl.col("computed_after") - pl.col("gain"),
        read_after=pl.col("read_after") + pl.col("gain"),
        output_after=pl.col("output") - pl.col("cut_output"),
        writes_usd_after=pl.when(nothing_left).then(_NOTHING).otherwise("writes_usd"),
        ratio_after=pl.col("ratio") * pl.col("price_ratio").fill_null(1),
    )


def _of_the_rest(tokens: str, left: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Tokens of the call as it was logged, as the same share of what is left of it."""
    return pl.min_horizontal(_part(pl.col(tokens).fill_null(0), left, whole).fill_null(0), left)


def _part(tokens: pl.Expr, left: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Tokens x left / whole, rounded down; 0 of nothing."""
    product = tokens.cast(pl.Int128) * left.cast(pl.Int128)
    return pl.when(whole > 0).then(product // whole.cast(pl.Int128)).otherwise(0).cast(pl.Int64)


def _saved() -> pl.Expr:
    parts = [
        _priced(pl.col("cut") - pl.col("cut_read") + pl.col("gain"), "input"),
        _priced(pl.col("cut_read") - pl.col("gain"), "cache_read"),
        _priced(pl.col("cut_output"), "output"),
        _difference("writes_usd"),
        pl.col("extra_usd").fill_null(_NOTHING) * pl.col("input_share").fill_null(1),
    ]
    left = [
        _priced(pl.col("computed_after"), "input"),
        _priced(pl.col("read_after"), "cache_read"),
        _priced(pl.col("output_after"), "output"),
        pl.col("writes_usd_after"),
    ]
    cheaper = pl.col("ratio") - pl.col("ratio_after")
    spared = pl.col("ratio") * pl.sum_horizontal(parts, ignore_nulls=False)
    dearer = (
        pl.when(cheaper == 0).then(_NOTHING).otherwise(cheaper * pl.sum_horizontal(left, ignore_nulls=False))
    )
    return pl.when("failed").then("extra_usd").otherwise(spared + dearer).cast(MONEY)


def _priced(tokens: pl.Expr, meter: str) -> pl.Expr:
    """Tokens x price; nothing for no tokens, whatever the price."""
    return pl.when(tokens == 0).then(_NOTHING).otherwise(tokens * pl.col(f"usd_per_{meter}_token"))


def _difference(name: str) -> pl.Expr:
    before, after = pl.col(name), pl.col(f"{name}_after")
    return pl.when(before.eq_missing(after)).then(_NOTHING).otherwise(before - after)


def _concerned() -> pl.Expr:
    """Tokens that the change concerns: those cut or read, or all that are left where their price changes."""
    left = pl.sum_horizontal("computed_after", "read_after", "output_after")
    stated = pl.any_horizontal(pl.col(_TOKENS).is_not_null())
    changed = pl.col("cut") + pl.col("gain") + pl.col("cut_output").fill_null(0)
    # Nothing is left of a failed attempt for others: it is as large as it was stated.
    failed = pl.sum_horizontal("cut_input_tokens", "cut_output_tokens")
    return (
        pl.when("failed")
        .then(pl.when(stated).then(failed))
        .when(pl.col("price_ratio").is_not_null())
        .then(left)
        .when(stated)
        .then(changed)
    )


def _removed() -> list[pl.Expr]:
    """What the change takes from the load of a pool; a failed attempt is no part of it."""
    before, after = (
        pl.sum_horizontal(*_STATE[:3]),
        pl.sum_horizontal(*(f"{name}_after" for name in _STATE[:3])),
    )
    gone = (before > 0) & (after == 0)
    whole_before, whole_after = (
        pl.col("computed") + pl.col("read"),
        pl.col("computed_after") + pl.col("read_after"),
    )
    served = ~pl.col("failed")
    amounts = {
        "calls_removed": gone.cast(pl.Int64),
        "input_removed": whole_before - whole_after,
        "computed_removed": pl.col("computed") - pl.col("computed_after"),
        "output_removed": pl.col("output") - pl.col("output_after"),
    }
    return [
        pl.when(served).then(amount).otherwise(0).fill_null(0).cast(pl.Int64).alias(name)
        for name, amount in amounts.items()
    ]
