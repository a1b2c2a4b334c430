"""The calls of one scope as arrays, and the curve of each measure over time.

Belongs here: cutting the demand into scopes (`all`, `model:NAME`, `other models`), which curve each measure of
`demand_peaks` is, and how many calls a measure knows nothing about. Does not belong here: placing calls in time (`spread`),
arithmetic on curves (`sweep`), windows and words (`peaks`), bins (`series`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from pipelines.demand import sweep
from pipelines.demand.largest import OTHER_MODELS, largest_models
from pipelines.demand.sweep import Curve, Instants, Reals

TokenMeasure = Literal["input_tokens", "uncached_input_tokens", "output_tokens", "total_tokens"]
TOKEN_MEASURES: tuple[TokenMeasure, ...] = (
    "input_tokens",
    "uncached_input_tokens",
    "output_tokens",
    "total_tokens",
)


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls of a scope: the columns of `spread.WORK_SCHEMA` as arrays of one length; unknown counts are
    NaN.
    """

    started: Instants
    work_from: Instants
    first_token: Instants
    ended: Instants
    input: Reals
    uncached: Reals
    output: Reals
    timed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    pace_ratio: Reals

    @classmethod
    def of(cls, work: pl.DataFrame) -> Calls:
        """The rows of a frame of `spread.WORK_SCHEMA`."""
        return cls(
            started=work["started_us"].to_numpy(),
            work_from=work["work_from_us"].to_numpy(),
            first_token=work["first_token_us"].to_numpy(),
            ended=work["ended_us"].to_numpy(),
            input=work["input_tokens"].fill_null(np.nan).to_numpy(),
            uncached=work["uncached_input_tokens"].fill_null(np.nan).to_numpy(),
            output=work["output_tokens"].fill_null(np.nan).to_numpy(),
            timed=work["is_timed"].to_numpy(),
            pace_ratio=work["assumed_pace_ratio"].fill_null(np.nan).to_numpy(),
        )

    def __len__(self) -> int:
        """Number of calls."""
        return len(self.started)

    @property
    def untimed(self) -> int:
        """Calls whose duration is unknown, or shorter than their clock can tell."""
        return len(self) - int(self.timed.sum())

    @property
    def split_assumed(self) -> int:
        """Calls whose first token was assumed."""
        return int((~np.isnan(self.pace_ratio)).sum())

    def unknown(self, measure: str) -> int:
        """Calls about which a measure knows nothing; what they did is missing from the measure."""
        dark = {
            "input_tokens": np.isnan(self.input),
            "uncached_input_tokens": np.isnan(self.uncached),
            "output_tokens": np.isnan(self.output),
            "total_tokens": np.isnan(self.input) & np.isnan(self.output),
            "requests": np.zeros(len(self), np.bool_),
            "concurrency": ~self.timed,
            "resident_kv_tokens": ~self.timed | np.isnan(self.input),
        }
        return int(dark[measure].sum())

    def tokens(self, measure: TokenMeasure) -> Curve:
        """Tokens worked on, spread over the time they were worked on."""
        match measure:
            case "input_tokens":
                return sweep.evenly(self.work_from, self.first_token, self.input)
            case "uncached_input_tokens":
                return sweep.evenly(self.work_from, self.first_token, self.uncached)
            case "output_tokens":
                return sweep.evenly(self.first_token, self.ended, self.output)
            case "total_tokens":
                return sweep.evenly(
                    np.concatenate((self.work_from, self.first_token)),
                    np.concatenate((self.first_token, self.ended)),
                    np.concatenate((self.input, self.output)),
                )

    def arrivals(self) -> Curve:
        """One point per call, where it arrived."""
        return sweep.evenly(self.started, self.started, np.ones(len(self)))

    def concurrency(self) -> Curve:
        """Calls between arrival and end, those that queue included; calls without a duration are left out."""
        return sweep.in_flight(self.started, self.ended)

    def resident_kv(self) -> Curve:
        """Tokens that calls hold in KV caches: all input from the start of work, output as it is generated.

        A prefix that several calls share counts once for each: what a prefix cache shares is unknown here.
        """
        return sweep.held(self.work_from, self.first_token, self.ended, self.input, self.output)


def scopes(work: pl.DataFrame) -> Iterator[tuple[tuple[str, ...], Calls]]:
    """Yield the calls of `all`, then of `model:NAME` for the largest models by name, then of all the others together.

    Names that hold the same calls come together: a log with one model yields once, `("all", "model:NAME")`.

    Args:
        work: a frame of `spread.WORK_SCHEMA`, sorted by model.

    """
    own = largest_models(work.lazy())
    is_own = pl.col("model").is_in(own)
    mine, others = work.filter(is_own), work.filter(~is_own)
    sizes = mine.group_by("model", maintain_order=True).len().rows()
    if len(sizes) == 1 and others.is_empty():
        yield ("all", f"model:{sizes[0][0]}"), Calls.of(work)
        return
    if sizes:
        yield ("all",), Calls.of(work)
    start = 0
    for model, size in sizes:
        yield (f"model:{model}",), Calls.of(mine.slice(start, size))
        start += size
    if not others.is_empty():
        yield (OTHER_MODELS,), Calls.of(others)
