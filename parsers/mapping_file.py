"""The mapping file: what its TOML may say, checked key by key, with the remedy in every error.

Belongs here: the declaration of the file (`MappingFile`), the units that a column may be given in, and the
translation of a mistake into one line for the user. Does not belong here: applying the mapping to rows
(`parsers/mapping.py`).

An example, with every section:

    format = "csv"                  # csv, json_lines or parquet
    table = "requests"              # or engine_samples, device_samples
    name = "our_proxy"              # name of the format; default: mapping_<file name>
    [clock]
    timezone = "Europe/Berlin"      # of times that name no zone
    relative = false                # true: times count from the start of the log, and need a unit
    [semantics]
    cache_read = "outside"          # are cached tokens part of input_tokens? inside, outside or absent
    [numbers]
    decimal = ","                   # 1.234,5
    thousands = "."
    missing = ["", "-", "n/a"]      # words for "no value"
    [columns]
    started_at = { from = "ts", unit = "s" }        # or ms, us, ns, ticks, iso, a strptime pattern, auto
    input_tokens = "prompt_tok"                     # short form of { from = "prompt_tok" }
    output_tokens = { from = "out_k", unit = "k" }  # k or M: rounded, and flagged so
    duration_ms = { from = "latency", unit = "s" }
    cost_reported = { from = "price", unit = "usd/100" }        # a currency, over its parts (cents)
    team = { value = "research" }                           # constant
    model_served = { from = "usage.model", optional = true }    # dotted path into JSON; some records lack it
    status = { from = "code", map = { "200" = "ok", "" = "cancelled", default = "error" } }
    prefix_hashes = { from = "blocks", separator = " ", block_tokens = 16 }     # ids of a hash chain
    api_key_hash = "key"            # hashed here; hashed = true where it is a hash already
"""

from __future__ import annotations

import difflib
import re
import tomllib
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self
from zoneinfo import ZoneInfo

import polars as pl
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from parsers.errors import SiteConfigError
from parsers.records import COUNT, INSTANT, MONEY, RECORD_TABLES, REQUESTS, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from parsers.records import Table

    Wrong = Callable[[str, str], SiteConfigError]

Side = Literal["inside", "outside", "absent"]

REFUSED: Final = {
    "source_format": "it is filled while reading",
    "source_file": "it is filled while reading",
    "source_line": "it is filled while reading",
    "flags": "it says what was assumed while reading",
    "prefix_token_counts": "they follow from the block_tokens of prefix_hashes",
    "prompt_hash": "hashes of prompts are made here, under the site's own key",
}
INSTANT_UNITS: Final = ("auto", "iso", "s", "ms", "us", "ns", "ticks")
TOTAL_TOKENS: Final = Column(
    "total_tokens", COUNT, "The source's own total; tells what its input and output leave out.", unit="tokens"
)
_COUNT = {"tokens": 1.0, "k": 1e3, "M": 1e6}
_UNITS_BY_SUFFIX: Final[Mapping[str, Mapping[str, float]]] = {
    "_ms": {"ms": 1.0, "s": 1e3, "min": 6e4, "us": 1e-3, "ns": 1e-6},
    "_per_s": _COUNT,
    "_s": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0},
    "_ratio": {"ratio": 1.0, "percent": 0.01},
    "_w": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "_j": {"J": 1.0, "mJ": 1e-3, "kJ": 1e3, "Wh": 3600.0, "kWh": 3.6e6},
    "_c": {"C": 1.0},
    "_bytes": {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    "_tokens": _COUNT,
    "_tokens_total": _COUNT,
}
_CURRENCY = re.compile(r"(?P<currency>[A-Za-z]{3})(?:/(?P<parts>[1-9]\d{0,11}))?")
_SAMPLE = datetime(2024, 11, 20, 13, 14, 15, tzinfo=UTC)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ColumnRule(_Strict):
    """Where one canonical column comes from."""

    source: str | list[str] | None = Field(default=None, alias="from")
    value: str | int | float | bool | list[str] | None = None
    unit: str | None = None
    map: dict[str, str | int | bool] | None = None
    separator: str = Field(default=",", min_length=1)
    optional: bool = False
    block_tokens: PositiveInt | None = None
    hashed: bool = False


