"""Mart `reuse_gaps`: how long after its last use a prefix comes again, and whether a longer lifetime pays.

Belongs here: the histogram of gaps and the net of a longer lifetime. Does not belong here: why a read was missed
(`causes.py`), the providers' lifetimes and their prices (`caching_rules.py`).

Calls with exact evidence that generate. The gap of a block is the time since a call in the same cache last sent it,
from start to start; a call counts once in every class in which it has tokens. Tokens missed: those beyond the reads
reported, of calls that report them.

Longer lifetime, where the provider offers one, for calls that read or write the cache already (on automatic providers
all): what would have been read on top (last use within the longer lifetime, cut by minimum and step),
    x (price of what it was: a write where it was written again, else input; - price of a cache read)
    - (other tokens written x (write price for the longer lifetime - write price)).
Pings, the other way to keep a prefix: the same gain, less one read of what is cached for every lifetime that passes
until its next use, at most until the longer lifetime is over; what nobody uses again is kept in vain. The few tokens that
a ping itself has are left out. Both are signed: below 0 it does not pay. Null where there is nothing to choose, the price
or the writes are unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from parsers.records import MONEY
from pipelines.waste.blocks import MICROSECONDS, microseconds, uses_of_prefixes
from pipelines.waste.evidence import exact_calls
from pipelines.waste.repetition import write_price
from pipelines.waste.scopes import by_scope, known_sum
from warehouse.reuse_tables import REUSE_GAPS

if TYPE_CHECKING:
    from pipelines.waste.blocks import Blocks

EDGES_S = (60, 300, 600, 1800, 3600, 7200, 21600, 86400)
GAP_CLASSES = ("1 min", "5 min", "10 min", "30 min", "1 h", "2 h", "6 h", "24 h", "longer")
"""Gaps up to this; the last one beyond all."""
ALL_GAPS = "all"

_CELL = ("model", "team", "provider", "day", "rule_day", "asks", "generating")
_PER_CELL = (
    *("activation", "longer_lifetime_s", "longer_write_multiple", "write_multiple", "writes_for_longer"),
    *("usd_per_input_token", "usd_per_cache_read_token"),
    *("usd_per_cache_write_5m_token", "usd_per_cache_write_1h_token"),
)
_GAIN = ("longer_lifetime_tokens", "longer_lifetime_usd", "keep_warm_usd")


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the mart and the findings on longer lifetimes are made from."""

    histogram: pl.DataFrame
    """By price cell (model, team, day) and gap class: `reuses, tokens, missed_tokens`."""
    net: pl.DataFrame
    """By price cell: the same over all classes, `longer_lifetime_tokens, longer_lifetime_usd, keep_warm_usd` and
    `surcharge_usd`, what writes that stay would cost on top."""
    calls: pl.DataFrame
    """Calls that the longer lifetime would have let read more: `longer_lifetime_tokens` (`extended`), `rewritten`."""


def gaps_of(calls: pl.DataFrame, blocks: Blocks) -> Gaps:
    """Measure gaps and longer lifetimes.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        blocks: `blocks.exact_blocks` of the same requests.

    """
    exact = exact_calls(calls)
    covered = pl.col("cache_read_tokens").fill_null(0) + pl.col("cache_write_tokens").fill_null(0)
    exact = exact.with_columns(
        covered=covered, asks=(covered > 0).any().over("provider", "model", "team"), longer=_longer()
    )
    cells = exact.select(*_CELL, *_PER_CELL).unique(_CELL, keep="first", maintain_order=True)
    cells = cells.with_row_index("cell")
    key = exact.select(_CELL).join(cells, on=_CELL, how="left", nulls_equal=True, maintain_order="left")
    exact = exact.with_columns(cell=key["cell"])
    histogram, extended, rewritten = _histogram(exact, blocks, cells.height)
    exact = exact.with_columns(extended=extended, rewritten=rewritten)
    counted = cells.filter("generating")
    net = _net(counted.join(_totals(exact, blocks, histogram, cells.height), on="cell"))
    gained = exact.filter(pl.col("generating") & (pl.col("extended") > 0))
    return Gaps(counted.join(histogram, on="cell"), net, gained)


def reuse_gaps(gaps: Gaps) -> pl.DataFrame:
    """Sum gaps and the net of longer lifetimes by scope: the mart `reuse_gaps`."""
    parts = [
        by_scope(gaps.histogram, _sums(), ["gap_class"]),
        by_scope(gaps.net.with_columns(gap_class=pl.lit(ALL_GAPS)), [*_sums(), *_gain_sums()], ["gap_class"]),
    ]
    rows = pl.concat(parts, how="diagonal").filter(pl.col("reuses") > 0)
    order = pl.col("gap_class").replace_strict([*GAP_CLASSES, ALL_GAPS], list(range(len(GAP_CLASSES) + 1)))
    return REUSE_GAPS.conform(rows.with_columns(gap_order=order).sort("scope", "gap_order"))


