"""What a user may say that a log does not: the options that mappings read from `Context.options`.

Belongs here: their names and meanings, and checking them before anything is read. Does not belong here: what a format
makes of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parsers import smi_columns
from parsers.clock import LocalClock, stated_year
from parsers.errors import SiteConfigError
from parsers.format import Context
from parsers.formats.mooncake_trace import block_tokens
from parsers.hashing import PromptHasher
from parsers.meters import interval
from parsers.values import relative_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS = {
    "timezone": "IANA name of the zone of stamps that name none",
    "year": "year of the first line of logs that name none",
    "origin": "instant (ISO 8601) at which a log without dates begins",
    "instance": "name of the server or host of logs that name none",
    "interval_s": "seconds between the samples of meters that have no clock",
    "block_size": "tokens of a block of prompt hashes",
    "columns": "fields of nvidia-smi output without a header, as --query-gpu was given them",
}
_CHECKS: Mapping[str, Callable[[Context], object]] = {
    "timezone": LocalClock.of,
    "year": stated_year,
    "origin": relative_origin,
    "interval_s": interval,
    "block_size": block_tokens,
    "columns": smi_columns.given,
}


def checked(options: Mapping[str, str], before: str) -> dict[str, str]:
    """The options, each known and of a value that can be read.

    Args:
        options: values by name.
        before: what stands before a name where the user gave it.

    Raises:
        SiteConfigError: a name is unknown or a value is wrong.

    """
    for name, value in options.items():
        if name not in OPTIONS:
            raise SiteConfigError(
                f"there is no option {name}",
                where=f"{before}{name}",
                remedy=f"There are: {', '.join(OPTIONS)}.",
            )
        try:
            if check := _CHECKS.get(name):
                check(Context("", PromptHasher(b""), options={name: value}))
        except SiteConfigError as error:
            raise SiteConfigError(error.what, where=f"{before}{name}", remedy=error.remedy) from None
    return dict(options)
