"""OpenRouter's activity API: usage by UTC day, model and endpoint, as pages, rows, or a client's CSV of them.

Belongs here: `GET /api/v1/activity`. Does not belong here: the activity page's CSV, which has a row per
generation (`openrouter_activity_csv.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers import buckets
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import USAGE_BUCKETS
from parsers.twins import csv_twin, pages_twin

if TYPE_CHECKING:
    from parsers.format import Context, Head

_NAMES = {
    "date": "date",
    "model": "model",
    "model_permaslug": "modelPermaslug",
    "endpoint_id": "endpointId",
    "provider_name": "providerName",
    "usage": "usage",
    "byok_usage_inference": "byokUsageInference",
    "requests": "requests",
    "prompt_tokens": "promptTokens",
    "completion_tokens": "completionTokens",
    "reasoning_tokens": "reasoningTokens",
}
"""Fields as the API names them, and as its SDKs do."""
_NEEDED = {"date", "model", "usage", "requests"}


def _recognise(head: Head) -> bool:
    return mostly(head.objects, lambda item: item.keys() >= _NEEDED and _of_openrouter(item.keys()))


def _of_openrouter(keys: object) -> bool:
    return any(name in keys for name in ("byok_usage_inference", "byokUsageInference"))  # type: ignore[operator]


def _recognise_pages(head: Head) -> bool:
    begins = head.text.lstrip().removeprefix("{").lstrip().startswith('"data"')
    keys = all(f'"{name}"' in head.text for name in _NEEDED)
    return (
        begins
        and keys
        and any(f'"{name}"' in head.text for name in ("byok_usage_inference", "byokUsageInference"))
    )


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)

    def named(name: str) -> tuple[str, str]:
        return name, _NAMES[name]

    cost, own_key_cost = fields.money("usage"), fields.money(*named("byok_usage_inference"))
    started, ended = buckets.day(fields, "date")
    rows = fields.rows(
        started_at=started,
        ended_at=ended,
        gateway=pl.lit("openrouter"),
        provider=fields.text(*named("provider_name")),
        model=fields.text(*named("model_permaslug"), "model"),
        requests=fields.whole("requests").needed("requests"),
        input_tokens=fields.whole(*named("prompt_tokens")),
        output_tokens=fields.whole(*named("completion_tokens")),
        reasoning_tokens=fields.whole(*named("reasoning_tokens")),
        # What is paid to the vendor with one's own key is in no credit that was spent.
        cost_reported=cost.value + own_key_cost.value.fill_null(0),
        cost_currency=pl.lit("USD"),
        _endpoint=fields.text(*named("endpoint_id")),
    )
    return buckets.keyed(rows, "openrouter activity", "_endpoint")


FORMAT = Format(
    name="openrouter_daily_activity",
    title="OpenRouter daily activity, JSON",
    written_by="OpenRouter: rows of GET /api/v1/activity, as the API or its SDKs name them",
    target=USAGE_BUCKETS,
    container="json_lines",
    recognised_by="JSON objects with date, model, usage, requests and byok_usage_inference",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys({name: None for pair in _NAMES.items() for name in pair}, "VARCHAR"),
    semantics=TokenSemantics(cache_read="absent", cache_write="absent", reasoning="inside", money="USD"),
    traps=(
        "The last 30 completed UTC days: today is not in it.",
        "cost = usage (credits) + byok_usage_inference (paid to the vendor with one's own key), in USD.",
        "Cache reads are not stated; reasoning is part of the completion.",
    ),
)

CSV_FORMAT = csv_twin(
    FORMAT, needed=_NEEDED | {"byok_usage_inference"}, written_by="clients of GET /api/v1/activity, as CSV"
)

PAGES_FORMAT = pages_twin(
    FORMAT,
    name="openrouter_daily_activity_pages",
    title="OpenRouter daily activity, pages",
    written_by="OpenRouter: answers of GET /api/v1/activity",
    recognised_by="JSON objects with data that holds rows of activity",
    recognise=_recognise_pages,
    at=("data",),
)
