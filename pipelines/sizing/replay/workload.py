"""What is replayed: the calls of a trace as arrays.

Belongs here: `Workload`, making one from `requests` or from the lengths of a benchmark, and what had to be
left out. Does not belong here: the engine (`simulate.py`), reading logs (`pipelines/ingest`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from pipelines.calls import is_demand, output_tokens

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]

PrefixSource = Literal["blocks", "logged", "none"]
"""Where cached prompt tokens come from: blocks that the simulated cache holds, the log's own count, nowhere."""

LATENT_PRIORITIES = ("flex", "batch")
"""Service tiers that wait for all others."""


@dataclass(frozen=True)
class Workload:
    """Calls in order of arrival, one element each.

    `blocks` lists, call after call (`block_offsets`, calls + 1), the prompt's prefix blocks as dense numbers;
    `block_ends` are cumulative tokens. `cached_tokens` stands for calls without blocks. `priority` is a class
    from 0, served first. With `clients`, so many clients send a call each at `arrival_s`; whoever sends a
    later call does so its `pause_s` after the end of their last.
    """

    arrival_s: Reals
    input_tokens: Wholes
    output_tokens: Wholes
    cached_tokens: Wholes
    priority: Wholes
    block_offsets: Wholes
    blocks: Wholes
    block_ends: Wholes
    pause_s: Reals
    clients: int = 0
    start_at: Any = None
    """Instant of second 0; None where there is none."""

    def __len__(self) -> int:
        """Calls."""
        return int(self.input_tokens.size)

    def in_closed_loop(self, clients: int, pause_s: ArrayLike = 0.0, start_up_s: float = 0.0) -> Workload:
        """The same calls, sent by so many clients: all at once at first, or spread over `start_up_s`.

        `pause_s` is one for all calls, or one for each.

        Raises:
            ValueError: there is no client, or a time is negative.

        """
        pauses = np.broadcast_to(np.asarray(pause_s, dtype=np.float64), len(self))
        if clients < 1 or (pauses < 0).any() or start_up_s < 0:
            raise ValueError("a closed loop has a client or more, and times of 0 or more")
        arrival = np.zeros(len(self))
        arrival[:clients] = np.arange(min(clients, len(self))) * (start_up_s / clients)
        return replace(self, arrival_s=arrival, clients=clients, pause_s=pauses)


def lengths(
    input_tokens: ArrayLike,
    output_tokens: ArrayLike,
    arrival_s: ArrayLike | None = None,
    cached_tokens: ArrayLike = 0,
    priority: ArrayLike = 0,
) -> Workload:
    """A workload from token counts alone; arrays of one length. Without arrivals all come at second 0.

    Raises:
        ValueError: lengths differ, a count is negative, or arrivals are out of order.

    """
    inputs = np.asarray(input_tokens, dtype=np.int64)
    arrival = np.zeros(inputs.size) if arrival_s is None else np.asarray(arrival_s, dtype=np.float64)
    outputs, cached, classes = (
        np.broadcast_to(np.asarray(value, dtype=np.int64), inputs.shape).copy()
        for value in (output_tokens, cached_tokens, priority)
    )
    counts = (inputs, outputs, cached, classes)
    if arrival.shape != inputs.shape or inputs.ndim != 1 or any((count < 0).any() for count in counts):
        raise ValueError("one arrival, input and output per call, and no count below 0")
    if (np.diff(arrival) < 0).any():
        raise ValueError("calls are in order of arrival")
    nothing = np.empty(0, np.int64)
    offsets = np.zeros(inputs.size + 1, np.int64)
    return Workload(
        arrival, inputs, outputs, cached, classes, offsets, nothing, nothing, np.zeros(inputs.size)
    )


@dataclass(frozen=True)
class Trace:
    """Calls to replay, and how many of the log's were left out and why."""

    workload: Workload
    calls: int
    """Calls of the log that an engine had to serve."""
    unknown_tokens: int
    """Of these, calls without an input or an output count; left out."""
    without_cache: int
    """Calls of the workload of whose prefix nothing is known; they are taken to share none."""
    prefix_source: PrefixSource


def trace_of(requests: pl.LazyFrame, prefix_source: PrefixSource | None = None) -> Trace:
    """Take the calls that engines had to serve: answered ones that the gateway's own cache did not answer.

    Args:
        requests: the facts, or a part of them.
        prefix_source: None: blocks where any call has them, else the log's count where any has one.

    """
    calls = (
        requests.filter(is_demand())
        .select(
            "started_at",
            "input_tokens",
            output_tokens(),
            "cache_read_tokens",
            "prefix_hashes",
            "prefix_token_counts",
            waits=pl.col("service_tier").is_in(LATENT_PRIORITIES).fill_null(value=False),
        )
        .sort("started_at", maintain_order=True)
        .collect()
    )
    known = calls.drop_nulls(["input_tokens", "output_tokens"])
    has_blocks = pl.col("prefix_hashes").list.len().fill_null(0) > 0
    if prefix_source is None:
        if known.select(has_blocks.any()).item():
            prefix_source = "blocks"
        else:
            prefix_source = "logged" if known["cache_read_tokens"].count() else "none"
    told = {"blocks": has_blocks, "logged": pl.col("cache_read_tokens").is_not_null(), "none": pl.lit(True)}
    silent = known.select((~told[prefix_source]).sum()).item() if known.height else 0
    cached = known["cache_read_tokens"].fill_null(0) if prefix_source == "logged" else 0
    started = known["started_at"].dt.timestamp("us").to_numpy()
    first = int(started[0]) if known.height else 0
    workload = lengths(
        known["input_tokens"], known["output_tokens"], (started - first) / 1e6, cached, known["waits"]
    )
    workload = replace(workload, start_at=known["started_at"].first())
    if prefix_source == "blocks":
        workload = _with_blocks(workload, known)
    return Trace(workload, calls.height, calls.height - known.height, int(silent or 0), prefix_source)


def _with_blocks(workload: Workload, known: pl.DataFrame) -> Workload:
    from pipelines.waste.block_kernels import bounded_counts, number_blocks

    hashes = known["prefix_hashes"].fill_null([])
    offsets = np.zeros(known.height + 1, np.int64)
    np.cumsum(hashes.list.len().to_numpy(), out=offsets[1:])
    flat = hashes.explode(empty_as_null=False).cast(pl.UInt64).to_numpy()
    counts = known["prefix_token_counts"].fill_null([]).explode(empty_as_null=False).cast(pl.Int64).to_numpy()
    numbers, _ = number_blocks(flat, np.zeros(known.height, np.int32), offsets)
    ends = bounded_counts(counts, offsets, workload.input_tokens, np.empty(counts.size, np.int64))
    # A hash that stands twice in one prompt is no chain; the kernel counts a block of a call once.
    call = np.repeat(np.arange(known.height), np.diff(offsets))
    _, once = np.unique(np.stack([call, numbers]), axis=1, return_index=True)
    once.sort()
    np.cumsum(np.bincount(call[once], minlength=known.height), out=offsets[1:])
    return replace(
        workload, block_offsets=offsets, blocks=numbers[once].astype(np.int64), block_ends=ends[once]
    )
