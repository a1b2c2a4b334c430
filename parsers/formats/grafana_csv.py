"""Panels of Grafana exported as CSV: a column per series, or a line per sample with its labels in columns.

Belongs here: the columns of such exports, and cells as Grafana shows them. Does not belong here: what a metric
means (`parsers/metrics.py`), which samples count (`parsers/samples.py`).

Series are known by their metric's name, as the panel's legend has it unless somebody wrote another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import polars as pl

from parsers import metrics, values
from parsers.clock import LocalClock
from parsers.format import Context, Format, Head, TokenSemantics
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, Table
from parsers.samples import labelled, sample_rows, series_labels, summed_rows, table_of

_TIMES = ("time", "timestamp")
_METRIC = ("__name__", "Metric", "metric")
_VALUE = r"^Value(?: #[A-Z]+)?$"
_SHOWN = r"^(-?\d+(?:\.\d+)?)\s*(mW|W|kW|J|kJ|MJ|%|°C|C)$"
_UNITS = {"mW": 1e-3, "W": 1.0, "kW": 1e3, "J": 1.0, "kJ": 1e3, "MJ": 1e6, "%": 1e-2, "°C": 1.0, "C": 1.0}
_PERCENT = 100.0

TRAPS = (
    "A panel thins its samples out to the width of the screen: peaks are flattened, counters keep their sums.",
    "Formatted exports round and use the dashboard's time zone (option timezone): choose raw data.",
    "A legend of the user's own hides which metric and instance a series is; such columns are not used.",
    "A file is read for engines or for devices, whichever its first known metric belongs to.",
)


def _named(text: str) -> str:
    return series_labels(text).get("__name__", "")


def _is_wide(head: Head, table: Table) -> bool:
    first, *series = head.csv_header or ("",)
    return first.lower() in _TIMES and table_of(map(_named, series)) == table.name


def _is_long(head: Head, table: Table) -> bool:
    header = head.csv_header
    column = next((header.index(name) for name in _METRIC if name in header), None)
    if (
        column is None
        or header[0].lower() not in _TIMES
        or not any(name.startswith("Value") for name in header)
    ):
        return False
    return table_of(map(_named, _column(head, column))) == table.name


def _column(head: Head, place: int) -> Iterator[str]:
    from parsers.csv_cells import cells, sniff_delimiter

    delimiter = sniff_delimiter(head.lines[0])
    rows = (cells(line, delimiter) for line in head.lines[1:200])
    return (row[place] for row in rows if len(row) > place)


def _map_wide(frame: pl.DataFrame, context: Context, table: Table) -> pl.DataFrame:
    samples = frame.select("source_line", "value", time=pl.col("first"), series=pl.col("header"))
    return _rows(labelled(samples, table, context), table, context)


def _map_long(frame: pl.DataFrame, context: Context, table: Table) -> pl.DataFrame:
    time, *others = [name for name in frame.columns if name != "source_line"]
    metric = next((name for name in _METRIC if name in others), None)
    worth = pl.coalesce(
        [
            *(values.present(pl.col(name)) for name in frame.select(pl.col(_VALUE)).columns),
            pl.lit(None, pl.String),
        ]
    )
    # The labels that have columns of their own, as a series is written.
    labels = [name for name in others if name != metric and not name.startswith("Value")]
    written = pl.concat_str(
        [
            pl.format('{}="{}"', pl.lit(name), pl.col(name).str.replace_all(r'(["\\])', r"\$1"))
            for name in labels
        ]
        or [pl.lit("")],
        separator=",",
        ignore_nulls=True,
    )
    name = pl.lit("") if metric is None else pl.col(metric).fill_null("")
    series = (
        pl.when(name.str.contains("{", literal=True))
        .then(name)
        .otherwise(pl.concat_str(name, pl.lit("{"), written, pl.lit("}")))
    )
    samples = frame.select("source_line", value=worth, time=pl.col(time), series=series)
    return _rows(labelled(samples, table, context), table, context)


def _rows(samples: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    clock = LocalClock.of(context)
    time = values.instant(pl.col("time"), "Time", zone=clock.zone, zone_assumed=clock.assumed)
    timed = samples.with_columns(at=time.value).with_columns(
        stamp_flag=time.flag(pl.col("at")) if time.flag else pl.lit(None, pl.String),
        # Joined by time, a series without a sample at that instant has an empty cell.
        value=_plain(values.present(pl.col("value")), pl.col("name"), table).fill_null("NaN"),
        _fault=time.fault(pl.col("at")),
    )
    return sample_rows(timed, table, context)


def _plain(value: pl.Expr, name: pl.Expr, table: Table) -> pl.Expr:
    """The number of a cell as the exporter gave it, where Grafana shows it with a unit."""
    shown = value.str.extract_groups(_SHOWN).struct
    factor = shown.field("2").replace_strict(_UNITS, default=None, return_dtype=pl.Float64)
    in_percent = {
        name for m in metrics.METRICS[table.name] if m.divisor == _PERCENT for name in metrics.spellings(m)
    }
    keeps = (shown.field("2") == "%") & name.is_in(list(in_percent))
    number = shown.field("1").cast(pl.Float64) * pl.when(keeps).then(1.0).otherwise(factor)
    return pl.coalesce(number.round(9).cast(pl.String), value)


def _declared(table: Table, **fields: Any) -> Format:
    return Format(
        target=table,
        finish=partial(summed_rows, table),
        written_by="Grafana: panel inspector, download CSV",
        semantics=TokenSemantics(clock="local"),
        traps=TRAPS,
        **fields,
    )


WIDE, WIDE_DEVICES = (
    _declared(
        table,
        name=f"grafana_csv{suffix}",
        title=f"Grafana panel, CSV with a column per series: {what}",
        container="csv_cells",
        recognised_by=f"a CSV header of Time and series, {what} first",
        recognise=partial(_is_wide, table=table),
        map=partial(_map_wide, table=table),
    )
    for table, suffix, what in ((ENGINE_SAMPLES, "", "engines"), (DEVICE_SAMPLES, "_devices", "devices"))
)
LONG, LONG_DEVICES = (
    _declared(
        table,
        name=f"grafana_csv_long{suffix}",
        title=f"Grafana panel, CSV with a line per sample: {what}",
        container="csv",
        recognised_by=f"a CSV header of Time, __name__ or Metric, and Value, {what} first",
        recognise=partial(_is_long, table=table),
        map=partial(_map_long, table=table),
    )
    for table, suffix, what in ((ENGINE_SAMPLES, "", "engines"), (DEVICE_SAMPLES, "_devices", "devices"))
)
