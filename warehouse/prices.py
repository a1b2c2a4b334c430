"""What a token cost on a day: the dated price table, a site's overrides, and one look-up of distinct keys.

Belongs here: reading `reference/prices.csv` and `price_names.csv` (compiled by
`warehouse/compile_prices.py`), reading overrides, and `unit_prices`, which resolves each distinct (provider,
model, day, processing) once so that calls are priced by a join. Does not belong here: names
(`warehouse/price_names.py`), money of calls (`pipelines/costs/`).

Unknown is no row: an unpriced model is absent from the result, and never costs zero by default.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import polars as pl

from parsers.errors import SiteConfigError
from parsers.records import COUNT, MONEY, TEXT
from warehouse.price_names import PriceNames

METERS = (
    "input", "cache_read", "cache_write_5m", "cache_write_1h", "output",
    "reasoning", "audio_input", "audio_output", "image_input", "image_output",
)  # fmt: skip
PROCESSING = ("standard", "batch", "flex", "priority", "fast")
# A class of input without a price of its own costs what the wider class costs (the rule of genai-prices).
_FALLS_BACK_TO = {
    "cache_read": ("input",),
    "cache_write_5m": ("input",),
    "cache_write_1h": ("cache_write_5m", "input"),
}

UNIT_PRICES: dict[str, pl.DataType | type[pl.DataType]] = {
    "provider": TEXT,
    "model": TEXT,
    "day": pl.Date,
    "processing": TEXT,
    "meter": TEXT,
    "context_tier_start": COUNT,
    "usd_per_token": MONEY,
    "price_source": TEXT,
}
OVERRIDES: dict[str, pl.DataType | type[pl.DataType]] = {
    "provider": TEXT,
    "model": TEXT,
    "processing": TEXT,
    "meter": TEXT,
    "context_tier_start": COUNT,
    "valid_from": pl.Date,
    "valid_to": pl.Date,
    "usd_per_token": MONEY,
    "note": TEXT,
}
# Outside these bounds a price was not stated per token (USD per million or per thousand tokens, cents ...).
LOWEST_USD_PER_TOKEN, HIGHEST_USD_PER_TOKEN = 1e-10, 1e-3
_KEY = ("provider", "model", "day", "processing")
_LIST_RANK = 1_000_000


class _Pattern(NamedTuple):
    provider: str | None
    model: str
    rank: int


@dataclass(frozen=True)
class PriceTable:
    """The compiled list prices: `prices` as in OVERRIDES, the name rules, what they were compiled from."""

    prices: pl.DataFrame
    names: PriceNames
    snapshot: str


@cache
def load_price_table() -> PriceTable:
    """Read the table that ships with the package `warehouse`; `snapshot` is its first line's text."""
    folder = files("warehouse") / "reference"
    text = (folder / "prices.csv").read_bytes()
    prices = pl.read_csv(text, comment_prefix="#", schema_overrides={**OVERRIDES, "usd_per_token": TEXT})
    names = pl.read_csv(
        (folder / "price_names.csv").read_bytes(),
        comment_prefix="#",
        schema_overrides={"rank": COUNT, "text": TEXT, "also": TEXT},
    )
    snapshot = text.partition(b"\n")[0].decode("utf-8").removeprefix("# ").strip()
    return PriceTable(
        prices.with_columns(pl.col("usd_per_token").cast(MONEY)), PriceNames.of(names), snapshot
    )


def read_overrides(path: Path) -> pl.DataFrame:
    """Read a site's prices (CSV): model, meter, usd_per_token; optional provider, processing, tier, validity,
    note.

    `model` and `provider` may hold `*`; an empty provider means any. `valid_to` is the first day it no longer
    holds.

    Raises:
        SiteConfigError: a column is missing or unknown, or a value is out of its range.

    """
    try:
        raw = pl.read_csv(path, infer_schema=False, comment_prefix="#")
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0]
        raise SiteConfigError(
            f"can't read price overrides: {reason}", where=str(path), remedy="Give a CSV file with a header"
        ) from error
    missing = [name for name in ("model", "meter", "usd_per_token") if name not in raw.columns]
    unknown = [name for name in raw.columns if name not in OVERRIDES]
    if missing or unknown:
        raise SiteConfigError(
            f"columns missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}",
            where=str(path),
            remedy=f"Columns are {', '.join(OVERRIDES)}",
        )
    return checked_overrides(raw, where=str(path))


