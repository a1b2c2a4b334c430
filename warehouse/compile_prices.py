"""Compiles the package genai-prices into the two dated CSV files of `warehouse/reference/`.

Belongs here: everything that knows the package. `python -m warehouse.compile_prices --released YYYY-MM-DD`
writes `prices.csv` (what a token costs, from when to when) and `price_names.csv` (which names mean which
model). Does not belong here: looking a price up (`warehouse/prices.py`), matching a name
(`warehouse/price_names.py`).

The package resolves 5,400 calls a second; a table joined once resolves millions. Its rules are kept: the last
price whose start has come wins, a variant (batch, flex ...) replaces only the prices it names, above the
start of a context tier all tokens cost the tier's price.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PACKAGE = "genai-prices"
REFERENCE = Path(__file__).parent / "reference"

# Meter of the contract -> keys of the package, the first that has a price counts.
METER_KEYS: dict[str, tuple[str, ...]] = {
    "input": ("input_mtok", "input_text_mtok"),
    "cache_read": ("cache_read_mtok",),
    "cache_write_5m": ("cache_write_5m_mtok", "cache_write_mtok"),
    "cache_write_1h": ("cache_write_1h_mtok",),
    "output": ("output_mtok", "output_text_mtok"),
    "reasoning": ("output_reasoning_mtok",),
    "audio_input": ("input_audio_mtok",),
    "audio_output": ("output_audio_mtok",),
    "image_input": ("input_image_mtok",),
    "image_output": ("output_image_mtok",),
}
# Charged only when the tool is called; logs rarely say so, and the token price is complete without it.
TOOL_FEES = (
    "web_searches_kcount",
    "storage_searches_kcount",
    "social_searches_kcount",
    "code_executions_kcount",
)
CONTEXTS: dict[str, dict[str, str] | None] = {
    "standard": None,
    "batch": {"processing": "batch"},
    "flex": {"service_tier": "flex"},
    "priority": {"service_tier": "priority"},
    "fast": {"service_tier": "fast"},
}
PRICE_COLUMNS = (
    "provider", "model", "processing", "meter", "context_tier_start",
    "valid_from", "valid_to", "usd_per_token", "note",
)  # fmt: skip
NAME_COLUMNS = ("provider", "rank", "model", "priced_as", "rule", "text", "also")
PICO = Decimal(1).scaleb(-12)


@dataclass(frozen=True, slots=True)
class Compiled:
    """The two tables as rows of text, in the order of their columns; already sorted."""

    prices: list[tuple[str, ...]]
    names: list[tuple[str, ...]]


def compile_package() -> Compiled:
    """Compile the installed genai-prices.

    Raises:
        ValueError: the package states a match rule that `price_names.csv` can't express.

    """
    from genai_prices.data import providers

    prices = [
        row for provider in providers for model in provider.models for row in _price_rows(provider.id, model)
    ]
    by_id = {provider.id: provider for provider in providers}
    names = [row for provider in providers for row in _name_rows(provider, by_id)]
    return Compiled(sorted(prices), names)


def _price_rows(provider: str, model: Any) -> Iterator[tuple[str, ...]]:
    days = _break_days(model)
    for processing, context in CONTEXTS.items():
        open_rows: dict[tuple[str, int], tuple[str, str, str]] = {}  # (meter, tier) -> (since, price, note)
        for day in days:
            offered = _has_variant(model, context, day)
            found = dict(_day_prices(model, context, day)) if offered else {}
            since = day.isoformat() if day > date.min else ""
            for key in sorted(open_rows.keys() | found.keys()):
                was, now = open_rows.get(key), found.get(key)
                if was is not None and (now is None or was[1:] != now):
                    yield (provider, model.id, processing, key[0], str(key[1]), was[0], since, was[1], was[2])
                    del open_rows[key]
                if now is not None and key not in open_rows:
                    open_rows[key] = (since, *now)
        for key, row in open_rows.items():
            yield (provider, model.id, processing, key[0], str(key[1]), row[0], "", row[1], row[2])


def _break_days(model: Any) -> list[date]:
    """Days on which any price of the model may change; `date.min` stands for the beginning."""
    parts = [*(model.prices if isinstance(model.prices, list) else ()), *(model.price_variants or ())]
    starts = {getattr(part.constraint, "start_date", None) for part in parts}
    return [date.min, *sorted(day for day in starts if day is not None)]


def _has_variant(model: Any, context: Mapping[str, str] | None, day: date) -> bool:
    """Whether the model has a price of its own for this way of processing on that day."""
    if context is None:
        return True
    noon = datetime.combine(day, time(12), UTC)
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(noon))
        for variant in model.price_variants or ()
    )


def _day_prices(
    model: Any, context: Mapping[str, str] | None, day: date
) -> Iterator[tuple[tuple[str, int], tuple[str, str]]]:
    """Yield ((meter, tier start), (USD per token, note)) of one day."""
    priced, notes = _longest_part_of_day(model, context, day)
    other = sorted(
        key
        for key, value in priced.items()
        if value
        and key not in TOOL_FEES
        and not key.startswith("cache_")
        and not any(key in keys for keys in METER_KEYS.values())
    )
    if other:
        notes.append(f"not included: {', '.join(other)}")
    note = "; ".join(notes)
    for meter, keys in METER_KEYS.items():
        price = next((priced[key] for key in keys if priced.get(key) is not None), None)
        if price is None:
            continue
        base = getattr(price, "base", price)
        yield (meter, 0), (_per_token(base), note)
        for tier in getattr(price, "tiers", ()):
            yield (meter, tier.start), (_per_token(tier.price), note)


def _longest_part_of_day(
    model: Any, context: Mapping[str, str] | None, day: date
) -> tuple[dict[str, Any], list[str]]:
    """Prices that hold for most hours of the day: a price is looked up by day, not by hour."""
    parts = model.prices if isinstance(model.prices, list) else ()
    edges = {time(0)}
    for part in parts:
        for name in ("start_time", "end_time"):
            edge = getattr(part.constraint, name, None)
            if edge is not None:
                edges.add(datetime.combine(day, edge).astimezone(UTC).time() if edge.tzinfo else edge)
    starts = sorted(edges)
    hours: Counter[str] = Counter()
    prices: dict[str, dict[str, Any]] = {}
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        found = model.get_prices(datetime.combine(day, start, UTC), context)
        values = {key: value for key, value in vars(found).items() if value is not None}
        length = (end.hour * 60 + end.minute if end else 24 * 60) - (start.hour * 60 + start.minute)
        prices[repr(found)] = values
        hours[repr(found)] += length
    text, minutes = max(hours.items(), key=lambda item: (item[1], item[0]))
    varies = (
        [f"price varies by hour of the day: that of {minutes // 60} of 24 hours"] if len(hours) > 1 else []
    )
    return prices[text], varies


def _per_token(per_million: Decimal) -> str:
    """USD per token as plain text; the contract's money ends at 1e-12 USD."""
    return f"{(per_million / 1_000_000).quantize(PICO).normalize():f}"


