"""The telemetry: shape of nvidia-smi's CSV, odd rows, power that follows the calls, devices of fleet.toml."""

from __future__ import annotations

import csv
import tomllib
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import pytest

from pipelines.synth.telemetry import DEVICES

FLEET = Path(__file__).resolve().parents[3] / "examples" / "fleet.toml"


@pytest.fixture(scope="module")
def rows(week):
    out, _ = week
    with (out / "telemetry" / "nvidia_smi.csv").open(encoding="ascii", newline="") as file:
        return list(csv.DictReader(file, skipinitialspace=True))


def test_one_row_a_minute_and_device_one_row_twice_some_without_power(week, rows):
    stated = week[1].telemetry
    assert len(rows) == stated["rows"] == 7 * 1440 * len(DEVICES) + 1
    keys = Counter((row["timestamp"], row["uuid"]) for row in rows)
    assert sorted(keys.values())[-2:] == [1, 2]
    absent = sum(row["power.draw [W]"] == "[N/A]" for row in rows)
    assert absent == stated["power_not_available"] > 0


def test_mean_power_is_that_of_the_readings(week, rows):
    watts, seen = defaultdict(list), set()
    for row in rows:
        key = (row["timestamp"], row["uuid"])
        if key not in seen and row["power.draw [W]"] != "[N/A]":
            watts[row["uuid"]].append(float(row["power.draw [W]"].removesuffix(" W")))
        seen.add(key)
    for uuid, mean in week[1].telemetry["power_w_mean"].items():
        assert sum(watts[uuid]) / len(watts[uuid]) == pytest.approx(mean, abs=0.001)


def test_power_is_high_exactly_where_calls_are_in_flight(rows, records):
    """Where the log shows all calls, a replica draws power at load if one of its calls runs."""
    calls = [
        (row["startTime"], row["endTime"])
        for row in records
        if row["model_id"] == "llama-70b-a" and row["status"] == "success"
    ]
    device = DEVICES[0]
    checked = 0
    for row in (row for row in rows if row["uuid"] == device.uuid):
        if row["power.draw [W]"] == "[N/A]" or row["timestamp"].startswith("2026/11/19"):
            continue
        minute = datetime.strptime(row["timestamp"][:16] + " +0000", "%Y/%m/%d %H:%M %z").timestamp()
        busy = sum(start <= minute < end for start, end in calls)
        power = float(row["power.draw [W]"].removesuffix(" W"))
        assert (power > 300) == (busy > 0)
        assert (row["utilization.gpu [%]"] != "0 %") == (busy > 0)
        checked += busy > 0
    assert checked > 10


def test_telemetry_goes_on_through_the_gap(rows):
    hours = {row["timestamp"][:13] for row in rows}
    assert {f"2026/11/19 {hour:02d}" for hour in range(9, 14)} <= hours


def test_fleet_names_the_devices_and_models_of_the_week(week):
    fleet = tomllib.loads(FLEET.read_text(encoding="utf-8"))
    named = [uuid for pool in fleet["pools"] for uuid in pool["devices"]]
    assert named == [device.uuid for device in DEVICES]
    assert [len(pool["devices"]) for pool in fleet["pools"]] == [
        pool["accelerators"] for pool in fleet["pools"]
    ]
    logged = set(week[1].by_model)
    for pool in fleet["pools"]:
        assert any(
            Path(model).match(pattern) or model == pattern.rstrip("*")
            for pattern in pool["models"]
            for model in logged
        )


def test_fleet_names_rows_of_the_catalogues(shared):
    fleet = tomllib.loads(FLEET.read_text(encoding="utf-8"))
    with (shared / "facts/accelerators.csv").open(encoding="utf-8") as file:
        accelerators = {row["name"] for row in csv.DictReader(file)}
    with (shared / "facts/models.csv").open(encoding="utf-8") as file:
        models = {row["model"] for row in csv.DictReader(file)}
    for pool in fleet["pools"]:
        assert pool["accelerator"] in accelerators
        assert pool["architecture"] in models
