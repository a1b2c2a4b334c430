"""JSON of `amd-smi metric` and of `rocm-smi`, of one call or of many, one after another.

Belongs here: how their JSON looks: a list of GPUs, the same inside of `gpu_data`, or an object with a key per
card. Does not belong here: what the values mean (`parsers/amd_smi.py`), CSV (`amd_smi_csv.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import amd_smi, meters
from parsers.fields import Fields
from parsers.format import Format, Head
from parsers.json_heads import mostly
from parsers.readers import quoted
from parsers.records import DEVICE_SAMPLES
from parsers.twins import pages_twin

if TYPE_CHECKING:
    from parsers.format import Context

_CARDS = tuple(f"card{n}" for n in range(16))
_GROUPS = {
    "usage": ("gfx_activity", "umc_activity"),
    "power": ("socket_power", "average_socket_power", "current_socket_power", "socket_power_limit"),
    "temperature": ("hotspot", "edge"),
    "mem_usage": ("used_vram", "total_vram"),
    "energy": ("total_energy_consumption",),
}
_OF_CARD = dict.fromkeys((n for n in amd_smi.NAMES if n not in {"device", "gpu", "uuid"}), "VARCHAR")


def _is_gpu(record: dict[str, Any]) -> bool:
    return "gpu" in record and (
        isinstance(record.get("power"), dict) or isinstance(record.get("usage"), dict)
    )


def _is_cards(record: dict[str, Any]) -> bool:
    cards = [value for key, value in record.items() if key in _CARDS and isinstance(value, dict)]
    return any("Power (W)" in name or name == "GPU use (%)" for card in cards for name in card)


def _recognise(head: Head) -> bool:
    return bool(head.objects) and mostly(head.objects, _is_gpu)


def _recognise_document(head: Head) -> bool:
    lists = [record.get("gpu_data") for record in head.objects]
    gpus = [gpu for found in lists if isinstance(found, list) for gpu in found if isinstance(gpu, dict)]
    return bool(gpus) and mostly(gpus, _is_gpu)


def _recognise_rocm(head: Head) -> bool:
    return head.text.lstrip()[:1] == "{" and bool(head.objects) and mostly(head.objects, _is_cards)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    of_group = {name: f"{group}.{name}" for group, names in _GROUPS.items() for name in names}

    def cell(name: str) -> pl.Expr:
        """A value, or an object of value and unit; `N/A` stands for either."""
        text = fields.text(of_group.get(name, name), f"card.{name}")
        return meters.valued(pl.coalesce(text.str.json_path_match("$.value"), text.str.strip_chars('"')))

    rows = fields.frame.select(
        "source_line", stamp=meters.stamp(fields.text("timestamp")), **{n: cell(n) for n in amd_smi.NAMES}
    )
    return meters.samples(
        rows.select("source_line", "stamp", **amd_smi.sample(pl.lit(value=True))), frame, context
    )


FORMAT = Format(
    name="amd_smi_json",
    title="amd-smi metric JSON",
    written_by="amd-smi metric --json",
    target=DEVICE_SAMPLES,
    container="json_lines",
    recognised_by="JSON objects with gpu, and an object power or usage",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    structure={
        "gpu": "VARCHAR",
        "uuid": "VARCHAR",
        "timestamp": "VARCHAR",
        **{group: dict.fromkeys(names, "JSON") for group, names in _GROUPS.items()},
    },
    traps=(
        (
            "A call states no time unless timestamp is there: the options origin and interval_s tell, else the "
            "file's last change (flagged)."
        ),
        "A value is an object with a unit, or the text N/A: unknown.",
        "Energy is in J, memory in MB of 2^20 bytes; GPUs are known by index.",
    ),
)

DOCUMENT = pages_twin(
    FORMAT,
    name="amd_smi_json_document",
    title="amd-smi metric JSON, gpu_data",
    written_by="amd-smi metric --json (ROCm 7)",
    recognised_by="JSON objects whose list gpu_data holds GPUs with power or usage",
    recognise=_recognise_document,
    at=("gpu_data",),
)

ROCM = Format(
    name="rocm_smi_json",
    title="rocm-smi JSON",
    written_by="rocm-smi --showpower --showuse ... --json",
    target=DEVICE_SAMPLES,
    container="json_document",
    recognised_by="JSON objects with card0 to card15, which state a power in W or a use",
    recognise=_recognise_rocm,
    map=_map,
    finish=meters.finish,
    structure={"timestamp": "VARCHAR", **dict.fromkeys(_CARDS, _OF_CARD)},
    records=f"""
SELECT timestamp, device, card FROM (
    WITH documents AS (SELECT *, row_number() OVER () AS place FROM document)
    {
        " UNION ALL ".join(
            f"SELECT place, {n} AS n, timestamp, '{card}' AS device, {quoted(card)} AS card FROM documents "
            f"WHERE {quoted(card)} IS NOT NULL"
            for n, card in enumerate(_CARDS)
        )
    }
) ORDER BY place, n
""",
    traps=(
        (
            "All values are text; the key of the power is Average Graphics Package Power or, in newer versions, "
            "Current Socket Graphics Package Power."
        ),
        (
            "A call states no time: a key timestamp that the loop adds, or the options origin and interval_s tell, "
            "else the file's last change (flagged)."
        ),
        "Partitions other than the first report 0 W or N/A for the socket they share.",
        "The key system (driver, version) is no device.",
    ),
)
