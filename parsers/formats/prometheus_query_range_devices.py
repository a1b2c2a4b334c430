"""Prometheus HTTP API answers with samples of accelerators (dcgm-exporter, Ascend npu-exporter).

Belongs here: which labels name the device and its host. Does not belong here: reading answers, which is the
same for engines (`prometheus_query_range.py`), what a metric means (`parsers/metrics.py`).
"""

from __future__ import annotations

import polars as pl

from parsers import metrics
from parsers.format import Context, Format
from parsers.formats.prometheus_query_range import STRUCTURE, TRAPS, answered_table, records_sql, sample_rows
from parsers.records import DEVICE_SAMPLES

_SUBJECT = {
    "host": metrics.HOST_LABELS,
    "device": metrics.DEVICE_LABELS,
    "device_name": metrics.DEVICE_NAME_LABELS,
}


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    del context  # samples carry their instant, and labels say whose they are
    return sample_rows(frame, DEVICE_SAMPLES, {column: pl.col(column) for column in _SUBJECT}, "device")


FORMAT = Format(
    name="prometheus_query_range_devices",
    title="Prometheus query_range JSON: accelerators",
    written_by="Prometheus, Thanos, Mimir, VictoriaMetrics over dcgm-exporter or npu-exporter",
    target=DEVICE_SAMPLES,
    container="json_document",
    recognised_by='a JSON object with "resultType": "matrix" or "vector", of accelerators first',
    recognise=lambda head: answered_table(head) == DEVICE_SAMPLES.name,
    map=_map,
    structure=STRUCTURE,
    records=records_sql(_SUBJECT),
    traps=(
        *TRAPS,
        "MIG and time slicing repeat the device's power per partition or pod: it is counted once.",
        "dcgm-exporter collects every 30 s by default; a faster scrape repeats values.",
        "Utilisation is the share of time that any kernel ran: near 1 in memory-bound decode, no MFU.",
        "Energy is in mJ since the driver was loaded. Blank values of DCGM and npu-exporter are not samples.",
    ),
)
