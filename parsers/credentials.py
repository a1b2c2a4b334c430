"""What looks like a credential in a text.

Belongs here: the patterns, and putting something else in the place of what fits them. Does not belong here: which texts of
a log are kept, and what stands in the place of one (`withheld.py`), excerpts of rejected lines (`rejects.py`).

Keys are told by the beginnings that issuers give them, or by what stands before them: `Bearer`, a name such as `password=`,
the place of a user or a query in an address. A credential without any mark (40 letters, 32 digits in hexadecimal) can't be
told from an identifier.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_ISSUED: Final = (
    "sk- sk_ rk_ csk- gsk_ xai- pplx- nvapi- fw_ jina_ tvly- r8_ hf_ dapi lsv2_ pk-lf- pk-helicone- AKIA ASIA ABSK "
    "bedrock-api-key- AIza AQ. ya29. GOCSPX- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xoxb- xoxp- xoxa- xapp- npm_ "
    "pypi- dop_v1_ SG. shpat_ eyJ"
)
"""By what providers and platforms begin the keys they issue; `eyJ` begins every JSON web token."""
_NAMES: Final = (
    r"(?:api|access|auth|private|account|master|client|refresh)[-_ ]?(?:key|token|secret)"
    r"|(?<!\w)(?:token|secret|passw(?:or)?d|pwd|signature|authorization|(?:set-)?cookie|credentials?)"
    r"|(?<=[?&])(?:key|code|sig)"
)
_PREFIX: Final = "|".join(map(re.escape, _ISSUED.split()))
_PART: Final = r"[\w+/=~-]"
_RULES: Final = tuple(
    re.compile(stays + gives_way)
    for stays, gives_way in (
        # A digit, a capital or great length tell an issued key from words such as sk-hynix.
        (
            rf"((?<![A-Za-z0-9]))(?=(?:{_PREFIX})(?:{_PART}*[0-9A-Z]|{_PART}{{20}}))",
            rf"((?:{_PREFIX})(?:{_PART}{{8,}}|(?<=sk-)\d{{4,}})(?:\.{_PART}+)*)",
        ),
        # Some logs are read into small or capital letters: these are told by their whole shape.
        (
            r"((?<![A-Za-z0-9]))",
            r"((?i:(?:akia|asia)[a-z0-9]{16}\b|aiza[\w-]{30,}|eyj[\w-]{8,}\.eyj[\w-]*(?:\.[\w-]*)?))",
        ),
        (r"((?i:bearer)[\s:=]+)", r"([^\s\"',;|]{4,})"),
        (r"((?i:basic)\s+)(?=[A-Za-z+/]*(?:[0-9=]|[a-z][A-Z]))", r"([A-Za-z0-9+/]{8,}={0,2})"),
        # User and password of an address: a password may hold any sign, and so may a path hold an @.
        (r"(:/{1,2})", r"([^\s/?#]+|[^\s/?#:\[]*:(?!\d{0,5}(?:[/?#]|$))\S+)(?=@)"),
        (r"(:/{1,2}[^\s?#|\"']*[?#]|\?(?=[\w.-]+=))", r"([^\s|\"']+)"),
        (rf"((?i:{_NAMES})[\"']?\s*[=:]\s*[\"']?)(?!secret-)", r"([^\s&|\"',;]{4,})"),
        ("()", r"(data:[\w.+/-]*[^\s,]*;base64,\S+|-----BEGIN (?s:.*))"),
    )
)
"""Two groups each: what stays, and what gives way."""
_SAID: Final = "bearer basic key token secret passw pwd signature authorization cookie credential code= sig="
SIGNS: Final = [*_ISSUED.lower().split(), *_SAID.split(), ":/", "?", ";base64,", "-----begin"]
"""A text without any of these (in lower case) has nothing to hide."""


def redacted(text: str, stand_in: Callable[[str], str]) -> str:
    """A text with what `stand_in` makes of it in the place of everything that looks like a credential."""
    for rule in _RULES:
        text = rule.sub(lambda found: found[1] + stand_in(found[2]), text)
    return text


def has_credential(text: str) -> bool:
    """Whether a part of the text looks like a credential."""
    return any(rule.search(text) for rule in _RULES)
