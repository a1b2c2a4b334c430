"""Prometheus HTTP API answers with samples of accelerators and power meters.

Belongs here: the declaration. Does not belong here: reading answers, which is the same for engines
(`prometheus_query_range.py`), what a metric means (`parsers/metrics.py`).
"""

from __future__ import annotations

from parsers import metrics
from parsers.format import Format
from parsers.formats.prometheus_query_range import (
    SERIES,
    STRUCTURE,
    TRAPS,
    answer_rows,
    answered_table,
    records_sql,
)
from parsers.records import DEVICE_SAMPLES
from parsers.samples import summed_rows

FORMAT = Format(
    name="prometheus_query_range_devices",
    title="Prometheus query_range JSON: accelerators",
    written_by="Prometheus, Thanos, Mimir, VictoriaMetrics over dcgm-exporter, npu-exporter, RAPL or IPMI meters",
    target=DEVICE_SAMPLES,
    container="json_document",
    recognised_by='a JSON object with "result": [{"metric": {...}}], of accelerators first',
    recognise=lambda head: answered_table(head) == DEVICE_SAMPLES.name,
    map=lambda frame, context: answer_rows(frame, DEVICE_SAMPLES, context),
    finish=lambda context: summed_rows(DEVICE_SAMPLES, context),
    structure=STRUCTURE,
    elements=SERIES,
    records=records_sql(DEVICE_SAMPLES),
    traps=(*TRAPS, *metrics.DEVICE_TRAPS),
)
