"""Ingest and whole audit against bare DuckDB, on a million synthetic LiteLLM rows.

Prints ratios against a named yardstick in the same run, and exits with 1 if one is over its bound:
- yardstick: DuckDB alone, `COPY (SELECT ... FROM read_json(..., columns = {...})) TO parquet`, same files, same columns;
- ingest: from files to `requests` facts (land, drop doubles, link attempts, sort by day);
- audit: `tokenworks audit`, everything, from a cold start.

Each runs in a process of its own, `--rounds` times in turn; the fastest counts. Usage: bench_ingest.py [--requests N]
[--rounds N] [--keep DIR].
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BOUNDS = {"ingest": 2.0, "audit": 4.0}
MEMORY_BOUND_GB = 2.0


def yardstick(week: Path, out: Path) -> None:
    """What DuckDB needs for the same columns, with nothing done to them."""
    import duckdb

    from parsers.formats.litellm_payload import STRUCTURE
    from parsers.readers import duckdb_structure, literal

    columns = ", ".join(f"{literal(k)}: {literal(duckdb_structure(v))}" for k, v in STRUCTURE.items())
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * FROM read_json({literal(str(week / 'gateway' / '*.jsonl'))}, "
            f"format = 'newline_delimited', columns = {{{columns}}})) "
            f"TO {literal(str(out / 'bare.parquet'))} (FORMAT parquet, COMPRESSION zstd)"
        )


def ingest(week: Path, out: Path) -> None:
    """From files to facts, without Dagster around it."""
    from parsers.records import REQUESTS
    from parsers.sources import find_sources
    from pipelines.ingest.facts import build_days, choose
    from pipelines.ingest.land import Reading, land_all
    from warehouse.store import Warehouse

    warehouse = Warehouse(out / "home")
    chosen = choose(land_all(find_sources([week / "gateway"]), warehouse, Reading()))
    days = chosen.days(REQUESTS)
    built = dict(build_days(REQUESTS, days, chosen, warehouse))
    if list(built) != days:
        raise RuntimeError(f"facts of {len(built)} of {len(days)} days were built")


def audit(week: Path, out: Path) -> None:
    """The whole audit, as a user runs it."""
    from pipelines.cli import app

    app(["audit", str(week / "gateway"), "--out", str(out / "audit")], standalone_mode=False)


STEPS = {"yardstick": yardstick, "ingest": ingest, "audit": audit}


def _run(step: str, week: Path) -> tuple[float, float]:
    """Wall seconds and peak GB of one step in a fresh process."""
    with tempfile.TemporaryDirectory(dir=week) as out:
        before = time.perf_counter()
        command = [
            sys.executable,
            "-W",
            "ignore",
            __file__,
            "--step",
            step,
            "--keep",
            str(week),
            "--out",
            out,
        ]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - this very file
        _, status, usage = _wait(process)
        if status:
            sys.exit(f"{step} failed with status {status}")
        return time.perf_counter() - before, usage.ru_maxrss / 1e6


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, int, resource.struct_rusage]:
    import os

    return os.wait4(process.pid, 0)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--keep", type=Path, help="folder for the synthetic week; made if absent, else used again"
    )
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if given.step:
        STEPS[given.step](given.keep, given.out)
        return 0
    folder = given.keep or Path(tempfile.mkdtemp(prefix="tokenworks-bench-"))
    try:
        return _compare(folder, given.requests, given.rounds)
    finally:
        if given.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def _compare(folder: Path, requests: int, rounds: int) -> int:
    if not (folder / "truth.json").exists():
        from pipelines.synth.week import write_week

        write_week(folder, requests=requests)
    files = sorted((folder / "gateway").glob("*.jsonl"))
    size_gb = sum(path.stat().st_size for path in files) / 1e9
    print(f"{requests:,} requests, {size_gb:.2f} GB in {len(files)} files")
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        for step in STEPS:
            seconds, peak_gb = _run(step, folder)
            known = best.get(step, (seconds, 0.0))
            best[step] = (min(known[0], seconds), max(known[1], peak_gb))
    base = best["yardstick"][0]
    print(
        f"yardstick (bare DuckDB COPY of the same columns): {base:.1f} s, peak {best['yardstick'][1]:.2f} GB"
    )
    failed = False
    for step, bound in BOUNDS.items():
        seconds, peak_gb = best[step]
        ratio = seconds / base
        failed |= ratio > bound or peak_gb > MEMORY_BOUND_GB
        print(
            f"{step}: {ratio:.2f} x yardstick (bound {bound}), {seconds:.1f} s, "
            f"peak {peak_gb:.2f} GB (bound {MEMORY_BOUND_GB})"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
