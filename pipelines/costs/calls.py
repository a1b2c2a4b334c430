"""From requests to billable calls: which calls cost money, on which basis, and how their tokens fall into
meters.

Belongs here: the rules of docs/decisions/0003-cost-basis.md, per call, as expressions. Does not belong here:
lines (`lines.py`), the cost of pools (`own_hardware.py`), prices (`warehouse/prices.py`).

Every token is in exactly one meter. The context tier is chosen by the whole input, cached tokens included,
and holds for all tokens of the call.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import polars as pl

from pipelines.calls import NO_OUTPUT, is_in_usd, is_served, model_name, reached_a_model, was_turned_away
from pipelines.costs.exact import times
from warehouse.price_names import is_self_hosted
from warehouse.prices import METERS

if TYPE_CHECKING:
    from collections.abc import Sequence

KEY = ("provider", "model", "day", "processing")
PAYER = ("charge_day", "organization", "team", "project", "api_key_hash", "api_key_alias")
# A meter that is part of another: audio in the input, reasoning in the output. Taken out of it only where
# priced.
_PARTS = {
    "audio_input": ("audio_input_tokens", "input"),
    "image_input": ("image_input_tokens", "input"),
    "reasoning": ("reasoning_tokens", "output"),
    "audio_output": ("audio_output_tokens", "output"),
    "image_output": ("image_output_tokens", "output"),
}
_STANDARD_TIERS = ("", "default", "standard", "auto", "standard_only", "on_demand", "on-demand")
_SPECIAL_TIERS = ("batch", "flex", "priority", "fast")

_TIER = pl.col("service_tier").str.strip_chars().str.to_lowercase().fill_null("")
PROCESSING = (
    pl.when(pl.col("operation") == "batch")
    .then(pl.lit("batch"))
    .when(_TIER.is_in(_SPECIAL_TIERS))
    .then(_TIER)
    .otherwise(pl.lit("standard"))
)
IN_USD = is_in_usd()


def price_keys(requests: pl.LazyFrame) -> pl.DataFrame:
    """Distinct (provider, model, day, processing) of calls that may cost money, for `unit_prices`."""
    keys = _may_cost(requests).select(
        "provider",
        model_name(),
        pl.col("started_at").dt.date().alias("day"),
        PROCESSING.alias("processing"),
    )
    return keys.unique().sort("provider", "model", "day", "processing").collect()


def billable(
    requests: pl.LazyFrame, prices: pl.DataFrame, pools: Sequence[tuple[str, Sequence[str]]]
) -> pl.LazyFrame:
    """One row per call that costs, or may cost, money.

    Args:
        requests: REQUESTS.
        prices: UNIT_PRICES of the keys of `price_keys`.
        pools: (pool, globs over model names) of one's own hardware whose cost is known, in order of
            precedence.

    Returns:
        PAYER, KEY, `tier`, one count per meter, `reported_usd`, `list_ok` (can be priced by list), `pool`,
        `basis`, `reason` (why unpriced), and the marks `reads_unknown, writes_unknown, is_estimated,
        zero_reported, odd_tier`.

    """
    calls = _may_cost(requests).select(
        pl.col("started_at").dt.date().alias("charge_day"),
        *PAYER[1:],
        "provider",
        model_name(),
        pl.col("started_at").dt.date().alias("day"),
        PROCESSING.alias("processing"),
        pl.when(~_TIER.is_in((*_STANDARD_TIERS, *_SPECIAL_TIERS))).then(_TIER).alias("odd_tier"),
        is_served().alias("served"),
        "operation",
        "usage_origin",
        pl.when(IN_USD).then("cost_reported").alias("reported_usd"),
        pl.when(~IN_USD & pl.col("cost_reported").is_not_null()).then("cost_currency").alias("foreign"),
        "input_tokens",
        "cache_read_tokens",
        "cache_write_5m_tokens",
        "cache_write_1h_tokens",
        "output_tokens",
        *(column for column, _ in _PARTS.values()),
    )
    facts, tier_columns = _key_facts(prices)
    known = calls.join(facts.lazy(), on=list(KEY), how="left", nulls_equal=True).join(
        _pool_of(calls, prices, pools).lazy(), on=["provider", "model"], how="left", nulls_equal=True
    )
    tiers = [pl.when(pl.col("input_tokens") > pl.col(name)).then(name) for name in tier_columns]
    # What a gateway charges for a failed call on one's own hardware is already in the pool's hours.
    counted = known.filter(pl.col("served") | pl.col("pool").is_null())
    return counted.with_columns(
        pl.max_horizontal(pl.lit(0, pl.Int64), *tiers).alias("tier"), *_meters()
    ).pipe(_with_basis)


def metered(groups: pl.DataFrame, prices: pl.DataFrame) -> pl.DataFrame:
    """One row per group and meter with tokens (the input always), with its list price.

    `groups` holds KEY, `tier` and one count per meter; the result replaces these counts by `meter`,
    `quantity`, `usd_per_token`, `list_usd`, `price_source`.
    """
    index = [name for name in groups.columns if name not in METERS]
    long = groups.unpivot(list(METERS), index=index, variable_name="meter", value_name="quantity").filter(
        (pl.col("quantity") > 0) | (pl.col("meter") == "input")
    )
    by_meter = prices.rename({"context_tier_start": "tier"})
    joined = long.join(
        by_meter,
        on=[*KEY, "tier", "meter"],
        how="left",
        nulls_equal=True,
        validate="m:1",
        maintain_order="left",
    )
    return joined.with_columns(times(pl.col("quantity"), pl.col("usd_per_token")).alias("list_usd"))


def _may_cost(requests: pl.LazyFrame) -> pl.LazyFrame:
    """Served calls, and failed ones that were worked on and that the source says were billed.

    Never answers from a response cache, nor calls that the provider turned away.
    """
    billed_failure = (pl.col("cost_reported").fill_null(0) > 0) & ~was_turned_away()
    return requests.filter((is_served() | billed_failure) & reached_a_model())


def _key_facts(prices: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Per key: which meters are priced (`has_<meter>`), where its context tiers start (`tier_1` ...), and
    whether writing to the cache has a price of its own.
    """
    has = [(pl.col("meter") == meter).any().alias(f"has_{meter}") for meter in METERS]
    starts = pl.col("context_tier_start").filter(pl.col("context_tier_start") > 0).unique().sort()
    base = {
        meter: pl.col("usd_per_token")
        .filter((pl.col("meter") == meter) & (pl.col("context_tier_start") == 0))
        .first()
        for meter in ("input", "cache_write_5m")
    }
    writes_cost = (base["input"] != base["cache_write_5m"]).fill_null(value=False).alias("writes_cost")
    facts = prices.group_by(*KEY).agg(*has, writes_cost, starts.alias("starts"))
    count = max(facts["starts"].list.len().to_list(), default=0)
    names = [f"tier_{number + 1}" for number in range(count)]
    columns = [pl.col("starts").list.get(i, null_on_oob=True).alias(name) for i, name in enumerate(names)]
    return facts.with_columns(columns).drop("starts"), names


