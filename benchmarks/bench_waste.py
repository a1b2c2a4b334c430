"""The waste stage's loops over prefix blocks, on synthetic calls with 8 blocks each.

Prints ratios against a named yardstick in the same run, and exits with 1 if one is over its bound:
- yardstick: DuckDB's one window query over the same hashes, which are a table already:
  `lag(ts) OVER (PARTITION BY scope, hash ORDER BY ts)`;
- repetition: from Parquet facts to what repeats in each call (read the lists, number the blocks, find the prefixes,
  rules, evidence, prices), all of `repeated_prefixes`;
- curve: exact stack distances of one cache, in block references per second of one core;
- curves: the whole mart from numbered blocks: all models, replicas and routings, sampled where it is large.

Each step runs in a process of its own. Memory is the peak of the process beyond what it had after its imports; that
of `blocks` (reading and numbering alone) is given per block reference. Usage: bench_waste.py [--requests N] [--quick].
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

Array: TypeAlias = "np.ndarray[Any, Any]"

BLOCKS = 8
TOKENS_PER_BLOCK = 128
MODELS = ("model-a", "model-b", "model-c")
REPETITION_BOUND = 1.5
CURVE_BOUND = 10e6
BYTES_BOUND = 24
"""Per block reference, beside the calls' own columns."""
PEAK_BOUND_GB = 24
"""The whole process that measures repetition."""
_BATCH = 1_000_000
_US_BETWEEN_CALLS = 60_000


