"""What stands before a line that a program wrote: its container's, collector's or terminal's additions.

Belongs here: taking them off, with the instant and the service that they name. Does not belong here: what the
program itself wrote (`formats/`).

Known: docker's json-file, `docker logs -t`, CRI (`stdout F`), `kubectl logs --prefix`, compose (`svc-1 | `),
journald and syslog, ANSI colours. Of a record that a container cut into parts, the first part is a line of
its own and the others are left out.
"""

from __future__ import annotations

import json
import re

import polars as pl

from parsers import clock

_ANSI = r"(?:\x1b|\\u001[bB]|\^\[|#033)\[[0-9;]*m"
"""A colour, also as tee, JSON and syslog write its first character."""
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_UNIT = r"[\w.@-]+\[\d*\]: "
_SYSLOG = rf"[A-Z][a-z]{{2}} [ \d]\d [\d:]{{8}}(?:\.\d+)? +(?:[\w.-]+ +)?(?:{_UNIT}|[\w.@-]+: )"
_AFTER = rf" (?:std(?:out|err) [FP] |[\w.-]+ {_UNIT})?"
_BEFORE = (
    rf"^(?:(?P<first_at>{_STAMP}){_AFTER})?"
    r"(?:\[pod/(?P<pod>[\w.-]+)/[\w.-]+\] |(?P<unit>[\w.-]+) +\| )?"
    rf"(?:[ \t]*(?P<second_at>{_STAMP}){_AFTER})?"
    rf"(?:{_SYSLOG})?"
)
_TEXT = r"(?P<text>.*)$"
_PREFIX = re.compile(_BEFORE)
_COLOUR = re.compile(_ANSI)
_JSON_FILE = '{"log":"'
_PART = r"^(?:\S+ )?\S+ std(?:out|err) P "


def bare(line: str) -> str:
    """What the program wrote, of one line; for recognising."""
    if line.startswith(_JSON_FILE):
        try:
            line = str(json.loads(line)["log"]).removesuffix("\n")
        except ValueError:
            line = line.removeprefix(_JSON_FILE)
    return _PREFIX.sub("", _COLOUR.sub("", line), count=1)


def unwrapped(lines: pl.DataFrame, where: pl.Expr) -> pl.DataFrame:
    """What the program wrote, of the lines that are wanted.

    Args:
        lines: `source_line` and `line`.
        where: which lines are wanted, told from `line` as it stands in the file (json-file escapes quotes).

    Returns:
        `source_line`, `line` (the program's), `container_at` (INSTANT or null), `service` (String or null).

    """
    before = pl.col("line").shift(1)
    of_json = before.str.starts_with(_JSON_FILE) & ~before.str.contains(r'\n","stream"', literal=True)
    is_rest = (before.str.contains(_PART) | of_json).fill_null(value=False)
    raw = pl.col("line")
    in_json = raw.str.starts_with(_JSON_FILE) & raw.str.ends_with("}")
    held = pl.when(in_json).then(raw)
    wanted = lines.filter(where & ~is_rest).select(
        "source_line",
        line=pl.coalesce(held.str.json_path_match("$.log").str.strip_suffix("\n"), raw).str.replace_all(
            _ANSI, ""
        ),
        json_at=held.str.json_path_match("$.time"),
    )
    parts = wanted.with_columns(pl.col("line").str.extract_groups(_BEFORE + _TEXT).alias("parts")).unnest(
        "parts"
    )
    return parts.select(
        "source_line",
        line=pl.coalesce("text", "line"),
        container_at=clock.iso_instant(pl.coalesce("json_at", "first_at", "second_at")),
        service=pl.coalesce("pod", "unit"),
    )