def _name_rows(provider: Any, by_id: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """One row per rule; behind its own models a provider borrows those of its declared fallbacks."""
    offers = [(provider.id, model) for model in provider.models]
    for fallback in provider.fallback_model_providers or ():
        offers += [(fallback, model) for model in by_id[fallback].models]
    for rank, (priced_as, model) in enumerate(offers):
        for rule, text, also in _rules(model.match):
            yield (
                provider.id,
                str(rank),
                model.id,
                priced_as,
                rule,
                text.lower() if rule != "regex" else text,
                also,
            )


def _rules(match: Any) -> Iterator[tuple[str, str, str]]:
    """Flatten a match rule into (rule, text, regex that must hold too)."""
    kinds = {
        "equals": "equals",
        "starts_with": "prefix",
        "ends_with": "suffix",
        "contains": "contains",
        "regex": "regex",
    }
    fields = vars(match)
    if "or_" in fields:
        for clause in match.or_:
            yield from _rules(clause)
        return
    if "and_" in fields:
        inner = [rule for clause in match.and_ for rule in _rules(clause)]
        extra = [text for rule, text, also in inner if rule == "regex" and not also]
        plain = [rule for rule in inner if rule[0] != "regex"]
        if len(plain) == 1 and len(extra) == 1:
            yield plain[0][0], plain[0][1], extra[0]
            return
        msg = f"match rule {match!r}: only 'one plain clause and one regex' can be expressed"
        raise ValueError(msg)
    ((name, text),) = fields.items()
    yield kinds[name], text, ""


def render(
    columns: Sequence[str], rows: Sequence[Sequence[str]], package_version: str, released: date
) -> str:
    """CSV text with one comment line that says what it was compiled from."""
    out = io.StringIO()
    out.write(f"# {PACKAGE} {package_version}, released {released.isoformat()}\n")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both files; the release day of the package (`uv.lock` has it) is not in its metadata."""
    parser = argparse.ArgumentParser(prog="python -m warehouse.compile_prices", description=main.__doc__)
    parser.add_argument("--released", type=date.fromisoformat, required=True, metavar="YYYY-MM-DD")
    parser.add_argument("--out", type=Path, default=REFERENCE)
    options = parser.parse_args(arguments)
    compiled = compile_package()
    for name, columns, rows in (
        ("prices.csv", PRICE_COLUMNS, compiled.prices),
        ("price_names.csv", NAME_COLUMNS, compiled.names),
    ):
        text = render(columns, rows, version(PACKAGE), options.released)
        (options.out / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
