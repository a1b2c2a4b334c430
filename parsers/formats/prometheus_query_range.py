"""Prometheus HTTP API answers (`/api/v1/query_range`, `/query`): samples of inference engines.

Belongs here: reading such answers, whatever their samples are of, and the format for engines. Does not
belong here: the format for accelerators (`prometheus_query_range_devices.py`), what a metric means
(`parsers/metrics.py`).

A record is one [instant, value] pair; it gives one row with one measured column. Series that are parts of one
quantity (`vllm:request_success_total` by `finished_reason`) are summed in the row of the first one, flagged
`summed_parts`; the other parts, and repeated samples (ranks, replicas, edges of overlapping exports), are
counted as other records, so that `requests_total` is one counter per instance and nothing is counted twice.
A quantity one of whose parts has no value at an instant is unknown then.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import metrics
from parsers.clock import flag_list, unix_seconds
from parsers.format import Context, Format, Head
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, Table

STRUCTURE = {
    "status": "VARCHAR",
    "data": {
        "resultType": "VARCHAR",
        "result": [{"metric": "MAP(VARCHAR, VARCHAR)", "value": ["VARCHAR"], "values": [["VARCHAR"]]}],
    },
}
"""A matrix has `values`, a vector `value`; native histograms (`histograms`) hold no plain sample."""

TRAPS = (
    "Values are resampled with five minutes of look-back: a dead target repeats its last value.",
    "An answer holds at most 11,000 points per series; a week comes in pieces whose edges repeat.",
    "Answers of expressions (rate, histogram_quantile) have no metric name: counted, not used.",
    "Counters restart at zero with the process; what came after the last scrape is lost.",
    "A file is read for engines or for accelerators, whichever its first known metric belongs to.",
)

_ENVELOPE = re.compile(r'"resultType"\s*:\s*"(?:matrix|vector)"')
_RESULT = re.compile(r'"result"\s*:\s*\[')
_NAME = re.compile(r'"__name__"\s*:\s*"([^"\\]+)"')


def answered_table(head: Head) -> str | None:
    """Name of the table that an API answer fills; None if the head is no such answer.

    It is the table of the first metric that is known; an answer without any is an engine's (its samples are
    counted as other records: better than refusing a folder of exports for one unnamed query).
    """
    text = head.text.lstrip()
    if not (text.startswith("{") and _ENVELOPE.search(text) and _RESULT.search(text)):
        return None
    known = {
        name: table
        for table, declared in metrics.METRICS.items()
        for metric in declared
        for name in (metric.name, metric.name.removesuffix("_total"))
    }
    return next((known[name] for name in _NAME.findall(text) if name in known), ENGINE_SAMPLES.name)


def records_sql(subject: dict[str, tuple[str, ...]], parts: tuple[str, ...] = ()) -> str:
    """SQL over `document` that gives one row per sample, in document order.

    Columns: name, instant, value (text); the columns of `subject`; `partition` (label of a part of a device);
    `total` and `series`: sum and number of the parts of the quantity at that instant; `place`: 1 where the
    sample stands for the quantity. Summing is done here, over the whole document, because what follows sees
    it in chunks.

    Args:
        subject: columns that say whose sample it is, each from the first of its labels that is set.
        parts: labels whose series are parts of one quantity.

    """
    taken = ", ".join(f'{_first_set(labels)} AS "{column}"' for column, labels in subject.items())
    columns = ", ".join(f'"{column}"' for column in subject)
    part = ", ".join(_label(label) for label in parts) or "NULL"
    whole = f"name, round(1e6 * try_cast(instant AS DOUBLE)), {columns}"
    order = "ORDER BY partition IS NOT NULL, document_no, series_no, sample_no"
    return f"""
SELECT name, instant, value, {columns}, partition,
       sum(number) FILTER (copy = 1 AND usable) OVER (PARTITION BY {whole}) AS total,
       count(*) FILTER (copy = 1 AND usable) OVER (PARTITION BY {whole}) AS series,
       count(*) FILTER (part <> '' AND NOT usable) OVER (PARTITION BY {whole}) AS unknown_parts,
       row_number() OVER (PARTITION BY {whole}, usable {order}) AS place
