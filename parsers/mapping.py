"""The generic mapping: any CSV, JSON lines or Parquet, read as a TOML file of the user says.

Belongs here: making a `Format` of a checked mapping file. Does not belong here: what the file may say
(`parsers/mapping_file.py`), how one column is read (`parsers/mapping_columns.py`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import values
from parsers.durations import span
from parsers.errors import SiteConfigError
from parsers.format import Format, Head, TokenSemantics
from parsers.mapping_columns import ColumnReader, field_of
from parsers.mapping_file import (
    TOTAL_TOKENS,
    ColumnRule,
    MappingFile,
    closest,
    currency_of,
    read_mapping_file,
    wrong_at,
)

if TYPE_CHECKING:
    from pathlib import Path

    from parsers.format import Context, Structure

STATUS_ASSUMED = "status_assumed"
STATUS_FROM_HTTP = "status_from_http"
STARTED_AT_DERIVED = "started_at_derived"

_TOTAL = "_total_tokens"  # what `parsers/normalise.py` looks for
_HTTP_ERROR, _HTTP_OK, _HTTP_CLIENT_GONE = 400, 200, 499


def load_mapping(path: Path) -> Format:
    """Make a format of a mapping file.

    Raises:
        SiteConfigError: the file is wrong (see `read_mapping_file`), or a constant is no value of its column.
        The
            format's `map` raises it too, where a log lacks a mapped column.

    """
    mapping = read_mapping_file(path)
    plan = _Plan(mapping, path)
    plan.check_constants()
    semantics = mapping.semantics
    return Format(
        name=mapping.name or "mapping_" + re.sub(r"[^a-z0-9]+", "_", path.stem.lower()).strip("_"),
        title=f"Mapping {path.name}",
        written_by="whatever the mapping file describes",
        target=mapping.target,
        container=mapping.format,
        recognised_by=f"the columns that {path.name} names",
        recognise=plan.recognise,
        map=plan.map,
        structure=plan.structure() if mapping.format == "json_lines" else None,
        semantics=TokenSemantics(
            cache_read=semantics.cache_read,
            cache_write=semantics.cache_write,
            reasoning=semantics.reasoning,
            zero_means=semantics.zero_means,
            clock="relative" if mapping.clock.relative else "utc",
        ),
        traps=("What the columns mean is the mapping file's word: check a few rows against the log.",),
    )


@dataclass(frozen=True)
class _Plan:
    """A checked mapping file, applied."""

    mapping: MappingFile
    path: Path

    def structure(self) -> Structure:
        """The JSON fields that are read, all as text, so that a wrong type stays visible."""
        tree: dict[str, Any] = {}
        for name, rule in self.mapping.sources().items():
            *parents, leaf = self.mapping.parts(rule)
            node: Any = tree
            for parent in parents:
                node = node.setdefault(parent, {})
                if not isinstance(node, dict):
                    break
            is_list = isinstance(self.mapping.column(name).dtype, pl.List)
            kind: Structure = ["VARCHAR"] if is_list else "VARCHAR"
            if not isinstance(node, dict) or node.setdefault(leaf, kind) != kind:
                raise wrong_at(self.path, name)(
                    f"{self.mapping.origin(name)!r} is read as a value and as an object",
                    "Map either the object's fields or none of them.",
                )
        return tree

    def recognise(self, head: Head) -> bool:
        """Whether a source has the columns that the mapping needs."""
        needed = [self.mapping.parts(rule) for rule in self.mapping.sources().values() if not rule.optional]
        if self.mapping.format == "parquet":
            return head.data.startswith(b"PAR1")
        if self.mapping.format == "json_lines":
            return bool(head.objects) and all(
                any(_has(line, path) for line in head.objects) for path in needed
            )
        header = head.lines[0] if head.lines else ""
        return any({path[0] for path in needed} <= set(_cells(header, delimiter)) for delimiter in ",;\t|")

    def map(self, frame: pl.DataFrame, context: Context) -> pl.DataFrame:
        """One row per record: the mapped columns, what follows from them, `_reject` and `_other`."""
        self._check_head(frame, context)
        target = self.mapping.target
        reader = ColumnReader(self.mapping, context)
        readings = {
            name: reader.read(self.mapping.column(name), rule, self._raw(name, rule, frame))
            for name, rule in self.mapping.columns.items()
        }
        rows = values.read_fields(frame, readings).with_columns(frame["source_line"])
        if TOTAL_TOKENS.name in readings:
            rows = rows.rename({TOTAL_TOKENS.name: _TOTAL})
        rows = self._complete_request(rows) if self.mapping.table == "requests" else rows
        rows = _with_prefixes(rows, self.mapping.columns.get("prefix_hashes"), context)
        missing = pl.coalesce(
            values.NO_TEXT,
            *(
                pl.when(pl.col(column.name).is_null()).then(
                    pl.lit(f"{self.mapping.origin(column.name)} is missing")
                )
                for column in target.columns
                if not column.nullable and column.name in rows.columns and column.name != "source_line"
            ),
        )
        relative = pl.lit("relative_clock") if self.mapping.clock.relative else values.NO_TEXT
        return rows.with_columns(
            flags=pl.concat_list("_flags", relative).list.drop_nulls().list.unique(maintain_order=True),
            _reject=pl.coalesce("_reject", missing),
            _other=pl.lit(value=False),
        ).drop("_flags")

    def check_constants(self) -> None:
        """Read every constant as a value of its column once.

        Raises:
            SiteConfigError: one can't be read.

        """
        one = pl.DataFrame({"source_line": [1]})
        for name, rule in self.mapping.columns.items():
            if rule.value is None:
                continue
            reader = ColumnReader(self.mapping)
            reading = reader.read(self.mapping.column(name), rule, self._raw(name, rule, one))
            fault = values.read_fields(one, {name: reading})["_reject"].item()
            if fault is not None:
                raise wrong_at(self.path, name)(f"the constant is wrong: {fault}", "Correct `value`.")

    def _check_head(self, frame: pl.DataFrame, context: Context) -> None:
        objects = (
            Head(context.source, context.head.encode()).objects if self.mapping.format == "json_lines" else []
        )
        for name, rule in self.mapping.sources().items():
            path = self.mapping.parts(rule)
            if rule.optional:
                continue
            if self.mapping.format != "json_lines":
                if field_of(frame.schema, path) is None:
                    known = [column for column in frame.columns if column != "source_line"]
                    raise self._absent(name, path, known, context)
            elif objects and not any(_has(line, path) for line in objects):
                known = sorted({".".join(found) for line in objects for found in _paths(line)})
                raise self._absent(name, path, known, context)

    def _absent(
        self, name: str, path: tuple[str, ...], known: list[str], context: Context
    ) -> SiteConfigError:
        wanted = ".".join(path)
        return wrong_at(self.path, name)(
            f"{context.source} has no column {wanted!r} for {name}",
            f"{closest(wanted, known)} If only some records have it, add optional = true.",
        )

    def _raw(self, name: str, rule: ColumnRule, frame: pl.DataFrame) -> tuple[pl.Expr, pl.DataType]:
        if rule.value is not None:
            value = rule.separator.join(rule.value) if isinstance(rule.value, list) else str(rule.value)
            return pl.lit(value), pl.String()
        found = field_of(frame.schema, self.mapping.parts(rule))
        if found is None:
            return values.NO_TEXT, pl.String()
        if isinstance(found[1], pl.Struct):
            raise wrong_at(self.path, name)(
                f"{self.mapping.origin(name)!r} is an object",
                "Name the field inside it, with a dot between.",
            )
        return found

    def _complete_request(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Fill what a request can't be without, and say how."""
        have = set(rows.columns)
        said = {
            name: pl.col(name) if name in have else pl.lit(None)
            for name in ("status", "http_status", "usage_origin")
        }
        code = said["http_status"].cast(pl.Int64)
        by_code = (
            pl.when(code == _HTTP_CLIENT_GONE)
            .then(pl.lit("cancelled"))
            .when((code >= _HTTP_ERROR) | (code < _HTTP_OK))
            .then(pl.lit("error"))
            .when(code.is_not_null())
            .then(pl.lit("ok"))
        )
        told = said["status"].cast(pl.String)
        how = (
            pl.when(told.is_null() & by_code.is_not_null())
            .then(pl.lit(STATUS_FROM_HTTP))
            .when(told.is_null())
            .then(pl.lit(STATUS_ASSUMED))
        )
        counts = [pl.col(name).is_not_null() for name in ("input_tokens", "output_tokens") if name in have]
        counted = pl.any_horizontal(counts) if counts else pl.lit(value=False)
        origin = pl.when(counted).then(pl.lit("reported")).otherwise(pl.lit("missing"))
        rows = rows.with_columns(
            status=pl.coalesce(told, by_code, pl.lit("ok")),
            usage_origin=pl.coalesce(said["usage_origin"].cast(pl.String), origin),
            _flags=pl.concat_list("_flags", how),
        )
        if "started_at" not in have:
            rows = rows.with_columns(
                started_at=pl.col("ended_at") - span(pl.col("duration_ms")),
                _flags=pl.concat_list("_flags", pl.lit(STARTED_AT_DERIVED)),
            )
        cost = self.mapping.columns.get("cost_reported")
        if cost is not None and cost.unit is not None and "cost_currency" not in have:
            currency = (currency_of(cost.unit) or ("", 1))[0]
            rows = rows.with_columns(
                cost_currency=pl.when(pl.col("cost_reported").is_not_null()).then(pl.lit(currency))
            )
        return rows


