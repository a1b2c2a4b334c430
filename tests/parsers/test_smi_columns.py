"""Columns of nvidia-smi output without a header: only what can't be mistaken gets a name."""

from __future__ import annotations

import pytest

from parsers.format import Head
from parsers.formats.nvidia_smi_csv import FORMAT
from parsers.smi_columns import by_shape, is_headless

STAMP = "2026/05/04 10:00:0{}.123"


@pytest.mark.parametrize(
    ("lines", "header"),
    [
        (["{}, 412.31 W, 97 %", "{}, 400.00 W, 0 %"], "timestamp, power.draw, utilization.gpu"),
        (["0, 412.31 W", "1, 400.00 W", "0, 1.00 W"], "index, power.draw"),
        (["412.31 W, 700.00 W", "400.00 W, 700.00 W"], "power.draw, power.limit"),
        (["700.00 W, 412.31 W", "700.00 W, 710.00 W"], None),
        (["{}, 412.31, 97, 66", "{}, 400.00, 0, 30"], "timestamp, power.draw, ?, ?"),
        (["{}, 97 %, 30 %", "{}, 0 %, 0 %"], None),
        (["{}, 97, 30", "{}, 0, 0"], None),
        (["{}, 3, 412.31", "{}, 3, 400.00"], "timestamp, ?, power.draw"),
        (
            ["ts,gpu util,power_draw_W", "{}, 97, 412.31", "{}, 0, 400.00"],
            "timestamp, ?, power.draw",
        ),
        (
            ["timestamp,utilization_gpu_percent,memory_used_MiB,temperature_gpu", "{}, 97, 71234, 66"],
            "timestamp, utilization.gpu, memory.used, temperature.gpu",
        ),
        (["{}, [N/A], 97 %", "{}, 12.00 W, 97 %"], "timestamp, power.draw, utilization.gpu"),
    ],
)
def test_only_what_is_unmistakable_is_named(lines, header):
    stamped = [line.replace("{}", STAMP.format(second)) for second, line in enumerate(lines)]
    assert is_headless(stamped)
    assert by_shape(stamped) == header


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["412.31 W"],
        ["2026-05-04 10:00:00, 412.31, 97"],
        ["2026/05/04 10:00:00.123, GET /x, 97"],
        ["1, 2, 3", "4, 5, 6"],
        [",,,", ",,,"],
        ["a" + " " * 300_000 + "!"],
        ["1" * 5000 + ", " + "2" * 5000],
        [STAMP.format(1) + ", 1", "x", "y"],
    ],
)
def test_other_lines_are_not_claimed(lines):
    assert not is_headless(lines)
    assert not FORMAT.recognise(Head("x", "\n".join(lines).encode()))
    assert by_shape(lines[:1]) is None