def _pool_of(
    calls: pl.LazyFrame, prices: pl.DataFrame, pools: Sequence[tuple[str, Sequence[str]]]
) -> pl.DataFrame:
    """The pool that served a (provider, model), for those that one's own hardware served.

    A vendor that is named and has a list price for the model is believed over a glob that happens to match.
    """
    pairs = calls.select("provider", "model").unique().sort("provider", "model").collect() if pools else None
    priced = set(prices.select("provider", "model").unique().iter_rows())
    rows = []
    for provider, model in pairs.iter_rows() if pairs is not None else ():
        vendor = provider is not None and not is_self_hosted(provider, model) and (provider, model) in priced
        names = {model.lower(), model.lower().partition("/")[2] or model.lower()}
        hits = (
            pool
            for pool, globs in pools
            if any(fnmatchcase(n, glob.lower()) for n in names for glob in globs)
        )
        pool = None if vendor else next(hits, None)
        if pool is not None:
            rows.append((provider, model, pool))
    return pl.DataFrame(
        rows, schema={"provider": pl.String, "model": pl.String, "pool": pl.String}, orient="row"
    )


def _meters() -> list[pl.Expr]:
    """Counts per meter; 0 where the call has none. Only meaningful where the usage is known."""
    read = pl.min_horizontal(pl.col("cache_read_tokens").fill_null(0), "input_tokens")
    write_5m, write_1h = (
        pl.col("cache_write_5m_tokens").fill_null(0),
        pl.col("cache_write_1h_tokens").fill_null(0),
    )
    uncached = (pl.col("input_tokens") - read - write_5m - write_1h).clip(lower_bound=0)
    rest = {"input": uncached, "output": pl.col("output_tokens")}
    counts = {"cache_read": read, "cache_write_5m": write_5m, "cache_write_1h": write_1h}
    for meter, (column, whole) in _PARTS.items():
        part = pl.when(pl.col(f"has_{meter}")).then(pl.col(column).fill_null(0)).otherwise(0)
        counts[meter] = pl.min_horizontal(part, rest[whole].fill_null(0))
        rest[whole] = rest[whole] - counts[meter]
    return [expr.fill_null(0).alias(meter) for meter, expr in (counts | rest).items()]


