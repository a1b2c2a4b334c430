"""Errors that a user can act on: what happened, where, and what to do.

Belongs here: the one root and its kinds. The command line prints the message alone and exits with `exit_code`.
Does not belong here: broken lines of a log. Those are rejects (rows of a table), not exceptions.
"""

from __future__ import annotations

import errno

from parsers.credentials import redacted

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""What an OSError says where it is this machine's disk that can't be written, not the source that can't be read."""


class TokenworksError(Exception):
    """Root of all errors that are the input's or the site's, not the program's."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        """Compose `where: what. remedy` in one line. Errors are printed and logged, so they show no credential."""
        self.what, self.where, self.remedy = _shown(what), where and _shown(where), remedy
        text = f"{self.where}: {self.what}" if where else self.what
        super().__init__(f"{text.rstrip('.')}. {remedy}" if remedy else text)


def _shown(text: str) -> str:
    return redacted(text, lambda _: "...")


class UnknownFormatError(TokenworksError):
    """No parser, or more than one, recognises a file."""

    exit_code = 3


class UnreadableSourceError(TokenworksError):
    """A file is absent, vanished, is cut off or can't be decoded at all."""

    exit_code = 4


class SiteConfigError(TokenworksError):
    """fleet.toml, a mapping file or an option is wrong; names the key and the remedy."""

    exit_code = 5


class NothingToAuditError(TokenworksError):
    """The input holds no usable row."""

    exit_code = 6


class CheckFailedError(TokenworksError):
    """A blocking check failed: a wrong number would have reached money or a recommendation."""

    exit_code = 7