class Clock(_Strict):
    """How times without a zone are read."""

    timezone: str | None = None
    relative: bool = False

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        if name is None:
            return None
        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            raise ValueError(
                f"{name!r} is no time zone; give an IANA name such as Europe/Berlin or UTC"
            ) from None
        return name


class Semantics(_Strict):
    """What the token counts include; see `parsers.format.TokenSemantics`."""

    cache_read: Side = "inside"
    cache_write: Side = "inside"
    reasoning: Side = "inside"
    zero_means: Literal["zero", "unknown"] = "zero"


class Numbers(_Strict):
    """How numbers are written, and which words stand for no value."""

    decimal: Literal[".", ","] = "."
    thousands: Literal["", ",", ".", " ", "'", "_"] = ""
    missing: list[str] = ["-", "null", "NULL", "None", "NaN", "nan", "N/A", "\\N"]

    @model_validator(mode="after")
    def _two_signs(self) -> Self:
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands are the same sign; say which one is meant")
        return self


def _short_form(rule: Any) -> Any:
    return {"from": rule} if isinstance(rule, str) else rule


class MappingFile(_Strict):
    """A whole mapping file."""

    format: Literal["csv", "json_lines", "parquet"]
    table: Literal["requests", "engine_samples", "device_samples"] = "requests"
    name: str | None = Field(default=None, pattern=r"^[a-z0-9_]{1,40}$")
    clock: Clock = Clock()
    semantics: Semantics = Semantics()
    numbers: Numbers = Numbers()
    columns: dict[str, Annotated[ColumnRule, BeforeValidator(_short_form)]] = Field(min_length=1)

    def column(self, name: str) -> Column:
        """The declaration of a column that may be mapped: one of the table, or `total_tokens`.

        Raises:
            KeyError: the mapping's table has no such column, or it is filled here.

        """
        return self.fillable()[name]

    def fillable(self) -> dict[str, Column]:
        """The columns that a mapping of this table may name."""
        columns = {column.name: column for column in self.target.columns if column.name not in REFUSED}
        return columns | {TOTAL_TOKENS.name: TOTAL_TOKENS} if self.target is REQUESTS else columns

    @property
    def target(self) -> Table:
        """The table that is filled."""
        return next(table for table in RECORD_TABLES if table.name == self.table)

    def sources(self) -> dict[str, ColumnRule]:
        """Columns that are read from the log; constants are left out."""
        return {name: rule for name, rule in self.columns.items() if rule.source is not None}

    def parts(self, rule: ColumnRule) -> tuple[str, ...]:
        """The path of a rule: one name, or the keys that lead into JSON."""
        if isinstance(rule.source, list):
            return tuple(rule.source)
        name = str(rule.source)
        return tuple(name.split(".")) if self.format == "json_lines" else (name,)

    def origin(self, column: str) -> str:
        """How the log calls a column; its own name where it is not read from the log."""
        rule = self.columns.get(column)
        return ".".join(self.parts(rule)) if rule is not None and rule.source is not None else column


