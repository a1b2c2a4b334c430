"""OTLP as JSON: attributes and their values, in protojson's camelCase and in snake_case.

Belongs here: the structures that spans and log records share, and the SQL that reads a value. Does not belong
here: what an attribute means (`span_names.py`, `agent_events.py`), the records of a signal (`formats/`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parsers.format import Structure

_KINDS = tuple(
    name for kind in ("string", "int", "double", "bool") for name in (f"{kind}Value", f"{kind}_value")
)
VALUE: Structure = dict.fromkeys(_KINDS, "VARCHAR")
_LIST: Structure = {"values": [VALUE]}
ATTRIBUTES: Structure = [{"key": "VARCHAR", "value": {**VALUE, "arrayValue": _LIST, "array_value": _LIST}}]


_DOCUMENT = re.compile(r'(?:\A|\n)\s*[\[,]?\s*\{\s*"resource_?(spans|logs|metrics)"\s*:', re.IGNORECASE)


def signals(text: str) -> list[str]:
    """The signals of the documents that begin in a text, in their order: a collector may write all into one file."""
    return [name.lower() for name in _DOCUMENT.findall(text)] if _DOCUMENT.match(text) else []


def first(place: str, names: tuple[str, ...]) -> str:
    """SQL of the first of these members of a struct that is there."""
    return f"coalesce({', '.join(f'{place}.{name}' for name in names)})"


def plain(value: str) -> str:
    """SQL of a value that is no list, as text."""
    return first(value, _KINDS)


_ARRAY = "coalesce(a.value.arrayValue, a.value.array_value).values[1]"
TEXT = f"coalesce({plain('a.value')}, {plain(_ARRAY)})"
"""SQL of the value of an attribute `a` as text; of a list, its first member."""


def attribute(attributes: str, key: str) -> str:
    """SQL of the text value of one attribute."""
    found = f"list_filter({attributes}, lambda a: a.key = '{key}')"
    return f"list_transform({found}, lambda a: coalesce(a.value.stringValue, a.value.string_value))[1]"
