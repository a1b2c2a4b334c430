"""Simulated requests per second of CPU, on chat traffic.

Prints the speed of the replay at batch 64 (a closed loop that keeps 64 calls in flight, and Poisson arrivals below
saturation with at most 64), and exits with 1 if it is below its bound. The time is CPU time of one core, of the whole
`simulate` without compiling; the fastest of `--rounds` counts.

Lengths are log-normal, with the medians of Azure's conversation trace of 2023 (1,020 in, 129 out; Splitwise, ISCA'24).
Usage: bench_replay.py [--requests N] [--rounds N].
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

BOUND_PER_S = 300_000
BATCH = 64
MEDIANS = {"input": 1020, "output": 129}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from pipelines.sizing.replay.simulate import Setup, simulate
    from pipelines.sizing.replay.workload import lengths
    from pipelines.sizing.roofline import Replica
    from warehouse.catalogue import accelerators, models

    replica = Replica(models()["Llama 3.1 8B"], accelerators()["H100 SXM5 80GB"], 1, "bf16")
    setup = Setup(replica, max_sequences=BATCH)
    random = np.random.default_rng(7)
    inputs, outputs = (
        np.ceil(random.lognormal(np.log(median), 0.8, given.requests)).astype(int)
        for median in MEDIANS.values()
    )
    closed = lengths(inputs, outputs).in_closed_loop(BATCH)
    simulate(lengths(inputs[:100], outputs[:100]).in_closed_loop(4), setup)  # compiles
    saturated = simulate(closed, setup)
    per_s = 0.9 * given.requests / float(saturated.ended_s.max())
    arrivals = np.cumsum(random.exponential(1 / per_s, given.requests))
    failed = False
    for name, work in (
        (f"closed loop of {BATCH}", closed),
        ("Poisson arrivals at 90 %", lengths(inputs, outputs, arrivals)),
    ):
        best, told = np.inf, saturated
        for _ in range(given.rounds):
            before = time.process_time()
            told = simulate(work, setup)
            best = min(best, time.process_time() - before)
        (machines,) = told.machines
        speed = given.requests / best
        failed |= speed < BOUND_PER_S
        print(
            f"{name}: {speed:,.0f} requests/s (bound {BOUND_PER_S:,}), {machines.steps.sum() / best:,.0f} steps/s, "
            f"mean batch {machines.sequence_s.sum() / machines.busy_s.sum():.1f}, "
            f"{float(told.ended_s.max()) / best:,.0f} x real time"
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
