"""The benchmarks run to their end, on inputs too small to say anything of speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.mark.slow
def test_formats_are_measured():
    """A line per family, each with two speeds and a ratio; nothing but the table is printed."""
    script = BENCHMARKS / "bench_formats.py"
    done = subprocess.run(
        [sys.executable, script, "--quick"], capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    families = script.read_text(encoding="utf-8").count("    Family(")
    assert len(lines) == 1 + families
    assert all(float(number) > 0 for line in lines[1:] for number in line.split()[-5:])


def test_an_unknown_format_is_named():
    """A typing error does not measure everything."""
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "bench_formats.py", "litelm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "not measured: litelm" in done.stderr


@pytest.mark.slow
def test_waste_is_measured():
    """The four steps run, and each of their figures is positive."""
    script = BENCHMARKS / "bench_waste.py"
    done = subprocess.run(
        [sys.executable, script, "--quick"], capture_output=True, text=True, timeout=900, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    starts = ["20,000 requests, 160,000 block references", "yardstick", "repetition: ", "curve: ", "curves "]
    for line, start in zip(done.stdout.splitlines(), starts, strict=True):
        assert line.startswith(start)
