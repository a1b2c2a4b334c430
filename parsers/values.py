"""Expressions that read numbers and instants out of the text of raw frames, and say what they could not read.

Belongs here: text -> whole number, number, money, truth or instant, each with the reason why a value could
not be read, so that a wrong value becomes a reject and never a silent null; and what traces without a clock
and with ids of their own need (origin, scope of ids, tokens of blocks). Does not belong here: which field
means what (`parsers/formats/`, `parsers/mapping.py`), and checks of values that could be read
(`parsers/normalise.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import polars as pl

from parsers.clock import AMBIGUOUS, ZONE_ASSUMED
from parsers.errors import SiteConfigError
from parsers.records import INSTANT, MONEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from parsers.format import Context

RELATIVE_ORIGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Where logs without a wall clock begin, unless the option `origin` says otherwise."""

MICROSECONDS: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
EPOCH_S: Final = (1e9, 1e10)
"""Seconds since 1970 that are taken for instants: September 2001 to the year 2286. The ranges of s, ms, us,
ns and ticks that follow from it don't overlap, so a number tells its own unit."""

_YEAR_1_TO_1970_S: Final = 62_135_596_800
_EXACT_IN_FLOAT: Final = 2**53
_FIT_IN_INT64: Final = 9e18


@dataclass(frozen=True, slots=True)
class Reading:
    """One field read: its `value`, `fault` (String: why there is none), `flag` (String: what was assumed)."""

    value: pl.Expr
    fault: pl.Expr
    flag: pl.Expr | None = None

    def needed(self, name: str) -> Reading:
        """The same field where a record without it is broken."""
        absent = pl.when(self.value.is_null()).then(pl.lit(f"{name} is missing"))
        return Reading(self.value, pl.coalesce(self.fault, absent), self.flag)


def first_fault(readings: Iterable[Reading]) -> pl.Expr:
    """The first reason among the fields of a record, or null: the `_reject` column."""
    return pl.coalesce([pl.lit(None, dtype=pl.String), *(reading.fault for reading in readings)])


def present(raw: pl.Expr) -> pl.Expr:
    """The text without surrounding space; blank is null."""
    text = raw.cast(pl.String).str.strip_chars()
    return pl.when(text != "").then(text)


def _reading(raw: pl.Expr, value: pl.Expr, fault: str, flag: pl.Expr | None = None) -> Reading:
    unread = present(raw).is_not_null() & value.is_null()
    return Reading(value, pl.when(unread).then(pl.lit(fault)), flag)


def whole(raw: pl.Expr, name: str, *, factor: float = 1) -> Reading:
    """Read a count (Int64). "12", "12.0" and "1.2e1" are whole, "12.5" is not.

    With a factor (k, M) the product is rounded: the source rounded it before.
    """
    text = present(raw)
    real = text.cast(pl.Float64, strict=False)
    if factor == 1:
        is_whole = (real == real.floor()) & (real.abs() <= _EXACT_IN_FLOAT)
        floats = pl.when(is_whole).then(real.cast(pl.Int64, strict=False))
        value = pl.coalesce(text.cast(pl.Int64, strict=False), floats)
    else:
        product = (real * factor).round()
        value = pl.when(product.abs() <= _FIT_IN_INT64).then(product.cast(pl.Int64, strict=False))
    return _reading(raw, value, f"{name} is not a whole number")


def number(raw: pl.Expr, name: str, *, factor: float = 1.0) -> Reading:
    """Read a finite number (Float64) times `factor`."""
    real = present(raw).cast(pl.Float64, strict=False) * factor
    return _reading(raw, pl.when(real.is_finite()).then(real), f"{name} is not a number")


def money(raw: pl.Expr, name: str, *, parts: int = 1) -> Reading:
    """Read an amount (Decimal(38,12), never through a float); `parts` of its unit make one currency unit."""
    amount = present(raw).cast(MONEY, strict=False)
    return _reading(raw, amount if parts == 1 else amount / parts, f"{name} is not an amount")


def truth(raw: pl.Expr, name: str) -> Reading:
    """Read a Boolean: true/false, yes/no, on/off, t/f, y/n, 1/0."""
    word = present(raw).str.to_lowercase()
    value = (
        pl.when(word.is_in(["true", "t", "yes", "y", "on", "1", "1.0"]))
        .then(pl.lit(value=True))
        .when(word.is_in(["false", "f", "no", "n", "off", "0", "0.0"]))
        .then(pl.lit(value=False))
    )
    return _reading(raw, value, f"{name} is neither true nor false")


def since(raw: pl.Expr, name: str, unit: str, origin: datetime) -> Reading:
    """Read an instant (UTC, us) told as time since `origin` in s, ms, us or ns; a negative one is a fault."""
    micros = (present(raw).cast(pl.Float64, strict=False) * MICROSECONDS[unit]).round()
    within = (micros >= 0) & (micros <= EPOCH_S[1] * MICROSECONDS["s"])
    elapsed = pl.when(within).then(micros.cast(pl.Int64, strict=False)).cast(pl.Duration("us"))
    return _reading(
        raw, pl.lit(origin, dtype=INSTANT) + elapsed, f"{name} is not a time since the start in {unit}"
    )


