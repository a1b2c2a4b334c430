"""How a number is written: three digits with an SI letter, the exact value, money, ratios, instants.

Belongs here: every rule that turns a value into text for people. Does not belong here: which number is shown
(`audit_json.py`), the words around it (`strings.py`). An unknown value (None) is written "unknown", never 0.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from zoneinfo import ZoneInfo

from reports.strings import UNKNOWN

Number = int | float | Decimal

_LETTERS = ((12, "T"), (9, "G"), (6, "M"), (3, "k"))
_MONEY_LETTERS = ((9, "bn"), (6, "M"))
_GLUED = ("W", "J")
"""Units that take an SI letter directly: `1.38 kW`; counted things keep it apart: `1.38 k tokens`."""
_DIGITS = 3


def _known(value: Number | None) -> Decimal | None:
    """The value as a decimal; None where it is unknown or is not a finite number."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _significant(value: Decimal) -> Decimal:
    """Round to three significant digits; whole numbers under 1000 stay whole."""
    if value == 0 or (value == value.to_integral_value() and abs(value) < 1000):  # noqa: PLR2004
        return value
    return _rounded(value, _DIGITS - 1 - value.adjusted())


def _rounded(value: Decimal, decimals: int) -> Decimal:
    """Round half up, as people do; digits may be negative."""
    return value.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def _plain(value: Decimal) -> str:
    text = f"{value:,f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def short(value: Number | None, unit: str = "") -> str:
    """Three significant digits: `1.24 M`, `41 k tok/s`, `0.0312`; the unit follows.

    A letter is chosen after rounding, so 999,950 is `1 M` and not `1000 k`.
    """
    known = _known(value)
    if known is None:
        return UNKNOWN
    rounded = _significant(known)
    text, letter = _plain(rounded), ""
    for power, name in _LETTERS:
        if abs(rounded) >= 10**power:
            text, letter = _plain(rounded.scaleb(-power)), f" {name}"
            break
    if letter and unit in _GLUED:
        return f"{text}{letter}{unit}"
    return f"{text}{letter}{f' {unit}' if unit else ''}"


def latency(milliseconds: Number | None) -> str:
    """A latency in three digits: `571 ms`, `10.5 s`."""
    known = _known(milliseconds)
    if known is not None and known >= 1000:  # noqa: PLR2004
        return f"{_plain(_significant(known / 1000))} s"
    return short(milliseconds, "ms")


def exact(value: Number | None, unit: str = "") -> str:
    """Every digit, thousands apart: `1,240,311`; floats to 9 significant digits."""
    known = _known(value)
    if known is None:
        return UNKNOWN
    if isinstance(value, float) and known != known.to_integral_value():
        known = _rounded(known, max(0, 8 - known.adjusted()))
    text = _plain(known)
    return f"{text} {unit}" if unit else text


def money(value: Number | str | None, currency: str = "USD") -> str:
    """Three significant digits of money: `61,300 USD`, `1.24 M USD`, `0.0312 USD`."""
    known = _known(Decimal(value) if isinstance(value, str) else value)
    if known is None:
        return UNKNOWN
    rounded = _significant(known)
    for power, name in _MONEY_LETTERS:
        if abs(rounded) >= 10**power:
            return f"{_plain(rounded.scaleb(-power))} {name} {currency}"
    return f"{_plain(rounded)} {currency}"


def money_exact(value: Number | str | None, currency: str = "USD") -> str:
    """All digits of money that are not trailing zeros, at least two decimals."""
    known = _known(Decimal(value) if isinstance(value, str) else value)
    if known is None:
        return UNKNOWN
    text = _plain(known)
    decimals = len(text.partition(".")[2])
    return f"{text if decimals >= 2 else f'{known:,.2f}'} {currency}"  # noqa: PLR2004


