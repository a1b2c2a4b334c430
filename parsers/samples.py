"""Samples of metrics to rows, whatever container they came in: answers of an API, scrapes, panels.

Belongs here: which samples are a row, which repeat one, and parts of one quantity that are summed. Does not
belong here: reading a container (`formats/`), what a metric means (`parsers/metrics.py`).

A sample gives one row with one measured column. Series that are parts of one quantity
(`vllm:request_success_total` by `finished_reason`) are summed in the row of the first one, flagged
`summed_parts`, at the end of the source, because an answer lists series one after the other. The other parts,
and repeated samples (ranks, replicas, edges of overlapping exports), are counted as other records, so that
nothing is counted twice. A quantity one of whose parts has no value at an instant is unknown then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from parsers import metrics
from parsers.clock import flag_list
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parsers.format import Context

SUMMED = "summed_parts"
TIME_FROM_MTIME = "time_from_mtime"
"""The scrape has no time: that of the file's last change was taken."""
LABELS = {table: (*subject, "partition", "kind", "part") for table, subject in metrics.SUBJECT_LABELS.items()}
"""Columns that a reader makes of the labels of a series, by the table that it fills."""

_LABEL = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_][\w.:]*))\s*(?:=\s*"((?:[^"\\]|\\.)*)")?')
_ESCAPE = re.compile(r"\\(.)")

_SUBJECT = {
    ENGINE_SAMPLES.name: ("instance", "model"),
    DEVICE_SAMPLES.name: ("host", "device", "device_name"),
}
_HELD, _SEEN = "summed parts", "seen instants"


def table_of(names: Iterator[str]) -> str | None:
    """Name of the table that the first known metric among the names fills."""
    known = metrics.tables_by_name()
    return next((known[name] for name in names if name in known), None)


