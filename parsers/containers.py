"""What stands before a line that a program wrote: its container's, collector's or terminal's additions.

Belongs here: taking them off, with the instant and the service that they name. Does not belong here: what the
program itself wrote (`formats/`).

Known: docker's json-file, `docker logs -t`, CRI (`stdout F`), `kubectl logs --prefix`, compose (`svc-1 | `),
journald and syslog, stamp and tab as consoles of logs copy them, ANSI colours; JSON objects of collectors (Fluent
Bit, Filebeat, Vector, Loki, Cloud Logging, `journalctl -o json`) that hold the line in one field, its instant and
its pod in others. Of a record that a container cut into parts, the first part is a line of its own and the others
are left out.
"""

from __future__ import annotations

import json
import re

import polars as pl

from parsers import clock, values
from parsers.json_text import decoded

_ANSI = r"(?:\x1b|\\u001[bB]|\^\[|#033)\[[0-9;]*m"
"""A colour, also as tee, JSON and syslog write its first character."""
_STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_UNIT = r"[\w.@-]+\[\d*\]: "
_SYSLOG = rf"[A-Z][a-z]{{2}} [ \d]\d [\d:]{{8}}(?:\.\d+)? +(?:[\w.-]+ +)?(?:{_UNIT}|[\w.@-]+: )"
_AFTER = rf"[ \t](?:std(?:out|err) [FP] |[\w.-]+ {_UNIT})?"
_BEFORE = (
    rf"^(?:\d{{13}}\t)?(?:(?P<first_at>{_STAMP}){_AFTER})?"
    r"(?:\[pod/(?P<pod>[\w.-]+)/[\w.-]+\] |(?P<unit>[\w.-]+) +\| )?"
    rf"(?:[ \t]*(?P<second_at>{_STAMP}){_AFTER})?"
    rf"(?:{_SYSLOG})?"
)
_PARTS = f"(?P<before>{_BEFORE})"
_PREFIX = re.compile(_BEFORE)
_COLOUR = re.compile(_ANSI)
_JSON_FILE = '{"log":"'
_PART = r"^(?:\S+ )?\S+ std(?:out|err) P "
_TEXTS = ("log", "MESSAGE", "message", "line", "textPayload")
"""Fields in which collectors keep a line."""
_CARRIES = r'"(?:log|MESSAGE|textPayload|stream|logtag|@timestamp|kubernetes|labels)": ?["{]'
_CARRIER = rf"^\{{.*{_CARRIES}.*\}}\s*$"
"""An object of a collector, told from a record that the program wrote as JSON, which may have a message, too."""
INSTANTS = ("time", "timestamp", "@timestamp", "ts", "date", "__REALTIME_TIMESTAMP")
SERVICES = (
    *("kubernetes.pod_name", "kubernetes.pod.name", "labels.pod", "labels.pod_name"),
    *("resource.labels.pod_name", "container_name", "_SYSTEMD_UNIT"),
)
_DOES_CARRY = re.compile(_CARRIES)
_LOGGED = r'"(?:levelname|logger|logger_name|asctime)": ?"'
"""What the record of a program's logger has, even where a collector added fields to it: see `log_records.py`."""
_IS_LOGGED = re.compile(_LOGGED)
ZONED = r"^(?:\d+(?:\.\d+)?|\d{4}-.*(?:Z|[+-]\d\d:?\d\d))$"
"""An instant that needs no time zone from elsewhere."""


def bare(line: str) -> str:
    """What the program wrote, of one line; for recognising."""
    # Not by the whole pattern: Python would try long lines over and over.
    is_object = line.startswith("{") and line.rstrip().endswith("}")
    if line.startswith(_JSON_FILE) or (
        is_object and _DOES_CARRY.search(line) and not _IS_LOGGED.search(line)
    ):
        try:
            carrier = decoded(line)
        except (ValueError, RecursionError):
            return _COLOUR.sub("", line.removeprefix(_JSON_FILE))
        held = next((carrier[name] for name in _TEXTS if carrier.get(name) is not None), line)
        line = (held if isinstance(held, str) else json.dumps(held, separators=(",", ":"))).removesuffix("\n")
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
    raw = pl.col("line")
    # Docker ends whole lines with a line feed; collectors that keep the same fields may not.
    ends = raw.str.contains(r'\n","stream"', literal=True)
    of_docker = before.str.starts_with(_JSON_FILE) & ends.any()
    is_rest = (before.str.contains(_PART) | (of_docker & ~ends.shift(1))).fill_null(value=False)
    wanted = lines.filter(where & ~is_rest)
    carries = raw.str.contains(_CARRIER) & (raw.str.starts_with(_JSON_FILE) | ~raw.str.contains(_LOGGED))
    carrier = wanted.select(pl.when(carries).then(raw)).to_series()
    said = wanted.select(
        "source_line",
        line=pl.coalesce(first_field(carrier, _TEXTS).str.strip_suffix("\n"), raw).str.replace_all(_ANSI, ""),
        json_at=first_field(carrier, INSTANTS),
        json_by=first_field(carrier, SERVICES),
    )
    carried_at = pl.when(pl.col("json_at").str.contains(ZONED)).then("json_at")
    # The rest of a line is no group: to find where groups end takes its time for every character of them.
    one_line = pl.when(~pl.col("line").str.contains("\n", literal=True)).then("line")
    parts = said.with_columns(one_line.str.extract_groups(_PARTS).alias("parts")).unnest("parts")
    return parts.select(
        "source_line",
        line=pl.col("line").str.strip_prefix(pl.col("before").fill_null("")),
        container_at=pl.coalesce(
            values.instant(carried_at, "time").value, clock.iso_instant(pl.coalesce("first_at", "second_at"))
        ),
        service=pl.coalesce("pod", "unit", "json_by"),
    )


def first_field(carrier: pl.Series, names: tuple[str, ...]) -> pl.Series:
    """The first of these fields that an object has; dots lead into inner objects."""
    found = pl.DataFrame({"carrier": carrier}).with_columns(value=pl.lit(None, pl.String))
    if carrier.null_count() < len(carrier):
        for name in names:
            *_, last = path = name.split(".")
            may_hold = pl.col("value").is_null() & pl.col("carrier").str.contains(f'"{last}"', literal=True)
            held = (
                pl.when(may_hold)
                .then("carrier")
                .str.json_path_match("$" + "".join(f"['{each}']" for each in path))
            )
            found = found.with_columns(value=pl.coalesce("value", held))
    return found["value"]