def checked_overrides(overrides: pl.DataFrame, *, where: str = "price overrides") -> pl.DataFrame:
    """Cast overrides to OVERRIDES, fill what was left out, and refuse what can't be a price.

    Raises:
        SiteConfigError: names the first bad row and its column.

    """
    have = set(overrides.columns)
    texts = overrides.select(
        (pl.col(name) if name in have else pl.lit(None)).cast(TEXT).replace("", None).alias(name)
        for name in OVERRIDES
    ).with_columns(pl.col("context_tier_start").fill_null("0"), pl.col("processing").fill_null("standard"))
    frame = texts.select(
        pl.col(name).str.to_date("%Y-%m-%d", strict=False)
        if dtype == pl.Date
        else pl.col(name).cast(dtype, strict=False)
        for name, dtype in OVERRIDES.items()
    )
    price = pl.col("usd_per_token")
    rules = {
        "model": pl.col("model").is_null(),
        "meter": ~pl.col("meter").is_in(METERS).fill_null(value=False),
        "processing": ~pl.col("processing").is_in(PROCESSING),
        "context_tier_start": pl.col("context_tier_start").is_null() | (pl.col("context_tier_start") < 0),
        "usd_per_token": price.is_null()
        | (price < 0)
        | ((price > 0) & ~price.cast(pl.Float64).is_between(LOWEST_USD_PER_TOKEN, HIGHEST_USD_PER_TOKEN)),
        **{name: pl.col(name).is_null() & texts[name].is_not_null() for name in ("valid_from", "valid_to")},
    }
    remedies = {
        "meter": f"Use one of {', '.join(METERS)}",
        "processing": f"Use one of {', '.join(PROCESSING)}",
        "usd_per_token": "State USD for one token (USD per million / 1,000,000), from 1e-10 to 1e-3, or 0",
        "valid_from": "Write YYYY-MM-DD",
        "valid_to": "Write YYYY-MM-DD",
    }
    for name, bad in rules.items():
        rows = frame.select(bad.alias("bad"))["bad"].arg_true()
        if len(rows):
            what = f"row {rows[0] + 1}, {name}: {texts[name][rows[0]]!r} is not usable"
            raise SiteConfigError(what, where=where, remedy=remedies.get(name))
    return frame


def unit_prices(
    keys: pl.DataFrame, *, overrides: pl.DataFrame | None = None, table: PriceTable | None = None
) -> pl.DataFrame:
    """Resolve each distinct key of a log to the prices that held on its day.

    Args:
        keys: provider, model, day, as the log has them (provider may be null); optionally `processing`
            (default standard). Duplicates are fine.
        overrides: a site's own prices (columns of OVERRIDES, `*` allowed in provider and model); where they
            match a key on its day, list prices of that key are not used at all.
        table: the list prices; default: the table that ships.

    Returns:
        UNIT_PRICES: one row per key, meter and context tier. All tokens of a call cost the price of the
        highest tier whose start its input exceeds; tier 0 is always there. Keys without a price have no row.

    """
    table = table or load_price_table()
    distinct = _distinct_keys(keys)
    parts = [_list_candidates(distinct, table)]
    if overrides is not None and not overrides.is_empty():
        parts.append(_override_candidates(distinct, checked_overrides(overrides)))
    held = pl.concat(parts).filter(
        (pl.col("valid_from").is_null() | (pl.col("valid_from") <= pl.col("day")))
        & (pl.col("valid_to").is_null() | (pl.col("day") < pl.col("valid_to")))
    )
    # A call in batch (flex ...) takes that price where there is one, else the standard one, and says so.
    substitute = (pl.col("price_processing") != pl.col("processing")).cast(pl.Int64)
    order = pl.col("rank") * 2 + substitute
    best = held.filter((substitute == 0) | (pl.col("price_processing") == "standard")).filter(
        order == order.min().over(*_KEY)
    )
    noted = best.with_columns(
        _joined_notes(
            pl.col("price_source"),
            pl.when(substitute == 1).then(
                pl.format("no {} price known: standard price", pl.col("processing"))
            ),
            pl.col("note").replace("", None),
        ).alias("price_source")
    )
    return _complete(noted)


def _distinct_keys(keys: pl.DataFrame) -> pl.DataFrame:
    processing = pl.col("processing") if "processing" in keys.columns else pl.lit("standard")
    return keys.select(
        pl.col("provider").cast(TEXT),
        pl.col("model").cast(TEXT),
        pl.col("day").cast(pl.Date),
        processing.cast(TEXT).fill_null("standard").alias("processing"),
    ).unique(maintain_order=True)


