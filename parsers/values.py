"""Expressions that read numbers and instants out of the text of raw frames, and say what they could not read.

Belongs here: text -> whole number, number, money, truth or instant, each with the reason why a value could
not be read, so that a wrong value becomes a reject and never a silent null; and what traces without a clock
and with ids of their own need (origin, scope of ids, tokens of blocks). Does not belong here: which field
means what (`parsers/formats/`, `parsers/mapping.py`), and checks of values that could be read
(`parsers/normalise.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import polars as pl

from parsers.clock import AMBIGUOUS, ZONE_ASSUMED
from parsers.errors import SiteConfigError
from parsers.records import INSTANT, MONEY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from parsers.format import Context

    _Way = Callable[[pl.Expr], pl.Expr]

RELATIVE_ORIGIN: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Where logs without a wall clock begin, unless the option `origin` says otherwise."""

MICROSECONDS: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
EPOCH_S: Final = (1e9, 1e10)
"""Seconds since 1970 that are taken for instants: September 2001 to the year 2286. The ranges of s, ms, us,
ns and ticks that follow from it don't overlap, so a number tells its own unit."""

_YEAR_1_TO_1970_S: Final = 62_135_596_800
NO_TEXT: Final = pl.lit(None, dtype=pl.String)
_VALUE: Final = "value of "
_DATE: Final = r"^\d{4}[-/]\d\d[-/]"
_ZONE: Final = r"(?:[Zz]|UTC|GMT|:\d\d(?:[.,]\d+)? ?[+-]\d\d(?::?\d\d)?)$"
_EXACT_IN_FLOAT: Final = 2**53
_FIT_IN_INT64: Final = 9e18


@dataclass(frozen=True, slots=True)
class Reading:
    """One field read: `value`, and what follows from the value once it is a column.

    `fault` gives the reason why there is no value (String, or null), `flag` what was assumed for it.
    """

    value: pl.Expr
    fault: Callable[[pl.Expr], pl.Expr] = lambda _: NO_TEXT
    flag: Callable[[pl.Expr], pl.Expr] | None = None

    def needed(self, name: str) -> Reading:
        """The same field where a record without it is broken."""
        absent = pl.lit(f"{name} is missing")
        return replace(
            self, fault=lambda value: pl.coalesce(self.fault(value), pl.when(value.is_null()).then(absent))
        )


def read_fields(frame: pl.DataFrame, readings: Mapping[str, Reading]) -> pl.DataFrame:
    """Read the fields of raw records.

    Values are worked out first and then looked at for faults and flags: Polars would otherwise read every
    text again for its fault.

    Returns:
        one column per reading, `_reject` (the first fault of a record, or null) and `_flags` (List(String)).

    """
    read = frame.with_columns(reading.value.alias(f"{_VALUE}{name}") for name, reading in readings.items())
    values = {name: pl.col(f"{_VALUE}{name}") for name in readings}
    faults = [reading.fault(values[name]) for name, reading in readings.items()]
    flags = [reading.flag(values[name]) for name, reading in readings.items() if reading.flag is not None]
    return read.select(
        **values,
        _reject=pl.coalesce(NO_TEXT, *faults),
        _flags=pl.concat_list(NO_TEXT, *flags).list.drop_nulls(),
    )


def present(raw: pl.Expr) -> pl.Expr:
    """The text without surrounding space; blank is null."""
    text = raw.cast(pl.String).str.strip_chars()
    return pl.when(text != "").then(text)


def unread(raw: pl.Expr, fault: str) -> Callable[[pl.Expr], pl.Expr]:
    """The fault of a field that has a text but no value."""
    return lambda value: pl.when(present(raw).is_not_null() & value.is_null()).then(pl.lit(fault))


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
    return Reading(value, unread(raw, f"{name} is not a whole number"))


def number(raw: pl.Expr, name: str, *, factor: float = 1.0) -> Reading:
    """Read a finite number (Float64) times `factor`."""
    real = present(raw).cast(pl.Float64, strict=False) * factor
    return Reading(pl.when(real.is_finite()).then(real), unread(raw, f"{name} is not a number"))


def money(raw: pl.Expr, name: str, *, parts: int = 1) -> Reading:
    """Read an amount (Decimal(38,12), never through a float); `parts` of its unit make one currency unit."""
    amount = present(raw).cast(MONEY, strict=False)
    return Reading(amount if parts == 1 else amount / parts, unread(raw, f"{name} is not an amount"))


def truth(raw: pl.Expr, name: str) -> Reading:
    """Read a Boolean: true/false, yes/no, on/off, t/f, y/n, 1/0."""
    word = present(raw).str.to_lowercase()
    value = (
        pl.when(word.is_in(["true", "t", "yes", "y", "on", "1", "1.0"]))
        .then(pl.lit(value=True))
        .when(word.is_in(["false", "f", "no", "n", "off", "0", "0.0"]))
        .then(pl.lit(value=False))
    )
    return Reading(value, unread(raw, f"{name} is neither true nor false"))


def since(raw: pl.Expr, name: str, unit: str, origin: datetime) -> Reading:
    """Read an instant (UTC, us) told as time since `origin` in s, ms, us or ns; a negative one is a fault."""
    micros = (present(raw).cast(pl.Float64, strict=False) * MICROSECONDS[unit]).round()
    within = (micros >= 0) & (micros <= EPOCH_S[1] * MICROSECONDS["s"])
    elapsed = pl.when(within).then(micros.cast(pl.Int64, strict=False)).cast(pl.Duration("us"))
    value = pl.lit(origin, dtype=INSTANT) + elapsed
    return Reading(value, unread(raw, f"{name} is not a time since the start in {unit}"))