def instant(
    raw: pl.Expr, name: str, *, unit: str = "auto", zone: str = "UTC", zone_assumed: bool = False
) -> Reading:
    """Read an instant (UTC, us).

    Args:
        raw: text.
        name: how the log calls the field, for the reason of a reject.
        unit: `s`, `ms`, `us`, `ns` since 1970, `ticks` (100 ns since the year 1), `iso`, a strptime pattern
        (it holds
            a `%`), or `auto`: a number by its magnitude, else ISO 8601.
        zone: time zone of texts that name none. Of an hour that a clock change repeats, the first is taken
        and
            flagged `local_time_ambiguous`; one that it leaves out is a fault.
        zone_assumed: nobody said so; times read by `zone` are flagged.

    """
    text = present(raw)
    if "%" in unit:
        local = text.str.to_datetime(unit, time_unit="us", strict=False)
        aware = any(mark in unit for mark in ("%z", "%:z", "%#z", "%+"))
        value, flag = (local, None) if aware else _from_zone(local, zone, zone_assumed)
        return _reading(raw, value, f"{name} does not match {unit}", flag)
    if unit not in {"auto", "iso"}:
        return _reading(raw, _from_epoch(text, unit), f"{name} is not an instant in {unit}")
    zoned, naive = _iso(text)
    from_zone, flag = _from_zone(naive, zone, zone_assumed)
    readings = [zoned, from_zone]
    if unit == "auto":
        readings += [_from_epoch(text, known) for known in ("s", "ms", "us", "ns", "ticks")]
    return _reading(raw, pl.coalesce(readings), f"{name} is not an instant", flag)


def in_zone(naive: pl.Expr, name: str, zone: str, *, zone_assumed: bool = False) -> Reading:
    """Read an instant of a naive Datetime("us") in `zone`; see `instant` for clock changes."""
    value, flag = _from_zone(naive, zone, zone_assumed)
    skipped = pl.when(naive.is_not_null() & value.is_null()).then(pl.lit(f"{name} does not exist in {zone}"))
    return Reading(value, skipped, flag)


def cumulative_tokens(blocks: pl.Expr, block_tokens: int | pl.Expr, input_tokens: pl.Expr) -> pl.Expr:
    """Tokens up to the end of each of `blocks` blocks (List(Int64)), the last cut at the end of the prompt.

    Null where there is no block or the prompt's length is unknown.
    """
    count = blocks.cast(pl.Int64)
    before_last = pl.int_ranges(1, pl.max_horizontal(count, 1), dtype=pl.Int64) * block_tokens
    last = pl.min_horizontal(count * block_tokens, input_tokens)
    return pl.when(count > 0, input_tokens.is_not_null()).then(pl.concat_list(before_last, last))


def content_scope(context: Context) -> str:
    """Where ids that a source numbers itself are valid: the source, known by its beginning, not its path."""
    return hashlib.sha256(context.head.encode()).hexdigest() if context.head else context.source


def relative_origin(context: Context) -> datetime:
    """The instant at which a log without a wall clock begins: the option `origin`, else 2000-01-01.

    Raises:
        SiteConfigError: the option is not an ISO 8601 instant.

    """
    given = context.options.get("origin")
    if given is None:
        return RELATIVE_ORIGIN
    try:
        origin = datetime.fromisoformat(given)
    except ValueError:
        raise SiteConfigError(
            f"{given!r} is not an instant", where="option origin", remedy="write it like 2026-03-02T00:00:00Z"
        ) from None
    return origin.replace(tzinfo=UTC) if origin.tzinfo is None else origin.astimezone(UTC)


def _from_epoch(text: pl.Expr, unit: str) -> pl.Expr:
    """In decimals, as a float of seconds blurs the last microsecond; ticks and ns are whole by nature."""
    whole_count = text.cast(pl.Int64, strict=False)
    seconds = text.cast(pl.Float64, strict=False)
    if unit == "ticks":
        seconds = seconds / 1e7 - _YEAR_1_TO_1970_S
        micros = (whole_count - _YEAR_1_TO_1970_S * 10_000_000) // 10
    elif unit == "ns":
        seconds, micros = seconds / 1e9, whole_count // 1000
    else:
        factor = int(MICROSECONDS[unit])
        seconds = seconds * factor / 1e6
        # Only what is in range is multiplied: a Decimal that overflows fails the whole frame.
        count = pl.when(seconds.is_between(*EPOCH_S, closed="left")).then(text).cast(MONEY, strict=False)
        micros = (count * factor).round().cast(pl.Int64, strict=False)
    return pl.when(seconds.is_between(*EPOCH_S, closed="left")).then(micros).cast(INSTANT)


def _iso(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """ISO 8601 and its common variants: texts that name their zone (UTC), and texts that do not (naive)."""
    tidy = (
        text.str.replace(r"^(\d{4})[-/](\d\d)[-/](\d\d)[Tt ]\s*", "$1-$2-$3 ")
        .str.replace(r"(:\d\d),(\d)", "$1.$2")
        .str.replace(r"\s*(?:[Zz]|UTC|GMT)$", "+00:00")
        .str.replace(r"(\d) ([+-]\d\d:?\d\d)$", "$1$2")
    )
    pattern = "%Y-%m-%d %H:%M:%S%.f"
    zoned = tidy.str.to_datetime(f"{pattern}%#z", time_unit="us", strict=False)
    return zoned, tidy.str.to_datetime(pattern, time_unit="us", strict=False)


def _from_zone(naive: pl.Expr, zone: str, assumed: bool) -> tuple[pl.Expr, pl.Expr | None]:
    if zone == "UTC":
        value = naive.dt.replace_time_zone("UTC")
        return value, pl.when(value.is_not_null()).then(pl.lit(ZONE_ASSUMED)) if assumed else None
    first, last = (
        naive.dt.replace_time_zone(zone, ambiguous=which, non_existent="null").dt.convert_time_zone("UTC")
        for which in ("earliest", "latest")
    )
    return first, pl.when(first != last).then(pl.lit(AMBIGUOUS))
