"""Fuzzing of the parsers: damaged samples in, and for each of them a clean answer out.

Belongs here: the mutator (bytes, lines, numbers, splices), what must hold of any input, and the run over many
processes. A run is fixed by its seed: input n of seed s is the same everywhere, so a failure is one number. Does not
belong here: what a sample means (`parsers/test_cases.py`).

What must hold: no error but the product's own; at most 5 s of CPU; every line of the file is a row, a reject or other,
exactly once. With --landed, inputs are landed in groups as an audit lands them, their formats detected: then every
row of a landing is a fact or a counted double of one, and every fact keeps the rules of its table.

Usage: python tests/fuzz.py [--landed] [--inputs N] [--seed S] [--jobs J] [--only N].
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

TESTS = Path(__file__).resolve().parent
SHARED = Path(os.environ.get("TOKENWORKS_SHARED", TESTS.parents[1] / "shared"))
CASES = TESTS / "parsers" / "cases"
CPU_LIMIT_S = 5.0
STUCK_S = 120
"""Wall time after which an input counts as hung and its process is ended with all its stacks shown."""
SAMPLE_BYTES = 65_536
BATCH = 1_000
GROUP = 20
"""Inputs that are landed together, so that some hold the same records."""
FEW_DAYS = 4
"""Facts are built of the first and the last days of a group: damaged instants make very many."""

_TOKENS = (
    *(
        b"\x00",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
        b"\r",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\t",
    ),
    *(
        b'"',
        b"'",
        b"\\",
        b'\\"',
        b"\\ud800",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b";",
        b"|",
        b"[" * 600,
        b"{}",
    ),
    *(b"null", b"NaN", b"Infinity", b"true", b'""', b"[]", b"-1", b"-0", b"0", b"1e400", b"1e-400", b"1.5"),
    *(b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"99999999999999999999999"),
    *(b"1970-01-01T00:00:00Z", b"9999-12-31T23:59:60Z", b"0001-01-01", b"253402300800", b"-62135596800"),
    *(
        b"=1+1",
        b"<script>",
        b"{{",
        b"%s%n",
        b"data: ",
        b"data: [DONE]\n\n",
        b"# EOF\n",
        b"usage",
        b"\x1b[31m",
    ),
)


@dataclass(frozen=True)
class Sample:
    """A log of a known format."""

    format: str
    name: str
    data: bytes


@dataclass(frozen=True)
class Failure:
    """An input that broke a rule."""

    number: int
    sample: str
    what: str


def samples() -> list[Sample]:
    """Every case of every format, and the samples beside the checkout where there are any (cut to 64 KiB)."""
    from parsers.detect import matching
    from parsers.format import Head

    found = [
        Sample(path.parent.parent.name, f"{path.parent.parent.name}/{path.parent.name}", path.read_bytes())
        for path in sorted(CASES.glob("*/*/input.*"))
    ]
    for path in sorted((SHARED / "facts" / "samples").rglob("*")):
        if path.is_file():
            data = path.read_bytes()[:SAMPLE_BYTES]
            found += [Sample(fmt.name, path.name, data) for fmt in matching(Head(path.name, data))]
    return [sample for sample in found if 0 < len(sample.data) <= SAMPLE_BYTES]


def mutated(corpus: list[Sample], seed: int, number: int) -> tuple[Sample, bytes]:
    """Input `number` of a seed: the sample it comes from, and the damaged bytes."""
    rng = random.Random(f"{seed}/{number}")
    sample = corpus[number % len(corpus)]
    data = sample.data
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        data = _damaged(data, rng.choice(corpus).data, rng)
    return sample, data[: 2 * SAMPLE_BYTES]


def _damaged(data: bytes, other: bytes, rng: random.Random) -> bytes:  # noqa: PLR0911 - one return per kind
    at = rng.randrange(len(data) + 1)
    end = min(len(data), at + int(rng.expovariate(1 / 40)) + 1)
    lines = data.splitlines(keepends=True)
    match rng.randrange(11):
        case 0:  # one bit
            flipped = bytes([data[at] ^ (1 << rng.randrange(8))]) if at < len(data) else b"\x80"
            return data[:at] + flipped + data[at + 1 :]
        case 1:
            return data[:at] + data[end:]
        case 2:
            return data[:end] + data[at:end] * rng.choice((1, 1, 2, 50)) + data[end:]
        case 3:
            return data[:at] + rng.choice(_TOKENS) + data[at:]
        case 4:
            return data[:at] + rng.choice(_TOKENS) + data[end:]
        case 5:  # cut off
            return data[:at]
        case 6:  # a piece of another log
            start = rng.randrange(len(other) + 1)
            return data[:at] + other[start : start + rng.choice((20, 200, 4000))] + data[at:]
        case 7:
            rng.shuffle(lines)
            return b"".join(lines)
        case 8:
            return b"".join(line for line in lines if rng.random() > 0.3)
        case 9:
            return _with_another_number(data, rng)
        case _:  # other line ends, or none
            return data.replace(b"\n", rng.choice((b"\r\n", b"\r", b"", b"\n\n", b" ")))


def _with_another_number(data: bytes, rng: random.Random) -> bytes:
    digits = [place for place, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return data
    start = rng.choice(digits)
    while start and 48 <= data[start - 1] <= 57:
        start -= 1
    end = start
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    return data[:start] + rng.choice(_TOKENS) + data[end:]


def broken_rule(sample: Sample, data: bytes, work: Path) -> str | None:
    """Read an input as its sample's format, and let all formats look at it; what went wrong, or None."""
    before = time.process_time()
    try:
        lost = _lost_lines(sample.format, data, work)
    except Exception:  # noqa: BLE001 - whatever comes out is the finding
        return traceback.format_exc(limit=-6)
    spent = time.process_time() - before
    return lost or (f"took {spent:.1f} s of CPU" if spent > CPU_LIMIT_S else None)