def _with_basis(calls: pl.LazyFrame) -> pl.LazyFrame:
    output_known = pl.col("output_tokens").is_not_null() | pl.col("operation").is_in(NO_OUTPUT)
    usage_known = pl.col("input_tokens").is_not_null() & output_known
    has_input, has_output = (
        pl.col("has_input").fill_null(value=False),
        pl.col("has_output").fill_null(value=False),
    )
    list_ok = (
        pl.col("served")
        & usage_known
        & has_input
        & (has_output | (pl.col("output_tokens").fill_null(0) == 0))
    )
    on_own = pl.col("pool").is_not_null()
    reported = pl.col("reported_usd").fill_null(0) > 0
    basis = (
        pl.when(on_own & usage_known)
        .then(pl.lit("own_hardware"))
        .when(~on_own & reported)
        .then(pl.lit("reported"))
        .when(~on_own & list_ok)
        .then(pl.lit("list_price"))
        .otherwise(pl.lit("unpriced"))
    )
    reason = (
        pl.when(on_own)
        .then(pl.lit("token counts unknown: the pool's cost is carried by calls whose counts are known"))
        .when(pl.col("foreign").is_not_null())
        .then(pl.format("cost reported in {}, not in USD, and no list price", pl.col("foreign")))
        .when(has_input & ~usage_known)
        .then(pl.lit("token counts unknown"))
        .when(has_input)
        .then(pl.lit("list price has none for output tokens"))
        .when(pl.col("reported_usd") == 0)
        .then(pl.lit("source states a cost of 0 without a reason, and no list price"))
        .otherwise(pl.lit("no price known for this provider and model"))
    )
    some_input = (pl.col("input_tokens") > 0).fill_null(value=False)
    return calls.with_columns(list_ok.alias("list_ok"), basis.alias("basis")).with_columns(
        pl.when(pl.col("basis") == "unpriced").then(reason).alias("reason"),
        pl.when(pl.col("basis") == "own_hardware").then("pool").alias("pool"),
        (some_input & pl.col("cache_read_tokens").is_null()).alias("reads_unknown"),
        (
            some_input
            & pl.col("cache_write_5m_tokens").is_null()
            & pl.col("writes_cost").fill_null(value=False)
        ).alias("writes_unknown"),
        (pl.col("usage_origin") == "estimated").alias("is_estimated"),
        (pl.col("reported_usd").fill_null(-1) == 0).alias("zero_reported"),
    )
