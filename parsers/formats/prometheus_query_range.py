"""Prometheus HTTP API answers (`/api/v1/query_range`, `/query`): samples of inference engines.

Belongs here: reading such answers, whatever their samples are of, and the format for engines. Does not
belong here: the format for accelerators (`prometheus_query_range_devices.py`), what a metric means
(`parsers/metrics.py`), which samples count (`parsers/samples.py`).

A record is one [instant, value] pair.
"""

from __future__ import annotations

import re

import polars as pl

from parsers import metrics
from parsers.clock import unix_seconds
from parsers.format import Context, Format, Head
from parsers.readers import literal
from parsers.records import ENGINE_SAMPLES, Table
from parsers.samples import sample_rows, summed_rows, table_of

STRUCTURE = {"metric": "MAP(VARCHAR, VARCHAR)", "value": ["VARCHAR"], "values": [["VARCHAR"]]}
"""A series. A matrix has `values`, a vector `value`; native histograms (`histograms`) hold no plain sample."""
SERIES = r'\{\s*"metric"\s*:\s*\{'
"""How a series begins; inside of strings quotes are escaped, and labels are no objects."""

TRAPS = (
    "Values are resampled with five minutes of look-back: a dead target repeats its last value.",
    "An answer holds at most 11,000 points per series; a week comes in pieces whose edges repeat.",
    "Answers of expressions (rate, histogram_quantile) have no metric name: counted, not used.",
    "Counters restart at zero with the process; what came after the last scrape is lost.",
    "A file is read for engines or for accelerators, whichever its first known metric belongs to.",
)

_ENVELOPE = re.compile(r'"resultType"\s*:\s*"(?:matrix|vector)"')
_SERIES_FIRST = re.compile(rf'"result"\s*:\s*\[\s*{SERIES}')
_NO_SERIES = re.compile(r'"result"\s*:\s*\[\s*\]')
_NAME = re.compile(r'"__name__"\s*:\s*"([^"\\]+)"')


def table_of_series(text: str) -> str:
    """Name of the table of the first metric that is known in JSON series; without any, that of engines."""
    return table_of(found[1] for found in _NAME.finditer(text)) or ENGINE_SAMPLES.name


def answered_table(head: Head) -> str | None:
    """Name of the table that an API answer fills; None if the head is no such answer.

    It is the table of the first metric that is known; an answer without any is an engine's (its samples are
    counted as other records: better than refusing a folder of exports for one unnamed query).
    """
    text = head.text.lstrip()
    is_empty = _ENVELOPE.search(text) and _NO_SERIES.search(text)
    if not text.startswith("{") or not (is_empty or _SERIES_FIRST.search(text)):
        return None
    return table_of_series(text)


_PAIRS = 'coalesce("values", CASE WHEN broken OR "value" IS NOT NULL THEN ["value"] END)'


def records_sql(table: Table, pairs: str = _PAIRS) -> str:
    """SQL over series (`document`) that gives one row per sample, in order, with the columns of `LABELS`.

    `pairs` is the expression for a series' list of [instant, value].
    """
    subject = metrics.SUBJECT_LABELS[table.name] | {
        "partition": (metrics.PARTITION_LABEL,),
        "kind": metrics.KIND_LABELS,
    }
    taken = ", ".join(f'{_first_set(labels)} AS "{column}"' for column, labels in subject.items())
    parts = ", ".join(_label(label) for label in metrics.PART_LABELS)
    return f"""
SELECT * EXCLUDE (sample), sample[1] AS instant, sample[2] AS value
FROM (
  SELECT {_label("__name__")} AS name, {taken}, concat_ws(chr(0), {parts}) AS part,
         metric IS NULL AS broken,
         unnest({pairs}) AS sample
  FROM document
)"""


def _label(name: str) -> str:
    return f"metric[{literal(name)}]"


def _first_set(labels: tuple[str, ...]) -> str:
    return "coalesce(" + ", ".join(f"nullif({_label(label)}, '')" for label in labels) + ")"


def answer_rows(frame: pl.DataFrame, table: Table, context: Context) -> pl.DataFrame:
    """Rows of a chunk of samples."""
    rows = sample_rows(frame.with_columns(at=unix_seconds(pl.col("instant"))), table, context)
    broken = frame["broken"]
    damaged = pl.lit("the series is damaged JSON")
    return rows.with_columns(
        _reject=pl.when(broken).then(damaged).otherwise("_reject"), _other=pl.col("_other") & ~broken
    )


FORMAT = Format(
    name="prometheus_query_range",
    title="Prometheus query_range JSON: inference engines",
    written_by="Prometheus, Thanos, Mimir, VictoriaMetrics over vLLM, SGLang, TGI, llama.cpp, TensorRT-LLM",
    target=ENGINE_SAMPLES,
    container="json_document",
    recognised_by='a JSON object with "result": [{"metric": {...}}], not of accelerators',
    recognise=lambda head: answered_table(head) == ENGINE_SAMPLES.name,
    map=lambda frame, context: answer_rows(frame, ENGINE_SAMPLES, context),
    finish=lambda context: summed_rows(ENGINE_SAMPLES, context),
    structure=STRUCTURE,
    elements=SERIES,
    records=records_sql(ENGINE_SAMPLES),
    traps=(*TRAPS, *metrics.ENGINE_TRAPS),
)
