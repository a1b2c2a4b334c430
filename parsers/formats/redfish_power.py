"""Power in Redfish resources, as a loop of requests to a BMC stores them: JSON documents one after another.

Belongs here: Power, EnvironmentMetrics, Sensor and MetricReport resources. Does not belong here: IPMI
(`ipmi_power.py`), collections that only link to resources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import meters
from parsers.fields import Fields
from parsers.format import Format, Head
from parsers.json_heads import mostly
from parsers.records import DEVICE_SAMPLES

if TYPE_CHECKING:
    from parsers.format import Context

_CLOCKS = ("timestamp", "time", "collected_at")
_READING = {"Reading": "VARCHAR"}
_CONTROL = {
    "MemberId": "VARCHAR",
    "PowerConsumedWatts": "VARCHAR",
    "PowerLimit": {"LimitInWatts": "VARCHAR"},
    "PowerMetrics": {"AverageConsumedWatts": "VARCHAR"},
}
_VALUE = dict.fromkeys(("MetricId", "MetricProperty", "MetricValue", "Timestamp"), "VARCHAR")
_RESOURCE = {
    **dict.fromkeys(
        (*_CLOCKS, "host", "Id", "@odata.id", "ReadingType", "ReadingUnits", "Reading"), "VARCHAR"
    ),
    "PowerWatts": _READING,
    "EnergykWh": _READING,
    "TemperatureCelsius": _READING,
    "PowerLimitWatts": {"SetPoint": "VARCHAR"},
}
_TAKEN = ", ".join(f'"{name}"' for name in _RESOURCE)
_RECORDS = f"""
SELECT * EXCLUDE (document_at, place) FROM (
    WITH documents AS (SELECT *, row_number() OVER () AS document_at FROM document)
    SELECT document_at, 0 AS place, {_TAKEN}, NULL AS value, PowerControl[1] AS control
    FROM documents WHERE MetricValues IS NULL
    UNION ALL
    SELECT document_at, generate_subscripts(MetricValues, 1) AS place, {_TAKEN}, unnest(MetricValues) AS value,
        NULL AS control
    FROM documents
)
ORDER BY document_at, place
"""
_HOST_METRIC = r"(?:PowerConsumedWatts|SystemInputPower|SystemPowerConsumption|PowerWatts(?:/Reading)?)$"
_PLACE = r"/(?:Chassis|Processors|Systems)/([^/#]+)(?:/(?:Power|EnvironmentMetrics)\b|/?#|/?$)"
_ACCELERATOR = r"(?i)(?:gpu|accelerator|(?:oam|npu)[_-]?\d)"


def _recognise(head: Head) -> bool:
    return head.text.lstrip()[:1] == "{" and bool(head.objects) and mostly(head.objects, _is_power)


def _is_power(resource: dict[str, Any]) -> bool:
    control, values = resource.get("PowerControl"), resource.get("MetricValues")
    if isinstance(control, list) and control and isinstance(control[0], dict):
        return "PowerConsumedWatts" in control[0]
    if isinstance(values, list) and values and isinstance(values[0], dict):
        return "MetricValue" in values[0]
    reads = isinstance(resource.get("PowerWatts"), dict) or resource.get("ReadingType") == "Power"
    return reads and ("@odata.id" in resource or "@odata.type" in resource)


def _map(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    fields = Fields(frame)
    metric, name = fields.text("value.MetricProperty", "value.MetricId"), fields.text("value.MetricId")
    is_power = (metric.str.contains(_HOST_METRIC) | name.str.contains(_HOST_METRIC)).fill_null(value=False)
    in_watts = (fields.text("ReadingType") == "Power") | (fields.text("ReadingUnits") == "W")
    watts = fields.number("control.PowerConsumedWatts", "PowerWatts.Reading")
    listed, sensed = fields.number("value.MetricValue"), fields.number("Reading")
    kilowatt_hours = fields.number("EnergykWh.Reading")
    celsius = fields.number("TemperatureCelsius.Reading")
    limit = fields.number("control.PowerLimit.LimitInWatts", "PowerLimitWatts.SetPoint")
    power = pl.coalesce(
        watts.value, pl.when(is_power).then(listed.value), pl.when(in_watts).then(sensed.value)
    )
    at = pl.coalesce(metric, fields.text("@odata.id"))
    device = pl.coalesce(at.str.extract(_PLACE), name, fields.text("Id"), pl.lit("system"))
    faults = [read.fault for read in (watts, kilowatt_hours, celsius, limit)]
    says_something = pl.any_horizontal(
        column.is_not_null() for column in (power, kilowatt_hours.value, celsius.value, *faults)
    )
    found = fields.frame.select(
        "source_line",
        stamp=fields.text("value.Timestamp", *_CLOCKS),
        host=fields.text("host"),
        device=pl.when(says_something).then(device),
        power_w=power,
        energy_j=kilowatt_hours.value * 3.6e6,
        power_limit_w=limit.value,
        temperature_c=celsius.value,
        fault=pl.coalesce(faults),
        flags=pl.struct((power.is_not_null() & ~device.str.contains(_ACCELERATOR)).alias(meters.WHOLE_HOST)),
    )
    return meters.samples(found, frame, context)


FORMAT = Format(
    name="redfish_power",
    title="Redfish power resources",
    written_by="requests to /redfish/v1/Chassis/*/Power, EnvironmentMetrics, Sensors or TelemetryService reports",
    target=DEVICE_SAMPLES,
    container="json_document",
    recognised_by="JSON objects with PowerControl, MetricValues, PowerWatts, or a reading of type Power",
    recognise=_recognise,
    map=_map,
    finish=meters.finish,
    structure={**_RESOURCE, "PowerControl": [_CONTROL], "MetricValues": [_VALUE]},
    records=_RECORDS,
    traps=(
        (
            "A chassis' power is that of the host, its accelerators included (flagged power_of_host); resources of "
            "GPUs are theirs. Power supplies feed the chassis: not taken."
        ),
        "PowerControl[0] is the whole system; further members are parts of it and not taken.",
        "PowerConsumedWatts is momentary; AverageConsumedWatts is a mean over IntervalInMin: not taken.",
        (
            "Resources state no time, but for values of a metric report: a key timestamp, time or collected_at that "
            "the loop adds, or the options origin and interval_s, tell; else the file's last change (flagged)."
        ),
        "EnergykWh is a counter since the last reset. Metrics that are no power are no samples.",
    ),
)
