"""Anthropic's Admin API usage report: tokens of messages by bucket of time, as pages, buckets or arrays.

Belongs here: `/v1/organizations/usage_report/messages`. Does not belong here: money
(`anthropic_cost_report.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from parsers.buckets import is_page, keyed, page_records, page_structure
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.records import USAGE_BUCKETS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_PERIOD = ("starting_at", "ending_at")
_RESULT = (
    *("uncached_input_tokens", "cache_read_input_tokens", "output_tokens", "api_key_id", "workspace_id"),
    *(
        "account_id",
        "service_account_id",
        "model",
        "service_tier",
        "context_window",
        "inference_geo",
        "speed",
    ),
)
_CACHE_CREATION = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


def _recognise(head: Head) -> bool:
    return is_page(head, r'"starting_at"\s*:', r'"uncached_input_tokens"\s*:')


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text, whole = fields.text, fields.whole
    rows = fields.rows(
        other=fields.raw("quiet"),
        started_at=fields.instant("starting_at").needed("starting_at"),
        ended_at=fields.instant("ending_at"),
        provider=pl.lit("anthropic"),
        project=text("workspace_id"),
        user=text("account_id", "service_account_id"),
        api_key_alias=text("api_key_id"),
        model=text("model"),
        service_tier=text("service_tier"),
        region=text("inference_geo"),
        input_tokens=whole("uncached_input_tokens").needed("uncached_input_tokens"),
        cache_read_tokens=whole("cache_read_input_tokens"),
        cache_write_5m_tokens=whole("ephemeral_5m_input_tokens"),
        cache_write_1h_tokens=whole("ephemeral_1h_input_tokens"),
        output_tokens=whole("output_tokens").needed("output_tokens"),
        _context_window=text("context_window"),
        _speed=text("speed"),
    )
    return keyed(rows, "anthropic usage", "_context_window", "_speed")


FORMAT = Format(
    name="anthropic_usage_report",
    title="Anthropic usage report",
    written_by="Anthropic: answers of /v1/organizations/usage_report/messages",
    target=USAGE_BUCKETS,
    container="json_document",
    recognised_by="JSON pages or buckets with starting_at, results and uncached_input_tokens",
    recognise=_recognise,
    map=_map,
    structure=page_structure(*_PERIOD),
    records=page_records(
        *_PERIOD,
        {**dict.fromkeys(_RESULT, "VARCHAR"), "cache_creation": dict.fromkeys(_CACHE_CREATION, "VARCHAR")},
    ),
    semantics=TokenSemantics(cache_read="outside", cache_write="outside", reasoning="absent"),
    traps=(
        "Input = uncached_input_tokens + cache_read_input_tokens + both members of cache_creation.",
        "The number of calls is not stated.",
        "workspace_id is null for the default workspace too, api_key_id for the Console.",
        "Dimensions are null unless grouped by; reports grouped in two ways are views of the same usage.",
    ),
)
