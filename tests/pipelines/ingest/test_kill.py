"""Killed at any moment, run again: the facts are those of an undisturbed run, and nothing is left lying about."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

from parsers.errors import SiteConfigError, TokenworksError
from parsers.records import RECORD_TABLES, REJECTS
from warehouse.store import Warehouse

ROOT = Path(__file__).resolve().parents[3]
FILES = 12
SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("ingesting", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["ingesting"] = module
spec.loader.exec_module(module)
from pathlib import Path
print("ready", flush=True)
module.ingest(Path(sys.argv[2]), sys.argv[3])
print("done", flush=True)
"""


def start(home: Path, logs: Path) -> subprocess.Popen[str]:
    """A process that ingests; it is ready to begin when this returns."""
    conftest = Path(__file__).with_name("conftest.py")
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(conftest), str(home), str(logs)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def scratch(home: Path) -> list[str]:
    """Files that a dead run left: what a reader must never take for data."""
    found = [str(path.relative_to(home)) for path in home.rglob("*")]
    return [name for name in found if re.search(r"(^|/)(work-|\.)", name)]


@pytest.fixture
def logs(tmp_path, payload, write):
    """Enough files and days for a kill to hit something."""
    for number in range(FILES):
        lines = [payload(15 * number + n, at_day(number % 3, n)) for n in range(20)]
        write(tmp_path / "logs" / f"{number:02}.jsonl", [*lines, "{broken\n"], modified=number)
    return tmp_path / "logs"


@pytest.fixture
def small_logs(tmp_path, payload, write):
    """Files that land together."""
    for number in range(300):
        write(tmp_path / "small" / f"{number:03}.json", [payload(number, at_day(number % 3, number % 20))])
    return tmp_path / "small"


def at_day(day: int, n: int) -> dt.datetime:
    return dt.datetime(2026, 11, 16, 23, 50, tzinfo=dt.UTC) + dt.timedelta(days=day, seconds=60 * n)


def check(home: Path, logs: Path, ingest, expected) -> None:
    """A clean run over what is there gives what was expected."""
    facts = ingest(home, logs)
    for table in (*RECORD_TABLES, REJECTS):
        assert_frame_equal(facts.tables[table.name], expected.tables[table.name])
    assert facts.doubles == expected.doubles
    lines = sum(len(path.read_text().splitlines()) for path in logs.iterdir())
    assert facts.accounts()[0] == facts.accounts()[1] == lines
    assert scratch(home) == []


def kill(process: subprocess.Popen[str], after_s: float) -> None:
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def kill_some_times(tmp_path, logs, ingest, kills: int, takes_s: float | None = None) -> None:
    """Kill runs over one folder at random moments of the time that an undisturbed one takes."""
    home = tmp_path / "home"
    whole = ingest(tmp_path / "undisturbed", logs)
    home.mkdir()
    (home / "key").write_bytes((tmp_path / "undisturbed" / "key").read_bytes())
    if takes_s is None:
        process = start(tmp_path / "timed", logs)
        began = time.monotonic()
        assert process.communicate()[0] == "done\n"
        takes_s = time.monotonic() - began
    moments = random.Random(kills)
    for _ in range(kills):
        kill(start(home, logs), moments.uniform(0, takes_s))
    check(home, logs, ingest, whole)
    landed = [
        sorted(path.name for path in (of / "landed").iterdir()) for of in (home, tmp_path / "undisturbed")
    ]
    assert landed[0] == landed[1]


def test_killed_once(tmp_path, logs, ingest):
    kill_some_times(tmp_path, logs, ingest, kills=1, takes_s=0.5)


@pytest.mark.slow
def test_killed_ten_times(tmp_path, logs, ingest):
    kill_some_times(tmp_path, logs, ingest, kills=10)


@pytest.mark.slow
def test_killed_while_small_files_land_together(tmp_path, small_logs, ingest):
    kill_some_times(tmp_path, small_logs, ingest, kills=8)


@pytest.mark.slow
def test_audits_that_are_killed_leave_nothing_that_counts(tmp_path, logs, command, read_facts):
    """The command itself, killed while it lands, builds marts or writes the report."""
    whole, home = tmp_path / "undisturbed", tmp_path / "home"
    assert command("audit", logs, "--out", whole, "--title", "x").code == 0
    home.mkdir()
    (home / "key").write_bytes((whole / "key").read_bytes())
    moments = random.Random(4)
    program = Path(sys.executable).with_name("tokenworks")
    for _ in range(4):
        process = subprocess.Popen(
            [program, "audit", logs, "--out", home, "--title", "x"], stderr=subprocess.PIPE, text=True
        )
        kill(process, moments.uniform(2, 15))
    assert command("audit", logs, "--out", home, "--title", "x").code == 0
    for table, frame in read_facts(whole).tables.items():
        apart = ["ingested_at"] if "ingested_at" in frame.columns else []
        assert_frame_equal(read_facts(home).tables[table].drop(apart), frame.drop(apart))
    documents = [json.loads((folder / "audit.json").read_text()) for folder in (whole, home)]
    assert documents[0] == documents[1]
    assert scratch(home) == []


def test_leftovers_of_dead_runs_are_cleared_and_do_not_count(tmp_path, logs, ingest):
    home = tmp_path / "home"
    before = ingest(home, logs)
    uuid = "0123456789abcdef" * 2
    (home / "work-abc").mkdir()
    (home / "work-abc" / "x.spool").write_text("half")
    half = home / "landed" / f".{'a' * 32}.{uuid}"
    half.mkdir()
    (half / "part-00000.parquet").write_bytes(b"PAR1half")
    day = next((home / "facts" / "requests").iterdir())
    (day / f".requests.parquet.{uuid}").write_bytes(b"PAR1half")
    (home / "facts" / f".files.parquet.{uuid}").write_bytes(b"PAR1half")
    (home / f".landings.json.{uuid}").write_text("[{")
    assert_frame_equal(ingest(home, logs).requests, before.requests)
    assert scratch(home) == []


def test_one_process_at_a_time(tmp_path):
    """The second is told who works there, in one line; the lock goes with its holder."""
    home = tmp_path / "home"
    code = (
        "import sys, pathlib; from warehouse.store import Warehouse\n"
        "with Warehouse(pathlib.Path(sys.argv[1])).alone():\n    print('held', flush=True)\n    sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, home],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert holder.stdout.readline() == b"held\n"
    with (
        pytest.raises(
            TokenworksError, match=rf"home: another run \(process {holder.pid}\) is working"
        ) as told,
        Warehouse(home).alone(),
    ):
        pass
    assert "\n" not in str(told.value)
    holder.kill()
    holder.communicate()
    with Warehouse(home).alone():
        assert (home / "lock").read_text() == str(os.getpid())


@pytest.mark.parametrize("where", ["file", "file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_written_is_told(tmp_path, where):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SiteConfigError, match="can't be written") as told,
        Warehouse(tmp_path / where).alone(),
    ):
        pass
    assert "\n" not in str(told.value)
