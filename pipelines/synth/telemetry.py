"""What nvidia-smi says of the own accelerators, once a minute: power that follows the calls.

Belongs here: devices, the relation of load and power, the CSV. Does not belong here: the calls
(`traffic.py`).

The file is that of `nvidia-smi --query-gpu=... --format=csv`, logged on hosts whose clock runs in UTC. It
goes on through the gap in the gateway's log. Power at load is of the order of ML.ENERGY's figures for Llama
70B on 4 x H100 (441 W a device at 8 calls at once, 525 W at 96); idle power with a loaded model is a round
figure for an example.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipelines.synth.company import MODEL_NUMBER
from pipelines.synth.traffic import DAY_US, ERROR, RESPONSE_CACHE, SECOND_US, Calls, Day, Ints

SAMPLE_US = 60 * SECOND_US
HEADER = (
    "timestamp, index, uuid, name, power.draw [W], utilization.gpu [%], utilization.memory [%], "
    "memory.used [MiB]\n"
)
NOT_AVAILABLE_RATIO = 0.0005


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator: where it is, what it serves, and its power at rest and at load."""

    uuid: str
    index: int
    product: str
    model: str
    deployment: int
    idle_w: float
    busy_w: float
    full_w: float
    full_calls: int
    memory_mib: int


def _uuid(name: str) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}.acme.example')}"


def _devices() -> tuple[Device, ...]:
    h100 = "NVIDIA H100 80GB HBM3"
    own = [
        Device(_uuid(f"h100-{n}"), n, h100, "llama-3.3-70b", n // 2, 112.0, 385.0, 545.0, 96, 73_402)
        for n in range(4)
    ]
    own.append(Device(_uuid("l40s-0"), 0, "NVIDIA L40S", "qwen3-8b", 0, 84.0, 205.0, 318.0, 64, 41_518))
    return tuple(own)


DEVICES = _devices()


@dataclass
class Totals:
    """What the file holds: rows, odd rows, and the sum of the power readings of each device."""

    rows: int = 0
    not_available: int = 0
    duplicates: int = 0
    power_w: NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(DEVICES)))
    readings: Ints = field(default_factory=lambda: np.zeros(len(DEVICES), np.int64))

    def document(self) -> dict[str, Any]:
        """The totals for truth.json."""
        means = self.power_w / np.maximum(self.readings, 1)
        return {
            "rows": self.rows,
            "power_not_available": self.not_available,
            "duplicate_rows": self.duplicates,
            "sample_s": SAMPLE_US // SECOND_US,
            "power_w_mean": {
                device.uuid: round(float(w), 3) for device, w in zip(DEVICES, means, strict=True)
            },
        }


def lines_of(day: Day, calls: Calls, totals: Totals) -> str:
    """The rows of one day, all calls given, those of the gap too; adds to `totals`."""
    rng = day.rng("telemetry")
    ticks = np.arange(day.start_us, day.start_us + DAY_US, SAMPLE_US)
    columns = [_column(device, _concurrency(calls, device, ticks), rng) for device in DEVICES]
    jitter = rng.integers(0, 40_000, len(ticks))
    stamps = [_stamp(tick) for tick in (ticks + jitter).tolist()]
    lines = [f"{stamp}{column[row][0]}" for row, stamp in enumerate(stamps) for column in columns]
    for number, column in enumerate(columns):
        watts = np.array([power for _, power in column])
        known = ~np.isnan(watts)
        totals.power_w[number] += watts[known].sum()
        totals.readings[number] += int(known.sum())
        totals.not_available += int((~known).sum())
    totals.rows += len(lines)
    if day.number == 0:
        # A logger that was started twice: one device answers twice within one tick.
        lines.insert(len(lines) // 2, lines[len(lines) // 2])
        totals.rows += 1
        totals.duplicates += 1
    return "".join(lines)


def _stamp(us: int) -> str:
    at = datetime.fromtimestamp(us // SECOND_US, tz=UTC)
    return f"{at:%Y/%m/%d %H:%M:%S}.{us % SECOND_US // 1_000:03d}"


def _concurrency(calls: Calls, device: Device, ticks: Ints) -> Ints:
    """Calls in flight on the device's replica at each tick."""
    mine = (
        (calls.model == MODEL_NUMBER[device.model])
        & (calls.deployment == device.deployment)
        & (calls.outcome != ERROR)
        & (calls.outcome != RESPONSE_CACHE)
    )
    starts, ends = np.sort(calls.started_us[mine]), np.sort(calls.ended_us[mine])
    return np.searchsorted(starts, ticks, side="right") - np.searchsorted(ends, ticks, side="right")


def _column(device: Device, busy: Ints, rng: np.random.Generator) -> list[tuple[str, float]]:
    """Text after the timestamp and power (NaN where not available) of one device for each tick."""
    share = np.log1p(np.minimum(busy, device.full_calls)) / np.log1p(device.full_calls)
    watts = np.where(busy > 0, device.busy_w + share * (device.full_w - device.busy_w), device.idle_w)
    watts = np.round(watts * (1 + rng.normal(0, 0.015, len(busy))), 2)
    watts[rng.random(len(busy)) < NOT_AVAILABLE_RATIO] = np.nan
    gpu = np.where(busy > 0, rng.integers(88, 101, len(busy)), 0)
    memory = np.where(busy > 0, rng.integers(30, 62, len(busy)), 0)
    head = f", {device.index}, {device.uuid}, {device.product}, "
    tail = f" %, {device.memory_mib} MiB\n"
    return [
        (f"{head}{'[N/A]' if np.isnan(power) else f'{power:.2f} W'}, {g} %, {m}{tail}", power)
        for power, g, m in zip(watts.tolist(), gpu.tolist(), memory.tolist(), strict=True)
    ]
