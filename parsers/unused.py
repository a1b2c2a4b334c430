"""Fields that count tokens and that a format does not read: a new release of what writes the log, or a gap here.

Belongs here: looking at the first records of a source for such fields. Does not belong here: telling the user
(`pipelines/quality.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from parsers.credentials import has_credential

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Format, Head, Structure

MOST_NAMES = 20
MOST_CHARACTERS = 100
_COUNT = re.compile(r"(?:^|[_.a-z])(?:tokens|token_?count|Tokens|TokenCount)(?:_?(?:total|count|sum))?$")
_NO_COUNT = re.compile(
    r"max|min_|limit|cost|price|budget|rate|remaining|quota|window|context_len|per_|_per|percent|ratio|time|logprob",
    re.IGNORECASE,
)
_NAME = re.compile(r"[A-Za-z_][\w-]{0,39}")
"""What a field is called. Some objects have users, keys or texts for names: those are not told."""
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.0+)?")


def unused_token_fields(head: Head, fmt: Format) -> tuple[str, ...]:
    """Dotted names of fields of the first records that hold a count of tokens and are not in the format's structure.

    At most `MOST_NAMES`, sorted. Formats without a declared structure read what they find and have none.
    """
    if not isinstance(fmt.structure, dict):
        return ()
    if fmt.container == "csv":
        found = {_told(name) for name in head.csv_header if _is_count(name) and name not in fmt.structure}
    elif fmt.container == "json_lines":
        records = [item for item in head.objects if item.keys() & fmt.structure.keys()]
        found = {name for item in records for name in _beyond(item, fmt.structure, fmt.embedded)}
    else:
        found = set()
    return tuple(sorted(name for name in found if len(name) <= MOST_CHARACTERS)[:MOST_NAMES])


def _told(name: str) -> str:
    return name if _NAME.fullmatch(name) and not has_credential(name) else "*"


def _is_count(name: str) -> bool:
    return bool(_COUNT.search(name)) and not _NO_COUNT.search(name)


def _beyond(value: Any, structure: Structure, embedded: Any, path: str = "") -> Iterator[str]:
    """Counts below `value` that `structure` does not name. A field of type JSON without a structure is read whole."""
    for key, held in value.items():
        name = f"{path}.{_told(key)}" if path else _told(key)
        inner, known = held, structure.get(key)
        if known == "JSON":
            known = embedded.get(key, known)
        if isinstance(known, list):
            known = known[0]
            inner = next((item for item in held if item), None) if isinstance(held, list) else None
        if isinstance(inner, dict):
            if known is None or isinstance(known, dict):
                yield from _beyond(inner, known or {}, embedded, name)
        elif (
            known is None and _is_count(key) and not isinstance(inner, bool) and _NUMBER.fullmatch(str(inner))
        ):
            yield name
