"""The shape of a definition of the report.

Belongs here: what is said of every number. Does not belong here: the definitions (`definitions.py`,
`waste_definitions.py`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """A number of the report: its anchor in the section on method, unit, meaning, and how it is obtained.

    `rows` is the SQL that lists the rows behind it in the warehouse's DuckDB file; empty where the number is made
    of others on the page.
    """

    anchor: str
    term: str
    unit: str
    meaning: str
    rows: str = ""
