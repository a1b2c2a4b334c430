"""Asking the JSON objects of a head what they are.

Belongs here: what the recognising of several JSON formats shares. Does not belong here: the rules of one
format.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from parsers.format import Head


def mostly(objects: Sequence[dict[str, Any]], is_record: Callable[[dict[str, Any]], bool]) -> bool:
    """Whether more than half of the objects are records: logs have other lines between them."""
    return 2 * sum(map(is_record, objects)) > len(objects)


def is_page(head: Head, names: Iterable[str]) -> bool:
    """Whether a head is an object that holds all these names: a page may be longer than its head."""
    return head.text.lstrip().startswith("{") and all(f'"{name}"' in head.text for name in names)
