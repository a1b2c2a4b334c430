"""Aider's `--analytics-log`: JSON lines of events; `message_send` has the usage and cost of one exchange.

Chat histories are texts without counts and are not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_CALL = "message_send"
_PROPERTIES = ("main_model", "prompt_tokens", "completion_tokens", "total_tokens", "cost")


def _is_event(item: dict[str, Any]) -> bool:
    return {"event", "properties", "user_id", "time"} <= item.keys() and isinstance(item["properties"], dict)


def _recognise(head: Head) -> bool:
    events = [item["properties"] for item in head.objects if _is_event(item)]
    is_aider = any("main_model" in properties or "aider_version" in properties for properties in events)
    return mostly(head.objects, _is_event) and is_aider


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    fields = Fields(frame)
    text = fields.text
    read = {name: fields.whole(f"properties.{name}") for name in _PROPERTIES[1:4]}
    cost = fields.money("properties.cost")
    told = [text("user_id", "event"), text("time"), *(text(f"properties.{name}") for name in _PROPERTIES)]
    return fields.rows(
        other=(text("event") != _CALL).fill_null(value=True),
        record_key=pl.concat_str(told, separator="|", ignore_nulls=True),
        started_at=fields.instant("time").needed("time"),
        gateway=pl.lit("aider"),
        model_requested=text("properties.main_model"),
        operation=pl.lit("chat"),
        input_tokens=read["prompt_tokens"],
        output_tokens=read["completion_tokens"],
        _total_tokens=read["total_tokens"],
        cost_reported=cost,
        cost_currency=pl.when(cost.value.is_not_null()).then(pl.lit("USD")),
        status=pl.lit("ok"),
    )


FORMAT = Format(
    name="aider_analytics",
    title="Aider analytics log",
    written_by="aider --analytics-log FILE",
    target=REQUESTS,
    hop="client",
    container="json_lines",
    recognised_by="JSON objects with event, properties, user_id and time, some with main_model or aider_version",
    recognise=_recognise,
    map=_map,
    structure={
        **dict.fromkeys(("event", "user_id", "time"), "VARCHAR"),
        "properties": dict.fromkeys(_PROPERTIES, "VARCHAR"),
    },
    semantics=TokenSemantics(
        cache_read="absent",
        cache_write="absent",
        reasoning="inside",
        zero_means="unknown",
        retries="hidden",
        money="USD",
    ),
    traps=(
        "An exchange may be several calls (reflections, the weak model); its time is its end, in whole seconds.",
        "Names of models that aider does not know are redacted before they are logged.",
        "cost is aider's own estimate; total_cost is the session's so far and is not added. No id is stated: events",
        "that are alike in everything are one.",
    ),
)
