"""The pages of docs/reference, written from the code that they describe (`make docs`).

Belongs here: tables from the contract, formats from their declarations, commands from their signatures. Does
not belong here: anything that is only said in a page. A test compares the pages with a fresh generation.
"""

from __future__ import annotations

import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from parsers.records import FACT_TABLES, REQUESTS, USAGE_BUCKETS, Column, Table
from parsers.registry import all_formats
from warehouse.tables import MARTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from parsers.format import Format, TokenSemantics

DOCS = Path(__file__).resolve().parents[1] / "docs" / "reference"
_NOTE = "<!-- Written by `make docs` from {source}. Change it there. -->"
_PART = {"inside": "part of it", "outside": "beside it, added", "absent": "not logged, so unknown"}
_CLOCK = {
    "utc": "has a zone, or is UTC",
    "local": "has no zone: `--timezone` says which, UTC if not",
    "relative": "none: seconds since the start, put at 2000-01-01",
}
_RETRIES = {"rows": "a record each", "hidden": "one record, of the last attempt"}
_ZERO = {"zero": "zero", "unknown": "unknown"}


def tables_page() -> str:
    """Every table of the contract, column by column."""
    facts = (
        "Parquet below `facts/` in the data folder, a file per table and UTC day (`rejects`, `files`: one)."
    )
    marts = "The DuckDB file `marts.duckdb` in the data folder, swapped in whole after every run."
    index = _table(
        ("table", "holds", "grain"),
        [
            (f"[`{table.name}`](#{table.name})", table.description, table.grain)
            for table in (*FACT_TABLES, *MARTS)
        ],
    )
    return _page(
        "Tables",
        "parsers/records.py and warehouse/tables.py",
        "Null is unknown, 0 is measured zero. Instants (`_at`) are UTC to the microsecond, days (`_day`) are "
        "UTC days, money is decimal with twelve places. Units stand at the end of names: "
        "`_ms _s _tokens _w _j _usd _bytes _ratio`.",
        index,
        "## Facts",
        facts,
        *(_of_table(table) for table in FACT_TABLES),
        "## Marts",
        marts,
        *(_of_table(table) for table in MARTS),
    )


def _of_table(table: Table) -> str:
    key = ", ".join(f"`{name}`" for name in table.key)
    rows = [
        (
            f"`{column.name}`",
            column.duckdb_type,
            column.unit or "",
            "yes" if column.nullable else "no",
            _said(column),
        )
        for column in table.columns
    ]
    parts = [f"### {table.name}", table.description, f"Grain: {table.grain}."]
    if key:
        parts.append(f"Key: {key}.")
    return "\n\n".join([*parts, _table(("column", "type", "unit", "null", "meaning and rules"), rows)])


def _said(column: Column) -> str:
    rules = []
    if column.allowed is not None:
        rules.append("one of " + ", ".join(f"`{value}`" for value in column.allowed))
    if column.minimum is not None:
        rules.append(f"at least {column.minimum:g}")
    if column.maximum is not None:
        rules.append(f"at most {column.maximum:g}")
    return column.description + (f" Rule: {', '.join(rules)}." if rules else "")


def formats_page() -> str:
    """Every format: what writes it, how it is recognised, what its counts include, and its traps."""
    formats = all_formats()
    index = _table(
        ("format", "what", "fills"),
        [(f"[`{fmt.name}`](#{fmt.name})", fmt.title, f"`{fmt.target.name}`") for fmt in formats],
    )
    return _page(
        "Formats",
        "the declarations in parsers/formats/",
        "A file is recognised by content, not by name; gzip, bzip2, xz, zstd, zip and tar are opened. "
        "`tokenworks sniff FILE` says what a file is and why; `--format NAME` decides where two formats fit. "
        "Any other CSV, JSON lines or Parquet file is read with a mapping file (`--mapping`).",
        index,
        *(_of_format(fmt) for fmt in formats),
    )


def _of_format(fmt: Format) -> str:
    parts = [
        f"## {fmt.name}",
        f"{fmt.title}. Written by: {_prose(fmt.written_by)}.",
        f"Recognised by: {_prose(fmt.recognised_by)}.",
        f"Fills [`{fmt.target.name}`](tables.md#{fmt.target.name}).",
    ]
    if fmt.target in (REQUESTS, USAGE_BUCKETS):
        parts.append(_of_counts(fmt.semantics, of_calls=fmt.target is REQUESTS))
    if fmt.traps:
        parts.append("\n".join(f"- {_prose(trap)}" for trap in fmt.traps))
    return "\n\n".join(parts)


