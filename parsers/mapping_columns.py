"""Reading one column of a generic mapping: its raw field to a value of the contract, or the reason why not.

Belongs here: conversion by declared type, units, words for values, and what may not be kept. Does not belong
here: what the mapping file may say (`parsers/mapping_file.py`), and what follows from several columns
(`parsers/mapping.py`).

The user's word is taken for what a column means, not for what may be kept: keys are hashed, addresses lose
credentials and query, error texts are withheld.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers import routes, values
from parsers.clock import LocalClock
from parsers.mapping_file import currency_of, pattern_of, units_of
from parsers.records import INSTANT, MONEY
from parsers.values import Reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from parsers.format import Context
    from parsers.mapping_file import ColumnRule, MappingFile
    from parsers.records import Column

TOKENS_ROUNDED = "tokens_rounded"
ERROR_TEXT_WITHHELD = "error_text_withheld"

_ERROR_CLASS = r"^[A-Za-z0-9_.:/-]{1,80}$"


@dataclass(frozen=True)
class ColumnReader:
    """Reads columns as a mapping file says. Without a context (constants are checked) nothing is hashed."""

    mapping: MappingFile
    context: Context | None = None

    def read(self, column: Column, rule: ColumnRule, raw: tuple[pl.Expr, pl.DataType]) -> Reading:
        """Read one column (its raw field as an expression, and its type) as its declaration says."""
        expression, dtype = raw
        name = self.mapping.origin(column.name)
        if isinstance(column.dtype, pl.List):
            return self._list(column, rule, expression, dtype, name)
        if column.dtype == INSTANT:
            return self._instant(rule, expression, dtype, name)
        text = self._without_missing(expression)
        if column.dtype == pl.String:
            return self._text(column, rule, text, name)
        if column.dtype == pl.Boolean:
            return values.truth(_mapped(text, rule), name)
        return self._number(column, rule, self._digits(text), name)

    def _number(self, column: Column, rule: ColumnRule, digits: pl.Expr, name: str) -> Reading:
        if column.dtype == MONEY:
            return values.money(digits, name, parts=(currency_of(rule.unit or "usd") or ("", 1))[1])
        factor = units_of(column).get(rule.unit or "", 1.0)
        if column.dtype == pl.Float64:
            return values.number(digits, name, factor=factor)
        reading = values.whole(digits, name, factor=factor)
        if column.dtype == pl.Int32:
            narrow = reading.value.cast(pl.Int32, strict=False)
            return Reading(narrow, values.unread(digits, f"{name} is not a whole number of 32 bits"))
        is_rounded = factor > 1 and column.unit == "tokens"
        return Reading(reading.value, reading.fault, _flag_where_read(TOKENS_ROUNDED) if is_rounded else None)

    def _instant(self, rule: ColumnRule, raw: pl.Expr, dtype: pl.DataType, name: str) -> Reading:
        zone, assumed = self._zone()
        if isinstance(dtype, pl.Datetime | pl.Date):
            of_file = getattr(dtype, "time_zone", None)
            micros = raw.cast(pl.Datetime("us", of_file))
            if of_file:
                return Reading(micros.dt.convert_time_zone("UTC"))
            return values.in_zone(micros, name, zone, zone_assumed=assumed)
        text = self._without_missing(raw)
        if self.mapping.clock.relative:
            origin = values.relative_origin(self.context) if self.context else values.RELATIVE_ORIGIN
            return values.since(self._digits(text), name, rule.unit or "s", origin)
        unit = pattern_of(rule.unit or "auto")
        return values.instant(text, name, unit=unit, zone=zone, zone_assumed=assumed)

    def _zone(self) -> tuple[str, bool]:
        """The zone of naive times (of the mapping file, else of the option, else UTC), and if nobody said."""
        if self.mapping.clock.timezone or self.context is None:
            return self.mapping.clock.timezone or "UTC", False
        clock = LocalClock.of(self.context)
        return clock.zone, clock.assumed

    def _list(self, column: Column, rule: ColumnRule, raw: pl.Expr, dtype: pl.DataType, name: str) -> Reading:
        items = (
            raw.cast(pl.List(pl.String), strict=False)
            if isinstance(dtype, pl.List | pl.Array)
            else self._without_missing(raw).str.split(rule.separator)
        )
        items = items.list.eval(values.present(pl.element())).list.drop_nulls()
        if column.dtype == pl.List(pl.String):
            return Reading(items)
        # Ids of blocks may be unsigned or signed: 64 bits either way.
        numbers = items.list.eval(
            pl.coalesce(
                pl.element().cast(pl.UInt64, strict=False).reinterpret(signed=True),
                pl.element().cast(pl.Int64, strict=False),
            )
        )
        unread = numbers.list.eval(pl.element().is_null()).list.any()
        fault = pl.lit(f"{name} holds something that is not a whole number")
        return Reading(
            pl.when(~unread).then(numbers),
            lambda value: pl.when(items.is_not_null() & value.is_null()).then(fault),
        )

    def _without_missing(self, raw: pl.Expr) -> pl.Expr:
        text = values.present(raw)
        return pl.when(~text.is_in(self.mapping.numbers.missing)).then(text)

    def _digits(self, text: pl.Expr) -> pl.Expr:
        style = self.mapping.numbers
        plain = text.str.replace_all(style.thousands, "", literal=True) if style.thousands else text
        return plain.str.replace(",", ".", literal=True) if style.decimal == "," else plain

    def _text(self, column: Column, rule: ColumnRule, text: pl.Expr, name: str) -> Reading:
        value = _mapped(text, rule)
        if column.allowed is not None:
            known = pl.when(value.is_in(list(column.allowed))).then(value)
            return Reading(known, values.unread(value, f"{name} is none of {', '.join(column.allowed)}"))
        if column.name == "api_key_hash" and not rule.hashed and self.context is not None:
            digest = self.context.hasher.digest
            return Reading(value.map_batches(lambda keys: _digested(keys, digest), return_dtype=pl.String))
        if column.name == "endpoint":
            return Reading(routes.endpoint(value))
        if column.name == "error_kind":
            return Reading(
                pl.when(value.str.contains(_ERROR_CLASS)).then(value),
                flag=values.unread(value, ERROR_TEXT_WITHHELD),
            )
        return Reading(value)


def _flag_where_read(flag: str) -> Callable[[pl.Expr], pl.Expr]:
    return lambda value: pl.when(value.is_not_null()).then(pl.lit(flag))


def _digested(keys: pl.Series, digest: Callable[[str], str]) -> pl.Series:
    """Hash every distinct key once."""
    distinct = keys.drop_nulls().unique()
    hashes = pl.Series([digest(key) for key in distinct], dtype=pl.String)
    return keys.replace_strict(distinct, hashes, default=None, return_dtype=pl.String)


def _mapped(text: pl.Expr, rule: ColumnRule) -> pl.Expr:
    """Replace words by `map`; `default` stands for every other one and "" for none."""
    if rule.map is None:
        return text
    words = {word: str(to) for word, to in rule.map.items() if word not in {"default", ""}}
    default = rule.map.get("default")
    other = text if default is None else pl.lit(str(default))
    absent = rule.map.get("", default)
    known = text.replace_strict(list(words), list(words.values()), default=None, return_dtype=pl.String)
    none = values.NO_TEXT if absent is None else pl.lit(str(absent))
    return pl.when(text.is_null()).then(none).otherwise(pl.coalesce(known, other))


def field_of(schema: pl.Schema, path: tuple[str, ...]) -> tuple[pl.Expr, pl.DataType] | None:
    """The expression and type of a column; a dotted name leads into structs where no column has it whole."""
    if path[0] not in schema and len(path) == 1:
        path = tuple(path[0].split("."))
    if path[0] not in schema:
        return None
    expression, dtype = pl.col(path[0]), schema[path[0]]
    for name in path[1:]:
        inner = {field.name: field.dtype for field in dtype.fields} if isinstance(dtype, pl.Struct) else {}
        if name not in inner:
            return None
        expression, dtype = expression.struct.field(name), inner[name]  # type: ignore[assignment]
    return expression, dtype