def write_facts(folder: Path, requests: int) -> None:
    """Calls of conversations: system prompt, a document, turns; a third of the blocks is new."""
    import numpy as np
    import polars as pl

    from parsers.records import REQUESTS

    random = np.random.default_rng(1)
    for first in range(0, requests, _BATCH):
        count = min(_BATCH, requests - first)
        call = np.arange(first, first + count)
        model = random.integers(0, len(MODELS), count)
        session = np.maximum(call // 4 - random.exponential(2_000, count).astype(np.int64), 0)
        depth = np.clip(random.geometric(0.25, count), 1, BLOCKS - 1)
        hashes = _hashes(model, session, depth, call)
        started = (call * _US_BETWEEN_CALLS).astype("datetime64[us]")
        frame = pl.DataFrame(
            {
                "source_format": "bench",
                "source_file": f"part-{first:012d}",
                "source_line": np.arange(1, count + 1),
                "started_at": pl.Series(started).dt.replace_time_zone("UTC"),
                "provider": "vllm",
                "model_served": pl.Series(np.array(MODELS)[model]),
                "session_id": pl.Series(session).cast(pl.String),
                "status": "ok",
                "usage_origin": "reported",
                "input_tokens": BLOCKS * TOKENS_PER_BLOCK,
                "cache_read_tokens": 0,
                "output_tokens": 50,
                "prefix_hashes": pl.Series(hashes).cast(pl.List(pl.UInt64)),
                "prefix_token_counts": [[TOKENS_PER_BLOCK * (k + 1) for k in range(BLOCKS)]] * count,
            }
        )
        REQUESTS.conform(frame).write_parquet(folder / f"part-{first:012d}.parquet")


def _hashes(model: Array, session: Array, depth: Array, call: Array) -> Array:
    """Up to `depth` blocks are those of the session, the rest the call's own; chained by mixing."""
    import numpy as np

    chains = np.empty((call.size, BLOCKS), np.uint64)
    value = model.astype(np.uint64)
    for block in range(BLOCKS):
        own = np.where(block < depth, session, call + (1 << 40)).astype(np.uint64)
        part = own if block else np.zeros(call.size, np.uint64)
        value = (value ^ (part + np.uint64(block + 1))) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(31)
        chains[:, block] = value
    return chains


def _facts(folder: Path) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_parquet(sorted(folder.glob("part-*.parquet")))


def yardstick(folder: Path) -> dict[str, float]:
    """DuckDB's window query; the table of hashes is made beforehand."""
    import duckdb

    with duckdb.connect(str(folder / "hashes.duckdb")) as connection:
        connection.execute(f"SET temp_directory = '{folder / 'spill'}'")
        connection.execute(
            "CREATE OR REPLACE TABLE hashes AS SELECT model_served AS scope, unnest(prefix_hashes) AS hash, "
            f"started_at AS ts FROM read_parquet('{folder}/part-*.parquet')"
        )
        started = time.perf_counter(), time.process_time()
        connection.execute(
            "SELECT count(before), max(ts - before) FROM (SELECT ts, lag(ts) OVER (PARTITION BY scope, hash "
            "ORDER BY ts) AS before FROM hashes)"
        ).fetchall()
        return _since(started)


def repetition(folder: Path) -> dict[str, float]:
    """Everything from facts to the calls of `repeated_prefixes`."""
    import polars as pl

    from pipelines.waste.caching_rules import default_rules
    from pipelines.waste.repetition import repeated_prefixes
    from pipelines.waste.row_prices import PRICES_SCHEMA

    prices, rules = pl.DataFrame(schema=PRICES_SCHEMA), default_rules()
    repeated_prefixes(_facts(folder).head(1000), prices, rules)
    started = time.perf_counter(), time.process_time()
    calls = repeated_prefixes(_facts(folder), prices, rules)
    spent = _since(started)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    return {**spent, "hit_blocks": float(calls["hit_blocks"].sum()), "peak_gb": peak}


def blocks(folder: Path) -> dict[str, float]:
    """Reading and numbering alone, with its memory."""
    from pipelines.waste.blocks import exact_blocks
    from pipelines.waste.caching_rules import default_rules

    exact_blocks(_facts(folder).head(1000), default_rules())
    before = _resident_kb()
    started = time.perf_counter(), time.process_time()
    found = exact_blocks(_facts(folder), default_rules())
    spent = _since(started)
    columns = found.calls.estimated_size()
    beside = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 - columns
    references = found.numbers.size
    return {**spent, "references": references, "distinct": found.distinct, "bytes": beside / references}


def curve(folder: Path) -> dict[str, float]:
    """One exact cache over all calls, on one core; then the mart."""
    import numpy as np

    from pipelines.fleet import Fleet
    from pipelines.waste.blocks import chained_frames, exact_blocks
    from pipelines.waste.cache_curve import cache_curve
    from pipelines.waste.caching_rules import default_rules
    from pipelines.waste.stack_kernels import stack_distances

    def one_cache(offsets: Array) -> Any:
        rows = np.arange(offsets.size - 1)
        limits = 2.0 ** np.arange(32)
        tokens = frames[1]["tokens"].to_numpy()
        return stack_distances(found.numbers, tokens, offsets, rows, limits, found.distinct)

    found = exact_blocks(_facts(folder), default_rules())
    frames = chained_frames(found)
    one_cache(found.offsets[:100])
    started = time.perf_counter(), time.process_time()
    one_cache(found.offsets)
    kernel = _since(started)
    small = exact_blocks(_facts(folder).head(1000), default_rules())
    cache_curve(*chained_frames(small), Fleet.default())
    started = time.perf_counter(), time.process_time()
    cache_curve(*frames, Fleet.default())
    mart = _since(started)
    return {
        "references_per_s": found.numbers.size / kernel["cpu_s"],
        "mart_cpu_s": mart["cpu_s"],
        "mart_wall_s": mart["wall_s"],
    }


STEPS = {"yardstick": yardstick, "repetition": repetition, "blocks": blocks, "curve": curve}


def _resident_kb() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text("ascii").splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _since(started: tuple[float, float]) -> dict[str, float]:
    wall, cpu = started
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def _run(step: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-W", "ignore", __file__, "--step", step, "--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)  # noqa: S603 - this very file
    if done.returncode:
        sys.exit(f"{step} failed with status {done.returncode}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="20,000 requests, no bounds: does it run at all")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    if given.step:
        print(json.dumps(STEPS[given.step](given.folder)))
        return 0
    with tempfile.TemporaryDirectory(prefix="tokenworks-bench-") as folder:
        requests = 20_000 if given.quick else given.requests
        write_facts(Path(folder), requests)
        return _compare(Path(folder), requests, bounded=not given.quick)


def _compare(folder: Path, requests: int, *, bounded: bool) -> int:
    found = {step: _run(step, folder) for step in STEPS}
    base, ours, numbered, stacks = (found[step] for step in STEPS)
    print(
        f"{requests:,} requests, {numbered['references']:,} block references, {numbered['distinct']:,} distinct"
    )
    print(f"yardstick (DuckDB, one window query): {base['wall_s']:.1f} s, {base['cpu_s']:.1f} CPU s")
    ratio = ours["wall_s"] / base["wall_s"]
    print(
        f"repetition: {ratio:.2f} x yardstick (bound {REPETITION_BOUND}), {ours['wall_s']:.1f} s, "
        f"{ours['cpu_s']:.1f} CPU s; of it blocks {numbered['cpu_s']:.1f} CPU s, "
        f"peak {numbered['bytes']:.1f} bytes per reference (bound {BYTES_BOUND}); "
        f"peak of all {ours['peak_gb']:.1f} GB (bound {PEAK_BOUND_GB})"
    )
    print(
        f"curve: {stacks['references_per_s'] / 1e6:.1f} M references/s of a core (bound {CURVE_BOUND / 1e6:.0f})"
    )
    print(f"curves (whole mart): {stacks['mart_cpu_s']:.1f} CPU s, {stacks['mart_wall_s']:.1f} s")
    missed = (
        ratio > REPETITION_BOUND
        or stacks["references_per_s"] < CURVE_BOUND
        or numbered["bytes"] > BYTES_BOUND
        or ours["peak_gb"] > PEAK_BOUND_GB
    )
    return int(bounded and missed)


if __name__ == "__main__":
    sys.exit(main())