def percent(ratio: Number | None) -> str:
    """A ratio as per cent: `71 %`, `0.4 %`, `99.6 %`; what is not quite 0 or 100 % is not written so."""
    known = _known(ratio)
    if known is None:
        return UNKNOWN
    hundred = known * 100
    least, most = Decimal("0.01"), Decimal("99.99")
    if 0 < hundred < least or most < hundred < 100:  # noqa: PLR2004
        return f"< {least} %" if hundred < least else f"> {most} %"
    decimals = 0
    if 0 < abs(hundred) < 1:
        decimals = 1 - hundred.adjusted()
    elif 99 < hundred < 100:  # noqa: PLR2004
        decimals = 2
    elif abs(hundred) < 10:  # noqa: PLR2004
        decimals = 1
    return f"{_plain(_rounded(hundred, decimals))} %"


def percent_exact(ratio: Number | None) -> str:
    """A ratio as per cent with four decimals."""
    known = _known(ratio)
    return UNKNOWN if known is None else f"{_plain(_rounded(known * 100, 4))} %"


def zone_of(name: str | None) -> ZoneInfo:
    """The time zone that a site states; UTC where it states none."""
    return ZoneInfo(name or "UTC")


def parse_instant(text: str) -> datetime:
    """Read an instant as audit.json writes it (ISO 8601 with Z)."""
    return datetime.fromisoformat(text).astimezone(UTC)


def instant(value: datetime | str | None, zone: ZoneInfo | None = None, *, seconds: bool = False) -> str:
    """An instant in a zone: `2026-11-17 14:05`; the zone is stated once per page, not here."""
    if value is None:
        return UNKNOWN
    moment = parse_instant(value) if isinstance(value, str) else value
    if _has_no_clock(moment):
        return _since_start(moment)
    local = moment.astimezone(zone or UTC)
    return local.strftime("%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M")


def weekday_instant(value: datetime | str | None, zone: ZoneInfo | None = None) -> str:
    """An instant with its weekday: `Tue 2026-11-17 14:05`."""
    if value is None:
        return UNKNOWN
    moment = parse_instant(value) if isinstance(value, str) else value
    if _has_no_clock(moment):
        return _since_start(moment)
    return f"{_WEEKDAYS[moment.astimezone(zone or UTC).weekday()]} {instant(moment, zone)}"


_NO_CLOCK = datetime(2000, 1, 1, tzinfo=UTC)
"""Logs that tell times since their start alone stand in the year that begins here."""


def _has_no_clock(moment: datetime) -> bool:
    return _NO_CLOCK <= moment < _NO_CLOCK + timedelta(days=366)


def _since_start(moment: datetime) -> str:
    """Time since the start of a log without a clock: `00:50 after the start`, `2 d 03:10 after the start`."""
    since = moment - _NO_CLOCK
    minutes = since.seconds // 60
    days = f"{since.days} d " if since.days else ""
    return f"{days}{minutes // 60:02d}:{minutes % 60:02d} after the start"


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def day_label(value: date) -> str:
    """A day with its weekday: `2026-11-17 Tue`."""
    return f"{value.isoformat()} {_WEEKDAYS[value.weekday()]}"


def duration(seconds: Number | timedelta | None) -> str:
    """A length of time in the largest unit that gives at least 1: `4 min`, `1 h`, `6.5 d`, `an instant`."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    known = _known(seconds)
    if known is None:
        return UNKNOWN
    if known == 0:
        return "an instant"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if known >= size:
            return f"{_plain(_significant(known / size))} {unit}"
    return f"{_plain(_significant(known))} s"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things with their name: `1 call`, `12 calls`, `1.24 M calls`."""
    return f"{short(number)} {one if number == 1 else many or f'{one}s'}"


def visible(text: str) -> str:
    r"""A text in which each character that shows nothing or reorders others is an escape: `\x1b`, `\u202e`.

    Line ends and tabs stay.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def printable(text: str, limit: int = 80) -> str:
    """A text with names from logs in it, on one line: `visible`, names cut; not escaped for HTML."""
    shown = text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