FROM (
  SELECT *, row_number() OVER (PARTITION BY {whole}, part, usable {order}) AS copy
  FROM (
    SELECT document_no, series_no, sample_no, item.metric['__name__'] AS name, {taken},
           {_first_set((metrics.PARTITION_LABEL,))} AS partition, concat_ws(chr(0), {part}) AS part,
           samples[sample_no][1] AS instant, samples[sample_no][2] AS value,
           try_cast(samples[sample_no][2] AS DOUBLE) AS number, coalesce(isfinite(number), false) AS usable
    FROM (
      SELECT document_no, series_no, item, coalesce(item."values", [item."value"]) AS samples,
             unnest(range(1, len(samples) + 1)) AS sample_no
      FROM (
        SELECT document_no, unnest(range(1, len(series) + 1)) AS series_no, unnest(series) AS item
        FROM (SELECT row_number() OVER () AS document_no, data.result AS series FROM document)
      )
      WHERE item."values" IS NOT NULL OR item."value" IS NOT NULL
    )
  )
)
ORDER BY document_no, series_no, sample_no"""


def _label(name: str) -> str:
    return f"item.metric['{name}']"


def _first_set(labels: tuple[str, ...]) -> str:
    return "coalesce(" + ", ".join(f"nullif({_label(label)}, '')" for label in labels) + ")"


def sample_rows(
    frame: pl.DataFrame, table: Table, subject: dict[str, pl.Expr], needed: str | None
) -> pl.DataFrame:
    """One row per sample of `records_sql`: subject, `at`, the measured column, flags, `_reject`, `_other`.

    Args:
        frame: records of `records_sql`.
        table: the table whose metrics are taken.
        subject: columns of `table` that say whose sample it is, from the subject columns of the records.
        needed: column of `subject` without which a sample is rejected.

    """
    known = frame.with_columns(metrics.unify(pl.col("name"), table).alias("name")).join(
        metrics.declared(table), on="name", how="left", maintain_order="left"
    )
    number = pl.col("value").cast(pl.Float64, strict=False)
    sampled = known.with_columns(number=number, at=unix_seconds(pl.col("instant")), **subject)
    columns = sorted({metric.column for metric in metrics.METRICS[table.name]})
    measured = pl.col("total") * pl.col("factor") / pl.col("divisor")
    spread = sampled.with_columns(
        *(pl.when(pl.col("column") == name).then(measured).alias(name) for name in columns),
        _flags(table).alias("flags"),
        _is_other(table).alias("_other"),
    )
    fault = pl.coalesce(_reason(needed), metrics.contract_fault(table, columns))
    return spread.with_columns(_reject=pl.when(~pl.col("_other")).then(fault)).select(
        "source_line", *subject, "at", *columns, "flags", "_reject", "_other"
    )


def _is_other(table: Table) -> pl.Expr:
    """Unknown metric, no value (NaN, infinite, blank), a partition's, or not for a row of its own."""
    number = pl.col("number")
    stands_for_nothing = (pl.col("place") > 1) | (pl.col("unknown_parts") > 0)
    other = pl.col("column").is_null() | ~number.is_finite() | (stands_for_nothing & number.is_not_null())
    if table.name == DEVICE_SAMPLES.name:
        of_partition = pl.col("partition").is_not_null() & ~pl.col("whole_device")
        other = other | metrics.is_blank(number, pl.col("column")) | of_partition
    return other.fill_null(value=False)


def _reason(needed: str | None) -> pl.Expr:
    nameless = pl.lit(value=False) if needed is None else pl.col(needed).is_null()
    return (
        pl.when(pl.col("number").is_null())
        .then(pl.lit("the sample's value is not a number"))
        .when(pl.col("at").is_null())
        .then(pl.lit("the sample's instant is not in unix seconds between 1970 and 2100"))
        .when(nameless)
        .then(pl.lit(f"the series has no label that names the {needed}"))
    )


def _flags(table: Table) -> pl.Expr:
    meanings = sorted({metric.flag for metric in metrics.METRICS[table.name] if metric.flag})
    named = {meaning: pl.col("meaning") == meaning for meaning in meanings}
    return flag_list({"summed_parts": pl.col("series") > 1, **named})


_SUBJECT = {
    "server": metrics.INSTANCE_LABELS,
    "engine": metrics.ENGINE_LABELS,
    "model": metrics.MODEL_LABELS,
}
_PARTS = tuple(sorted({label for metric in metrics.ENGINE_METRICS for label in metric.parts}))


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    server = pl.coalesce("server", pl.lit(context.options.get("instance"), pl.String))
    subject = {"instance": metrics.engine_instance(server, pl.col("engine")), "model": pl.col("model")}
    return sample_rows(frame, ENGINE_SAMPLES, subject, None)


FORMAT = Format(
    name="prometheus_query_range",
    title="Prometheus query_range JSON: inference engines",
    written_by="Prometheus, Thanos, Mimir, VictoriaMetrics over vLLM, SGLang, TGI or llama.cpp",
    target=ENGINE_SAMPLES,
    container="json_document",
    recognised_by='a JSON object with "resultType": "matrix" or "vector", not of accelerators',
    recognise=lambda head: answered_table(head) == ENGINE_SAMPLES.name,
    map=_map,
    structure=STRUCTURE,
    records=records_sql(_SUBJECT, _PARTS),
    traps=(
        *TRAPS,
        "vllm:prompt_tokens_total includes cached tokens; llamacpp's excludes them (flagged).",
        "SGLang counts tokens when a request ends (flagged): long generations shift by minutes.",
    ),
)
