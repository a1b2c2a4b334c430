"""`column`: how the declarations of marts spell a column.

Belongs here: that one short form. Does not belong here: tables, and what a column can declare (`parsers/records.py`).
"""

from __future__ import annotations

from parsers.records import Column


def column(name: str, dtype: object, description: str, **rules: object) -> Column:
    """A column by name, type, what it says, and the further fields of `Column` by name."""
    return Column(name, dtype, description, **rules)  # type: ignore[arg-type]