def _of_counts(semantics: TokenSemantics, *, of_calls: bool) -> str:
    rows = [
        ("cache reads in the input count", _PART[semantics.cache_read]),
        ("cache writes in the input count", _PART[semantics.cache_write]),
        ("reasoning in the output count", _PART[semantics.reasoning]),
        ("a count of 0 means", _ZERO[semantics.zero_means]),
        ("its clock", _CLOCK[semantics.clock]),
        *([("attempts of one call", _RETRIES[semantics.retries])] if of_calls else []),
        ("stated cost", semantics.money or "none"),
    ]
    return _table(("as logged", ""), rows)


def commands_page() -> str:
    """Every command with arguments and options, the exit codes, the settings of the scheduled pipeline."""
    from pipelines import cli
    from pipelines.site import SiteSettings

    infos = [cli.app.registered_callback, *cli.app.registered_commands]
    commands = [info.callback for info in infos if info is not None and info.callback is not None]
    settings = [
        (
            f"`TOKENWORKS_{name.upper()}`",
            "" if field.default is None else f"`{field.default}`",
            field.description or "",
        )
        for name, field in SiteSettings.model_fields.items()
    ]
    return _page(
        "Commands",
        "pipelines/cli.py and pipelines/site.py",
        *(_of_command(command) for command in commands),
        "## Exit codes",
        _table(("code", "means"), [(str(code), meaning) for code, meaning in exit_codes().items()]),
        "Errors are one line on standard error: what is wrong, where, and what to do. `TOKENWORKS_DEBUG=1` "
        "shows where in the program a fault (70) arose.",
        "## Settings of the scheduled pipeline",
        "Read when a run starts, from the environment or from `.env` where `dg dev` is started.",
        _table(("variable", "default", "means"), settings),
    )


def exit_codes() -> dict[int, str]:
    """Exit codes and their meaning, as the head of `pipelines/cli.py` lists them."""
    from pipelines import cli

    listed = re.search(r"Exit codes: (.*?)\.\n\n", f"{cli.__doc__}\n\n", flags=re.DOTALL)
    if listed is None:
        raise LookupError("the head of pipelines/cli.py lists no exit codes")
    codes = (entry.strip().split(" ", 1) for entry in " ".join(listed[1].split()).split(";"))
    return {int(code): meaning for code, meaning in codes}


def _of_command(command: Callable[..., Any]) -> str:
    hints = get_type_hints(command, include_extras=True)
    parameters = [
        _parameter(name, hints[name], parameter.default)
        for name, parameter in inspect.signature(command).parameters.items()
    ]
    name = command.__name__
    words = ["tokenworks"] if name == "tokenworks" else ["tokenworks", name]
    words += [row[0].strip("`") for row in parameters if not row[0].startswith("`--")]
    words += ["[OPTIONS]"] if any(row[0].startswith("`--") for row in parameters) else []
    parts = [f"## {name}", f"```\n{' '.join(words)}\n```", inspect.getdoc(command) or ""]
    if parameters:
        parts.append(_table(("argument or option", "type", "default", "means"), parameters))
    return "\n\n".join(parts)


def _parameter(name: str, hint: Any, default: Any) -> tuple[str, str, str, str]:
    """Shown name, type, default and help of one argument or option."""
    from typer.models import ArgumentInfo, OptionInfo

    annotated, *details = get_args(hint)
    info = next(detail for detail in details if isinstance(detail, ArgumentInfo | OptionInfo))
    is_list = str(annotated).startswith("list")
    if isinstance(info, ArgumentInfo):
        shown = name.upper() + ("..." if is_list else "")
    else:
        # Inside `Annotated`, typer takes the first name for the default.
        stated_names = map(str, (info.default, *(info.param_decls or ())))
        names = [text for text in stated_names if text.startswith("-")]
        shown = ", ".join(names) or f"--{name.replace('_', '-')}"
    is_required = default is inspect.Parameter.empty
    stated = "required" if is_required else "" if default in {None, False} else f"`{_plain(default)}`"
    return (
        f"`{shown}`",
        info.metavar or _kind(annotated),
        stated,
        info.help or "",
    )


def _kind(annotated: Any) -> str:
    """Say what values an option takes: a kind, or the words to choose from."""
    parts = [part for part in get_args(annotated) if part is not NoneType]
    if get_origin(annotated) is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if parts:
        return _kind(parts[0])
    return "text" if annotated is str else str(annotated.__name__).lower()


def _plain(value: Any) -> str:
    return str(value.value if isinstance(value, Enum) else value)


def _page(title: str, source: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _NOTE.format(source=source), *parts]) + "\n"


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|").replace("\n", " ")


def _prose(text: str) -> str:
    """Text of the code, where `<name>` is no tag of a page."""
    return text.replace("<", "\\<")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([_cell(text) for text in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PAGES = {"tables.md": tables_page, "formats.md": formats_page, "commands.md": commands_page}


def main() -> None:
    """Write the pages."""
    DOCS.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        sys.stdout.write(f"{DOCS / name}\n")


if __name__ == "__main__":
    main()
