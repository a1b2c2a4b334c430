"""OpenAI's organisation costs: money by day, project and line item, as pages of the API or the dashboard's CSV.

Belongs here: `/v1/organization/costs`. Does not belong here: tokens (`openai_usage_buckets.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.buckets import is_page, keyed, page_records, page_structure
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS
from parsers.twins import csv_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PERIOD = ("start_time", "end_time")
_PRICED = r"(?i)^(.+?), [a-z ]*(?:input|output)\b"
_BARE_MODEL = r"^([A-Za-z][\w.:/-]*\d[\w.:/-]*)$"


def _recognise(head: Head) -> bool:
    return is_page(head, r'"start_time"\s*:', r'"amount"\s*:\s*\{')


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    item, amount = fields.text("line_item"), fields.money("value", "amount_value")
    quiet = pl.col("quiet") if fields.has("quiet") else fields.raw("amount_value").is_null()
    rows = fields.rows(
        other=quiet,
        started_at=fields.instant("start_time").needed("start_time"),
        ended_at=fields.instant("end_time"),
        provider=pl.lit("openai"),
        organization=fields.text("organization_id"),
        project=fields.text("project_id"),
        user=fields.text("user_id"),
        api_key_alias=fields.text("api_key_id"),
        model=pl.coalesce(item.str.extract(_PRICED), item.str.extract(_BARE_MODEL)),
        line_item=item,
        cost_reported=amount.needed("amount.value"),
        cost_currency=fields.text("currency", "amount_currency").str.to_uppercase(),
    )
    return keyed(rows, "openai costs")


FORMAT = Format(
    name="openai_costs",
    title="OpenAI organisation costs",
    written_by="OpenAI: answers of /v1/organization/costs",
    target=USAGE_BUCKETS,
    container="json_document",
    recognised_by="JSON pages or buckets with start_time, results and amount as an object",
    recognise=_recognise,
    map=_map,
    structure=page_structure(*_PERIOD),
    records=page_records(
        *_PERIOD,
        {
            **dict.fromkeys(
                ("line_item", "project_id", "organization_id", "user_id", "api_key_id"), "VARCHAR"
            ),
            "amount": {"value": "VARCHAR", "currency": "VARCHAR"},
        },
    ),
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="absent", money="USD"),
    traps=(
        "amount.value is a number or a decimal string, in whole currency units; credits are negative.",
        "Days only: costs of an hour are not stated.",
        "The model is what stands in line_item before `, input` or `, output`; other line items name none.",
        "The dashboard's CSV has a line without an amount for a day without costs.",
        "line_item and project_id are null unless grouped by.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT,
    needed={"start_time", "end_time", "amount_value", "amount_currency"},
    written_by="OpenAI: the cost page's export (cost_*.csv)",
    title="OpenAI organisation costs, CSV",
)