def _list_candidates(distinct: pl.DataFrame, table: PriceTable) -> pl.DataFrame:
    pairs = distinct.select("provider", "model").unique(maintain_order=True)
    rows = []
    for provider, model in pairs.iter_rows():
        match = table.names.find(provider, model) if model is not None else None
        if match is None:
            continue
        borrowed = f"price of {match.priced_as}" if match.priced_as != match.provider else None
        notes = "; ".join(text for text in (match.how, borrowed) if text)
        rows.append((provider, model, match.priced_as, match.model, borrowed is not None, notes or None))
    names = ("provider", "model", "price_provider", "price_model", "borrowed", "how")
    matches = pl.DataFrame(rows, schema=dict.fromkeys(names, TEXT) | {"borrowed": pl.Boolean}, orient="row")
    prices = table.prices.rename(
        {"provider": "price_provider", "model": "price_model", "processing": "price_processing"}
    )
    return (
        distinct.join(matches, on=["provider", "model"], nulls_equal=True)
        .join(prices, on=["price_provider", "price_model"])
        # Variants are the vendor's own: another host that borrows the price list has only the standard price.
        .filter(~pl.col("borrowed") | (pl.col("price_processing") == "standard"))
        .select(
            *_KEY, pl.lit(_LIST_RANK, COUNT).alias("rank"), "price_processing", "meter", "context_tier_start",
            "valid_from", "valid_to", "usd_per_token", "note",
            _joined_notes(
                pl.format("{}: {}/{}", pl.lit(_short(table.snapshot)), "price_provider", "price_model"),
                pl.when(pl.col("price_processing") != "standard").then("price_processing"),
                pl.col("how"),
            ).alias("price_source"),
        )
    )  # fmt: skip


def _override_candidates(distinct: pl.DataFrame, overrides: pl.DataFrame) -> pl.DataFrame:
    patterns = overrides.select("provider", "model").unique(maintain_order=True).with_row_index("rank")
    known = [_Pattern(p, m, int(rank)) for rank, p, m in patterns.iter_rows()]
    pairs = distinct.select("provider", "model").unique(maintain_order=True)
    rows = [
        (provider, model, pattern.provider, pattern.model, pattern.rank)
        for provider, model in pairs.iter_rows()
        for pattern in known
        if model is not None and _matches(pattern, provider, model)
    ]
    names = ("provider", "model", "price_provider", "price_model", "rank")
    matches = pl.DataFrame(rows, schema=dict.fromkeys(names, TEXT) | {"rank": COUNT}, orient="row")
    prices = overrides.rename(
        {"provider": "price_provider", "model": "price_model", "processing": "price_processing"}
    )
    return (
        distinct.join(matches, on=["provider", "model"], nulls_equal=True)
        .join(prices, on=["price_provider", "price_model"], nulls_equal=True)
        .select(
            *_KEY, "rank", "price_processing", "meter", "context_tier_start", "valid_from", "valid_to",
            "usd_per_token", "note", pl.format("site price: {}", "price_model").alias("price_source"),
        )
    )  # fmt: skip


def _matches(pattern: _Pattern, provider: str | None, model: str) -> bool:
    by_provider = pattern.provider is None or fnmatchcase((provider or "").lower(), pattern.provider.lower())
    return by_provider and fnmatchcase(model.lower(), pattern.model.lower())


def _complete(best: pl.DataFrame) -> pl.DataFrame:
    """Price every meter at every tier; a class of input without a price takes the wider class's."""
    index = [*_KEY, "context_tier_start"]
    sources = best.group_by(*_KEY, maintain_order=True).agg(pl.col("price_source").first())
    wide = (
        best.unique([*index, "meter"], keep="first", maintain_order=True)
        .pivot("meter", index=index, values="usd_per_token", on_columns=list(METERS))
        .sort(index, nulls_last=False)
        .with_columns(pl.col(*METERS).forward_fill().over(*_KEY))
        .join(sources, on=list(_KEY), nulls_equal=True, maintain_order="left")
    )
    parts = []
    for meter in METERS:
        wider = _FALLS_BACK_TO.get(meter, ())
        stand_in = pl.when(pl.col(meter).is_null()).then(pl.lit(f"no {meter} price: that of the wider class"))
        source = _joined_notes(pl.col("price_source"), stand_in) if wider else pl.col("price_source")
        price = pl.coalesce(meter, *wider)
        parts.append(
            wide.filter(price.is_not_null()).select(
                *index,
                pl.lit(meter).alias("meter"),
                price.alias("usd_per_token"),
                source.alias("price_source"),
            )
        )
    done = pl.concat(parts).select(pl.col(name).cast(dtype) for name, dtype in UNIT_PRICES.items())
    return done.sort("provider", "model", "day", "processing", "context_tier_start", "meter")


def _joined_notes(*parts: pl.Expr) -> pl.Expr:
    return pl.concat_str(*parts, separator="; ", ignore_nulls=True)


def _short(snapshot: str) -> str:
    """`genai-prices 0.2.3, released 2026-11-10` -> `genai-prices 0.2.3 of 2026-11-10`."""
    return re.sub(r", released ", " of ", snapshot)