def labelled(frame: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Add `name` and the columns of `LABELS` that the text of each `series` says."""
    texts = frame["series"].drop_nulls().unique().to_list()
    columns = pl.DataFrame(
        [{"series": text, **_label_columns(series_labels(text), table.name)} for text in texts],
        schema=dict.fromkeys(("series", "name", *LABELS[table.name]), pl.String),
    )
    known = frame.drop("name", strict=False).join(columns, on="series", how="left", maintain_order="left")
    if table is not ENGINE_SAMPLES:
        return known
    return known.with_columns(
        pl.coalesce("server", pl.lit(_named_after_file(context), pl.String)).alias("server")
    )


@lru_cache(maxsize=65_536)
def series_labels(series: str) -> dict[str, str]:
    """Labels of a series as it is written: `name{label="value"}`; a text alone in the braces is its name."""
    name, _, inside = series.partition("{")
    labels = {"__name__": name.strip()} if name.strip() else {}
    for quoted, bare, value in (match.groups() for match in _LABEL.finditer(inside)):
        if value is None:
            labels.setdefault("__name__", quoted or bare)
        else:
            labels[quoted or bare] = _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
    return labels


def _label_columns(labels: dict[str, str], table: str) -> dict[str, str | None]:
    def first(names: tuple[str, ...]) -> str | None:
        return next((labels[name] for name in names if labels.get(name)), None)

    return {
        "name": labels.get("__name__"),
        **{column: first(names) for column, names in metrics.SUBJECT_LABELS[table].items()},
        "partition": first((metrics.PARTITION_LABEL,)),
        "kind": first(metrics.KIND_LABELS),
        "part": "\0".join(labels[name] for name in metrics.PART_LABELS if name in labels),
    }


def _named_after_file(context: Context) -> str | None:
    """A name for the engine whose series have no label that names it: the option `instance`, else the file's name.

    Dates and times in it are left out, so that the files of one engine are one engine's.
    """
    stem = re.split(r"[/!]", context.source)[-1].partition(".")[0]
    plain = re.sub(r"[-_T]?\d{4}-?\d\d-?\d\d[-_T]?[\dZ:-]*|[-_]?\d{10,13}", "", stem).strip("-_")
    return context.options.get("instance") or plain or None


def sample_rows(samples: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Rows of a chunk: one per sample, as `Format.map` gives them; `summed_rows` gives those of whole sums.

    Args:
        samples: source_line, name, value (text), at (null: it can't be read), the columns of `LABELS`, and
            `stamp_flag` where the time was assumed.
        table: ENGINE_SAMPLES or DEVICE_SAMPLES.
        context: of the source; keeps what later chunks need.

    """
    known = _identified(samples, table, context)
    counts = known.filter("usable", ~pl.col("summed"))
    fresh = context.carried.setdefault(_SEEN, _Seen()).first_lines(counts)
    held = known.filter("summed", pl.col("at").is_not_null(), pl.col("number").is_not_null())
    context.carried.setdefault(_HELD, _Held()).hold(held, table)
    lines = pl.col("source_line")
    is_row = lines.is_in(fresh.implode()) | pl.col("_reject").is_not_null()
    return _spread(known, table, pl.col("number")).with_columns(_other=~is_row)


def summed_rows(table: Table, context: Context) -> pl.DataFrame:
    """Rows of the quantities whose parts `sample_rows` held back, for `Format.finish`."""
    held = context.carried.get(_HELD, _Held())
    if not held.parts:
        return table.empty()
    by = ["group", "at"]
    parts = pl.concat(held.parts).sort("usable", descending=True, maintain_order=True)
    sums = (
        parts.unique([*by, "part", "usable"], keep="first", maintain_order=True)
        .with_columns(
            total=pl.col("number").filter("usable").sum().over(by),
            series=pl.col("usable").sum().over(by),
            known=pl.col("usable").all().over(by),
        )
        .filter("known")
        .sort("source_line")
        .unique(by, keep="first", maintain_order=True)
        .join(pl.concat(held.groups).unique("group"), on="group", how="left", maintain_order="left")
        .with_columns(_reject=pl.lit(None, pl.String))
    )
    return _spread(sums, table, pl.col("total"), pl.col("series") > 1).with_columns(
        _other=pl.lit(value=False)
    )


def _identified(samples: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Add what is declared of the metric, whose sample it is (`group`), whether it counts, or its fault."""
    by_kind = pl.col("name").is_in(metrics.kinds_told_apart(table.name))
    kind = pl.when(by_kind).then(pl.col("kind").fill_null("")).otherwise(pl.lit(""))
    number = pl.col("value").str.strip_chars().cast(pl.Float64, strict=False)
    known = samples.with_columns(number=number, kind=kind).join(
        metrics.declared(table.name), on=["name", "kind"], how="left", maintain_order="left"
    )
    subject = _engine(context) if table is ENGINE_SAMPLES else _device(context)
    usable = pl.col("column").is_not_null() & pl.col("number").is_finite() & pl.col("at").is_not_null()
    if table is DEVICE_SAMPLES:
        of_partition = pl.col("partition").is_not_null() & ~pl.col("whole_device")
        blank = metrics.is_blank(pl.col("number"), pl.col("column"), pl.col("zero_is_blank"))
        usable = usable & ~blank & ~of_partition
    faults = _fault(table) if "_fault" not in known.columns else pl.coalesce("_fault", _fault(table))
    return (
        known.with_columns(**subject)
        .with_columns(_reject=pl.when(pl.col("column").is_not_null()).then(faults))
        .with_columns(
            usable=(usable & pl.col("_reject").is_null()).fill_null(value=False),
            summed=pl.col("summed").fill_null(value=False),
            group=pl.struct("metric", "column", *_SUBJECT[table.name]).hash(),
        )
    )


def _engine(context: Context) -> dict[str, pl.Expr]:
    server = pl.coalesce("server", pl.lit(context.options.get("instance"), pl.String))
    return {"instance": metrics.engine_instance(server, pl.col("engine"))}


def _device(context: Context) -> dict[str, pl.Expr]:
    numbered = pl.concat_str("domain", "ordinal", separator=" ", ignore_nulls=True)
    of_host = pl.col("domain").is_not_null()
    return {
        "host": pl.coalesce("host", pl.lit(context.options.get("instance"), pl.String)),
        "device": pl.when(of_host).then(numbered).otherwise("device"),
        # A name of its own, so that nobody takes the host's energy for an accelerator's.
        "device_name": pl.when(of_host).then("domain").otherwise("device_name"),
    }


def _fault(table: Table) -> pl.Expr:
    nameless = pl.col("device").is_null() if table is DEVICE_SAMPLES else pl.lit(value=False)
    return (
        pl.when(pl.col("number").is_null())
        .then(pl.lit("the sample's value is not a number"))
        .when(pl.col("at").is_null())
        .then(pl.lit("the sample's instant is not in unix seconds between 1970 and 2100"))
        .when(nameless)
        .then(pl.lit("the series has no label that names the device"))
    )


@dataclass
class _Held:
    """Parts of sums: what tells one sample from another, and apart from it what all samples of a group share."""

    parts: list[pl.DataFrame] = field(default_factory=list)
    groups: list[pl.DataFrame] = field(default_factory=list)

    def hold(self, held: pl.DataFrame, table: Table) -> None:
        """Keep the parts of a chunk."""
        if held.is_empty():
            return
        stamps = [name for name in ("stamp_flag",) if name in held.columns]
        self.parts.append(
            held.select("source_line", "group", "at", "number", "usable", *stamps, part=pl.col("part").hash())
        )
        shared = (*_SUBJECT[table.name], "column", "factor", "divisor", "meaning")
        self.groups.append(held.select("group", *shared).unique("group"))


@dataclass
class _Seen:
    """Instants of each group in earlier chunks, and the latest one of each."""

    instants: list[pl.DataFrame] = field(default_factory=list)
    latest: pl.DataFrame | None = None

    def first_lines(self, counts: pl.DataFrame) -> pl.Series:
        """Lines of the samples that are the first of their group and instant in the source."""
        first = counts.select("source_line", "group", "at").unique(["group", "at"], keep="first")
        if self.latest is None:
            self.latest = first.select("group", latest="at").clear()
        # Instants mostly go on from chunk to chunk; only where they go back is there something to compare.
        known = first.join(self.latest, on="group", how="left")
        goes_back = (pl.col("at") <= pl.col("latest")).fill_null(value=False)
        back = known.filter(goes_back)
        for earlier in self.instants:
            if not back.is_empty() and back["at"].min() <= earlier["at"].max():  # type: ignore[operator]
                back = back.join(earlier, on=["group", "at"], how="anti")
        fresh = pl.concat([known.filter(~goes_back), back])
        if not fresh.is_empty():
            self.instants.append(fresh.select("group", "at"))
            latest = pl.concat([self.latest, fresh.select("group", latest="at")])
            self.latest = latest.group_by("group").agg(pl.col("latest").max())
        return fresh["source_line"]


def _spread(known: pl.DataFrame, table: Table, value: pl.Expr, summed: pl.Expr | None = None) -> pl.DataFrame:
    """Each measured value in the column that it fills."""
    columns = sorted({metric.column for metric in metrics.METRICS[table.name]})
    measured = value * pl.col("factor") / pl.col("divisor")
    return known.select(
        "source_line",
        *_SUBJECT[table.name],
        "at",
        *(pl.when(pl.col("column") == name).then(measured).alias(name) for name in columns),
        _flags(known, table, summed).alias("flags"),
        "_reject",
    )


def _flags(known: pl.DataFrame, table: Table, summed: pl.Expr | None) -> pl.Expr:
    meanings = sorted({metric.flag for metric in metrics.METRICS[table.name] if metric.flag})
    flags = {meaning: pl.col("meaning") == meaning for meaning in meanings}
    if summed is not None:
        flags = {SUMMED: summed, **flags}
    if "stamp_flag" in known.columns:
        stamps = known["stamp_flag"].drop_nulls().unique(maintain_order=True).to_list()
        flags |= {stamp: pl.col("stamp_flag") == stamp for stamp in stamps}
    return flag_list(flags) if flags else pl.lit([], pl.List(pl.String))
