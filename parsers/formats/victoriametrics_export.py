"""VictoriaMetrics' export (`/api/v1/export`): JSON lines, a series with all its raw samples in each.

Belongs here: the lists of values and instants (ms). Does not belong here: answers of Prometheus's API
(`prometheus_query_range.py`), what a metric means (`parsers/metrics.py`).

A record is one sample.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from parsers import metrics
from parsers.format import Format, Head
from parsers.formats.prometheus_query_range import SERIES, answer_rows, records_sql, table_of_series
from parsers.records import DEVICE_SAMPLES, ENGINE_SAMPLES, Table
from parsers.samples import summed_rows

_BEGINS = re.compile(SERIES)
_PAIRS = """CASE WHEN broken THEN [CAST(NULL AS VARCHAR[])] ELSE
    list_transform(
        list_zip("timestamps", "values"),
        lambda point: [CAST(TRY_CAST(point[1] AS DOUBLE) / 1000 AS VARCHAR), coalesce(point[2], 'NaN')]
    )
    END"""


def _recognise(head: Head, table: Table) -> bool:
    text = head.text.lstrip()
    is_export = _BEGINS.match(text) and re.search(r'"timestamps"\s*:\s*\[', text) and '"values"' in text
    return bool(is_export) and table_of_series(text) == table.name


def _declared(table: Table, **fields: Any) -> Format:
    return Format(
        target=table,
        container="json_document",
        written_by="VictoriaMetrics and vmselect: /api/v1/export",
        recognise=partial(_recognise, table=table),
        map=lambda frame, context: answer_rows(frame, table, context),
        finish=partial(summed_rows, table),
        structure={"metric": "MAP(VARCHAR, VARCHAR)", "values": ["VARCHAR"], "timestamps": ["VARCHAR"]},
        elements=SERIES,
        records=records_sql(table, _PAIRS),
        **fields,
    )


_TRAPS = (
    "Samples are as they were scraped: nothing is resampled; with deduplication off, replicas repeat them.",
    "Counters restart at zero with the process; what came after the last scrape is lost.",
    "A file is read for engines or for accelerators, whichever its first known metric belongs to.",
)
ENGINES = _declared(
    ENGINE_SAMPLES,
    name="victoriametrics_export",
    title="VictoriaMetrics export: inference engines",
    recognised_by="JSON lines with metric, values and timestamps, not of accelerators",
    traps=(*_TRAPS, *metrics.ENGINE_TRAPS),
)
DEVICES = _declared(
    DEVICE_SAMPLES,
    name="victoriametrics_export_devices",
    title="VictoriaMetrics export: accelerators",
    recognised_by="JSON lines with metric, values and timestamps, of accelerators first",
    traps=(*_TRAPS, *metrics.DEVICE_TRAPS),
)
