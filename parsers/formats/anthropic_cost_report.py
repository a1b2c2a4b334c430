"""Anthropic's Admin API cost report: money by day and workspace or line, as pages, buckets or arrays.

Belongs here: `/v1/organizations/cost_report`. Does not belong here: tokens (`anthropic_usage_report.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.buckets import is_page, keyed, page_records, page_structure
from parsers.fields import Fields, Read
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PERIOD = ("starting_at", "ending_at")
_CENTS = 100
_RESULT = (
    *("amount", "currency", "workspace_id", "description", "cost_type", "token_type", "model"),
    *("service_tier", "context_window", "inference_geo", "speed"),
)


def _recognise(head: Head) -> bool:
    return is_page(head, r'"starting_at"\s*:', r'"amount"\s*:\s*"?-?[\d.]')


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    cents = fields.money("amount").needed("amount")
    rows = fields.rows(
        other=fields.raw("quiet"),
        started_at=fields.instant("starting_at").needed("starting_at"),
        ended_at=fields.instant("ending_at"),
        provider=pl.lit("anthropic"),
        project=text("workspace_id"),
        model=text("model"),
        service_tier=text("service_tier"),
        region=text("inference_geo"),
        line_item=text("description", "token_type", "cost_type"),
        cost_reported=Read(cents.value / _CENTS, cents.fault),
        cost_currency=text("currency").str.to_uppercase(),
        _token_type=text("token_type"),
        _context_window=text("context_window"),
        _speed=text("speed"),
    )
    return keyed(rows, "anthropic costs", "_token_type", "_context_window", "_speed")


FORMAT = Format(
    name="anthropic_cost_report",
    title="Anthropic cost report",
    written_by="Anthropic: answers of /v1/organizations/cost_report",
    target=USAGE_BUCKETS,
    container="json_document",
    recognised_by="JSON pages or buckets with starting_at, results and amount as a decimal",
    recognise=_recognise,
    map=_map,
    structure=page_structure(*_PERIOD),
    records=page_records(*_PERIOD, dict.fromkeys(_RESULT, "VARCHAR")),
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", money="USD"),
    traps=(
        "amount is a decimal string in cents: 123.78912 is 1.2378912 USD.",
        "Days only. Usage of Priority Tier is in no cost report.",
        "workspace_id is null for the default workspace; model and line are null unless grouped by description.",
    ),
)
