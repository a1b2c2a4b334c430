"""The marts and findings on prompts sent again, made in one go while the blocks of all calls are in memory.

Belongs here: their order. Does not belong here: what each one says (`causes.py`, `unstable_prompts.py`, `gaps.py`,
`session_growth.py`, `reuse_findings.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from pipelines.waste.causes import MISSED, causes_of, missed_causes
from pipelines.waste.conversations import found
from pipelines.waste.evidence import exact_calls
from pipelines.waste.gaps import gaps_of, reuse_gaps
from pipelines.waste.reuse_findings import reuse_findings, with_main_cause
from pipelines.waste.session_growth import session_history
from pipelines.waste.unstable_prompts import unstable_prompts

if TYPE_CHECKING:
    from pipelines.waste.blocks import Blocks
    from pipelines.waste.findings import Found


@dataclass(frozen=True, slots=True)
class Reused:
    """What is told of prompts sent again."""

    marts: tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
    """`missed_causes`, `reuse_gaps`, `session_history`."""
    leaves: pl.DataFrame
    """The leaves given, with the main cause of what each missed."""
    found: Found


def reused_prefixes(calls: pl.DataFrame, blocks: Blocks, leaves: pl.DataFrame) -> Reused:
    """Name causes, measure gaps and sessions, and find what to change.

    Args:
        calls: calls of `repetition.repeated_prefixes`.
        blocks: `blocks.exact_blocks` of the same requests.
        leaves: `repetition_findings.repetition_by_leaf` of the calls.

    """
    exact = exact_calls(calls)
    conversations = found(exact, blocks)
    causes = pl.concat([causes_of(exact, blocks), unstable_prompts(exact, blocks, conversations)])
    gaps = gaps_of(exact, blocks)
    return Reused(
        (missed_causes(causes), reuse_gaps(gaps), session_history(calls, conversations)),
        with_main_cause(leaves, causes, MISSED),
        reuse_findings(causes, gaps, leaves),
    )