def _lost_lines(name: str, data: bytes, work: Path) -> str | None:
    from parsers.detect import matching
    from parsers.errors import TokenworksError
    from parsers.format import Context
    from parsers.hashing import PromptHasher
    from parsers.parse import by_line, parse
    from parsers.readers import MiscountError
    from parsers.registry import load
    from parsers.sources import find_sources, lay_down, read_head

    path = work / "input.log"
    path.write_bytes(data)
    fmt = load(name)
    try:
        source = find_sources([path])[0]
        head = read_head(source)
        matching(head)
        laid = lay_down(source, work)

        def read(*, strictly: bool) -> list[object]:
            written = datetime(2026, 3, 8, tzinfo=UTC)
            context = Context(source.name, PromptHasher(b"fuzz"), written, {}, head.text)
            return list(parse(source, fmt, laid, context, work, strictly=strictly))

        try:
            chunks = read(strictly=False)
        except MiscountError:
            chunks = read(strictly=True)
    except TokenworksError:
        return None
    told = sum(chunk.lines for chunk in chunks)
    numbers = [
        n for chunk in chunks for part in (chunk.rows, chunk.rejects) for n in part["source_line"].to_list()
    ]
    if len(set(numbers)) != len(numbers):
        return "a record is there twice"
    physical = laid.newlines + laid.ends_open
    if by_line(fmt, laid) and fmt.container in ("json_lines", "text") and told != physical:
        return f"{physical} lines were read and {told} accounted for"
    return None


def broken_landing(inputs: list[bytes], work: Path) -> str | None:
    """Land a group of inputs as an audit does, and build their facts; what went wrong, or None."""
    logs, home = work / "logs", work / "home"
    try:
        for folder in (logs, home):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for place, data in enumerate(inputs):
            (logs / f"{place:03d}.log").write_bytes(data)
        return _lost_rows(logs, home)
    except Exception:  # noqa: BLE001 - whatever comes out is the finding
        return traceback.format_exc(limit=-6)


def _lost_rows(logs: Path, home: Path) -> str | None:
    import polars as pl

    from parsers.records import FILES, RECORD_TABLES, REJECTS
    from parsers.sources import find_sources
    from pipelines.ingest.facts import build_days, choose, manifest, rejects
    from pipelines.ingest.land import Reading, land_all
    from warehouse.store import Warehouse

    warehouse = Warehouse(home)
    landings = land_all(find_sources([logs]), warehouse, Reading())
    chosen = choose(landings)
    warehouse.write_flat(FILES, manifest(landings, chosen))
    refused = rejects(chosen, warehouse)
    warehouse.write_flat(REJECTS, refused)
    if refused.height != sum(landing.rejects for landing in chosen.landings):
        return "rejects were lost"
    for table in RECORD_TABLES:
        rows = chosen.rows_by_day(table)
        few = [*rows][:FEW_DAYS] + [*rows][FEW_DAYS:][-FEW_DAYS:]
        for day, dropped in build_days(table, few, chosen, warehouse):
            facts = pl.read_parquet(warehouse.day_file(table, day), glob=False)
            if problems := table.problems(facts):
                return f"{table.name} of {day}: {problems}"
            if facts.height + sum(dropped.values()) != rows[day]:
                return f"{table.name} of {day}: of {rows[day]} rows {facts.height} are facts and {dropped} doubles"
    return None