def _longer() -> pl.Expr:
    return pl.when(pl.col("lifetime_s").is_not_null()).then("longer_lifetime_s")


def _histogram(exact: pl.DataFrame, blocks: Blocks, cells: int) -> tuple[pl.DataFrame, pl.Series, pl.Series]:
    """Rows by cell and gap class; per call what a longer lifetime makes readable, and the part written again."""
    from pipelines.waste.cause_kernels import gaps_between_uses

    reuses, tokens, unread, extended, rewritten = gaps_between_uses(
        *uses_of_prefixes(exact, blocks),
        microseconds(exact["longer"]),
        exact["cell"].to_numpy(writable=True),
        cells,
        np.asarray(EDGES_S, np.int64) * MICROSECONDS,
    )
    histogram = pl.DataFrame(
        {
            "cell": np.repeat(np.arange(cells, dtype=np.uint32), len(GAP_CLASSES)),
            "gap_class": pl.Series(list(GAP_CLASSES) * cells, dtype=pl.String),
            "reuses": reuses.ravel(),
            "tokens": tokens.ravel(),
            "missed_tokens": unread.ravel(),
        }
    )
    return histogram.filter(pl.col("reuses") > 0), pl.Series(extended), pl.Series(rewritten)


def _totals(exact: pl.DataFrame, blocks: Blocks, histogram: pl.DataFrame, cells: int) -> pl.DataFrame:
    """By cell: sums over all gaps, of what the longer lifetime changes, of writes and of pings."""
    from pipelines.waste.cause_kernels import pinged_tokens

    pinged = pinged_tokens(
        blocks.numbers,
        blocks.distinct,
        blocks.offsets,
        blocks.counts,
        exact["started_us"].to_numpy(writable=True),
        exact["covered"].to_numpy(writable=True),
        microseconds(exact["lifetime_s"]),
        microseconds(exact["longer"]),
        exact["cell"].to_numpy(writable=True),
        cells,
    )
    sums = [pl.col(name).sum() for name in ("reuses", "tokens", "missed_tokens")]
    totals = histogram.group_by("cell").agg(sums)
    written = known_sum(pl.col("cache_write_tokens")).alias("written")
    of_calls = exact.group_by("cell").agg(pl.col("extended", "rewritten").sum(), written)
    pings = pl.DataFrame({"cell": np.arange(cells, dtype=np.uint32), "pinged": pinged})
    joined = of_calls.join(pings, on="cell").join(totals, on="cell", how="left")
    return joined.with_columns(pl.col("reuses", "tokens", "missed_tokens").fill_null(0))


def _net(cells: pl.DataFrame) -> pl.DataFrame:
    price, read = pl.col("usd_per_input_token"), pl.col("usd_per_cache_read_token")
    write = write_price()
    hour = pl.coalesce("usd_per_cache_write_1h_token", price * pl.col("longer_write_multiple").cast(MONEY))
    longer_write = pl.when(pl.col("longer_write_multiple").is_not_null()).then(hour).otherwise(write)
    gain = pl.col("rewritten") * (write - read) + (pl.col("extended") - pl.col("rewritten")) * (price - read)
    others = (pl.col("written") - pl.col("rewritten")).clip(lower_bound=0)
    surcharge = (
        pl.when(pl.col("longer_write_multiple").is_not_null())
        .then(others * (longer_write - write))
        .otherwise(0)
    )
    offered = pl.col("longer_lifetime_s").is_not_null() & (
        pl.col("asks") | (pl.col("activation") == "automatic")
    )
    return cells.with_columns(
        longer_lifetime_tokens=pl.when(offered).then("extended"),
        surcharge_usd=surcharge.cast(MONEY),
        longer_lifetime_usd=pl.when(offered).then(gain - surcharge).cast(MONEY),
        keep_warm_usd=pl.when(offered & pl.col("longer_write_multiple").is_not_null())
        .then(gain - pl.col("pinged") * read)
        .cast(MONEY),
    )


def _sums() -> list[pl.Expr]:
    return [pl.col(name).sum() for name in ("reuses", "tokens", "missed_tokens")]


def _gain_sums() -> list[pl.Expr]:
    """Null where a part of the scope that has the choice has no price."""
    offered = pl.col("longer_lifetime_tokens").is_not_null()
    unknown = (offered & pl.col("longer_lifetime_usd").is_null()).any()
    return [
        known_sum(pl.col("longer_lifetime_tokens")).alias("longer_lifetime_tokens"),
        *(pl.when(~unknown).then(known_sum(pl.col(name))).alias(name) for name in _GAIN[1:]),
    ]
