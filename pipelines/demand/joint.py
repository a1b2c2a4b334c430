"""How long input, uncached input and output of a call are together: the basis for pools by request length.

Belongs here: quantiles, rank correlations and counts by classes of length, of one scope. Does not belong
here: each length by itself for the chart (`shapes`), how many pools to build (`pipelines/sizing`).

A class of length is named by its upper bound: 0, then up to 1, 3, 7, 15 ... (the bits that the count needs).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.demand.scopes import Calls
from pipelines.demand.sweep import Instants, Reals

_QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
_PAIRS = (("input", "output"), ("uncached_input", "output"), ("input", "uncached_input"))
LEAST_CALLS = 20
"""Of fewer calls a correlation says nothing."""
LONGEST_RANKED = 2**22
"""Longer calls than any context share one rank: ranks are counted by length."""
_CLASSES = 64


def joint_lengths(calls: Calls) -> dict[str, Any]:
    """The lengths of the calls of a scope.

    Returns:
        `calls`; `quantiles`: by measure `known` (calls that tell it) and p50, p90, p95, p99, max, each the
        smallest length that so many calls do not exceed, null where none is known; `rank_correlation`
        (Spearman's) of each pair over the calls that tell both, null for fewer than 20 calls or where one does
        not vary; `classes`: `input_most`, `output_most` (upper bounds of the classes), `calls` and the tokens of
        the calls that tell input and output (`uncached_input_tokens` null where no call of the class tells it).

    """
    lengths = {"input": calls.input, "uncached_input": calls.uncached, "output": calls.output}
    return {
        "calls": len(calls),
        "quantiles": {name: _quantiles(values[~np.isnan(values)]) for name, values in lengths.items()},
        "rank_correlation": {
            f"{one}_{other}": rank_correlation(lengths[one], lengths[other]) for one, other in _PAIRS
        },
        "classes": _classes(calls),
    }


def _quantiles(known: Reals) -> dict[str, int | None]:
    if not len(known):
        return {"known": 0, **{name: None for name, _ in _QUANTILES}}
    found = np.quantile(known, [at for _, at in _QUANTILES], method="inverted_cdf")
    values = {name: int(value) for (name, _), value in zip(_QUANTILES, found, strict=True)}
    return {"known": len(known), **values}


def rank_correlation(one: Reals, other: Reals) -> float | None:
    """Spearman's: Pearson's correlation of the ranks; calls of one length share their mean rank."""
    both = ~(np.isnan(one) | np.isnan(other))
    if both.sum() < LEAST_CALLS:
        return None
    ranks = _ranks(one[both]), _ranks(other[both])
    if any(np.ptp(rank) == 0 for rank in ranks):
        return None
    return float(np.corrcoef(*ranks)[0, 1])


def _ranks(lengths: Reals) -> Reals:
    at = np.minimum(lengths, LONGEST_RANKED).astype(np.int64)
    counts = np.bincount(at)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[at])


def _classes(calls: Calls) -> list[dict[str, Any]]:
    known = ~(np.isnan(calls.input) | np.isnan(calls.output))
    given, uncached, output = calls.input[known], calls.uncached[known], calls.output[known]
    cell = _bits(given) * _CLASSES + _bits(output)
    size = _CLASSES * _CLASSES
    told = np.bincount(cell, ~np.isnan(uncached), size)
    sums = [np.bincount(cell, np.nan_to_num(values), size) for values in (given, uncached, output)]
    counts = np.bincount(cell, minlength=size)
    return [
        {
            "input_most": 2 ** int(place // _CLASSES) - 1,
            "output_most": 2 ** int(place % _CLASSES) - 1,
            "calls": int(counts[place]),
            "input_tokens": int(sums[0][place]),
            "uncached_input_tokens": int(sums[1][place]) if told[place] else None,
            "output_tokens": int(sums[2][place]),
        }
        for place in np.flatnonzero(counts)
    ]


def _bits(lengths: Reals) -> Instants:
    """Bits that each whole length needs; 0 needs none."""
    return np.minimum(np.frexp(lengths)[1], _CLASSES - 1).astype(np.int64)
