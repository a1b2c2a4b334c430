"""Memory is bounded by the chunk, not by the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SMALL_MB, LARGE_MB = 400, 1200
"""Both are several chunks: below that, the file bounds the memory."""
GROWTH_AT_MOST = 1.5
"""Peak memory for the large file over that for the small one; measured 1.1 to 1.3."""
SCRIPT = """
import resource, sys
from pathlib import Path
from parsers.sources import find_sources
from pipelines.ingest.facts import build_days, choose
from pipelines.ingest.land import Reading, land_all
from parsers.records import REQUESTS
from warehouse.store import Warehouse
warehouse = Warehouse(Path(sys.argv[2]))
landings = land_all(find_sources([sys.argv[1]]), warehouse, Reading())
chosen = choose(landings)
for day, _ in build_days(REQUESTS, chosen.days(REQUESTS), chosen, warehouse):
    assert warehouse.day_file(REQUESTS, day).exists()
print(landings[0].lines, landings[0].rows, landings[0].rejects, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kb(log: Path, home: Path) -> tuple[int, int, int, int]:
    """Lines, rows, rejects and peak resident KB of a process that ingests one file."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, log, home],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return tuple(map(int, done.stdout.split()))  # type: ignore[return-value]


def write_log(path: Path, payload, megabytes: int, spoil) -> int:
    """A log of about that size, lines of 4 KB with a conversation each."""
    text = json.dumps([{"role": "user", "content": "tell me more about it. " * 150}])[1:-1]
    lines = size = 0
    with path.open("w") as stream:
        while size < megabytes << 20:
            line = payload(lines, messages=[]).replace('"messages": []', f'"messages": [{text}]')
            size += stream.write(spoil(line, lines))
            lines += 1
    return lines


@pytest.mark.parametrize(
    ("kind", "spoil"),
    [
        ("good lines", lambda line, _: line),
        ("every other line broken", lambda line, n: line if n % 2 else line[:-40] + "\n"),
    ],
)
def test_three_times_the_file_takes_little_more_memory(tmp_path, payload, kind, spoil):
    peaks = {}
    for megabytes in (SMALL_MB, LARGE_MB):
        log = tmp_path / f"{megabytes}.jsonl"
        count = write_log(log, payload, megabytes, spoil)
        lines, rows, rejects, peaks[megabytes] = peak_kb(log, tmp_path / f"home{megabytes}")
        assert (lines, rows + rejects) == (count, count)
        assert rows == (count if kind == "good lines" else count // 2)
        log.unlink()
    assert peaks[LARGE_MB] <= GROWTH_AT_MOST * peaks[SMALL_MB]
