"""What the columns of `nvidia-smi --format=csv,noheader` are: told by the user, or by their unmistakable shape.

Belongs here: the option `columns`, and the header that such output would have had. Does not belong here: what a
column means (`formats/nvidia_smi_csv.py`).

A stamp, a UUID, a bus, a power (two digits behind the point, which no other usual field has) and an index that
counts through the lines of a tick can't be anything else; one load and one size of memory are taken for the
GPU's. What may be one thing or another (two loads, numbers without unit) has no name here: its column is left, unless
a line of names that a script wrote above the output (`timestamp,utilization_gpu_percent,power_draw_W`) tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from parsers.errors import SiteConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parsers.format import Context

_KINDS = {
    "stamp": r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}",
    "uuid": r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    "bus": r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d",
    "watt": r"\d+\.\d\d W",
    "decimal": r"\d+\.\d\d",
    "percent": r"\d{1,3} %",
    "memory": r"\d+ MiB",
    "number": r"\d+(?: MHz)?",
    "none": r"\[.*\]|N/A",
    "state": r"P\d{1,2}|(?:Not )?Active|Enabled|Disabled|Default|0x[0-9A-Fa-f]+|\d+\.\d+\.\d+",
    "name": r"(?:NVIDIA|Tesla|GeForce|Quadro|A100|H100)\b[\w ./-]*",
}
_KIND = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()))
_ONE_OF = {
    "stamp": "timestamp",
    "uuid": "uuid",
    "bus": "pci.bus_id",
    "name": "name",
    "percent": "utilization.gpu",
    "memory": "memory.used",
}
_WRITTEN = {
    field.replace(".", "_"): field
    for field in (
        "utilization.gpu",
        "utilization.memory",
        "memory.used",
        "memory.total",
        "temperature.gpu",
        "index",
    )
}
"""How names of a script's own begin -> field."""
NAMES = r"^\s*\"?[A-Za-z_][\w. ()%/\[\]-]*\"?(?:\s*,\s*\"?[A-Za-z_][\w. ()%/\[\]-]*\"?)+\s*$"
_ARE_NAMES = re.compile(NAMES)
_LINES = 100
_LONGEST = 4096
"""No line of a query is longer; patterns over hostile ones would take their time."""
_MOSTLY = 0.8
_MAY_BE_INDEX = 3
"""An index stands among the first fields of a query: later numbers are loads and temperatures."""


def given(context: Context) -> str | None:
    """The header that the option `columns` makes.

    Raises:
        SiteConfigError: the option does not list fields.

    """
    fields = context.options.get("columns")
    if fields is None:
        return None
    if not re.fullmatch(r"[\w.]+(?: *, *[\w.]+)+", fields.strip()):
        raise SiteConfigError(
            f"{fields!r} is not a list of fields",
            where="option columns",
            remedy="Write what --query-gpu was given, like timestamp,index,power.draw.",
        )
    return fields.strip()


def is_headless(lines: Sequence[str]) -> bool:
    """Whether most of these lines are of a query whose output has no header."""
    rows = [line for line in lines[:_LINES] if not _is_of_names(line)]
    own = sum(_is_own(_kinds(line)) for line in rows)
    return own > 0 and own >= _MOSTLY * len(rows)


def by_shape(lines: Sequence[str]) -> str | None:
    """The header that lines without one would have had; None if neither power nor load can be told."""
    rows = [(_cells(line), kinds) for line in lines[:_LINES] if _is_own(kinds := _kinds(line))]
    if not rows:
        return None
    width = max({len(kinds) for _, kinds in rows}, key=[len(kinds) for _, kinds in rows].count)
    columns = list(zip(*(list(zip(*row, strict=True)) for row in rows if len(row[0]) == width), strict=True))
    kinds = [_one_kind(column) for column in columns]
    names = ["?"] * width
    for kind, name in _ONE_OF.items():
        if kinds.count(kind) == 1:
            names[kinds.index(kind)] = name
    texts = [[text for text, _ in column] for column in columns]
    powers = [place for place, kind in enumerate(kinds) if kind in {"watt", "decimal"}]
    for place, name in _powers(powers, texts):
        names[place] = name
    for place, kind in enumerate(kinds[:_MAY_BE_INDEX]):
        if kind == "number" and _counts_through(texts[place]):
            names[place] = "index"
            break
    written = next((_cells(line) for line in lines[:_LINES] if _is_of_names(line)), [])
    for place, cell in enumerate(written if len(written) == width else ()):
        field = next((field for begins, field in _WRITTEN.items() if cell.lower().startswith(begins)), "?")
        if names[place] == "?" and field not in names and kinds[place] in {"number", "percent", "memory"}:
            names[place] = field
    told = {"power.draw", "utilization.gpu"} & set(names)
    return ", ".join(names) if told else None


def _is_of_names(line: str) -> bool:
    return len(line) <= _LONGEST and _ARE_NAMES.match(line) is not None and not _is_own(_kinds(line))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().rstrip(",").split(",")]


def _kinds(line: str) -> list[str]:
    cells = _cells(line) if len(line) <= _LONGEST else []
    return [found.lastgroup or "" if (found := _KIND.fullmatch(cell)) else "" for cell in cells]


def _is_own(kinds: list[str]) -> bool:
    """A stamp that no other tool writes, or a power with its unit; and everything beside it is of nvidia-smi's."""
    return len(kinds) > 1 and "" not in kinds and bool({"stamp", "watt", "uuid"} & set(kinds))


def _one_kind(column: Sequence[tuple[str, str]]) -> str:
    kinds = {kind for _, kind in column} - {"none"}
    return kinds.pop() if len(kinds) == 1 else ""


def _powers(places: list[int], texts: list[list[str]]) -> list[tuple[int, str]]:
    """Of two powers the limit is the one that stays and is never below the other."""
    if len(places) == 1:
        return [(places[0], "power.draw")]
    watts = {
        place: [float(text.split()[0]) for text in texts[place] if text[0].isdigit()] for place in places
    }
    for limit, draw in (tuple(places), tuple(reversed(places))) if len(places) == 2 else ():  # noqa: PLR2004
        if len(set(watts[limit])) == 1 and watts[limit][0] >= max(watts[draw]):
            return [(limit, "power.limit"), (draw, "power.draw")]
    return []


def _counts_through(texts: list[str]) -> bool:
    devices = len(set(texts))
    return all(text == str(place % devices) for place, text in enumerate(texts))
