"""LiteLLM's first logging payload (v1), as old custom callbacks write it: a JSON object per call, all values texts.

The values are Python's own notation (`Usage(prompt_tokens=10, ...)`, `{'prompt_tokens': 10}`, `None`): counts are
read from the usage only, which holds no words of users. What LiteLLM's shapes share is in `parsers/litellm.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from parsers import litellm, usage
from parsers.fields import Fields
from parsers.format import Format, TokenSemantics
from parsers.json_heads import mostly
from parsers.records import REQUESTS

if TYPE_CHECKING:
    from parsers.format import Context, Head

_COLUMNS = (
    *(
        "id",
        "call_type",
        "cache_hit",
        "startTime",
        "endTime",
        "model",
        "user",
        "modelParameters",
        "usage",
        "cost",
    ),
)
_COUNTS = (
    *("prompt_tokens", "completion_tokens", "total_tokens", "cached_tokens", "cache_read_input_tokens"),
    *("cache_creation_input_tokens", "reasoning_tokens"),
)


def _is_payload(item: dict[str, Any]) -> bool:
    needed = item.keys() >= {"call_type", "startTime", "modelParameters", "usage"}
    return needed and isinstance(item["usage"], str) and isinstance(item["modelParameters"], str)


def _recognise(head: Head) -> bool:
    return mostly(head.objects, _is_payload)


def _map(frame: pl.DataFrame, _: Context) -> pl.DataFrame:
    stated = frame.with_columns(
        pl.when(pl.col(name) != "None").then(pl.col(name)).alias(name) for name in _COLUMNS
    )
    fields = Fields(
        stated.with_columns(_in_notation(pl.col("usage"), name).alias(f"usage.{name}") for name in _COUNTS)
    )
    text = fields.text
    cost, times = fields.money("cost"), litellm.times(fields)
    known = litellm.Known(
        status=pl.lit("ok"),
        call_type=text("call_type"),
        request_id=text("id"),
        call_id=pl.lit(None, pl.String),
        counts=usage.counts(fields, ("usage",)),
        times=times,
        is_stream=pl.lit(value=False),
        address=pl.lit(None, pl.String),
    )
    common = litellm.common(known)
    del common["started_at"]
    return fields.rows(
        **common,
        started_at=times.started,
        user=text("user"),
        model_served=text("model"),
        stream=_in_notation(text("modelParameters"), "stream", "True|False") == "True",
        max_output_tokens=_in_notation(text("modelParameters"), "max_tokens").cast(pl.Int64, strict=False),
        response_cache_hit=litellm.response_cache_hit(text("cache_hit")),
        cost_reported=cost,
    )


def _in_notation(text: pl.Expr, name: str, value: str = r"\d+") -> pl.Expr:
    """A value of a dict or an object as Python shows it: 'name': value, name=value."""
    return text.str.extract(rf"(?:^|[{{(,\s'\"]){name}['\"]?\s*[:=]\s*({value})")


FORMAT = Format(
    name="litellm_legacy",
    title="LiteLLM payload, first version",
    written_by="LiteLLM: custom callbacks and loggers of 2023 and 2024",
    target=REQUESTS,
    container="json_lines",
    recognised_by="JSON objects with call_type, startTime, and usage and modelParameters as texts",
    recognise=_recognise,
    map=_map,
    structure=dict.fromkeys(_COLUMNS, "VARCHAR"),
    semantics=TokenSemantics(
        cache_read="inside", cache_write="inside", reasoning="inside", clock="utc", money="USD"
    ),
    traps=(
        "Values are Python's notation of objects, not JSON; None is a text.",
        "Only answers were logged: failures have no record, so no status is stated.",
        "Cache tokens may be outside of prompt_tokens: the row's own counts show it.",
        "Teams and keys are in metadata, among what users wrote: they are not read.",
    ),
    priority=2,
)
