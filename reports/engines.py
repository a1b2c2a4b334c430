"""The engines' own counts: `engines` and `engines_against_gateway` of audit.json, and their sentences.

Belongs here: totals of series as plain values, beside what gateways logged for the same model and hours.
Does not belong here: the totals (`pipelines/efficiency/engines.py`). Engines and gateways count the same
work: the two are compared and never added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from parsers.records import SERVED_STATUSES
from reports.json_values import instant_text, known_sum, ratio, real
from reports.numbers import exact, printable
from reports.strings import ENGINE, UNKNOWN

ENGINES_SCHEMA = pl.Schema(
    {
        "source_format": pl.String(),
        "instance": pl.String(),
        "model": pl.String(),
        "samples": pl.Int64(),
        "first_at": pl.Datetime("us", "UTC"),
        "last_at": pl.Datetime("us", "UTC"),
        "generated_tokens": pl.Float64(),
        "prompt_tokens": pl.Float64(),
        "running_max": pl.Float64(),
        "waiting_max": pl.Float64(),
        "kv_usage_max_ratio": pl.Float64(),
        "prefix_cache_hit_ratio": pl.Float64(),
        "basis": pl.String(),
        "counted": pl.Boolean(),
    }
)
"""One row per series; `counted` is false where another series speaks for the same engine."""


def engines_part(engines: pl.DataFrame) -> list[dict[str, Any]]:
    """One entry per series; token counts are whole, null is unknown."""
    return [
        {
            **{
                name: row[name]
                for name in ("instance", "model", "source_format", "basis", "counted", "samples")
            },
            "first_at": instant_text(row["first_at"]),
            "last_at": instant_text(row["last_at"]),
            "generated_tokens": _whole(row["generated_tokens"]),
            "prompt_tokens": _whole(row["prompt_tokens"]),
            "running_max": real(row["running_max"]),
            "waiting_max": real(row["waiting_max"]),
            "kv_usage_max_ratio": ratio(row["kv_usage_max_ratio"]),
            "prefix_cache_hit_ratio": ratio(row["prefix_cache_hit_ratio"]),
        }
        for row in engines.to_dicts()
    ]


def against_gateway(engines: pl.DataFrame, usage_hourly: pl.DataFrame) -> list[dict[str, Any]]:
    """By model: tokens that its engines generated, and output that gateways logged in the hours of the samples.

    Only models that both name, with both known. Calls stand in the hour they began in, so the edges differ by
    the length of a call; `hours` says how many hours were compared.
    """
    out = []
    counted = engines.filter(pl.col("counted") & pl.col("generated_tokens").is_not_null())
    models = sorted(counted["model"].drop_nulls().unique())
    for model in models:
        mine = counted.filter(pl.col("model") == model)
        hour = pl.col("hour_at")
        first, last = mine.select(pl.col("first_at").dt.truncate("1h").min(), pl.col("last_at").max()).row(0)
        logged = usage_hourly.filter(
            pl.col("model").str.to_lowercase() == model.lower(),
            pl.col("status").is_in(SERVED_STATUSES),
            ~pl.col("response_cache_hit").fill_null(value=False),
            hour.is_between(first, last),
        )
        output = logged.select(known_sum("output_tokens")).item()
        if output is not None:
            generated = round(mine["generated_tokens"].sum())
            out.append(
                {
                    "model": model,
                    "hours": logged["hour_at"].n_unique(),
                    "engine_generated_tokens": generated,
                    "gateway_output_tokens": output,
                    "difference_tokens": generated - output,
                }
            )
    return out


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def engine_sentences(document: Mapping[str, Any]) -> list[str]:
    """One sentence per series, then one per model that gateways logged as well."""
    lines = []
    for row in document["engines"]:
        known = row["generated_tokens"] is not None
        text = ENGINE["tokens" if known else "unknown"].format(
            name=_name(row),
            generated=exact(row["generated_tokens"]),
            prompt=UNKNOWN if row["prompt_tokens"] is None else exact(row["prompt_tokens"]),
            source=printable(row["source_format"]),
            basis=ENGINE.get(row["basis"] or "", ""),
        )
        lines.append(text if row["counted"] else f"{text} {ENGINE['not_counted']}")
    lines += [
        ENGINE["against"].format(
            model=printable(row["model"], 60),
            engine=exact(row["engine_generated_tokens"]),
            gateway=exact(row["gateway_output_tokens"]),
            difference=exact(abs(row["difference_tokens"])),
            more=ENGINE["more" if row["difference_tokens"] >= 0 else "fewer"],
        )
        for row in document["engines_against_gateway"]
    ]
    return lines


def _name(row: Mapping[str, Any]) -> str:
    parts = [printable(row[key], 60) for key in ("instance", "model") if row[key]]
    return ", ".join(parts) or UNKNOWN
