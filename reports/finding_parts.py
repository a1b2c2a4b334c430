"""Findings in audit.json: ranked rows, and what they save together.

Belongs here: the keys `findings` and `waste.savings`, and sums over them. Does not belong here: what is found and what it
saves (`pipelines/waste/`), which waste leads the decision (`materiality.py`), the page (`findings_table.py`,
`waste_charts.py`).

Net figures add up, gross ones do not: whatever is summed here is net.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import polars as pl

from reports.document_figures import Document
from reports.json_values import json_row, known_sum


def findings_part(findings: pl.DataFrame) -> list[dict[str, Any]]:
    """Findings by net money; unknown money last, by tokens."""
    by = [pl.col("usd_net"), pl.coalesce("tokens_net", "tokens"), pl.col("id")]
    ordered = findings.sort(by, descending=[True, True, False], nulls_last=True)
    return [json_row(row) for row in ordered.to_dicts()]


def savings_part(findings: pl.DataFrame) -> dict[str, Any]:
    """What all findings save together, net of each other, in all and by kind; null where nothing is known."""
    measures = [
        pl.len().alias("findings"),
        *(known_sum(name).alias(name) for name in ("tokens_net", "usd_net", "gpu_seconds", "replicas")),
        pl.col("usd_net").null_count().alias("findings_usd_unknown"),
    ]
    by_kind = findings.group_by("kind").agg(*measures).sort("kind")
    return {
        **json_row(findings.select(measures).to_dicts()[0]),
        "by_kind": {row.pop("kind"): json_row(row) for row in by_kind.to_dicts()},
    }


def net_usd(document: Document, *kinds: str) -> Decimal | None:
    """Money of the window that findings save, all or those of some kinds; None where none of them has a price."""
    known = [
        Decimal(found["usd_net"])
        for found in document["findings"]
        if found["usd_net"] is not None and (not kinds or found["kind"] in kinds)
    ]
    return sum(known, Decimal(0)) if known else None