def read_mapping_file(path: Path) -> MappingFile:
    """Read and check a mapping file.

    Raises:
        SiteConfigError: it can't be read, is no TOML, or says something that can't be done; names file, key
        and remedy.

    """
    if path.exists() and not path.is_file():
        raise SiteConfigError("it is no file", where=str(path), remedy="Give a TOML file.")
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SiteConfigError(
            "the mapping file can't be read",
            where=str(path),
            remedy="Check the path and that it is UTF-8 text.",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise SiteConfigError(
            f"not valid TOML: {error}", where=str(path), remedy="Correct the line."
        ) from error
    try:
        mapping = MappingFile.model_validate(tree)
    except ValidationError as error:
        raise _explained(error, path) from error
    _check_names(mapping, path)
    for name, rule in mapping.columns.items():
        _check_rule(mapping.column(name), rule, mapping, wrong_at(path, name))
    _check_together(mapping, path)
    return mapping


def wrong_at(path: Path, column: str | None = None) -> Callable[[str, str], SiteConfigError]:
    """Make errors (what is wrong, what to do) about one key of one file."""
    where = f"{path}, key columns.{column}" if column else f"{path}, key columns"
    return lambda what, remedy: SiteConfigError(what, where=where, remedy=remedy)


def closest(word: str, words: Iterable[str]) -> str:
    """`Did you mean 'x'?`, or the list of what there is."""
    known = list(words)
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or difflib.get_close_matches(
        word.lower(), [name.lower() for name in known], n=1, cutoff=0.6
    )
    if near:
        exact = next(name for name in known if name.lower() == near[0].lower())
        return f"Did you mean {exact!r}?"
    shown = ", ".join(repr(name[:60]) for name in known[:20])
    return f"There are: {shown}{' ...' if len(known) > 20 else ''}"  # noqa: PLR2004


def currency_of(unit: str) -> tuple[str, int] | None:
    """`usd` -> ("USD", 1); `usd/100` (cents) -> ("USD", 100); None if the unit is no currency."""
    found = _CURRENCY.fullmatch("usd/100" if unit == "cents" else unit)
    return (found["currency"].upper(), int(found["parts"] or 1)) if found else None


def units_of(column: Column) -> Mapping[str, float]:
    """The units a number of this column may be given in, and the factor that leads to the column's own."""
    return next((units for suffix, units in _UNITS_BY_SUFFIX.items() if column.name.endswith(suffix)), {})


def pattern_of(unit: str) -> str:
    """A strptime pattern as Polars means it: `.%f` of Python (decimals of a second) is `%.f`."""
    return unit.replace(".%f", "%.f")


def _explained(error: ValidationError, path: Path) -> SiteConfigError:
    # A misspelt key is often the reason why another one is missing.
    first = min(error.errors(include_url=False), key=lambda found: found["type"] != "extra_forbidden")
    key = ".".join(
        str(part) for part in first["loc"] if not str(part).startswith(("function-", "list[", "dict["))
    )
    models: dict[str, type[BaseModel]] = {"clock": Clock, "semantics": Semantics, "numbers": Numbers}
    where = f"{path}, key {key}"
    if first["type"] == "extra_forbidden":
        parents = [str(part) for part in first["loc"][:-1]]
        model = (
            ColumnRule
            if parents[:1] == ["columns"]
            else models.get(parents[0], MappingFile)
            if parents
            else MappingFile
        )
        names = [field.alias or name for name, field in model.model_fields.items()]
        return SiteConfigError("unknown key", where=where, remedy=closest(str(first["loc"][-1]), names))
    if first["type"] == "missing":
        return SiteConfigError("the key is missing", where=where, remedy=f"Add {key} = ...")
    what = str(first["msg"]).removeprefix("Value error, ")
    return SiteConfigError(what[0].lower() + what[1:], where=where, remedy="Correct the value.")


def _check_names(mapping: MappingFile, path: Path) -> None:
    fillable = mapping.fillable()
    for name in mapping.columns:
        if name in REFUSED:
            raise wrong_at(path, name)(f"{name} can't be mapped: {REFUSED[name]}", "Remove the key.")
        if name not in fillable:
            raise wrong_at(path, name)(
                f"table {mapping.table} has no column {name!r}", closest(name, fillable)
            )


def _check_rule(column: Column, rule: ColumnRule, mapping: MappingFile, wrong: Wrong) -> None:
    if (rule.source is None) == (rule.value is None):
        raise wrong(
            "a column needs either `from` or `value`",
            'Write from = "column of the log", or value = "constant".',
        )
    if isinstance(rule.source, list) and (mapping.format == "csv" or not rule.source):
        raise wrong("a list in `from` is a path into JSON", "Give the name of the CSV column as text.")
    if rule.unit is not None:
        _check_unit(column, rule.unit, mapping, wrong)
    elif column.dtype == INSTANT and mapping.clock.relative:
        raise wrong("with clock.relative a time needs its unit", 'Add unit = "s", "ms", "us" or "ns".')
    if rule.map is not None and column.dtype not in {pl.String, pl.Boolean}:
        raise wrong("`map` is for columns of text and of true or false", "Remove `map`, or use `unit`.")
    if rule.map is not None and column.allowed is not None:
        for word in rule.map.values():
            if word not in column.allowed:
                raise wrong(
                    f"map leads to {word!r}, which {column.name} can't be", closest(str(word), column.allowed)
                )
    if (column.name == "prefix_hashes") != (rule.block_tokens is not None):
        raise wrong(
            "`block_tokens` belongs to prefix_hashes, and prefix_hashes needs it",
            "Say how many tokens a block has: block_tokens = 16.",
        )
    if rule.hashed and column.name != "api_key_hash":
        raise wrong("`hashed` belongs to api_key_hash", "Remove it.")
    if column.name == "prefix_hashes" and rule.source is None:
        raise wrong("a constant makes no sense here", "Use `from`, or remove the key.")


def _check_unit(column: Column, unit: str, mapping: MappingFile, wrong: Wrong) -> None:
    if column.dtype == INSTANT:
        if mapping.clock.relative:
            if unit not in {"s", "ms", "us", "ns"}:
                raise wrong(f"{unit!r} is no unit of time since the start", "Use s, ms, us or ns.")
        elif "%" in unit:
            _check_pattern(unit, wrong)
        elif unit not in INSTANT_UNITS:
            raise wrong(
                f"{unit!r} is no unit of an instant",
                f"Use {', '.join(INSTANT_UNITS)}, or a strptime pattern.",
            )
        return
    if column.dtype == MONEY:
        if currency_of(unit) is None:
            raise wrong(
                f"{unit!r} is no currency", "Write usd, eur ..., cents, or usd/1000000 for millionths."
            )
        return
    units = units_of(column)
    if unit not in units:
        remedy = closest(unit, units) if units else "Remove `unit`: the column has none."
        raise wrong(f"{unit!r} is no unit of {column.name}", remedy)


def _check_pattern(unit: str, wrong: Wrong) -> None:
    """Write a sample by the pattern and read it again: what does not come back would reject every row."""
    pattern = pattern_of(unit)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            written = pl.Series([_SAMPLE]).dt.to_string(pattern)
            read = written.str.to_datetime(pattern, time_unit="us", strict=False)
    except (pl.exceptions.PolarsError, Warning) as error:
        raise wrong(
            f"{unit!r} is no pattern that can be read", "Use strptime codes such as %d.%m.%Y %H:%M:%S."
        ) from error
    if read.dt.date().to_list() != [_SAMPLE.date()]:
        raise wrong(
            f"{unit!r} does not tell the whole date", "It needs year, month and day, as in %d.%m.%Y %H:%M:%S."
        )


def _check_together(mapping: MappingFile, path: Path) -> None:
    wrong, columns = wrong_at(path), mapping.columns
    derived = {"started_at"} if {"ended_at", "duration_ms"} <= columns.keys() else set()
    derived |= {"status", "usage_origin"}
    for column in mapping.target.columns:
        if not column.nullable and column.name not in {*columns, *derived, *REFUSED}:
            extra = " (or ended_at and duration_ms)" if column.name == "started_at" else ""
            raise wrong(f"{column.name}{extra} must be mapped", f'Add {column.name} = "column of the log".')
    cost = columns.get("cost_reported")
    if cost is not None and cost.unit is None and "cost_currency" not in columns:
        raise wrong_at(path, "cost_reported")(
            "the currency is not said", 'Add unit = "usd", or map cost_currency.'
        )
