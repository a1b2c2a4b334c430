"""Wall clocks of logs: local times without a zone, stamps without a year, unix seconds as text.

Belongs here: turning such text into UTC instants, and the flags that say what was assumed on the way.
Does not belong here: which field of a format holds the time (`parsers/formats/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import polars as pl

from parsers.errors import SiteConfigError
from parsers.records import INSTANT

if TYPE_CHECKING:
    from datetime import datetime

    from parsers.format import Context

ZONE_ASSUMED = "zone_assumed_utc"
"""The source writes local times, and no `timezone` option says where: UTC was taken."""
AMBIGUOUS = "local_time_ambiguous"
"""The local time occurred twice (clocks set back): the earlier one was taken."""
YEAR_FROM_MTIME = "year_from_mtime"
"""The stamp has no year: the latest year that does not lie after the file's modification time was taken."""

_ONE_DAY = 86_400_000_000
_LATEST_UNIX_S = 4_102_444_800  # 2100-01-01: later numbers are milliseconds, not seconds
_LEAP_CYCLE = 5  # a 29 February that is not this year's is found within four more years


@dataclass(frozen=True, slots=True)
class LocalClock:
    """The zone that naive times of a source are in; `assumed` if nobody said so."""

    zone: str
    assumed: bool

    @classmethod
    def of(cls, context: Context) -> LocalClock:
        """The clock of the option `timezone` (IANA name), else UTC, assumed.

        Raises:
            SiteConfigError: the option is not a zone that the time zone database knows.

        """
        name = context.options.get("timezone")
        if not name:
            return cls("UTC", assumed=True)
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            raise SiteConfigError(
                f"{name!r} is not a time zone",
                where="option timezone",
                remedy="Give an IANA name, such as Europe/Berlin, Asia/Shanghai or UTC.",
            ) from None
        return cls(name, assumed=False)

    def at(self, naive: pl.Expr) -> pl.Expr:
        """UTC instant of a naive Datetime: null where clocks skipped it, the earlier where it came twice."""
        local = naive.cast(pl.Datetime("us"))
        return local.dt.replace_time_zone(
            self.zone, ambiguous="earliest", non_existent="null"
        ).dt.convert_time_zone("UTC")

    def ambiguous(self, naive: pl.Expr) -> pl.Expr:
        """Whether the naive time came twice."""
        local = naive.cast(pl.Datetime("us"))
        once = local.dt.replace_time_zone(self.zone, ambiguous="null", non_existent="null")
        return once.is_null() & self.at(naive).is_not_null()

    def flags(self, naive: pl.Expr) -> dict[str, pl.Expr]:
        """What `at` assumed about the row, for `flag_list`."""
        return {ZONE_ASSUMED: pl.lit(self.assumed), AMBIGUOUS: self.ambiguous(naive)}


def flag_list(flags: dict[str, pl.Expr]) -> pl.Expr:
    """List of the names (without commas) whose condition is true, in the given order; null is not true.

    Joined and split, because a list of expressions without its nulls takes fifteen times as long.
    """
    joined = pl.concat_str(
        [
            pl.when(condition.fill_null(value=False)).then(pl.lit(name)).otherwise(pl.lit(None, pl.String))
            for name, condition in flags.items()
        ],
        separator=",",
        ignore_nulls=True,
    )
    nothing = pl.lit([], pl.List(pl.String))
    return pl.when(joined == "").then(nothing).otherwise(joined.str.split(","))


def unix_seconds(text: pl.Expr) -> pl.Expr:
    """UTC instant of unix seconds as text, to the microsecond; null if not between 1970 and 2100."""
    seconds = text.cast(pl.Float64, strict=False)
    usable = seconds.is_between(0, _LATEST_UNIX_S, closed="right")
    return (pl.when(usable).then(seconds) * 1_000_000).round().cast(pl.Int64).cast(INSTANT)


def iso_instant(text: pl.Expr) -> pl.Expr:
    """UTC instant of ISO 8601 text with offset or Z, cut to the microsecond; null if it is none."""
    plain = (
        text.str.replace(r"[Zz]$", "+00:00")
        .str.replace(",", ".", literal=True)
        .str.replace(" ", "T", literal=True)
    )
    return plain.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f%z", time_unit="us", strict=False).cast(INSTANT)


def stated_year(context: Context) -> int | None:
    """The option `year`, or None.

    Raises:
        SiteConfigError: the option is not a year of this or the last century.

    """
    text = context.options.get("year")
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and 1970 <= int(text) <= 2100):  # noqa: PLR2004
        raise SiteConfigError(
            f"{text!r} is not a year",
            where="option year",
            remedy="Give the year of the log's first line, such as 2026.",
        )
    return int(text)


def naive_in_stated_year(month_day_time: pl.Expr, year: int, first: str) -> pl.Expr:
    """Naive Datetime of `MM-DD HH:MM:SS` stamps of a log whose first stamp is `first`, in `year`.

    A stamp whose day lies before the first one's belongs to the next year: the log crossed New Year.
    """
    later = month_day_time.str.head(5) < pl.lit(first[:5])
    digits = pl.when(later).then(pl.lit(str(year + 1))).otherwise(pl.lit(str(year)))
    return _naive(digits, month_day_time)


def naive_before(month_day_time: pl.Expr, modified_at: datetime, clock: LocalClock) -> pl.Expr:
    """Naive Datetime of `MM-DD HH:MM:SS` stamps, in the latest year that isn't after the file's last change.

    A day of grace covers clocks that differ and zones that were guessed. Right for logs that span less than a
    year, New Year included, and whatever part of the file is looked at.
    """
    local = modified_at.astimezone(ZoneInfo(clock.zone)).replace(tzinfo=None)
    limit = pl.lit(local).cast(pl.Datetime("us")) + pl.duration(microseconds=_ONE_DAY)
    candidates = [
        _naive(pl.lit(str(local.year + 1 - back)), month_day_time) for back in range(_LEAP_CYCLE + 1)
    ]
    return pl.coalesce(pl.when(candidate <= limit).then(candidate) for candidate in candidates)


def _naive(year: pl.Expr, month_day_time: pl.Expr) -> pl.Expr:
    text = pl.concat_str(year, pl.lit("-"), month_day_time)
    return text.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="us", strict=False)
