"""JSON of `macmon pipe` (Apple silicon): one object per sample.

Belongs here: its fields. Does not belong here: `powermetrics` (`powermetrics.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import clock
from parsers.fields import Fields
from parsers.format import Format, Head
from parsers.json_heads import mostly
from parsers.meters import WHOLE_HOST
from parsers.metrics import contract_fault
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_MEASURED = ("power_w", "utilisation_ratio", "memory_used_bytes", "memory_total_bytes", "temperature_c")


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(
        head.objects, lambda item: {"all_power", "gpu_power", "ane_power", "timestamp"} <= item.keys()
    )


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    at = fields.instant("timestamp").needed("timestamp")
    chip, machine = fields.number("all_power").value, fields.number("sys_power").value
    # Machines that can't measure the whole state 0.
    whole = pl.when(machine > 0).then(machine)
    pair = fields.raw("gpu_usage").str.json_path_match("$[1]").cast(pl.Float64, strict=False)
    rows = fields.rows(
        at=at,
        host=pl.lit(context.options.get("instance"), pl.String),
        device=pl.lit("soc"),
        device_name=fields.text("soc.chip_name"),
        power_w=pl.coalesce(whole, chip),
        utilisation_ratio=pl.coalesce(fields.number("gpu_active_ratio").value, pair),
        memory_used_bytes=fields.number("memory.ram_usage"),
        memory_total_bytes=fields.number("memory.ram_total"),
        temperature_c=fields.number("temp.gpu_temp_avg"),
        flags=clock.flag_list({WHOLE_HOST: whole.is_not_null()}),
    )
    return rows.with_columns(_reject=pl.coalesce("_reject", contract_fault(DEVICE_SAMPLES, _MEASURED)))


FORMAT = Format(
    name="macmon",
    title="macmon JSON (macOS)",
    written_by="macmon pipe; GET /json of macmon serve",
    target=DEVICE_SAMPLES,
    container="json_lines",
    recognised_by="JSON objects with timestamp, all_power, gpu_power and ane_power",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(("timestamp", "all_power", "sys_power", "gpu_usage", "gpu_active_ratio"), "VARCHAR"),
        "memory": {"ram_usage": "VARCHAR", "ram_total": "VARCHAR"},
        "temp": {"gpu_temp_avg": "VARCHAR"},
        "soc": {"chip_name": "VARCHAR"},
    },
    traps=(
        "sys_power is the whole machine's (flagged) and is taken where it is measured, else all_power, the chip's.",
        "gpu_usage is weighted with the clock; newer versions state the share of time as gpu_active_ratio.",
        "Memory is the machine's: chip and GPU share it.",
    ),
)