def run_batch(seed: int, numbers: range, trail: Path | None = None, *, landed: bool = False) -> list[Failure]:
    """Try inputs; the number of the one being tried (landed: of its group's first) is left in `trail`."""
    corpus = samples()
    failures = []
    step = GROUP if landed else 1
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for number in numbers[::step]:
            if trail is not None:
                trail.write_text(str(number), encoding="utf-8")
                faulthandler.dump_traceback_later(STUCK_S, exit=True)
            if landed:
                group = [mutated(corpus, seed, n) for n in numbers[number - numbers.start :][:step]]
                sample = group[0][0]
                # One of them also whole, so that files overlap.
                what = broken_landing([sample.data, *(data for _, data in group)], Path(folder))
            else:
                sample, data = mutated(corpus, seed, number)
                what = broken_rule(sample, data, Path(folder))
            if what:
                failures.append(Failure(number, sample.name, what))
        if trail is not None:
            faulthandler.cancel_dump_traceback_later()
    return failures


def _work(
    seed: int, numbers: range, trail: Path, results: multiprocessing.SimpleQueue[list[Failure]], landed: bool
) -> None:
    results.put(run_batch(seed, numbers, trail, landed=landed))


def run(seed: int, inputs: int, jobs: int, *, landed: bool = False) -> list[Failure]:
    """Try many inputs in batches, each in a process of its own; one that hangs or dies is a failure, too."""
    # Inputs are small: threads of their own only wait for one another.
    os.environ["POLARS_MAX_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    waiting = [range(start, min(start + BATCH, inputs)) for start in range(0, inputs, BATCH)][::-1]
    running: list[tuple[multiprocessing.Process, Path, multiprocessing.SimpleQueue[list[Failure]]]] = []
    failures: list[Failure] = []
    done = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        while waiting or running:
            while waiting and len(running) < jobs:
                numbers = waiting.pop()
                trail, results = Path(folder) / f"{numbers.start}", context.SimpleQueue()
                process = context.Process(target=_work, args=(seed, numbers, trail, results, landed))
                process.start()
                running.append((process, trail, results))
            for entry in [entry for entry in running if not entry[0].is_alive() or not entry[2].empty()]:
                running.remove(entry)
                process, trail, results = entry
                found: list[Failure] = []
                if results.empty() and process.exitcode:
                    last = int(trail.read_text(encoding="utf-8"))
                    found = [Failure(last, "", f"its process ended with {process.exitcode}")]
                elif not results.empty():
                    found = results.get()
                failures += found
                # At once: a run of many inputs may be stopped.
                for failure in found:
                    sys.stderr.write(
                        f"\ninput {failure.number} of seed {seed} ({failure.sample}):\n{failure.what}\n"
                    )
                process.join()
                done += 1
                sys.stderr.write(f"\r{min(done * BATCH, inputs):,} inputs, {len(failures)} failures")
            time.sleep(0.05)
    sys.stderr.write("\n")
    return failures


def main() -> int:
    """Fuzz, and show what failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--landed", action="store_true", help="land inputs in groups and build their facts")
    parser.add_argument("--only", type=int, help="one input, by its number; its bytes go to fuzz-input.log")
    given = parser.parse_args()
    sys.path.insert(0, str(TESTS.parent))
    if given.only is not None:
        sample, data = mutated(samples(), given.seed, given.only)
        Path("fuzz-input.log").write_bytes(data)
        sys.stdout.write(f"{sample.format} {sample.name}\n")
        size = GROUP if given.landed else 1
        failures = run_batch(given.seed, range(given.only, given.only + size), landed=given.landed)
        sys.stdout.write("".join(f"{failure.what}\n" for failure in failures))
    else:
        failures = run(given.seed, given.inputs, given.jobs, landed=given.landed)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