def _with_prefixes(rows: pl.DataFrame, rule: ColumnRule | None, context: Context) -> pl.DataFrame:
    """Hash block ids under the site's key; ids whose number contradicts the prompt's length are dropped."""
    if rule is None or rule.block_tokens is None:
        return rows
    blocks = pl.col("prefix_hashes").list.len().cast(pl.Int64)
    length = pl.col("input_tokens") if "input_tokens" in rows.columns else pl.lit(None, dtype=pl.Int64)
    fits = (blocks * rule.block_tokens - length).is_between(
        -rule.block_tokens, rule.block_tokens, closed="none"
    )
    rows = rows.with_columns(
        prefix_hashes=pl.when(blocks > 0, fits).then("prefix_hashes"),
        _flags=pl.concat_list("_flags", pl.when(blocks > 0, ~fits).then(pl.lit("block_size_mismatch"))),
    )
    counts = values.cumulative_tokens(pl.col("prefix_hashes").list.len(), rule.block_tokens, length)
    return rows.with_columns(
        context.hasher.chain_ids(rows["prefix_hashes"], values.content_scope(context)).alias("prefix_hashes"),
        prefix_token_counts=counts,
    )


def _has(line: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(line, dict) or name not in line:
            return False
        line = line[name]
    return True


def _paths(line: dict[str, Any], depth: int = 4) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, value in line.items():
        inner = _paths(value, depth - 1) if isinstance(value, dict) and depth > 1 else []
        found += [(name, *path) for path in inner] or [(name,)]
    return found


def _cells(header: str, delimiter: str) -> list[str]:
    import csv

    return [cell.strip() for cell in next(csv.reader([header], delimiter=delimiter), [])]
