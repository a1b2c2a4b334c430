"""JSON of Scaphandre's exporter (`scaphandre json`): one object per tick with the power of the host's processors.

Belongs here: the host's power. Does not belong here: Scaphandre's metrics (`parsers/metrics.py`), the share of
single processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.fields import Fields, Read
from parsers.format import Format, Head
from parsers.json_heads import mostly
from parsers.metrics import contract_fault
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_MICROWATTS_PER_W = 1e6


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(
        head.objects,
        lambda item: (
            "consumers" in item
            and isinstance(item.get("host"), dict)
            and {"consumption", "timestamp"} <= item["host"].keys()
        ),
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    power = fields.number("host.consumption").needed("consumption")
    rows = fields.rows(
        at=fields.instant("host.timestamp").needed("timestamp"),
        host=pl.lit(context.options.get("instance"), pl.String),
        device=pl.lit("host"),
        device_name=pl.lit("host"),
        power_w=Read((power.value / _MICROWATTS_PER_W).round(6), power.fault),
        flags=pl.lit([], pl.List(pl.String)),
    )
    return rows.with_columns(_reject=pl.coalesce("_reject", contract_fault(DEVICE_SAMPLES, ["power_w"])))


FORMAT = Format(
    name="scaphandre_json",
    title="Scaphandre JSON",
    written_by="scaphandre json",
    target=DEVICE_SAMPLES,
    container="json_lines",
    recognised_by="JSON objects with consumers, and host of consumption and timestamp",
    recognise=_recognise,
    map=_map,
    structure={"host": {"consumption": "VARCHAR", "timestamp": "VARCHAR"}},
    traps=(
        "consumption is in microwatts: of the processors' packages and memory (RAPL), without accelerators.",
        "Processes and sockets are parts of the host's: not read.",
    ),
)
