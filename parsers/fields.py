"""The fields of a raw frame by dotted name, read quickly where the log is well formed.

Belongs here: flattening nested records, and the fast way through the readings of `parsers/values.py`: a field
that no record has costs nothing, and the careful reading of odd values runs only in chunks that hold one.
Does not belong here: what a field means (`formats/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from parsers import values
from parsers.records import INSTANT, MONEY
from parsers.values import Reading, present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_FAULT = pl.lit(None, dtype=pl.String)
_SECONDS = pl.Decimal(18, 6)
_FIRST_US, _LAST_US = (int(bound * 1_000_000) for bound in values.EPOCH_S)
CLASS_NAME = r"^[A-Za-z_][\w.]{0,99}$"
"""What the class or code of an error looks like; a message does not, and is not kept."""


@dataclass(frozen=True, slots=True)
class Read:
    """One field that was read: columns or expressions over `Fields.frame`.

    `fault` says why there is no value.
    """

    value: pl.Expr
    fault: pl.Expr

    def needed(self, name: str) -> Read:
        """The same field where a record without it is broken."""
        absent = pl.when(self.value.is_null()).then(pl.lit(f"{name} is missing"))
        return Read(self.value, pl.coalesce(self.fault, absent))


def first_fault(reads: Iterable[Read]) -> pl.Expr:
    """The first reason among the fields of a record, or null: the `_reject` column."""
    return pl.coalesce([_NO_FAULT, *(read.fault for read in reads)])


class Fields:
    """A chunk of raw records, flat: `metadata.usage_object.total_tokens` is one column.

    Readings are made from `frame`, which grows by one column for each; use their expressions on that frame.
    """

    def __init__(self, raw: pl.DataFrame) -> None:
        """Flatten; columns without any value are left out."""
        flat = _flatten(raw)
        filled = [
            name
            for name, nulls in zip(flat.columns, flat.null_count().row(0), strict=True)
            if nulls < flat.height or name == "source_line"
        ]
        self.frame = flat.select(filled)
        self._faults: list[Read] = []

    def rows(self, *, other: pl.Expr | None = None, **columns: Read | pl.Expr) -> pl.DataFrame:
        """Rows of a target, as `Format.map` gives them: what was read, and what to do with each record.

        A field that was read and has a fault refuses its record, whether it is a column or only helped to make
        one. `usage_origin` is `reported`, or `missing` where there is neither input nor output, unless given.

        Args:
            other: true for records that are recognised and are no rows.
            columns: columns of the target (and `_total_tokens`, `_cache_outside`), by name.

        """
        shown = {name: item.value if isinstance(item, Read) else item for name, item in columns.items()}
        if "usage_origin" not in shown and "input_tokens" in shown:
            nothing = shown["input_tokens"].is_null() & shown["output_tokens"].is_null()
            shown["usage_origin"] = pl.when(nothing).then(pl.lit("missing")).otherwise(pl.lit("reported"))
        faults = [*(item for item in columns.values() if isinstance(item, Read)), *self._faults]
        no = pl.lit(value=False)
        shown |= {"_reject": first_fault(faults), "_other": no if other is None else other}
        # What is made of absent fields alone may be a single value: here each record gets it.
        of_record = pl.when(pl.col("source_line").is_not_null())
        return self.frame.select(
            "source_line", **{name: of_record.then(value) for name, value in shown.items()}
        )

    def series(self, value: pl.Expr) -> pl.Series:
        """What an expression gives for each record; one of absent fields alone would give a single value."""
        return self.frame.with_columns(value.alias("_series"))["_series"]

    def has(self, name: str) -> bool:
        """Whether any record of the chunk has the field."""
        return name in self.frame.columns

    def raw(self, *names: str) -> pl.Expr:
        """The first of these fields that is not null, as it is (text)."""
        found = [pl.col(name) for name in names if self.has(name)]
        return pl.coalesce(found) if found else _NO_FAULT

    def text(self, *names: str) -> pl.Expr:
        """The first of these fields that says something, without surrounding space."""
        found = [present(pl.col(name)) for name in names if self.has(name)]
        return pl.coalesce(found) if found else _NO_FAULT

    def whole(self, *names: str) -> Read:
        """A count (Int64) from the first of these fields that is there."""
        return self._reading(
            names,
            pl.Int64(),
            lambda text: text.cast(pl.Int64, strict=False),
            lambda text: values.whole(text, _last(names)),
        )

    def number(self, *names: str) -> Read:
        """A finite number (Float64)."""
        return self._careful(names, pl.Float64(), lambda text: values.number(text, _last(names)))

    def money(self, *names: str) -> Read:
        """An amount (Decimal)."""
        return self._careful(names, MONEY, lambda text: values.money(text, _last(names)))

    def instant(self, *names: str, unit: str = "auto") -> Read:
        """An instant: seconds since 1970, else what `values.instant` can read; UTC where no zone is named.

        `unit` (see `values.instant`) says what a bare number counts, where its size does not tell.
        """
        if unit != "auto":
            return self._careful(names, INSTANT, lambda text: values.instant(text, _last(names), unit=unit))

        def seconds(text: pl.Expr) -> pl.Expr:
            # A float would round the last microsecond otherwise than the careful reading, which takes decimals.
            micros = text.cast(_SECONDS, strict=False).to_physical().cast(pl.Int64, strict=False)
            return pl.when(micros.is_between(_FIRST_US, _LAST_US, closed="none")).then(micros).cast(INSTANT)

        return self._reading(names, INSTANT, seconds, lambda text: values.instant(text, _last(names)))

    def _reading(
        self,
        names: tuple[str, ...],
        dtype: pl.DataType,
        fast: Callable[[pl.Expr], pl.Expr],
        careful: Callable[[pl.Expr], Reading],
    ) -> Read:
        found = [name for name in names if self.has(name)]
        if not found:
            return Read(pl.lit(None, dtype=dtype), _NO_FAULT)
        text = pl.coalesce(found)
        column = f"_read.{len(self.frame.columns)}"
        self.frame = self.frame.with_columns(fast(text).alias(column))
        there, read = self.frame.select(text.count(), pl.col(column).count().alias("read")).row(0)
        if there == read:
            return Read(pl.col(column), _NO_FAULT)
        reading = careful(text)
        self.frame = self.frame.drop(column)
        return self._kept(reading)

    def truth(self, *names: str) -> Read:
        """A yes or no (Boolean), as logs spell it."""
        return self._careful(names, pl.Boolean(), lambda text: values.truth(text, _last(names)))

    def _careful(
        self, names: tuple[str, ...], dtype: pl.DataType, careful: Callable[[pl.Expr], Reading]
    ) -> Read:
        found = [name for name in names if self.has(name)]
        if not found:
            return Read(pl.lit(None, dtype=dtype), _NO_FAULT)
        return self._kept(careful(pl.coalesce(found)))

    def _kept(self, reading: Reading) -> Read:
        value, fault = f"_read.{len(self.frame.columns)}", f"_fault.{len(self.frame.columns)}"
        self.frame = self.frame.with_columns(reading.value.alias(value))
        self.frame = self.frame.with_columns(reading.fault(pl.col(value)).alias(fault))
        read = Read(pl.col(value), pl.col(fault))
        self._faults.append(read)
        return read


def _last(names: tuple[str, ...]) -> str:
    """How a reject calls the field: without the path to it."""
    return names[0].rsplit(".", 1)[-1]


def _flatten(frame: pl.DataFrame) -> pl.DataFrame:
    schema = frame.schema
    while any(isinstance(dtype, pl.Struct) for dtype in schema.values()):
        frame = frame.select(part for name, dtype in schema.items() for part in _parts(name, dtype))
        schema = frame.schema
    return frame


def _parts(name: str, dtype: pl.DataType) -> list[pl.Expr]:
    if not isinstance(dtype, pl.Struct):
        return [pl.col(name)]
    return [pl.col(name).struct.field(inner.name).alias(f"{name}.{inner.name}") for inner in dtype.fields]
