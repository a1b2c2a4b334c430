"""Power of a host as IPMI tells it: `ipmitool dcmi power reading`, `ipmi-dcmi`, and sensors in watts.

Belongs here: their lines, and which of many sensors is the host. Does not belong here: the IPMI exporter
(Prometheus), Redfish (`redfish_power.py`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

from parsers import meters
from parsers.format import Format, Head
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_DCMI = r"^\s*(?:Instantaneous power reading|Current Power)\s*: *(\d+(?:\.\d+)?) *Watts"
_SENSOR = r"^\s*([\w./ #()-]+?)\s*\|(?:.*\|)?\s*(\d+(?:\.\d+)?)\s*\|?\s*Watts\b"
_TOTAL = (
    r"(?i)^(?:pwr consumption|total[_ ]?p(?:ower|wr)|sys(?:tem)?[_ ]?(?:total[_ ]?)?(?:power|pwr|level)|"
    r"power meter|power|node power|pw consumption|chassis power)"
)
_SUPPLY = r"(?i)^(?:ps|psu)[_ ]?\d*.*(?:in|input|power|pwr)"
_IPMI_STAMP = r"^\s*(?:IPMI timestamp|Time Stamp)\s*:"


def _recognise(head: Head) -> bool:
    lines = (meters.bare(line) for line in head.lines[:300] if "Watts" in line)
    return any(re.search(_DCMI, line) or re.search(_SENSOR, line) for line in lines)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    line = meters.plain(pl.col("line"))
    rest = meters.without_prefix(line)
    sensor = rest.str.extract(_SENSOR, 1)
    dcmi = rest.str.extract(_DCMI)
    found = frame.select(
        "source_line",
        # The BMC's own clock is often wrong, and comes after the reading.
        stamp=pl.when(~rest.str.contains(_IPMI_STAMP)).then(meters.stamp(line)),
        device=pl.coalesce(pl.when(dcmi.is_not_null()).then(pl.lit("dcmi")), sensor),
        power_w=meters.value(pl.coalesce(dcmi, rest.str.extract(_SENSOR, 2))),
    )
    return meters.keep(
        found.filter(pl.col("device").is_not_null() | pl.col("stamp").is_not_null()), frame, context
    )


def _finish(context: Context) -> pl.DataFrame:
    found = meters.kept(context)
    if found.is_empty():
        return found
    device = pl.col("device")
    rank = (
        pl.when(device == "dcmi").then(0).when(device.str.contains(_TOTAL)).then(1)
        .when(device.str.contains(_SUPPLY)).then(2)
    )  # fmt: skip
    ranked = found.with_columns(rank=rank)
    # One boundary only: the host's total, else its supplies; fans, CPUs and GPUs are parts of either.
    chosen = ranked.filter(pl.col("device").is_null() | (pl.col("rank") == pl.col("rank").min()))
    samples = chosen.select(
        "source_line",
        "stamp",
        "device",
        "power_w",
        fault=pl.lit(None, pl.String),
        flags=pl.struct(pl.lit(value=True).alias(meters.WHOLE_HOST)),
    )
    return meters.mixed(samples, context)


FORMAT = Format(
    name="ipmi_power",
    title="IPMI power readings",
    written_by="ipmitool dcmi power reading, ipmitool sdr or sensor, ipmi-dcmi; in a loop",
    target=DEVICE_SAMPLES,
    container="text",
    recognised_by="Instantaneous power reading or Current Power in Watts, or a sensor's line in Watts",
    recognise=_recognise,
    map=_map,
    finish=_finish,
    traps=(
        (
            "The power is that of the host, its accelerators included (flagged power_of_host): not to be added to "
            "theirs."
        ),
        (
            "One boundary is taken per file: the DCMI reading, else a sensor of the whole system, else the inputs of "
            "the power supplies (one device each); sensors of parts are not taken."
        ),
        (
            "When a reading was made is told by the wrapper: an instant before the line, or a line of date; else by "
            "the options origin and interval_s, or the file's last change (flagged). The BMC's own stamp is not used."
        ),
        "A 0 is what the BMC says: some state 0 W for a reading that they do not support.",
    ),
)