def instant(
    raw: pl.Expr, name: str, *, unit: str = "auto", zone: str = "UTC", zone_assumed: bool = False
) -> Reading:
    """Read an instant (UTC, us).

    Args:
        raw: text.
        name: how the log calls the field, for the reason of a reject.
        unit: `s`, `ms`, `us`, `ns` since 1970, `ticks` (100 ns since the year 1), `iso`, a strptime pattern
            (it holds a `%`), or `auto`: a number by its magnitude, else ISO 8601.
        zone: time zone of texts that name none. Of an hour that a clock change repeats, the first is taken
            and flagged `local_time_ambiguous`; one that it leaves out is a fault.
        zone_assumed: nobody said so; times read by `zone` are flagged.

    """
    text = present(raw)
    value = text.map_batches(
        lambda texts: _instants(texts, _ways(unit, zone)), return_dtype=INSTANT, is_elementwise=True
    )
    if "%" in unit:
        fault, naive = f"{name} does not match {unit}", pl.lit(not _names_zone(unit))
    else:
        fault = f"{name} is not an instant" + ("" if unit in {"auto", "iso"} else f" in {unit}")
        naive = text.str.contains(_DATE) & ~text.str.contains(_ZONE)
    flag = _zone_flag(naive, zone, zone_assumed) if unit in {"auto", "iso"} or "%" in unit else None
    return Reading(value, unread(raw, fault), flag)


def in_zone(naive: pl.Expr, name: str, zone: str, *, zone_assumed: bool = False) -> Reading:
    """Read an instant of a naive Datetime("us") in `zone`; see `instant` for clock changes."""
    skipped = pl.lit(f"{name} does not exist in {zone}")
    return Reading(
        _from_zone(naive, zone),
        lambda value: pl.when(naive.is_not_null() & value.is_null()).then(skipped),
        _zone_flag(naive.is_not_null(), zone, zone_assumed),
    )


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


def _instants(texts: pl.Series, ways: Sequence[_Way]) -> pl.Series:
    """Try one way after the other, each on what the ways before could not read."""
    found = pl.DataFrame(
        {"text": texts, "at": pl.Series([None], dtype=INSTANT).new_from_index(0, len(texts))}
    )
    left = pl.col("text").is_not_null() & pl.col("at").is_null()
    for way in ways:
        found = found.with_columns(at=pl.coalesce("at", way(pl.when(left).then("text"))))
        if not found.select(left.any()).item():
            break
    return found["at"]


def _ways(unit: str, zone: str) -> list[_Way]:
    def by(pattern: str, text: pl.Expr) -> pl.Expr:
        read = text.str.to_datetime(pattern, time_unit="us", strict=False)
        return read.cast(INSTANT) if _names_zone(pattern) else _from_zone(read, zone)

    def tidied(pattern: str, text: pl.Expr) -> pl.Expr:
        return by(pattern, _tidy(text))

    if "%" in unit:
        return [partial(by, unit)]
    patterns = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%#z")
    iso: list[_Way] = [partial(by, pattern) for pattern in patterns]
    iso += [partial(tidied, pattern) for pattern in patterns]
    epochs: list[_Way] = [partial(_from_epoch, unit=known) for known in ("s", "ms", "us", "ns", "ticks")]
    if unit == "auto":
        return [*epochs, *iso]
    return iso if unit == "iso" else [partial(_from_epoch, unit=unit)]


def _names_zone(pattern: str) -> bool:
    return any(mark in pattern for mark in ("%z", "%:z", "%#z", "%+"))


def _tidy(text: pl.Expr) -> pl.Expr:
    """Variants of ISO 8601 (T, slashes, decimal comma, Z, UTC, space before the offset) as one."""
    return (
        text.str.replace(r"^(\d{4})[-/](\d\d)[-/](\d\d)[Tt ]\s*", "$1-$2-$3 ")
        .str.replace(r"(:\d\d),(\d)", "$1.$2")
        .str.replace(r"\s*(?:[Zz]|UTC|GMT)$", "+00:00")
        .str.replace(r"(\d) ([+-]\d\d:?\d\d)$", "$1$2")
    )


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


def _from_zone(naive: pl.Expr, zone: str, ambiguous: Literal["earliest", "latest"] = "earliest") -> pl.Expr:
    local = naive.dt.replace_time_zone(zone, ambiguous=ambiguous, non_existent="null")
    return local.dt.convert_time_zone("UTC")


def _zone_flag(naive: pl.Expr, zone: str, assumed: bool) -> Callable[[pl.Expr], pl.Expr] | None:
    """What was assumed of an instant whose text named no zone (`naive`)."""
    if assumed:
        return lambda value: pl.when(naive & value.is_not_null()).then(pl.lit(ZONE_ASSUMED))
    if zone == "UTC":
        return None

    def flag(value: pl.Expr) -> pl.Expr:
        local = value.dt.convert_time_zone(zone).dt.replace_time_zone(None)
        return pl.when(naive & (_from_zone(local, zone, "latest") != value)).then(pl.lit(AMBIGUOUS))

    return flag
